# %% [markdown]
# # Two modes of unlike width and weight
# A chain started in one of them would not find the other. The density is normalised,
# so the exact log Z is 0, and 30 % of the mass is in the narrow mode.

# %%
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt

import annealax as ax

WIDE, NARROW = jnp.array([2.0, 1.0]), jnp.array([-3.0, -2.0])


def log_density(x):
    """0.7 of a normal with scale 1, 0.3 of one with scale 0.3."""
    wide = jnp.log(0.7) - 0.5 * jnp.sum((x - WIDE) ** 2)
    narrow = -0.5 * jnp.sum(((x - NARROW) / 0.3) ** 2)
    narrow += jnp.log(0.3) - 2 * jnp.log(0.3)
    return jnp.logaddexp(wide, narrow) - jnp.log(2 * jnp.pi)


# %%
result = ax.sample(log_density, (2,), seed=0)
print(result.summary())
share = float(result.expectation(lambda x: 1.0 * (x[0] < -1)))
print(f"share of the narrow mode: {share:.3f} (exact: 0.300)")

# %%
draws = result.draws(jr.key(1), 2000)
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
left.scatter(*draws.T, s=3, alpha=0.4, color="teal")
left.set(title="draws", xlabel="x[0]", ylabel="x[1]", aspect="equal")
values = result.replicate_log_normalizers
right.errorbar(
    range(len(values)), values, result.replicate_stderrs, fmt="o", color="teal"
)
right.axhline(0, color="black", lw=1, label="exact")
right.axhspan(
    *result.log_normalizer_interval(), color="orange", alpha=0.4, label="95 %"
)
right.set(title="log Z of independent runs", xlabel="run")
right.legend()
figure.savefig("bimodal.png", dpi=110)

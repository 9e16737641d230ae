# %% [markdown]
# # A funnel
# The first coordinate sets the scale of all others, over five orders of magnitude.
# Samplers with one step size cannot enter its neck. `ax.sample` finds out which
# coordinate leads.

# %%
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

import annealax as ax

target = ax.targets.Funnel(10)

# %%
result = ax.sample(target, seed=0)
print(result.summary())
neck = float(result.expectation(lambda x: 1.0 * (x[0] < -6)))
print(f"mass in the neck, below -6: {neck:.4f} (exact: {norm.cdf(-6, scale=3):.4f})")

# %%
draws = np.asarray(result.draws(jr.key(1), 4000))
chains = ax.mcmc(jr.key(2), target, method="hmc", num_samples=250, keep_draws=True)
walked = np.asarray(chains.draws).reshape(-1, 10)
figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
for axis, x, name in zip(axes, (draws, walked), ("annealax", "HMC"), strict=False):
    axis.scatter(x[:, 1], x[:, 0], s=2, alpha=0.3, color="teal")
    axis.set(title=name, xlim=(-20, 20), ylim=(-11, 11), xlabel="x[1]", ylabel="x[0]")
grid = jnp.linspace(-11, 11, 200)
for x, name, colour in ((draws, "annealax", "teal"), (walked, "HMC", "darkorange")):
    options = {"density": True, "histtype": "step", "color": colour, "label": name}
    axes[2].hist(x[:, 0], bins=50, range=(-11, 11), **options)
axes[2].plot(grid, norm.pdf(grid, scale=3), color="black", lw=1, label="exact")
axes[2].set(title="leading coordinate", xlabel="x[0]")
axes[2].legend()
figure.savefig("funnel.png", dpi=110)

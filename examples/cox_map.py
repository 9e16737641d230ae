# %% [markdown]
# # The intensity of a point process, with its uncertainty
# 126 pine saplings, and a log Gaussian Cox process of their intensity on 16 x 16
# cells: 256 correlated dimensions. Whitened, the prior is the start, and few
# temperatures are enough.

# %%
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import optax

import annealax as ax

cox = ax.targets.LogGaussianCoxPines(16, whitened=True)
path = ax.GeometricPath(None, cox, betas=6)
sampler = ax.Sampler(path, ax.kernels.HMC(0.25, 6), num_particles=300)

# %%
craft = ax.CRAFT(sampler, optax.adam(1e-2))
flow = ax.flows.diagonal_affine(None, cox.shape)
trained = ax.fit(jr.key(0), craft, flow, num_steps=60)
plain = jnp.stack([sampler.run(jr.key(i)).log_normalizer for i in range(8)])
runs = [sampler.run(jr.key(i), trained.flows) for i in range(8)]
helped = jnp.stack([run.log_normalizer for run in runs])
print(f"SMC {plain.mean():.2f}, spread {plain.std():.2f}")
print(f"CRAFT {helped.mean():.2f}, spread {helped.std():.2f}")

# %%
field = runs[0].expectation(cox.log_intensity)
spread = jnp.sqrt(runs[0].expectation(lambda x: (cox.log_intensity(x) - field) ** 2))
figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
for axis, values, name in (
    (axes[0], field, "log intensity"),
    (axes[1], spread, "its sd"),
):
    shown = axis.imshow(values.T, origin="lower", cmap="viridis")
    axis.set(title=name, xticks=[], yticks=[])
    figure.colorbar(shown, ax=axis)
axes[2].boxplot([plain, helped], tick_labels=["SMC", "CRAFT"])
axes[2].set(title="log Z of eight passes")
figure.savefig("cox_map.png", dpi=110)

# %% [markdown]
# # Fields of phi^4 theory, and particle MCMC
# Below the transition a field is positive or negative nearly everywhere, and HMC does
# not cross. Annealing keeps both signs; particle MCMC makes expectations exact.

# %%
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
import optax
from flowjax.distributions import StandardNormal

import annealax as ax

SHAPE = (8, 8)
target = ax.targets.Phi4(shape=SHAPE, mass_squared=-4.75, coupling=5.1)
ladder = np.linspace(0, 1, 9) ** 2
path = ax.GeometricPath(StandardNormal(SHAPE), target, betas=ladder)
sampler = ax.Sampler(path, ax.kernels.HMC(0.12, 8), num_particles=250)

# %%
flow = ax.flows.lattice_coupling(jr.key(0), SHAPE, channels=(6,), odd=True)
craft = ax.CRAFT(sampler, optax.adam(3e-3))
trained = ax.fit(jr.key(1), craft, flow, num_steps=100)
chain = ax.pimh(
    jr.key(2),
    lambda key: sampler.run(key, trained.flows),
    num_steps=150,
    observables=target.observables,
    configurations=True,
)
chi = chain.mean()["two_point_susceptibility"]
print(f"susceptibility {chi:.3f} +- {chain.stderr()['two_point_susceptibility']:.3f}")
print(f"acceptance {chain.acceptance_rate:.2f}")

# %%
figure, axes = plt.subplots(1, 5, figsize=(11, 2.6), layout="constrained")
for axis, field in zip(axes, chain.configurations[0, ::40], strict=False):
    axis.imshow(field, cmap="coolwarm", vmin=-1.5, vmax=1.5)
    axis.set(xticks=[], yticks=[], title="a field")
axes[4].plot(chain.configurations[0].mean(axis=(1, 2)), ".", ms=4, color="teal")
axes[4].axhline(0, color="black", lw=1)
axes[4].set(title="magnetisation", xlabel="iteration")
figure.savefig("phi4_fields.png", dpi=110)

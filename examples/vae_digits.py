# %% [markdown]
# # What else could this digit be
# A decoder turns 30 numbers into the picture of a digit. Which numbers could have
# made the one that we see? The marginal likelihood of the picture comes with the
# draws.

# %%
import jax
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np

import annealax as ax

target = ax.targets.VAE(3)
steps = ax.kernels.InterpolatedStepSize([0, 0.1, 0.3, 1], [0.3, 0.12, 0.07, 0.08])
path = ax.GeometricPath(target.shape, target, betas=np.linspace(0, 1, 26) ** 3)
sampler = ax.Sampler(path, ax.kernels.HMC(steps, 8), num_particles=150)

# %%
result = sampler.run(jr.key(1))
log_z, error = result.log_normalizer, result.log_normalizer_stderr
print(f"log p(picture) = {log_z:.2f} +- {error:.2f}")

# %%
draws = result.draws(jr.key(2), 7)
pictures = jax.vmap(target.decode)(draws)
figure, axes = plt.subplots(1, 8, figsize=(10, 1.7), layout="constrained")
for axis, picture, name in zip(
    axes, (target.image, *pictures), ("seen", *7 * ("draw",)), strict=True
):
    axis.imshow(picture, cmap="gray_r", vmin=0, vmax=1)
    axis.set(title=name, xticks=[], yticks=[])
figure.savefig("vae_digits.png", dpi=110)

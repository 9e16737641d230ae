# %% [markdown]
# # A Markov kernel of your own
# Slice sampling along a random direction: no step size, no gradient. It leaves the
# density at each temperature invariant, which is all that the sampler asks of it.

# %%
import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np

import annealax as ax
from annealax.kernels import AbstractKernel, KernelInfo, point_at


class RandomSlice(AbstractKernel):
    """Shrink an interval around the point until a draw from it is above the slice."""

    width: float = 4.0

    def move(self, key, point, log_density, beta):
        keys = jr.split(key, 4)
        direction = jr.normal(keys[0], point.x.shape)
        direction /= jnp.linalg.norm(direction)
        level = point.log_density - jr.exponential(keys[1])
        low = -self.width * jr.uniform(keys[2])

        def at(t):
            return point.x + t * direction

        def is_below(state):
            return log_density(at(state[2])) < level

        def shrink(state):
            low, high, t, key = state
            low, high = jnp.where(t < 0, t, low), jnp.where(t < 0, high, t)
            key, subkey = jr.split(key)
            return low, high, jr.uniform(subkey, minval=low, maxval=high), key

        first = shrink((low, low + self.width, low, keys[3]))
        _, _, t, _ = jax.lax.while_loop(is_below, shrink, first)
        return point_at(log_density, at(t)), KernelInfo(jnp.ones(()), jnp.ones(()))


# %%
target = ax.targets.ChallengingMixture()
path = ax.GeometricPath(target.shape, target, betas=20)
kernel = ax.kernels.Composition(RandomSlice(), RandomSlice(), RandomSlice())
sampler = ax.Sampler(path, kernel, num_particles=2000)
values = [sampler.run(jr.key(i)).log_normalizer for i in range(10)]
print(f"log Z = {np.mean(values):.3f}, spread {np.std(values):.3f} (exact: 0)")

# %%
figure, axis = plt.subplots(figsize=(4.5, 4), layout="constrained")
axis.scatter(*sampler.run(jr.key(0)).x.T, s=2, alpha=0.4, color="teal")
axis.set(title=f"log Z = {np.mean(values):.3f}, exact 0", aspect="equal")
figure.savefig("own_kernel.png", dpi=110)

# %% [markdown]
# # A flow of your own
# Whoever knows how a density is bent can say so in two lines. Any flowjax bijection
# works; it should start as the identity.

# %%
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import optax
from flowjax.bijections import AbstractBijection

import annealax as ax


class Bend(AbstractBijection):
    """Widen the first coordinate by exp(a), and bend the second along it by b."""

    a: jax.Array = eqx.field(default_factory=lambda: jnp.zeros(()))
    b: jax.Array = eqx.field(default_factory=lambda: jnp.zeros(()))
    shape: ClassVar[tuple[int, ...]] = (2,)
    cond_shape: ClassVar[None] = None

    def transform_and_log_det(self, x, condition=None):
        wide = x[0] * jnp.exp(self.a)
        return jnp.stack([wide, x[1] + self.b * wide**2]), self.a

    def inverse_and_log_det(self, y, condition=None):
        return jnp.stack([y[0] * jnp.exp(-self.a), y[1] - self.b * y[0] ** 2]), -self.a


def banana(x):
    """A normal with scales 2 and 1, bent; log Z is log(4 pi) = 2.531."""
    return -0.5 * (x[0] / 2) ** 2 - 0.5 * (x[1] - 0.5 * x[0] ** 2) ** 2


# %%
path = ax.GeometricPath((2,), banana, betas=3)
sampler = ax.Sampler(path, ax.kernels.HMC(0.3), num_particles=500)
trained = ax.fit(jr.key(0), ax.CRAFT(sampler, optax.adam(2e-2)), Bend(), num_steps=200)
runs = {"SMC": sampler.run(jr.key(1)), "CRAFT": sampler.run(jr.key(1), trained.flows)}

# %%
figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
for axis, (name, run) in zip(axes, runs.items(), strict=True):
    print(
        f"{name}: log Z = {run.log_normalizer:.3f} +- {run.log_normalizer_stderr:.3f}"
    )
    axis.scatter(*run.x.T, s=1000 * run.weights, alpha=0.4, color="teal")
    axis.set(
        title=f"{name}: {run.ess:.0f} effective draws", xlim=(-7, 7), ylim=(-4, 18)
    )
figure.savefig("own_flow.png", dpi=110)

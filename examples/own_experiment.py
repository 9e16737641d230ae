"""A target, flow, kernel, trainer and observable of your own, in one file.

annealax run examples/own_experiment.py, then annealax pimh runs/own_experiment-seed0
annealax compare examples/own_experiment.py --methods averaged,craft,smc --budget 10s
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from flowjax.bijections import AbstractBijection
from pydantic import Field

import annealax as ax
from annealax.experiments import Experiment, Method
from annealax.kernels import AbstractKernel, KernelInfo, point_at


class Banana(ax.targets.AbstractTarget):
    """A normal, bent: y given x is a normal around bend * x**2."""

    bend: float
    shape: tuple[int, ...] = eqx.field(static=True, default=(2,))
    log_normalizer: float = eqx.field(static=True, default=float(jnp.log(4 * jnp.pi)))

    def __call__(self, x):
        return -0.5 * (x[0] / 2) ** 2 - 0.5 * (x[1] - self.bend * x[0] ** 2) ** 2


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


class ManyScales(AbstractKernel):
    """Random-walk Metropolis whose steps are now short, now long."""

    def move(self, key, point, log_density, beta):
        keys = jr.split(key, 3)
        step = 0.5 * jnp.exp(jr.normal(keys[0])) * jr.normal(keys[1], point.x.shape)
        proposal = point_at(log_density, point.x + step)
        chance = jnp.exp(jnp.minimum(proposal.log_density - point.log_density, 0))
        accepted = jr.uniform(keys[2]) < chance
        point = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), proposal, point)
        return point, KernelInfo(chance, jnp.ones(()))


class Averaged(ax.AbstractTrainer):
    """CRAFT, with flows that are averages over its last steps."""

    craft: ax.CRAFT

    def init(self, key, flow):
        state = self.craft.init(key, flow)
        return ax.TrainState(state.flows, state)

    def step(self, key, state):
        inner, info = self.craft.step(key, state.optimizer_state)
        flows = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, state.flows, inner.flows)
        return ax.TrainState(flows, inner), info


class OwnExperiment(Experiment):
    """A banana in the plane, with every part of its own."""

    default_method: ClassVar[str] = "averaged"
    bend: float = Field(0.5, description="how far the target is bent")
    num_transitions = 4  # another default; `annealax show` lists all settings

    def target(self):
        return Banana(self.bend)

    def flow(self, key, shape):
        return Bend()

    def kernel(self):
        return ManyScales()

    def observables(self, target):
        return {"radius": jnp.linalg.norm}

    def methods(self):
        return {"averaged": Method("averaged CRAFT", trainer=self.averaged)}

    def averaged(self, problem):
        return Averaged(ax.CRAFT(problem.sampler(), self.optimizer()))

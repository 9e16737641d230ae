r"""CRAFT: continual repeated annealed flow transport (Algorithm 2).

Each training step is one pass of the sampler. At every temperature the gradient of
that transition's loss (`annealax._objectives`) is taken on the particles that arrive,
the same transport moves them on, and only then is the flow updated: the update is
first felt in the next pass, so the estimate of Z of each pass is unbiased.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from annealax._objectives import Estimator, check_estimator, free_energy_gradient
from annealax._particles import Particles
from annealax._path import Edge
from annealax._result import StepInfo
from annealax._sampler import Sampler, spread
from annealax.flows.base import partition
from annealax.trainers.base import (
    AbstractTrainer,
    TrainInfo,
    TrainState,
    guarded_update,
    initial_state,
)


class Learning(NamedTuple):
    """What an update changes.

    Attributes:
        params: Trainable leaves of a flow.
        optimizer_state: State of its optimiser.
    """

    params: PyTree
    optimizer_state: PyTree


class Site(NamedTuple):
    """A temperature, as far as training does not change it.

    Attributes:
        edge: The transition.
        fixed: The other arrays of its flow.
    """

    edge: Edge
    fixed: PyTree


class Shown(NamedTuple):
    """What a pass shows at one temperature, or at all of them.

    Attributes:
        loss: The loss of the transition.
        log_normalizer: Running estimate of log Z after it.
        steps: Its diagnostics.
        num_skipped: 1 if the update was left out.
    """

    loss: Float[Array, "*temperatures"]
    log_normalizer: Float[Array, "*temperatures"]
    steps: StepInfo
    num_skipped: Int[Array, "*temperatures"]

    def together(self) -> TrainInfo:
        """All temperatures of a pass as one training step."""
        return TrainInfo(
            loss=jnp.sum(self.loss),
            log_normalizer=self.log_normalizer[-1],
            steps=self.steps,
            num_skipped=jnp.sum(self.num_skipped),
        )


class Sweep(NamedTuple):
    """One training pass, with the particles that it ended with.

    Attributes:
        state: The trainer's state after it.
        info: What the pass shows.
        particles: The particles at the last temperature.
    """

    state: TrainState
    info: TrainInfo
    particles: Particles


class CRAFT(AbstractTrainer):
    """Train each flow on the KL divergence between successive temperatures.

    Args:
        sampler: The sampler to be helped.
        optimizer: Any optax optimiser; each transition has its own state, so that a
            clip by norm or a schedule acts on each flow by itself.
        gradient: "plain" (the paper's) or "path".
    """

    sampler: Sampler
    optimizer: optax.GradientTransformation = eqx.field(static=True)
    gradient: Estimator = eqx.field(static=True, default="plain")

    def __check_init__(self):
        """Validate."""
        check_estimator(self.gradient)

    def init(self, key: PRNGKeyArray, flow: AbstractBijection) -> TrainState:
        """Every transition starts at `flow`."""
        del key
        return initial_state(self.optimizer, flow, self.sampler.path)

    def step(
        self, key: PRNGKeyArray, state: TrainState
    ) -> tuple[TrainState, TrainInfo]:
        """One pass (Algorithm 2, lines 4 to 10)."""
        sweep = self.sweep(key, state)
        return sweep.state, sweep.info

    def sweep(self, key: PRNGKeyArray, state: TrainState) -> Sweep:
        """One pass, with the particles that line 10 of Algorithm 2 yields."""
        return spread(self._sweep, self.sampler, key, state)

    def _sweep(self, sampler: Sampler, key: PRNGKeyArray, state: TrainState) -> Sweep:
        key_init, key_steps = jr.split(key)
        learning, sites, static = self.unstacked(state)

        def at_temperature(particles, inputs):
            particles, learning, shown = self.transition(
                sampler, static, particles, *inputs
            )
            return particles, (learning, shown)

        keys = jr.split(key_steps, sampler.path.num_transitions)
        particles, (learning, shown) = jax.lax.scan(
            at_temperature, sampler.init(key_init), (keys, sites, learning)
        )
        return Sweep(
            stacked(learning, sites, static),
            shown.together(),
            particles.everywhere(sampler.layout),
        )

    def unstacked(self, state: TrainState) -> tuple[Learning, Site, PyTree]:
        """What each temperature has, as arrays that begin with them, and the rest."""
        params, fixed = partition(state.flows)
        fixed_arrays, static = eqx.partition(fixed, eqx.is_array)
        site = Site(self.sampler.path.edges, fixed_arrays)
        return Learning(params, state.optimizer_state), site, static

    def transition(
        self,
        sampler: Sampler,
        static: PyTree,
        particles: Particles,
        key: PRNGKeyArray,
        site: Site,
        learning: Learning,
    ) -> tuple[Particles, Learning, Shown]:
        """A pass at one temperature (Algorithm 2, lines 5 to 9).

        Args:
            sampler: The sampler, where it runs.
            static: What `unstacked` found beside arrays.
            particles: The particles that arrive.
            key: Random key of this pass and temperature.
            site: The temperature.
            learning: What is trained there.
        """
        rest = eqx.combine(site.fixed, static)
        descent = free_energy_gradient(
            learning.params, rest, sampler, particles, site.edge, self.gradient
        )
        particles, info = sampler.correct(key, particles, descent.moved, site.edge)
        params, optimizer_state, skipped = guarded_update(
            self.optimizer, descent.gradient, learning.optimizer_state, learning.params
        )
        shown = Shown(descent.loss, particles.log_normalizer, info, skipped)
        return particles, Learning(params, optimizer_state), shown


def stacked(learning: Learning, sites: Site, static: PyTree) -> TrainState:
    """The state that `CRAFT.unstacked` took apart."""
    flows = eqx.combine(learning.params, sites.fixed, static)
    return TrainState(flows, learning.optimizer_state)

"""The contract of a trainer: `init` a state from a flow, `step` it."""

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import equinox as eqx
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from annealax._result import StepInfo


class TrainState(NamedTuple):
    """What a trainer carries from step to step.

    Attributes:
        flows: The flows, stacked over transitions.
        optimizer_state: State of the optimiser.
    """

    flows: AbstractBijection
    optimizer_state: PyTree


class TrainInfo(NamedTuple):
    """What a training step shows (with a leading axis over steps in a history).

    Attributes:
        loss: The training loss.
        log_normalizer: Estimate of log Z made by the step's own pass.
        steps: Diagnostics per transition of that pass.
        num_skipped: Updates left out because the gradient was not finite.
        extra: Arrays that only some trainers show.
    """

    loss: Float[Array, "*iterations"]
    log_normalizer: Float[Array, "*iterations"]
    steps: StepInfo
    num_skipped: Int[Array, "*iterations"]
    extra: PyTree = ()


class AbstractTrainer(eqx.Module):
    """Learns the flows of a sampler.

    Attributes:
        restarts: Whether every step starts again from the flow that was given, so
            that training cannot diverge.
    """

    restarts: ClassVar[bool] = False

    @abstractmethod
    def init(self, key: PRNGKeyArray, flow: AbstractBijection) -> TrainState:
        """The state before the first step, every transition starting at `flow`."""

    @abstractmethod
    def step(
        self, key: PRNGKeyArray, state: TrainState
    ) -> tuple[TrainState, TrainInfo]:
        """One training step."""

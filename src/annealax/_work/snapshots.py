"""What callbacks of long work see, and how they are called."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from annealax._errors import InvalidInputError
from annealax.trainers import TrainInfo, TrainState


@runtime_checkable
class Progress(Protocol):
    """What every callback can rely on; `Snapshot` and `ChainSnapshot` have it."""

    @property
    def step(self) -> int:
        """Steps made so far."""
        ...

    @property
    def num_steps(self) -> int:
        """Steps asked for."""
        ...

    @property
    def seconds(self) -> float:
        """Time since the first step began, compilation apart."""
        ...

    def metrics(self) -> dict[str, np.ndarray]:
        """Numbers of each step of this call, by name: arrays over steps."""
        ...


class Snapshot(NamedTuple):
    """What a callback of `fit` sees after each device call.

    Attributes:
        step: Steps made so far.
        num_steps: Steps asked for.
        state: The trainer's state.
        info: What the steps of this call showed, stacked.
        seconds: Time since the first step began, compilation apart.
    """

    step: int
    num_steps: int
    state: TrainState
    info: TrainInfo
    seconds: float

    def metrics(self) -> dict[str, np.ndarray]:
        """Loss, log Z, lowest ESS, mean acceptance and skipped updates of each step."""
        info = self.info
        return {
            "loss": np.asarray(info.loss),
            "log_normalizer": np.asarray(info.log_normalizer),
            "lowest_ess": np.asarray(info.steps.ess).min(axis=1),
            "acceptance_rate": np.asarray(info.steps.acceptance_rate).mean(axis=1),
            "num_skipped": np.asarray(info.num_skipped),
        }


class ChainSnapshot(NamedTuple):
    """What a callback of `pimh` sees after each device call.

    Attributes:
        step: Proposals made so far, over all chains.
        num_steps: Proposals asked for.
        log_normalizer: log Z of the proposals of this call.
        observables: Their weighted expectations, by name, stacked.
        seconds: Time since the first proposal began, compilation apart.
    """

    step: int
    num_steps: int
    log_normalizer: np.ndarray
    observables: dict[str, np.ndarray]
    seconds: float

    def metrics(self) -> dict[str, np.ndarray]:
        """Log Z of each proposal, and its observables that are single numbers."""
        scalars = {k: v for k, v in self.observables.items() if v.ndim == 1}
        return {"log_normalizer": self.log_normalizer, **scalars}


Callback = Callable[[Any], bool | None]
"""Is given a snapshot after each device call; work stops if it returns True."""


def as_callbacks(callback: Callback | Iterable[Callback] | None) -> list[Callback]:
    """None, one callback or several, as a list."""
    if callback is None:
        return []
    found = [callback] if callable(callback) else list(callback)
    for entry in found:
        if not callable(entry):
            raise InvalidInputError(
                f"callback must be a function of a snapshot, or several; got {entry!r}"
            )
    return found


def call_all(callbacks: list[Callback], snapshot: Progress) -> bool:
    """Call every one of them; whether one wants to stop."""
    return any([bool(callback(snapshot)) for callback in callbacks])

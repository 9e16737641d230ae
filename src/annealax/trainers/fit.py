"""The one loop that drives any trainer.

Many training steps run in one device call; how many is a number the compiled program
takes as input, so a fit compiles once whatever the number of steps. The key of a step
depends on its index alone: results do not depend on how the steps are grouped, nor on
whether the fit was interrupted and resumed.
"""

import dataclasses
import functools
import os
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from annealax._checks import whole_number
from annealax._doubts import Doubt
from annealax._words import fit_line
from annealax._work.checkpoint import Checkpoint, as_checkpoint
from annealax._work.drive import (
    Callback,
    Program,
    Work,
    as_callbacks,
    compile_ahead,
    drive,
    joined,
    size_of_next_call,
)
from annealax._work.fingerprint import fingerprint
from annealax.trainers.base import AbstractTrainer, TrainInfo, TrainState
from annealax.trainers.rollback import Rollback, Watch, block_length

_SECONDS_PER_CALL = 1.0
_MOST_STEPS_PER_CALL = 100
"""The history of a device call is kept on the device until it ends."""


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


class Fit(NamedTuple):
    """The outcome of a fit.

    Attributes:
        flows: The trained flows, one per transition; give them to `Sampler.run`.
        history: What each step showed: arrays with a leading axis over steps.
        state: The trainer's state after the last step, or the last good one.
        seconds: Wall-clock time of the steps, compilation apart.
        compile_seconds: Time to compile.
        memory: Bytes that a step needs for inputs, outputs and intermediate results.
        rollback: Where training went back to when it diverged; None if it did not.
        num_devices: Devices that a step uses.
    """

    flows: AbstractBijection
    history: TrainInfo
    state: TrainState
    seconds: float
    compile_seconds: float
    memory: int
    rollback: Rollback | None = None
    num_devices: int = 1

    def __repr__(self) -> str:
        """What it came to, in a line."""
        loss = np.asarray(self.history.loss, np.float64)
        return f"<Fit: {fit_line(len(loss), loss, len(self.warnings()))}>"

    def _repr_html_(self) -> str:
        """What it came to, in a notebook."""
        from annealax.report.notebook import fit_html  # noqa: PLC0415

        return fit_html(self)

    def warnings(self) -> list[Doubt]:
        """Reasons to doubt the training; empty if there are none."""
        doubts = []
        if self.rollback is not None:
            step, detected, reason = self.rollback
            what = f"those of step {step}" if step else "those it started with"
            doubts.append(
                Doubt(
                    "diverged",
                    f"training diverged and was stopped after {detected} steps: "
                    f"{reason}; the flows are {what}; lower the learning rate or the "
                    "step sizes, or clip the gradient",
                )
            )
        if skipped := int(np.asarray(self.history.num_skipped).sum()):
            doubts.append(
                Doubt(
                    "skipped-updates",
                    f"{skipped} flow updates were skipped because their gradient was "
                    "not finite; lower the learning rate or the step sizes",
                )
            )
        return doubts


def fit(
    key: PRNGKeyArray,
    trainer: AbstractTrainer,
    flow: AbstractBijection,
    *,
    num_steps: int,
    steps_per_call: int | None = None,
    callback: Callback | Iterable[Callback] | None = None,
    progress: bool | None = None,
    checkpoint: str | os.PathLike | Checkpoint | None = None,
) -> Fit:
    """Train flows.

    A fit that diverges (`annealax.trainers.rollback` says when) is stopped and rolled
    back to its last good state; `Fit.rollback` and `Fit.warnings()` tell.

    Args:
        key: Random key.
        trainer: How to train, for instance `CRAFT(sampler, optax.adam(1e-3))`.
        flow: Where every transition's flow starts; ours start as the identity.
        num_steps: Number of training steps.
        steps_per_call: Steps per device call, at most; None to choose it so that a
            call takes about a second.
        callback: One or several functions of a `Snapshot`, such as
            `annealax.loggers.CSV(path)`, called after each device call; training
            stops if one returns True.
        progress: Show a live line with loss, log Z, ESS and acceptance; None for on a
            terminal only.
        checkpoint: A folder, or a `Checkpoint` that also says how often. The state is
            saved there while training, on SIGINT, SIGTERM and at the end; a fit with
            the same arguments then goes on from there, with the same numbers to the
            bit. A step is never split: AFT, whose step is a whole pass, begins its
            pass again.

    Raises:
        InvalidInputError: If the checkpoint is of another fit.
        FileError: If no checkpoint can be read.
        Interrupted: A KeyboardInterrupt, after the state was saved.
    """
    num_steps = whole_number("num_steps", num_steps, at_least=0)
    if steps_per_call is not None:
        steps_per_call = whole_number("steps_per_call", steps_per_call)
    key_init, key_steps = jr.split(key)
    start = trainer.init(key_init, flow)
    calls = _Calls(trainer, key_steps, start, num_steps, steps_per_call)
    training = drive(
        calls.advance,
        calls.beginning(),
        label="training",
        describe=_describe,
        callbacks=as_callbacks(callback),
        progress=progress,
        store=as_checkpoint(checkpoint),
        identity=lambda: {
            "work": "fit",
            "num_steps": num_steps,
            "steps_per_call": steps_per_call,
            "key": fingerprint(key),
            "flow": fingerprint(flow),
            "trainer": fingerprint(trainer),
        },
    )
    state = calls.state(training.state)
    return Fit(
        state.flows,
        calls.history(training),
        state,
        training.seconds,
        training.compile_seconds,
        training.memory,
        training.rollback,
        training.num_devices,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Training(Work):
    """A fit under way.

    States and histories are lists of their arrays: what else they hold may be of
    classes that a file cannot name.
    """

    state: list[Any]
    watch: Watch
    chunks: tuple[list[np.ndarray], ...] = ()
    size: int = 1
    compile_seconds: float = 0.0
    memory: int = 0
    rollback: Rollback | None = None
    num_devices: int = 1

    def compact(self) -> "_Training":
        """With the history in one piece."""
        if len(self.chunks) < 2:
            return self
        return dataclasses.replace(self, chunks=(joined(self.chunks),))


class _Calls:
    """Device calls, each of several steps of a trainer."""

    def __init__(
        self,
        trainer: AbstractTrainer,
        key: PRNGKeyArray,
        start: TrainState,
        num_steps: int,
        steps_per_call: int | None,
    ):
        self._trainer, self._key, self._start = trainer, key, start
        self._num_steps, self._steps_per_call = num_steps, steps_per_call
        most = steps_per_call or _MOST_STEPS_PER_CALL
        self._capacity = max(1, min(num_steps, most))
        self._info: TrainInfo | None = None

    def beginning(self) -> _Training:
        """The fit before its first step."""
        state = _arrays(self._start)
        length = block_length(self._num_steps, self._steps_per_call)
        return _Training(
            total=self._num_steps,
            state=state,
            watch=Watch(length, state, state),
            size=self._steps_per_call or 1,
        )

    def advance(self, work: _Training) -> tuple[_Training, Snapshot]:
        """Make some steps, none beyond the end of a block."""
        if not self._is_compiled:
            work = dataclasses.replace(
                work,
                compile_seconds=work.compile_seconds + self._program.compile_seconds,
                memory=self._program.memory,
                num_devices=self._program.num_devices,
            )
        left = min(work.watch.steps_left(work.done), work.total - work.done)
        count = min(work.size, self._capacity, left)
        began = time.perf_counter()
        state, buffer = jax.block_until_ready(
            self._program.run(*self._arguments(work.state, work.done, count))
        )
        elapsed = time.perf_counter() - began
        info = jax.tree.map(lambda leaf: np.asarray(leaf[:count]), buffer)
        self._info = info
        work = dataclasses.replace(
            work,
            done=work.done + count,
            seconds=work.seconds + elapsed,
            state=_arrays(state),
            chunks=(*work.chunks, jax.tree.leaves(info)),
        )
        if self._steps_per_call is None:
            size = size_of_next_call(count, elapsed, _SECONDS_PER_CALL)
            work = dataclasses.replace(work, size=size)
        if count == left and not self._trainer.restarts:
            work = self._judge(work.compact())
        state = self.state(work.state)
        return work, Snapshot(work.done, work.total, state, info, work.seconds)

    def _judge(self, work: _Training) -> _Training:
        """The fit after a block: rolled back and stopped, if it has diverged."""
        watch, rollback = work.watch.after_block(
            work.done, work.state, self.history(work), is_last=work.done == work.total
        )
        work = dataclasses.replace(work, watch=watch)
        if rollback is None:
            return work
        return dataclasses.replace(
            work, rollback=rollback, state=watch.good, stopped=True
        )

    def state(self, arrays: list[Any]) -> TrainState:
        """A trainer's state from its arrays."""
        dynamic, static = eqx.partition(self._start, eqx.is_array)
        return eqx.combine(_filled(dynamic, arrays), static)

    def history(self, work: _Training) -> TrainInfo:
        """All steps so far."""
        if self._info is None:  # no call was made: trace a step
            step = eqx.filter_eval_shape(self._trainer.step, self._key, self._start)[1]
            self._info = jax.tree.map(lambda a: np.empty((0, *a.shape), a.dtype), step)
        if not work.chunks:
            return self._info
        return _filled(self._info, work.compact().chunks[0])

    @property
    def _is_compiled(self) -> bool:
        return "_program" in vars(self)

    @functools.cached_property
    def _program(self) -> Program:
        return compile_ahead(_advance, *self._arguments(_arrays(self._start), 0, 0))

    def _arguments(self, state: list[Any], start: int, count: int) -> tuple[Any, ...]:
        numbers = (jnp.asarray(start), jnp.asarray(count))
        return (self._trainer, self._key, self.state(state), *numbers, self._capacity)


def _arrays(tree: PyTree) -> list[Any]:
    return jax.tree.leaves(eqx.filter(tree, eqx.is_array))


def _filled(like: PyTree, leaves: list[Any]) -> PyTree:
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _describe(snapshot: Snapshot) -> str:
    """Loss, log Z, lowest ESS and acceptance of the last step."""
    last = {name: float(values[-1]) for name, values in snapshot.metrics().items()}
    skipped = int(np.sum(snapshot.info.num_skipped))
    return (
        f"loss {last['loss']:.4g}  log Z {last['log_normalizer']:.4f}  "
        f"lowest ESS {last['lowest_ess']:.0f}  accepted {last['acceptance_rate']:.0%}"
        + (f"  skipped {skipped}" if skipped else "")
    )


@eqx.filter_jit
def _advance(
    trainer: AbstractTrainer,
    key: PRNGKeyArray,
    state: TrainState,
    start: Int[Array, ""],
    count: Int[Array, ""],
    capacity: int,
) -> tuple[TrainState, TrainInfo]:
    return trainer.steps(key, state, start, count, capacity)

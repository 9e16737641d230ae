"""The one loop that drives any trainer.

Many training steps run in one device call; how many is a number the compiled program
takes as input, so a fit compiles once whatever the number of steps. The key of a step
depends on its index alone: results do not depend on how the steps are grouped, nor on
whether the fit was interrupted and resumed.
"""

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
from jaxtyping import Array, Int, PRNGKeyArray

from annealax._errors import InvalidInputError
from annealax._work.checkpoint import Checkpoint, as_checkpoint
from annealax._work.fingerprint import fingerprint
from annealax._work.memory import peak_memory
from annealax._work.progress import Lines, describe
from annealax._work.serialise import Saved
from annealax._work.signals import deferred_signals
from annealax._work.snapshots import Callback, Snapshot, as_callbacks, call_all
from annealax.trainers import AbstractTrainer, TrainInfo, TrainState
from annealax.trainers.rollback import Rollback, Watch, block_length

_SECONDS_PER_CALL = 1.0


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
    """

    flows: AbstractBijection
    history: TrainInfo
    state: TrainState
    seconds: float
    compile_seconds: float
    memory: int
    rollback: Rollback | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons, in words, to doubt the training; empty if there are none."""
        messages = []
        if self.rollback is not None:
            step, detected, reason = self.rollback
            what = f"those of step {step}" if step else "those it started with"
            messages.append(
                f"training diverged and was stopped after {detected} steps: {reason}; "
                f"the flows are {what}; lower the learning rate or the step sizes, or "
                "clip the gradient"
            )
        if skipped := int(np.asarray(self.history.num_skipped).sum()):
            messages.append(
                f"{skipped} flow updates were skipped because their gradient was not "
                "finite; lower the learning rate or the step sizes"
            )
        return tuple(messages)


def fit(
    key: PRNGKeyArray,
    trainer: AbstractTrainer,
    flow: AbstractBijection,
    *,
    num_steps: int,
    steps_per_call: int | None = None,
    callback: Callback | Iterable[Callback] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike | Checkpoint | None = None,
) -> Fit:
    """Train flows.

    A fit that diverges (`annealax.trainers.rollback` says when) is stopped and rolled
    back to its last good state; `Fit.rollback` and `Fit.warnings` tell.

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
        progress: Show a live line with loss, log Z, ESS and acceptance.
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
    _check_arguments(num_steps, steps_per_call)
    callbacks = as_callbacks(callback)
    key_init, key_steps = jr.split(key)
    run = _Run(trainer.init(key_init, flow), num_steps, steps_per_call)
    store = as_checkpoint(checkpoint)
    if store is None:
        _train(run, trainer, key_steps, callbacks, progress, None)
        return run.outcome()
    identity = {
        "work": "fit",
        "num_steps": num_steps,
        "steps_per_call": steps_per_call,
        "key": fingerprint(key),
        "flow": fingerprint(flow),
        "trainer": fingerprint(trainer),
    }
    saved = store.latest(identity)
    if saved is not None:
        shapes = eqx.filter_eval_shape(trainer.step, key_steps, run.state)[1]
        run.restore(saved, shapes)

    def save() -> None:
        store.save(run.tree(), identity=identity, meta=run.meta(), step=run.step)

    if not run.finished:
        _train(run, trainer, key_steps, callbacks, progress, (store, save))
    return run.outcome()


class _Run:
    """A fit under way: all that a checkpoint holds."""

    def __init__(self, state: TrainState, num_steps: int, steps_per_call: int | None):
        self.state = state
        self.num_steps = num_steps
        self.steps_per_call = steps_per_call
        self.watch = Watch(state, block_length(num_steps, steps_per_call))
        self.chunks: list[TrainInfo] = []
        self.step, self.seconds, self.compile_seconds, self.memory = 0, 0.0, 0.0, 0
        self.rollback: Rollback | None = None
        self.finished = False

    @property
    def history(self) -> TrainInfo:
        self.chunks = [jax.tree.map(lambda *a: np.concatenate(a), *self.chunks)]
        return self.chunks[0]

    def tree(self) -> Any:
        return (self.state, self.watch.anchor, self.watch.good, self.history)

    def meta(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "anchor_step": self.watch.anchor_step,
            "good_step": self.watch.good_step,
            "num_bad": self.watch.num_bad,
            "seconds": self.seconds,
            "compile_seconds": self.compile_seconds,
            "memory": self.memory,
            "rollback": self.rollback,
            "finished": self.finished or self.step == self.num_steps,
        }

    def restore(self, saved: Saved, shapes: TrainInfo) -> None:
        meta, watch = saved.meta, self.watch
        history = jax.tree.map(
            lambda leaf: np.empty((meta["step"], *leaf.shape), leaf.dtype), shapes
        )
        tree = saved.restore((self.state, self.state, self.state, history))
        self.state, watch.anchor, watch.good, history = tree
        self.chunks = [history]
        watch.anchor_step, watch.good_step = meta["anchor_step"], meta["good_step"]
        watch.num_bad = meta["num_bad"]
        self.step, self.seconds = meta["step"], meta["seconds"]
        self.compile_seconds, self.memory = meta["compile_seconds"], meta["memory"]
        if meta["rollback"] is not None:
            self.rollback = Rollback(*meta["rollback"])
        self.finished = meta["finished"]

    def outcome(self) -> Fit:
        return Fit(
            self.state.flows,
            self.history,
            self.state,
            self.seconds,
            self.compile_seconds,
            self.memory,
            self.rollback,
        )


def _train(run: _Run, trainer, key, callbacks, progress, keeping) -> None:
    """Make the steps that are left; `keeping` is the checkpoint and how to save."""
    capacity = max(1, min(run.num_steps, run.steps_per_call or 100))
    began = time.perf_counter()
    compiled = _advance.lower(  # type: ignore[attr-defined]
        trainer, key, run.state, jnp.asarray(0), jnp.asarray(0), capacity
    ).compile()
    run.compile_seconds += time.perf_counter() - began
    run.memory = peak_memory(compiled)

    def advance(count: int) -> tuple[TrainState, TrainInfo]:
        start = jnp.asarray(run.step)
        state, buffer = jax.block_until_ready(
            compiled(trainer, key, run.state, start, jnp.asarray(count), capacity)
        )
        return state, jax.tree.map(lambda leaf: np.asarray(leaf[:count]), buffer)

    if not run.chunks:  # a history of length zero, to begin with
        run.chunks.append(advance(0)[1])
    if keeping is None:
        _loop(run, trainer, advance, capacity, callbacks, progress)
        return
    store, save = keeping
    with deferred_signals() as signals:

        def keep(snapshot: Snapshot) -> None:
            if signals.pending is not None or store.due(run.step):
                save()
            signals.stop_if_asked(
                f"training stopped after {run.step} of {run.num_steps} steps; the same "
                f"call goes on from the checkpoint in {store.folder}"
            )

        try:
            _loop(run, trainer, advance, capacity, [*callbacks, keep], progress)
        except KeyboardInterrupt:
            # Not one of ours (a handler of somebody else's, a callback) may come at
            # any moment, also between two lines that belong together.
            if signals.pending is None and len(run.history.loss) == run.step:
                save()
            raise
        run.finished = True
        save()


def _loop(run: _Run, trainer, advance, capacity, callbacks, progress) -> None:
    size, watch = run.steps_per_call or 1, run.watch
    stop = False
    with Lines("training", run.num_steps, enabled=progress, start=run.step) as display:
        while run.step < run.num_steps and not stop and run.rollback is None:
            left = min(watch.steps_left(run.step), run.num_steps - run.step)
            count = min(size, capacity, left)
            began = time.perf_counter()
            state, info = advance(count)
            elapsed = time.perf_counter() - began
            run.state, run.step = state, run.step + count
            run.seconds += elapsed
            run.chunks.append(info)
            if count == left and not trainer.restarts:
                is_last = run.step == run.num_steps
                run.rollback = watch.update(
                    run.step, state, run.history, is_last=is_last
                )
                if run.rollback is not None:
                    run.state = watch.good
            if run.steps_per_call is None:
                size = max(1, int(_SECONDS_PER_CALL * count / max(elapsed, 1e-6)))
            snapshot = Snapshot(run.step, run.num_steps, run.state, info, run.seconds)
            display.update(run.step, describe(snapshot))
            stop = call_all(callbacks, snapshot)


def _check_arguments(num_steps: int, steps_per_call: int | None) -> None:
    if num_steps < 0 or int(num_steps) != num_steps:
        raise InvalidInputError(f"num_steps must not be negative, got {num_steps}")
    if steps_per_call is not None and steps_per_call < 1:
        raise InvalidInputError(
            f"steps_per_call must be a positive whole number, got {steps_per_call}"
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
    """Make `count` steps, at most `capacity`; the rest of the history is zero."""
    # The step is traced here, once: the loop replays what was traced.
    step = eqx.filter_closure_convert(trainer.step, key, state)
    info = step.out_struct[1]  # type: ignore[attr-defined]
    history = jax.tree.map(
        lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), info
    )
    arrays, static = eqx.partition(state, eqx.is_array)

    def body(i, carry):
        arrays, history = carry
        state, info = step(jr.fold_in(key, start + i), eqx.combine(arrays, static))
        history = jax.tree.map(lambda all, one: all.at[i].set(one), history, info)
        return eqx.filter(state, eqx.is_array), history

    arrays, history = jax.lax.fori_loop(0, count, body, (arrays, history))
    return eqx.combine(arrays, static), history

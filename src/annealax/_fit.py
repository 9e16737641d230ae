"""The one loop that drives any trainer.

Many training steps run in one device call; how many is a number the compiled program
takes as input, so a fit compiles once whatever the number of steps. The key of a step
depends on its index alone: results do not depend on how the steps are grouped.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Int, PRNGKeyArray

from annealax._errors import InvalidInputError
from annealax._memory import peak_memory
from annealax._progress import Lines, describe
from annealax.trainers import AbstractTrainer, TrainInfo, TrainState

_SECONDS_PER_CALL = 1.0


class Fit(NamedTuple):
    """The outcome of a fit.

    Attributes:
        flows: The trained flows, one per transition; give them to `Sampler.run`.
        history: What each step showed: arrays with a leading axis over steps.
        state: The trainer's state after the last step.
        seconds: Wall-clock time of the steps, compilation apart.
        compile_seconds: Time to compile.
        memory: Bytes that a step needs for inputs, outputs and intermediate results.
    """

    flows: AbstractBijection
    history: TrainInfo
    state: TrainState
    seconds: float
    compile_seconds: float
    memory: int


class Snapshot(NamedTuple):
    """What a callback sees after each device call.

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


def fit(
    key: PRNGKeyArray,
    trainer: AbstractTrainer,
    flow: AbstractBijection,
    *,
    num_steps: int,
    steps_per_call: int | None = None,
    callback: Callable[[Snapshot], bool | None] | None = None,
    progress: bool = False,
) -> Fit:
    """Train flows.

    Args:
        key: Random key.
        trainer: How to train, for instance `CRAFT(sampler, optax.adam(1e-3))`.
        flow: Where every transition's flow starts; ours start as the identity.
        num_steps: Number of training steps.
        steps_per_call: Steps per device call, at most; None to choose it so that a
            call takes about a second.
        callback: Called after each device call; training stops if it returns True.
        progress: Show a live line with loss, log Z and ESS.
    """
    if num_steps < 0 or int(num_steps) != num_steps:
        raise InvalidInputError(f"num_steps must not be negative, got {num_steps}")
    if steps_per_call is not None and steps_per_call < 1:
        raise InvalidInputError(
            f"steps_per_call must be a positive whole number, got {steps_per_call}"
        )
    key_init, key_steps = jr.split(key)
    state = trainer.init(key_init, flow)
    capacity = max(1, min(num_steps, steps_per_call or 100))

    began = time.perf_counter()
    advance = _advance.lower(  # type: ignore[attr-defined]
        trainer, key_steps, state, jnp.asarray(0), jnp.asarray(0), capacity
    ).compile()
    compile_seconds = time.perf_counter() - began

    chunks: list[TrainInfo] = []
    step, seconds, size = 0, 0.0, steps_per_call or 1
    with Lines("training", num_steps, enabled=progress) as display:
        while step < num_steps:
            count = min(size, capacity, num_steps - step)
            began = time.perf_counter()
            state, buffer = jax.block_until_ready(
                advance(
                    trainer,
                    key_steps,
                    state,
                    jnp.asarray(step),
                    jnp.asarray(count),
                    capacity,
                )
            )
            elapsed = time.perf_counter() - began
            seconds += elapsed
            step += count
            info = jax.tree.map(lambda leaf, n=count: np.asarray(leaf[:n]), buffer)
            chunks.append(info)
            if steps_per_call is None:
                size = max(1, int(_SECONDS_PER_CALL * count / max(elapsed, 1e-6)))
            snapshot = Snapshot(step, num_steps, state, info, seconds)
            display.update(step, describe(snapshot))
            if callback is not None and callback(snapshot):
                break
    if not chunks:  # no step was asked for: a history of length zero
        _, buffer = advance(
            trainer, key_steps, state, jnp.asarray(0), jnp.asarray(0), capacity
        )
        chunks = [jax.tree.map(lambda leaf: np.asarray(leaf[:0]), buffer)]
    history = jax.tree.map(lambda *leaves: np.concatenate(leaves), *chunks)
    return Fit(
        state.flows, history, state, seconds, compile_seconds, peak_memory(advance)
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

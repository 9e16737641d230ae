r"""Particle independent Metropolis-Hastings (Appendix D).

Each iteration runs a sampler afresh and accepts the whole population with probability

$$\min\{1, \hat Z^\star / \hat Z\},$$

which makes averages over iterations exact for any number of particles.

The proposals do not depend on the state of the chain. So they are made first, on the
device, keeping of each only log Z and the weighted expectations of the observables;
accepting and rejecting is a pass over those few numbers afterwards.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from annealax._chain import Chain
from annealax._errors import InvalidInputError, SamplingError
from annealax._work.checkpoint import Checkpoint, as_checkpoint
from annealax._work.fingerprint import fingerprint
from annealax._work.progress import Lines
from annealax._work.serialise import Saved
from annealax._work.signals import Signals, deferred_signals
from annealax._work.snapshots import Callback, ChainSnapshot, as_callbacks, call_all

_SECONDS_PER_CALL = 2.0
_MAX_PER_CALL = 256


class Proposal(Protocol):
    """What a proposal must offer; `Result` does."""

    @property
    def log_normalizer(self) -> Array:
        """Estimate of log Z whose exponential is unbiased."""
        ...

    def expectation(self, function: Callable[[Array], Array]) -> Array:
        """Weighted average of a function of one configuration."""
        ...

    def draws(self, key: PRNGKeyArray, num_draws: int) -> Array:
        """Unweighted draws."""
        ...


class _Record(NamedTuple):
    """What is kept of a proposal; arrays over proposals once they are made."""

    log_normalizer: Any
    observables: dict[str, Any]
    configuration: Any | None


def pimh(
    key: PRNGKeyArray,
    propose: Callable[[PRNGKeyArray], Proposal],
    *,
    num_steps: int,
    num_chains: int = 1,
    observables: Mapping[str, Callable[[Array], Array]] | None = None,
    configurations: bool = False,
    callback: Callback | Iterable[Callback] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike | Checkpoint | None = None,
) -> Chain:
    """Run particle independent Metropolis-Hastings.

    Args:
        key: Random key.
        propose: From a key to a `Result`: `lambda key: sampler.run(key, flows)`.
        num_steps: Iterations per chain, the first proposal included.
        num_chains: Independent chains, one after the other.
        observables: Functions of one configuration, by name; the configuration itself
            if left out.
        configurations: Keep one unweighted configuration per iteration.
        callback: One or several functions of a `ChainSnapshot`, called after each
            device call.
        progress: Show progress.
        checkpoint: A folder, or a `Checkpoint` that also says how often. The proposals
            are saved there while they are made, on SIGINT, SIGTERM and at the end; the
            same call then goes on from there, with the same numbers to the bit.

    Raises:
        InvalidInputError: If the checkpoint is of other chains.
        FileError: If no checkpoint can be read.
        Interrupted: A KeyboardInterrupt, after the proposals were saved.
    """
    for name, value in (("num_steps", num_steps), ("num_chains", num_chains)):
        if int(value) != value or value < 1:
            raise InvalidInputError(
                f"{name} must be a positive whole number, got {value}"
            )
    functions = dict(observables) if observables is not None else {"x": lambda x: x}
    key_propose, key_accept = jr.split(key)
    record = _recorder(propose, functions, configurations)
    work = _Proposals(num_steps * num_chains)
    store = as_checkpoint(checkpoint)
    identity = {}
    if store is not None:
        identity = {
            "work": "pimh",
            "num_steps": num_steps,
            "num_chains": num_chains,
            "configurations": configurations,
            "key": fingerprint(key),
            "propose": fingerprint(propose),
            "observables": fingerprint(functions),
        }
        if (saved := store.latest(identity)) is not None:
            work.restore(saved, eqx.filter_eval_shape(record, key))
    if work.done < work.total:
        keeper = None if store is None else _Keeper(store, identity, work)
        _propose_all(
            key_propose, record, work, as_callbacks(callback), progress, keeper
        )
    records, seconds = work.records, work.seconds
    log_z = np.asarray(records.log_normalizer, np.float64)
    log_z = np.where(np.isnan(log_z), -np.inf, log_z).reshape(num_chains, num_steps)
    uniforms = np.asarray(jr.uniform(key_accept, log_z.shape), np.float64)
    state, accepted = _metropolis(log_z, uniforms)

    def follow(values: np.ndarray) -> np.ndarray:
        proposals = values.reshape(num_chains, num_steps, *values.shape[1:])
        return proposals[np.arange(num_chains)[:, None], state]

    return Chain(
        observables={name: follow(records.observables[name]) for name in functions},
        log_normalizer=follow(log_z.reshape(-1)),
        accepted=accepted,
        proposed_log_normalizer=log_z,
        configurations=(
            None if records.configuration is None else follow(records.configuration)
        ),
        seconds=seconds,
    )


def _metropolis(
    log_z: np.ndarray, uniforms: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Index of the proposal that each iteration stands on, and acceptances."""
    if not np.all(np.any(log_z > -np.inf, axis=1)):
        raise SamplingError(
            "every proposal of a chain has Z = 0: all particles died in each of them; "
            "run the sampler by itself to see at which temperature"
        )
    state = np.zeros(log_z.shape, int)
    accepted = np.zeros(log_z.shape, bool)
    for chain, row in enumerate(log_z):
        current = 0
        for j, proposal in enumerate(row):
            ratio = proposal - row[current] if row[current] > -np.inf else np.inf
            if j == 0 or np.log(uniforms[chain, j]) < ratio:
                current = j
                accepted[chain, j] = True
            state[chain, j] = current
    return state, accepted


def _recorder(propose, functions, configurations) -> Callable[[PRNGKeyArray], _Record]:
    """From a key to what is kept of a proposal."""

    def record(key: PRNGKeyArray) -> _Record:
        key, key_draw = jr.split(key)
        result = propose(key)
        return _Record(
            result.log_normalizer,
            {name: result.expectation(f) for name, f in functions.items()},
            result.draws(key_draw, 1)[0] if configurations else None,
        )

    return record


class _Proposals:
    """Proposals under way: all that a checkpoint holds."""

    def __init__(self, total: int):
        self.total = total
        self.chunks: list[_Record] = []
        self.done, self.seconds = 0, 0.0

    @property
    def records(self) -> _Record:
        self.chunks = [jax.tree.map(lambda *a: np.concatenate(a), *self.chunks)]
        return self.chunks[0]

    def restore(self, saved: Saved, shapes: _Record) -> None:
        self.done, self.seconds = saved.meta["done"], saved.meta["seconds"]
        like = jax.tree.map(
            lambda leaf: np.empty((self.done, *leaf.shape), leaf.dtype), shapes
        )
        self.chunks = [saved.restore(like)]


class _Keeper(NamedTuple):
    """Saves proposals now and then."""

    store: Checkpoint
    identity: dict[str, Any]
    work: _Proposals

    def save(self) -> None:
        work = self.work
        self.store.save(
            work.records,
            identity=self.identity,
            meta={"done": work.done, "seconds": work.seconds},
            step=work.done,
        )

    def after_call(self, signals: Signals) -> None:
        work = self.work
        if signals.pending is not None or self.store.due(work.done):
            self.save()
        signals.stop_if_asked(
            f"stopped after {work.done} of {work.total} proposals; the same call goes "
            f"on from the checkpoint in {self.store.folder}"
        )


def _propose_all(key, record, work: _Proposals, callbacks, progress, keeper) -> None:
    """Make the proposals that are left, several per device call."""
    # Arrays that `propose` closes over become inputs, not constants of the program.
    converted = eqx.filter_closure_convert(record, key)
    capacity = min(work.total, _MAX_PER_CALL)
    compiled = _advance.lower(  # type: ignore[attr-defined]
        converted, key, jnp.asarray(0), jnp.asarray(0), capacity
    ).compile()
    size = 1
    with (
        Lines("proposals", work.total, enabled=progress, start=work.done) as display,
        contextlib.nullcontext() if keeper is None else deferred_signals() as signals,
    ):
        while work.done < work.total:
            count = min(size, capacity, work.total - work.done)
            began = time.perf_counter()
            start = jnp.asarray(work.done)
            buffer = jax.block_until_ready(
                compiled(converted, key, start, jnp.asarray(count), capacity)
            )
            elapsed = time.perf_counter() - began
            new = jax.tree.map(lambda a, n=count: np.asarray(a[:n]), buffer)
            work.chunks.append(new)
            work.seconds += elapsed
            work.done += count
            size = max(1, int(_SECONDS_PER_CALL * count / max(elapsed, 1e-6)))
            display.update(work.done, f"log Z {new.log_normalizer[-1]:.3f}")
            snapshot = ChainSnapshot(
                work.done, work.total, new.log_normalizer, new.observables, work.seconds
            )
            call_all(callbacks, snapshot)
            if keeper is not None:
                keeper.after_call(signals)
    if keeper is not None:
        keeper.save()


@eqx.filter_jit
def _advance(
    record: Callable[[PRNGKeyArray], PyTree],
    key: PRNGKeyArray,
    start: Int[Array, ""],
    count: Int[Array, ""],
    capacity: int,
) -> PyTree:
    buffer = jax.tree.map(
        lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype),
        record.out_struct,  # type: ignore[attr-defined]
    )

    def body(i, buffer):
        one = record(jr.fold_in(key, start + i))
        return jax.tree.map(lambda all, new: all.at[i].set(new), buffer, one)

    return jax.lax.fori_loop(0, count, body, buffer)

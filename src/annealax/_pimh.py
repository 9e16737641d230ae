r"""Particle independent Metropolis-Hastings (Appendix D).

Each iteration runs a sampler afresh and accepts the whole population with probability

$$\min\{1, \hat Z^\star / \hat Z\},$$

which makes averages over iterations exact for any number of particles.

The proposals do not depend on the state of the chain. So they are made first, on the
device, keeping of each only log Z and the weighted expectations of the observables;
accepting and rejecting is a pass over those few numbers afterwards.
"""

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import cloudpickle
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from annealax._arviz import chains_to_arviz
from annealax._checks import whole_number
from annealax._errors import SamplingError
from annealax._estimates import ByName, integrated_autocorrelation_time
from annealax._keys import key_message, read_key
from annealax._words import listed
from annealax._work.checkpoint import Checkpoint, as_checkpoint
from annealax._work.copies import compile_copies, num_devices_of, side_by_side
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
from annealax._work.executors import (
    Workers,
    as_message,
    as_workers,
    settings_as,
    settings_here,
)
from annealax._work.fingerprint import fingerprint

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


class Chain(NamedTuple):
    """Chains of particle independent Metropolis-Hastings.

    Attributes:
        observables: Weighted expectation of each observable in the current
            population: arrays over (chains, iterations, ...).
        log_normalizer: log Z of the current population.
        accepted: Whether the iteration's proposal was accepted.
        proposed_log_normalizer: log Z of every proposal, accepted or not.
        configurations: One unweighted configuration per iteration, or None; by name
            where the parts of a configuration have names.
        seconds: Time to make the proposals, compilation apart.
        num_devices: Devices of this process, or of each worker, that made them.
    """

    observables: dict[str, np.ndarray]
    log_normalizer: np.ndarray
    accepted: np.ndarray
    proposed_log_normalizer: np.ndarray
    configurations: Any
    seconds: float
    num_devices: int = 1

    def __repr__(self) -> str:
        """What was found, in a line."""
        chains, steps = self.accepted.shape
        return (
            f"<Chain: {chains} x {steps} iterations, {self.acceptance_rate:.0%} of "
            f"proposals accepted; observables {listed(list(self.observables))}>"
        )

    def _repr_html_(self) -> str:
        """What was found, in a notebook."""
        from annealax.report.notebook import chain_html  # noqa: PLC0415

        return chain_html(self)

    @property
    def acceptance_rate(self) -> float:
        """Fraction of proposals accepted, the first of each chain left out."""
        return float(self.accepted[:, 1:].mean()) if self.accepted.shape[1] > 1 else 1.0

    def to_arviz(self, attributes: Mapping[str, Any] | None = None) -> Any:
        """The chains for ArviZ; needs the extra `annealax[arviz]`.

        Configurations, which are unweighted draws, are its posterior. Observables are
        expectations in whole populations, which vary less than draws do: they are in
        `sample_stats`, with log Z and acceptance.

        Args:
            attributes: Facts to keep with it, by name.
        """
        statistics = {
            "accepted": self.accepted,
            "log_normalizer": self.log_normalizer,
            "proposed_log_normalizer": self.proposed_log_normalizer,
            **self.observables,
        }
        return chains_to_arviz(self.configurations, statistics, attributes)

    @property
    def mean(self) -> "ByName":
        """Estimate of each expectation: the average over iterations."""
        return ByName(
            {k: np.asarray(v.mean(axis=(0, 1))) for k, v in self.observables.items()}
        )

    @property
    def autocorrelation_time(self) -> "ByName":
        """Integrated autocorrelation time of each trace, in iterations; at least 1."""
        return ByName(
            {
                name: integrated_autocorrelation_time(trace)
                for name, trace in self.observables.items()
            }
        )

    @property
    def stderr(self) -> "ByName":
        """Standard error of each mean, autocorrelation included."""
        errors = ByName()
        for name, time_ in self.autocorrelation_time.items():
            trace = self.observables[name]
            count = trace.shape[0] * trace.shape[1]
            variance = trace.var(axis=(0, 1), ddof=1) if count > 1 else np.inf
            errors[name] = np.asarray(np.sqrt(variance * time_ / count))
        return errors

    def derived(
        self, function: Callable[[dict[str, np.ndarray]], Any], num_blocks: int = 50
    ) -> tuple[np.ndarray, np.ndarray]:
        """A function of the expectations, with its standard error (block jackknife).

        Args:
            function: From the dictionary of expectations to a number or an array, for
                instance the Binder cumulant.
            num_blocks: Blocks of consecutive iterations that are left out in turn.

        Returns:
            Its value and its standard error.
        """
        flat = {
            k: v.reshape(-1, *v.shape[2:]).astype(np.float64)
            for k, v in self.observables.items()
        }
        length = self.accepted.size
        blocks = np.array_split(np.arange(length), min(num_blocks, length))
        totals = {k: v.sum(axis=0) for k, v in flat.items()}
        value = np.asarray(function({k: v / length for k, v in totals.items()}))
        left_out = np.stack(
            [
                np.asarray(
                    function(
                        {
                            k: (totals[k] - flat[k][block].sum(axis=0))
                            / (length - len(block))
                            for k in flat
                        }
                    )
                )
                for block in blocks
                if len(block) < length
            ]
            or [np.full_like(value, np.nan)]
        )
        n = len(left_out)
        spread = left_out - left_out.mean(axis=0)
        return value, np.asarray(np.sqrt((n - 1) / n * np.sum(spread**2, axis=0)))

    @property
    def log_normalizer_variance(self) -> float:
        """Variance of log Z over proposals; about 1 is the best use of a budget."""
        finite = self.proposed_log_normalizer[np.isfinite(self.proposed_log_normalizer)]
        return float(np.var(finite, ddof=1)) if finite.size > 1 else float("nan")

    def advice(self, num_particles: int) -> str:
        """What the variance of log Z says about the number of particles.

        Pitt et al. (2012): a variance near 1 is the best use of a budget, and it falls
        as one over the number of particles.
        """
        variance = self.log_normalizer_variance
        best = max(1, round(num_particles * variance))
        if not np.isfinite(variance):
            return "too few proposals to say anything about the number of particles"
        text = f"Var(log Z) is {variance:.2g} at {num_particles} particles"
        if variance > 2:
            return f"{text}: too noisy; use about {best} particles, or train longer"
        if variance < 0.5:
            return (
                f"{text}: below 1, so {_particles(best)} would mix about as well per "
                "iteration at a fraction of the cost; keep more only if memory and "
                "vectorisation make them cheap"
            )
        return f"{text}: near 1, the best use of a budget"


def _particles(count: int) -> str:
    return "one particle" if count == 1 else f"{count} particles"


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
    progress: bool | None = None,
    checkpoint: str | os.PathLike | Checkpoint | None = None,
    executor: Any = None,
) -> Chain:
    """Run particle independent Metropolis-Hastings.

    Args:
        key: Random key.
        propose: From a key to a `Result`: `lambda key: sampler.run(key, flows)`.
        num_steps: Iterations per chain, the first proposal included.
        num_chains: Independent chains, one after the other.
        observables: Functions of one configuration, by name; if left out, the
            configuration itself, or each of its parts where these have names.
        configurations: Keep one unweighted configuration per iteration.
        callback: One or several functions of a `ChainSnapshot`, called after each
            device call.
        progress: Show progress; None for on a
            terminal only.
        checkpoint: A folder, or a `Checkpoint` that also says how often. The proposals
            are saved there while they are made, on SIGINT, SIGTERM and at the end; the
            same call then goes on from there, with the same numbers to the bit.
        executor: Where proposals are made: None for this process, each of its devices
            with proposals of its own; a number of processes; or anything with the
            interface of `concurrent.futures`, such as `dask.distributed.Client`
            (docs/executors.md). The chain is the same to the bit.

    Raises:
        InvalidInputError: If the checkpoint is of other chains, or `propose` cannot be
            sent to other processes.
        FileError: If no checkpoint can be read.
        Interrupted: A KeyboardInterrupt, after the proposals were saved.
    """
    num_steps = whole_number("num_steps", num_steps)
    num_chains = whole_number("num_chains", num_chains)
    functions = None if observables is None else dict(observables)
    key_propose, key_accept = jr.split(key)
    what = (propose, functions, configurations)
    total = num_steps * num_chains
    workers = as_workers(executor)
    with contextlib.ExitStack() as stack:
        if workers is None:
            advance = _Calls(key_propose, _recorder(*what), total).advance
        else:
            stack.enter_context(workers)
            advance = _Elsewhere(workers, key_propose, what, total).advance
        work = drive(
            advance,
            _Proposals(total=total),
            label="proposals",
            unit="proposals",
            describe=lambda snapshot: f"log Z {snapshot.log_normalizer[-1]:.3f}",
            callbacks=as_callbacks(callback),
            may_stop=False,
            progress=progress,
            store=as_checkpoint(checkpoint),
            identity=lambda: {
                "work": "pimh",
                "num_steps": num_steps,
                "num_chains": num_chains,
                "configurations": configurations,
                "key": fingerprint(key),
                "propose": fingerprint(propose),
                "observables": fingerprint(functions),
            },
        )
    (records,) = work.compact().chunks
    log_z = np.asarray(records.log_normalizer, np.float64)
    log_z = np.where(np.isnan(log_z), -np.inf, log_z).reshape(num_chains, num_steps)
    uniforms = np.asarray(jr.uniform(key_accept, log_z.shape), np.float64)
    state, accepted = _metropolis(log_z, uniforms)

    def follow(values: np.ndarray) -> np.ndarray:
        proposals = values.reshape(num_chains, num_steps, *values.shape[1:])
        return proposals[np.arange(num_chains)[:, None], state]

    return Chain(
        observables={
            name: follow(records.observables[name])
            for name in functions or records.observables
        },
        log_normalizer=follow(log_z.reshape(-1)),
        accepted=accepted,
        proposed_log_normalizer=log_z,
        configurations=jax.tree.map(follow, records.configuration),
        seconds=work.seconds,
        num_devices=work.num_devices,
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
        if functions is None:
            mean = result.expectation(lambda x: x)
            found = dict(mean) if isinstance(mean, Mapping) else {"x": mean}
        else:
            found = {name: result.expectation(f) for name, f in functions.items()}
        draws = result.draws(key_draw, 1) if configurations else None
        draw = jax.tree.map(lambda leaf: leaf[0], draws)
        return _Record(result.log_normalizer, found, draw)

    return record


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Proposals(Work):
    """Proposals under way."""

    chunks: tuple[_Record, ...] = ()
    size: int = 1
    num_devices: int = 1

    def compact(self) -> "_Proposals":
        """With all proposals in one piece."""
        if len(self.chunks) < 2:
            return self
        return dataclasses.replace(self, chunks=(joined(self.chunks),))


class _Calls:
    """Device calls, each of several proposals; every device makes its own."""

    def __init__(
        self, key: PRNGKeyArray, record: Callable[[PRNGKeyArray], _Record], total: int
    ):
        self._key, self._record = key, record
        self.capacity = min(total, _MAX_PER_CALL)
        self._compiled: list[Program] = []

    def advance(self, work: "_Proposals") -> tuple["_Proposals", ChainSnapshot]:
        """Make some of the proposals that are left."""
        if not self._compiled:
            self._compile(work.total - work.done)
        tasks = _shares(work, self.capacity, len(self._compiled))
        calls = [functools.partial(self._call, each) for each in self._compiled]
        found = dict(side_by_side(calls, tasks))
        used = num_devices_of(self._compiled[: len(tasks)])
        return _with_more(work, found, tasks[0][1], used)

    def make(self, start: int, count: int) -> tuple[_Record, float]:
        """So many proposals, and the seconds that this took, compilation apart."""
        if not self._compiled:
            self._compile(1)
        return self._call(self._compiled[0], start, count)

    def _compile(self, num_tasks: int) -> None:
        # Arrays that `propose` closes over become inputs, not constants.
        zero = jnp.asarray(0)

        def compile_here():
            self._record = eqx.filter_closure_convert(self._record, self._key)
            arguments = (self._record, self._key, zero, zero, self.capacity)
            return compile_ahead(_advance, *arguments)

        self._compiled = compile_copies(compile_here, num_tasks)

    def _call(self, program: Program, start: int, count: int) -> tuple[_Record, float]:
        numbers = (jnp.asarray(start), jnp.asarray(count))
        began = time.perf_counter()
        buffer = jax.block_until_ready(
            program.run(self._record, self._key, *numbers, self.capacity)
        )
        elapsed = time.perf_counter() - began
        return jax.tree.map(lambda leaf: np.asarray(leaf[:count]), buffer), elapsed


class _Elsewhere:
    """Calls on workers: the same program, with the same numbers."""

    def __init__(
        self, workers: Workers, key: PRNGKeyArray, what: tuple[Any, ...], total: int
    ):
        self._workers, self._capacity = workers, min(total, _MAX_PER_CALL)
        self._message = as_message(
            (key_message(key), what, total), "what `propose` holds"
        )

    def advance(self, work: "_Proposals") -> tuple["_Proposals", ChainSnapshot]:
        """A task for each worker."""
        shares = _shares(work, self._capacity, self._workers.count)
        tasks = [(self._message, *each, settings_here()) for each in shares]
        found = dict(self._workers.each(_make_here, tasks))
        return _with_more(work, found, shares[0][1], work.num_devices)


def _shares(work: "_Proposals", capacity: int, places: int) -> list[tuple[int, int]]:
    """Where the next call begins at every place, and how many proposals it makes."""
    left = work.total - work.done
    count = min(work.size, capacity, -(-left // places))
    starts = range(work.done, work.total, count)[:places]
    return [(start, min(count, work.total - start)) for start in starts]


def _with_more(
    work: "_Proposals",
    found: dict[int, tuple[_Record, float]],
    count: int,
    num_devices: int,
) -> tuple["_Proposals", ChainSnapshot]:
    """With more proposals, in order, and how many to make next time."""
    record = joined(found[index][0] for index in range(len(found)))
    elapsed = max(seconds for _, seconds in found.values())
    work = dataclasses.replace(
        work,
        done=work.done + len(record.log_normalizer),
        seconds=work.seconds + elapsed,
        chunks=(*work.chunks, record),
        size=size_of_next_call(count, elapsed, _SECONDS_PER_CALL),
        num_devices=max(work.num_devices, num_devices),
    )
    return work, ChainSnapshot(
        work.done, work.total, record.log_normalizer, record.observables, work.seconds
    )


def _make_here(
    message: bytes, start: int, count: int, settings: dict[str, Any]
) -> tuple[_Record, float]:
    """What a worker is asked."""
    with settings_as(settings):
        return _calls_of(message, tuple(settings.items())).make(start, count)


@functools.lru_cache(maxsize=1)  # compiled once in a worker
def _calls_of(message: bytes, _: tuple) -> _Calls:
    key, what, total = cloudpickle.loads(message)
    return _Calls(read_key(key), _recorder(*what), total)


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

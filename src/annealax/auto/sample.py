"""`annealax.sample`: a log density in, samples and log Z out.

Four stages, of which only the last makes the answer:

1. a start, and coordinates in which the density is tame (`search`);
2. temperatures, step sizes and trajectory lengths, over a few passes (`tuning`);
3. flows, if they pay (`flows`);
4. independent runs of the sampler so found, frozen, and reasons to doubt them.
"""

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, PRNGKeyArray
from rich.console import Console

from annealax._checks import seed_number, unknown_name, whole_number
from annealax._errors import InvalidInputError
from annealax._estimates import log_mean
from annealax._keys import named_key
from annealax._result import Result
from annealax._sampler import Sampler
from annealax._work.budget import Budget, as_budget
from annealax._work.checkpoint import Checkpoint, as_checkpoint
from annealax._work.drive import Callback, as_callbacks, call_all
from annealax._work.fingerprint import fingerprint
from annealax.auto._kept import Kept
from annealax.auto.density import CountedDensity, FreeDensity
from annealax.auto.doubts import doubts
from annealax.auto.flows import FAMILIES, choose_flows, families_for, train_flows
from annealax.auto.modes import Ascents, find_modes
from annealax.auto.parameters import Space, Support
from annealax.auto.result import ReplicateSnapshot, Sample, Stage, pool_replicates
from annealax.auto.search import MANY_DIMENSIONS, num_unseen, search
from annealax.auto.tuning import Measured, tune

_PARTICLES, _FEW_PARTICLES = 1000, 500
"""Particles of a replicate; the latter in many dimensions."""

_MIN_REPLICATES, _MAX_REPLICATES = 4, 256
"""With a budget: error bars need the former, nobody needs more than the latter."""

_REPLICATES, _DEAR_REPLICATES, _AT_MOST = 16, 8, 4
"""Without one: at least so many, the latter in many dimensions, up to four times."""

_SHARE = 2
"""The answer gets at least so many times what the search for its sampler took."""

_PRECISE = 0.03
"""In many dimensions, where evaluations are dear, an error of this size is enough."""

_GOOD_ENOUGH = 0.05
"""Flows are not tried where the error of log Z will be below this."""

FLOW_CHOICES = ("auto", "none", *FAMILIES)
"""What `flow` can be."""

Say = Callable[[str], None]


def sample(  # noqa: PLR0915 (four stages, one after the other)
    log_density: Callable[[Any], Array],
    shape: int | Sequence[int] | Mapping[str, int | Sequence[int]] | None = None,
    *,
    seed: int = 0,
    budget: Budget | str | float | None = None,
    support: Support | Mapping[str, Support] = None,
    flow: str = "auto",
    num_particles: int | None = None,
    num_replicates: int | None = None,
    progress: bool | Say = False,
    callback: Callback | Iterable[Callback] | None = None,
    checkpoint: Checkpoint | str | os.PathLike | None = None,
) -> Sample:
    """Draw from an unnormalised density and estimate its normalising constant.

    Everything is chosen for you: where to start, temperatures, step sizes, flows. The
    answer comes from independent runs of the sampler so found, so that the estimate
    of Z is unbiased and its error bar honest. Read `result.summary()`, and above all
    `result.warnings()`.

    Args:
        log_density: Log density of one point, up to a constant; any JAX function.
        shape: Shape of a point such as `(2,)`; or a dict of shapes by name, and the
            density takes a dict. None for a target that has a `shape`.
        seed: Seed of all that is random.
        budget: None; or a time such as "60s" or "5m"; or a number of density
            evaluations. More budget buys more replicates.
        support: Where parameters may lie: "real", "positive", "unit" (0 to 1),
            "simplex" (along the last axis), a pair of bounds such as `(0, 10)` or
            `(None, 3)`, or a flowjax bijection from the reals. For named shapes a
            dict of some of the names. The Jacobian is counted: log Z is that of the
            density in its own space.
        flow: "auto", "none", or the name of a family to use in any case.
        num_particles: Particles of a replicate; None to choose.
        num_replicates: Independent runs behind the answer; None to choose.
        progress: Say what is going on; or a function that is called with each line.
        callback: One or several functions of a `ReplicateSnapshot`, such as
            `annealax.loggers.CSV(path)`, called after each replicate.
        checkpoint: Folder in which replicates and decisions are kept as they come. A
            call with the same arguments goes on from there, with the same answer to
            the bit; only the search for a start and the tuning are made again.

    Raises:
        InvalidInputError: If the arguments do not fit together.
        SamplingError: If the density cannot be sampled from any start.
    """
    free = free_density(log_density, shape, support)
    if flow not in FLOW_CHOICES:
        raise unknown_name("flow", str(flow), FLOW_CHOICES)
    for name, number in (
        ("num_particles", num_particles),
        ("num_replicates", num_replicates),
    ):
        if number is not None:
            whole_number(name, number, at_least=2)
    key, allowed = jr.key(seed_number(seed)), as_budget(budget)
    spending = allowed and dataclasses.astuple(allowed)
    numbers = (int(seed), flow, num_particles, num_replicates, spending)
    arguments = fingerprint((log_density, shape, support, *numbers))
    kept = Kept(as_checkpoint(checkpoint), {"work": "sample", "arguments": arguments})
    callbacks, say = as_callbacks(callback), _teller(progress)
    density = CountedDensity(free, free.space.size)
    many = density.size > MANY_DIMENSIONS
    ledger = Ledger(density)

    say(f"looking for a start in {density.size} dimensions")
    with ledger.stage("start"):
        seen = search(named_key(key, "search"), density, say)
    best = seen.best
    assert best is not None

    say(f"start: {best.name}")
    with ledger.stage("tuning"):
        count = num_particles or (_FEW_PARTICLES if many else _PARTICLES)
        plan, measured = tune(named_key(key, "tuning"), density, best, count)
    sampler = plan.sampler(free)

    say(f"tuned: {plan.num_transitions} transitions, {plan.num_leapfrog} leapfrogs")

    def affordable(name: str) -> int:
        # With a budget of time the clock decides, so what it decided is kept.
        def compute() -> np.ndarray:
            return np.asarray(ledger.replicates(allowed, measured, many))

        if num_replicates is not None:
            return num_replicates
        return int(kept.once(name, compute, like=np.asarray(0)))

    with ledger.stage("flows"):
        count = affordable("likely-replicates")
        reason = _reason_against_flows(flow, allowed, measured, count)
        flows = None
        if not reason:
            subkey = named_key(key, "flows")
            flows, reason = _flows(subkey, sampler, density, flow, kept, say)

    say(f"flows: {reason}")
    with ledger.stage("answer"):
        count = affordable("replicates")
        key_answer = named_key(key, "replicates")
        results: list[Result] = []
        began = time.perf_counter()
        for index in range(count):
            compute = functools.partial(
                sampler.run, named_key(key_answer, index), flows
            )
            like = results[0] if results else None
            result = kept.once(f"replicate-{index + 1}", compute, like=like)
            results.append(jax.block_until_ready(result))
            density.spend(float(result.num_evaluations))
            seconds = time.perf_counter() - began
            call_all(callbacks, ReplicateSnapshot(index + 1, count, result, seconds))
            if (index + 1) % max(1, count // 4) == 0:
                say(f"replicate {index + 1} of {count}: {_log_normalizer(results)}")

    with ledger.stage("modes"):
        pool = pool_replicates(results, plan)
        modes = find_modes(
            named_key(key, "modes"),
            Ascents(density),
            np.asarray(pool["vectors"], np.float64),
            np.exp(np.asarray(pool["log_weights"], np.float64)),
            count,
        )
    answer = Sample(
        **pool,
        plan=plan,
        flows=flows,
        density=free,
        modes=modes,
        choices={
            "start": best.name,
            "starts tried": "; ".join(map(str, seen.tried)),
            "flows": reason,
        },
        stages=tuple(ledger.stages),
    )
    messages = doubts(answer, num_unseen(seen))
    return dataclasses.replace(answer, messages=messages)


def free_density(log_density: Any, shape: Any, support: Any) -> FreeDensity:
    """The density of one unconstrained vector, checked."""
    if not callable(log_density):
        raise InvalidInputError(
            f"log_density must be a function of one point; got {log_density!r}"
        )
    if shape is None:
        shape = getattr(log_density, "shape", None)
    if shape is None:
        raise InvalidInputError(
            "shape is needed: the shape of one point such as (2,), or a dict of "
            "shapes by name"
        )
    density = FreeDensity(log_density, Space(shape, support))
    density.check()
    return density


def _teller(progress: bool | Say) -> Say:
    """Where lines about what is going on go."""
    if callable(progress):
        return progress
    if not progress:
        return lambda text: None
    console = Console(stderr=True)
    return lambda text: console.print(text, highlight=False, style="dim")


def _log_normalizer(results: list[Result]) -> str:
    return f"log Z {log_mean([float(each.log_normalizer) for each in results]):.4f}"


class Ledger:
    """What each stage costs, in time and evaluations."""

    def __init__(self, density: CountedDensity):
        self.stages: list[Stage] = []
        self._density = density
        self._began = time.perf_counter()

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """The time that a stage takes."""
        began, before = time.perf_counter(), self._density.num_evaluations
        yield
        spent = self._density.num_evaluations - before
        self.stages.append(Stage(name, spent, time.perf_counter() - began))

    def replicates(self, budget: Budget | None, one: Measured, many: bool) -> int:
        """How many runs the budget allows."""
        spent = self._density.num_evaluations
        if budget is None:
            usual = _DEAR_REPLICATES if many else _REPLICATES
            count = _SHARE * spent / one.evaluations
            if many:
                count = min(count, (one.stderr / _PRECISE) ** 2)
            return int(np.clip(count, usual, _AT_MOST * usual))
        left, each = budget.amount - spent, float(one.evaluations)
        if budget.unit == "seconds":
            left = budget.amount - (time.perf_counter() - self._began)
            each = one.seconds
        return int(np.clip(left / each, _MIN_REPLICATES, _MAX_REPLICATES))


def _reason_against_flows(
    flow: str, budget: Budget | None, one: Measured, num_replicates: int
) -> str:
    """Why flows are not even tried; nothing if they are."""
    if flow == "none":
        return "none, as asked"
    expected = one.stderr / np.sqrt(num_replicates)
    if flow == "auto" and expected < _GOOD_ENOUGH:
        return f"not tried: without them the error of log Z is about {expected:.1g}"
    if flow == "auto" and budget is not None and num_replicates <= 2 * _MIN_REPLICATES:
        return "not tried: the budget is too small to train them"
    return ""


def _flows(
    key: PRNGKeyArray,
    sampler: Sampler,
    density: CountedDensity,
    flow: str,
    kept: Kept,
    say: Say,
) -> tuple[AbstractBijection | None, str]:
    """Flows that pay for themselves, or that were asked for, and why.

    The decision rests on the clock, and must not be taken twice.
    """
    forced = flow != "auto"
    families = (flow,) if forced else families_for(density.size)
    decided = kept.saved("flows", np.asarray(0))
    if decided is not None:
        if decided < 0:
            return None, "tried and dropped before"
        name = families[int(decided)]
        trained = train_flows(key, sampler, density, name)
        return trained, f"{name}, as decided before"
    chosen = choose_flows(key, sampler, density, families, say, forced=forced)
    index = families.index(chosen.family) if chosen.family else -1
    kept.once("flows", lambda: np.asarray(index), like=np.asarray(0))
    return chosen.flows, chosen.reason

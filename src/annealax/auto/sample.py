"""`annealax.sample`: a log density in, samples and log Z out.

Four stages, of which only the last makes the answer:

1. a start, and coordinates in which the density is tame (`search`);
2. temperatures, step sizes and trajectory lengths, over a few passes (`tuning`);
3. flows, if they pay (`flows`);
4. independent runs of the sampler so found, frozen, and reasons to doubt them.

After some of these runs comes a second look (`second`): where they contradict what was
found on the way, the attempt is given up for another with a remedy.
"""

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from annealax._checks import seed_number, unknown_name, whole_number
from annealax._errors import InvalidInputError, SamplingError
from annealax._estimates import log_mean
from annealax._jit import seconds_of_compilers
from annealax._keys import named_key, root_key
from annealax._result import Result
from annealax._work.budget import Budget, as_budget
from annealax._work.checkpoint import Checkpoint, as_checkpoint, once
from annealax._work.drive import Callback, as_callbacks, as_teller, call_all
from annealax._work.executors import as_workers
from annealax._work.fingerprint import fingerprint
from annealax._work.live import with_live_line
from annealax.auto.aim import DRAWS, PRECISION, Aim
from annealax.auto.calls import counting_calls
from annealax.auto.density import CountedDensity, FreeDensity
from annealax.auto.divide import divide
from annealax.auto.doubts import doubts
from annealax.auto.flows import FAMILIES, choose_flows, families_for
from annealax.auto.knowledge import Prior, as_prior, gather
from annealax.auto.logarithms import without_underflow
from annealax.auto.modes import Ascents, find_modes
from annealax.auto.parameters import Support
from annealax.auto.precision import with_precision
from annealax.auto.replicates import elsewhere, num_devices_used
from annealax.auto.result import (
    ReplicateSnapshot,
    Sample,
    Stage,
    error_and_draws,
    pool_replicates,
)
from annealax.auto.search import MANY_DIMENSIONS, improve, search
from annealax.auto.second import Remedy, reconsider, report_of
from annealax.auto.starts.base import Tried
from annealax.auto.tails import share_of_escapes
from annealax.auto.tuning import (
    Effort,
    Measured,
    Plan,
    run_pass,
    tune_best,
    without_best,
)
from annealax.models.base import Model
from annealax.models.plain import as_model

_PARTICLES, _FEW_PARTICLES = 1000, 500
"""Particles of a replicate; the latter in many dimensions."""

_MIN_REPLICATES, _MAX_REPLICATES = 4, 256
"""With a budget: error bars need the former, nobody needs more than the latter."""

_ATTEMPTS, _LOOK_AFTER = 3, 8
"""Attempts at an answer, and replicates after which one may be given up."""

_MOST_RUNS, _FEW_REPLICATES, _PRECISE_ENOUGH = 24, 6, 0.03
"""Where there is no gradient: so many replicates at most and at least, and enough."""

_GOOD_ENOUGH = 0.05
"""Flows are not tried where the error of log Z will be below this."""

_COMPARED = 64
"""Points at which two forms of a density are compared."""

FLOW_CHOICES = ("auto", "none", *FAMILIES)
"""What `flow` can be."""

Say = Callable[[str], None]


@with_live_line
@with_precision
@counting_calls
def sample(  # noqa: PLR0915 (four stages, one after the other)
    log_density: Callable[[Any], Array] | Model,
    shape: Any = None,
    *,
    args: Sequence[Any] = (),
    seed: int = 0,
    budget: Budget | str | float | None = None,
    support: Support = None,
    prior: Any = None,
    region: Any = None,
    initial: Any = None,
    flow: str = "auto",
    precision: float | None = None,
    draws: int | None = None,
    dtype: Any = None,
    num_particles: int | None = None,
    num_replicates: int | None = None,
    progress: bool | Say | None = None,
    callback: Callback | Iterable[Callback] | None = None,
    checkpoint: Checkpoint | str | os.PathLike | None = None,
    executor: Any = None,
) -> Sample:
    """Draw from an unnormalised density and estimate its normalising constant.

    Everything is chosen for you: where to start, temperatures, step sizes, flows. The
    answer comes from independent runs of the sampler so found, so that the estimate
    of Z is unbiased and its error bar honest. Read `result.summary()`, and above all
    `result.warnings()`.

    Args:
        log_density: Log density of one point, up to a constant; any JAX function. Or
            a model, such as `annealax.from_numpyro(model, *data)` (docs/models.md),
            which has `shape`, `support` and `prior` of its own.
        shape: Shape of a point such as `(2,)`; or a dict of shapes by name, and the
            density takes a dict; or shapes in any nesting of dicts, tuples, lists and
            named tuples. None for a target that has a `shape`.
        args: Further arguments of the density, such as data: `log_density(x, *args)`.
            What is compiled serves all data of the same shapes.
        seed: Seed of all that is random.
        budget: None; or a time such as "60s" or "5m"; or a number of density
            evaluations. All of it is used: more budget buys more replicates.
        support: Where parameters may lie: "real", "positive", "unit" (0 to 1),
            "simplex" (along the last axis), "ordered", "positive_ordered",
            "correlation_cholesky", "circular", `("periodic", 0, 24)`, "unit_vector",
            a pair of bounds such as `(0, 10)` or `(None, 3)`, a constraint of NumPyro,
            a flowjax bijection from the reals, or a function of the parameters before
            it. For named shapes a dict of some of the names; for nested ones, in the
            same structure. The Jacobian is counted: log Z is that of the
            density in its own space.
        prior: If given, `log_density` is the log likelihood alone, log Z the evidence,
            and the search goes where the prior has mass. A distribution of flowjax or
            NumPyro, a dict of them by name, or a pair of functions: one draw from a
            key, and the normalised log density. The shape is that of its draws.
        region: Where all the mass lies, if there is no prior: `(lowest, highest)`, or
            a scale for minus to plus that; for named shapes a dict of these. Only
            where to look: nothing is cut off.
        initial: Points that you know (modes, another sampler's draws): one as the
            density takes it, or several along a first axis. They are looked at beside
            all else.
        flow: "auto", "none", or the name of a family to use in any case.
        precision: Standard error of log Z that is wanted; None for 0.02. Runs are added
            until the answer states no more than that, unless `budget` or
            `num_replicates` say how many there shall be. A warning says so if it was
            not reached.
        draws: Effective draws that are wanted; None for 4000.
        dtype: "float64" runs this call in double precision, "float32" in single; None
            as JAX is set.
        num_particles: Particles of a replicate; None to choose.
        num_replicates: Independent runs behind the answer; None to choose.
        progress: Say what is going on, with a live line where there is a terminal; or
            a function that is called with each line. None for on a terminal only.
        callback: One or several functions of a `ReplicateSnapshot`, such as
            `annealax.loggers.CSV(path)`, called after each replicate.
        checkpoint: Folder in which replicates and decisions are kept as they come. A
            call with the same arguments goes on from there, with the same answer to
            the bit; only the search for a start and the tuning are made again.
        executor: Where replicates are made: None for this process; a number of
            processes; or anything with the interface of `concurrent.futures`, such as
            `dask.distributed.Client` (docs/executors.md). The answer is the same to
            the bit.

    Raises:
        InvalidInputError: If the arguments do not fit together.
        SamplingError: If the density cannot be sampled from any start.
    """
    prior = None if prior is None else as_prior(prior)
    model = as_model(log_density, shape, support, prior, args)
    free = model.free()
    for name, number in (
        ("num_particles", num_particles),
        ("num_replicates", num_replicates),
    ):
        if number is not None:
            whole_number(name, number, at_least=2)
    aim = Aim(
        PRECISION if precision is None else precision, DRAWS if draws is None else draws
    )
    is_asked = precision is not None or draws is not None
    key, allowed = root_key(seed_number(seed)), as_budget(budget)
    spending = allowed and dataclasses.astuple(allowed)
    numbers = (int(seed), flow, num_particles, num_replicates, spending, aim)
    given = (log_density, args, shape, support, prior, region, initial, str(dtype))
    arguments = fingerprint((*given, *numbers))
    identity = {"work": "sample", "arguments": arguments}
    store = as_checkpoint(checkpoint)

    def keep(label: str, name: str, compute: Callable[[], Any]) -> Any:
        return once(store, label + name, compute, identity=identity)

    workers = as_workers(executor)
    callbacks, say = as_callbacks(callback), as_teller(progress)
    known = gather(named_key(key, "known"), free.space, model.prior, region, initial)
    some = known.places.draw(named_key(key, "some"), _COMPARED)
    free = without_underflow(free, some.points)
    density = CountedDensity(free, free.space.size)
    _check_flow(flow, density)
    many = density.size > MANY_DIMENSIONS
    ledger = Ledger(density, getattr(say, "stage", None))

    def far_out(name: str, x: np.ndarray, weights: np.ndarray) -> float:
        # A likelihood is bounded far out, so that a proper prior makes all finite.
        if model.prior is not None:
            return 0.0
        subkey, limited = named_key(key, name), known.is_limited
        ascents = Ascents(seen.climbed)
        return share_of_escapes(subkey, ascents, x, weights, is_limited=limited)

    say(f"looking for a start in {density.size} dimensions")
    with ledger.stage("start"):
        seen = search(named_key(key, "search"), density, known, say)
        seen = divide(seen, known, say)
        # A pass may have seen no more than a spot of a flat part: nothing is far there.
        usable = [each for each in seen.tried if each.first.usable]
        first = max(usable, key=_width)
        escapes = far_out("first tails", first.x, first.weights)
    # Where there is no integral, no effort brings an answer nearer to it.
    attempts = 1 if escapes else _ATTEMPTS

    def affordable(label: str, name: str, measured: Measured) -> int:
        if num_replicates is not None:
            return num_replicates
        # With a budget of time the clock decides, so what it decided is kept.
        return keep(label, name, lambda: ledger.replicates(allowed, measured, aim))

    is_free = num_replicates is None and allowed is None and density.has_gradient

    effort, history = Effort(), []
    for attempt in range(attempts):
        label = f"again-{attempt}-" if attempt else ""
        subkey = named_key(key, "again", attempt) if attempt else key
        with ledger.stage("tuning"):
            few = many or not density.has_gradient
            count = num_particles or (_FEW_PARTICLES if few else _PARTICLES)
            subkey_tuning = named_key(subkey, "tuning")
            seen, plan, measured = tune_best(subkey_tuning, seen, count, effort, say)
        start = seen.best.name if seen.best else ""
        sampler = plan.sampler(free)
        say(f"start: {start}")
        say(f"tuned: {plan.num_transitions} transitions of {plan.num_leapfrog} steps")

        with ledger.stage("flows"):
            count = affordable(label, "likely-replicates", measured)
            reason = _reason_against_flows(
                flow, allowed, measured, count, effort, density
            )
            if escapes and flow == "auto":
                reason = "not tried: the density may not have a finite integral"
            flows = None
            if not reason:
                families = families_for(density.size) if flow == "auto" else (flow,)
                choose = functools.partial(
                    choose_flows,
                    named_key(subkey, "flows"),
                    sampler,
                    density,
                    families,
                    say,
                    forced=flow != "auto",
                )
                # The decision rests on the clock, and must not be taken twice.
                chosen = keep(label, "flows", choose)
                flows, reason = chosen.flows, chosen.reason

        say(f"flows: {reason}")
        with ledger.stage("answer"):
            count = affordable(label, "replicates", measured)
            last = attempt + 1 == attempts
            look = functools.partial(reconsider, seen, plan, measured, effort)
            missing = functools.partial(_missing, aim, plan) if is_free else None
            makes = elsewhere(workers, sampler, flows)
            try:
                results, remedy = _replicates(
                    functools.partial(run_pass, sampler, flows=flows),
                    named_key(subkey, "replicates"),
                    count,
                    functools.partial(keep, label),
                    density,
                    callbacks,
                    say,
                    None if last else look,
                    missing,
                    makes,
                )
            except SamplingError as error:
                # A rare draw was where the density overflows.
                if last:
                    raise
                remedy = Remedy(str(error), without_best(seen, error), effort)
            finally:
                if workers is not None:
                    workers.close()
        if remedy is None:
            break
        say(f"going back: {remedy.reason}")
        history.append(remedy.reason)
        with ledger.stage("start"):
            seen, effort = remedy.seen, remedy.effort
            if not remedy.is_settled:
                seen = divide(improve(seen, say), known, say)

    with ledger.stage("modes"):
        pool = pool_replicates(results, plan)
        x = np.asarray(pool["vectors"], np.float64)
        weights = np.exp(np.asarray(pool["log_weights"], np.float64))
        ascents = Ascents(seen.climbed)
        subkey, count = named_key(key, "modes"), len(results)
        modes = find_modes(subkey, ascents, x, weights, count)
        escapes = max(escapes, far_out("tails", x, weights))
        value = log_mean([float(each.log_normalizer) for each in results])
        at_modes = seen.at_modes
        lost = 0.0 if at_modes is None else at_modes.lost(x, weights, value)
    answer = Sample(
        **pool,
        plan=plan,
        flows=flows,
        density=free,
        model=model,
        modes=modes,
        search=report_of(seen, known, lost),
        choices={
            "start": start,
            "starts tried": "; ".join(map(str, seen.tried)),
            "flows": reason,
            "second thoughts": "; ".join(history) or "none",
        },
        stages=ledger.summed(),
        num_devices=num_devices_used(makes, results),
    )
    wanted = aim if is_asked or is_free else None
    return dataclasses.replace(answer, messages=doubts(answer, escapes, wanted))


def _replicates(
    run: Callable[[PRNGKeyArray], Result],
    key: PRNGKeyArray,
    count: int,
    keep: Callable[[str, Callable[[], Result]], Result],
    density: CountedDensity,
    callbacks: Sequence[Callback],
    say: Say,
    look: Callable[[list[Result]], Remedy | None] | None,
    missing: Callable[[list[Result]], int] | None,
    makes: Callable[..., dict[int, Result]] | None = None,
) -> tuple[list[Result], Remedy | None]:
    """Independent runs; after some of them a look at whether to go on, or for longer.

    Args:
        run: Makes one from a key.
        key: Key of all of them.
        count: How many there shall be.
        keep: Keeps each.
        density: Where evaluations are counted.
        callbacks: Called after each.
        say: Called with a line of text now and then.
        look: Whether to do something else.
        missing: How many more it takes, once these are done.
        makes: Makes several at once, on devices or workers.
    """
    results: list[Result] = []
    began = time.perf_counter()
    made: dict[int, Result] = {}
    while len(results) < count:
        index = len(results)
        if makes is not None and index not in made:
            first = min(_LOOK_AFTER, count)
            until = first if look is not None and index < first else count
            made |= makes(key, range(index, until), keep)
        one = functools.partial(run, named_key(key, index))
        if index in made:
            one = functools.partial(made.__getitem__, index)
        result = jax.block_until_ready(keep(f"replicate-{index + 1}", one))
        results.append(result)
        density.spend(float(np.asarray(result.steps.num_evaluations).sum()))
        seconds = time.perf_counter() - began
        call_all(callbacks, ReplicateSnapshot(index + 1, count, result, seconds))
        if (index + 1) % max(1, count // 4) == 0:
            say(f"replicate {index + 1} of {count}: {_log_normalizer(results)}")
        if look is not None and index + 1 == min(_LOOK_AFTER, count):
            remedy = look(results)
            if remedy is not None:
                return results, remedy
        if missing is not None and len(results) == count:
            count += missing(results)
    return results, None


def free_density(
    log_density: Any,
    shape: Any,
    support: Any,
    prior: Prior | None = None,
    args: Sequence[Any] = (),
) -> FreeDensity:
    """The density of one unconstrained vector, checked."""
    return as_model(log_density, shape, support, prior, args).free()


def _log_normalizer(results: list[Result]) -> str:
    return f"log Z {log_mean([float(each.log_normalizer) for each in results]):.4f}"


class Ledger:
    """What each stage costs, in time and evaluations."""

    def __init__(
        self, density: CountedDensity, begins: Callable[[str], None] | None = None
    ):
        self.stages: list[Stage] = []
        self._density = density
        self._begins = begins or (lambda name: None)
        self._began = time.perf_counter()

    def summed(self) -> tuple[Stage, ...]:
        """What each stage cost, also if it was gone through several times."""
        names = dict.fromkeys(stage.name for stage in self.stages)
        numbers = ("evaluations", "seconds", "compiling")
        return tuple(
            Stage(
                name,
                *(
                    sum(getattr(each, n) for each in self.stages if each.name == name)
                    for n in numbers
                ),
            )
            for name in names
        )

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """The time that a stage takes."""
        self._begins(name)
        began, before = time.perf_counter(), self._density.num_evaluations
        compiled = seconds_of_compilers()
        yield
        spent = self._density.num_evaluations - before
        seconds = time.perf_counter() - began
        compiled = seconds_of_compilers() - compiled
        self.stages.append(Stage(name, spent, seconds, compiled))

    def replicates(self, budget: Budget | None, one: Measured, aim: Aim) -> int:
        """How many runs it takes, or the budget allows."""
        spent = self._density.num_evaluations
        if budget is None and not self._density.has_gradient:
            count = (one.stderr / _PRECISE_ENOUGH) ** 2
            return int(np.clip(count, _FEW_REPLICATES, _MOST_RUNS))
        if budget is None:
            return aim.runs(one.stderr, one.ess)
        left, each = budget.amount - spent, float(one.evaluations)
        if budget.unit == "seconds":
            left = budget.amount - (time.perf_counter() - self._began)
            each = one.seconds
        return int(np.clip(left / each, _MIN_REPLICATES, _MAX_REPLICATES))


def _check_flow(flow: str, density: CountedDensity) -> None:
    if flow not in FLOW_CHOICES:
        raise unknown_name("flow", str(flow), FLOW_CHOICES)
    if flow not in ("auto", "none") and not density.has_gradient:
        raise InvalidInputError(
            f"flow={flow!r} is trained by gradients, which this density does not have"
        )


def _width(tried: Tried) -> float:
    """How far the particles of a start lie apart; they may have run away."""
    with np.errstate(over="ignore"):
        return float(np.median(np.std(tried.x, axis=0)))


def _missing(aim: Aim, plan: Plan, results: list[Result]) -> int:
    """How many more runs it takes."""
    stderr, ess = error_and_draws(results, plan)
    if aim.is_reached(stderr, ess):
        return 0
    return max(0, aim.runs(stderr, ess, len(results)) - len(results))


def _reason_against_flows(
    flow: str,
    budget: Budget | None,
    one: Measured,
    num_replicates: int,
    effort: Effort,
    density: CountedDensity,
) -> str:
    """Why flows are not even tried; nothing if they are."""
    if not density.has_gradient:
        return "none: the density has no gradient"
    if flow == "none":
        return "none, as asked"
    expected = one.stderr / np.sqrt(num_replicates)
    if flow == "auto" and expected < _GOOD_ENOUGH and not effort.try_flows:
        return f"not tried: without them the error of log Z is about {expected:.1g}"
    if flow == "auto" and budget is not None and num_replicates <= 2 * _MIN_REPLICATES:
        return "not tried: the budget is too small to train them"
    return ""

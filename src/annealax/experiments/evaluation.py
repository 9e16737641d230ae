"""Passes of a sampler: what they estimate, how far apart, at which cost.

`evaluate` makes several passes of one sampler; `run_experiment` is all of `annealax
run`: train, deploy, and compare with plain SMC at the same cost.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import cloudpickle
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import PRNGKeyArray

from annealax._checks import seed_number
from annealax._doubts import Doubt
from annealax._estimates import log_mean, pooled_stderr
from annealax._keys import key_message, read_key
from annealax._layout import brought_home, mesh_for
from annealax._result import Result
from annealax._sampler import Sampler, jitted_pass, pass_arguments
from annealax._work.checkpoint import Checkpoint, once
from annealax._work.copies import compile_copies, num_devices_of, side_by_side
from annealax._work.drive import (
    Callback,
    Program,
    Work,
    as_callbacks,
    compile_ahead,
    drive,
)
from annealax._work.executors import (
    Workers,
    as_message,
    settings_as,
    settings_here,
)
from annealax._work.fingerprint import fingerprint
from annealax.experiments.experiment import Experiment, Problem
from annealax.experiments.methods import find_method
from annealax.trainers.fit import Fit, fit


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Independent passes of one sampler.

    Attributes:
        label: What to call it.
        sampler: The sampler.
        flows: Its flows, if any.
        result: The first pass, in full.
        log_normalizers: log Z of every pass.
        stderrs: The error bar that each pass gave for it.
        ess: Final effective sample size of every pass, as a fraction of N.
        lowest_ess: The lowest along the ladder, before resampling.
        seconds: Time of the fastest pass, after compilation; in `run_experiment` all
            samplers take turns, so that load slows them alike.
        num_devices: Devices of this process, or of each worker, that made the passes.
    """

    label: str
    sampler: Sampler
    flows: AbstractBijection | None
    result: Result
    log_normalizers: np.ndarray
    stderrs: np.ndarray
    ess: np.ndarray
    lowest_ess: np.ndarray
    seconds: float
    num_devices: int = 1

    @property
    def num_transitions(self) -> int:
        """Annealing transitions of a pass."""
        return self.sampler.path.num_transitions

    @property
    def log_normalizer(self) -> float:
        """Logarithm of the mean of Z over the passes."""
        return log_mean(self.log_normalizers)

    @property
    def log_normalizer_stderr(self) -> float:
        """Its standard error."""
        return pooled_stderr(self.log_normalizers, self.stderrs)

    @property
    def mean(self) -> float:
        """Mean of log Z over the passes."""
        return float(np.mean(self.log_normalizers))

    @property
    def spread(self) -> float | None:
        """Standard deviation of log Z over the passes; None for a single pass."""
        if len(self.log_normalizers) < 2:
            return None
        return float(np.std(self.log_normalizers, ddof=1))

    def squared_error(self, truth: float | None) -> float | None:
        """Mean squared error of log Z; its variance if the truth is unknown."""
        if truth is not None:
            return float(np.mean((self.log_normalizers - truth) ** 2))
        return None if self.spread is None else self.spread**2

    def warnings(self) -> list[Doubt]:
        """Reasons to doubt the first pass, or all of them."""
        doubts = list(self.result.warnings())
        typical = float(np.sqrt(np.mean(self.stderrs**2)))
        spread = self.spread
        if spread is not None and len(self.stderrs) >= 5 and spread > 2 * typical:
            doubts.append(
                Doubt(
                    "passes-disagree",
                    f"passes spread by {spread:.2g}, but their own error bars say "
                    f"{typical:.2g}: trust the spread; some passes may miss modes",
                )
            )
        return doubts


def compile_pass(sampler: Sampler, flows: AbstractBijection | None = None) -> Program:
    """Compile `sampler.run`: from a key to the result of a finished, checked pass."""
    return compile_passes(sampler, flows, 1)[0]


def compile_passes(
    sampler: Sampler, flows: AbstractBijection | None, count: int
) -> list[Program]:
    """`compile_pass`, once for each device that makes some of so many passes."""
    arguments = pass_arguments(sampler, jr.key(0), flows)
    programs = compile_copies(
        lambda: compile_ahead(jitted_pass, *arguments),
        count,
        is_shared_out=mesh_for(sampler.layout, sampler.mesh) is not None,
    )

    def run(program: Program, key: PRNGKeyArray) -> Result:
        arguments = pass_arguments(sampler, key, flows)
        result = brought_home(jax.block_until_ready(program.run(*arguments)))
        result.check(sampler.path)
        return result

    return [each._replace(run=functools.partial(run, each)) for each in programs]


class PassSnapshot(NamedTuple):
    """What a callback of `evaluate` sees after each pass.

    Attributes:
        step: Passes made so far.
        num_steps: Passes asked for.
        row: log Z, its error bar, final and lowest ESS of this pass.
        seconds: Time of all passes so far.
    """

    step: int
    num_steps: int
    row: np.ndarray
    seconds: float

    def metrics(self) -> dict[str, np.ndarray]:
        """The numbers of this pass."""
        names = ("log_normalizer", "log_normalizer_stderr", "ess", "lowest_ess")
        return dict(zip(names, self.row[:, None], strict=True))


def evaluate(
    key: PRNGKeyArray,
    sampler: Sampler,
    flows: AbstractBijection | None = None,
    *,
    label: str,
    num_repeats: int,
    progress: bool = False,
    callback: Callback | Iterable[Callback] | None = None,
    checkpoint: Checkpoint | None = None,
    workers: Workers | None = None,
) -> Evaluation:
    """Run the sampler several times, after one pass to compile it.

    Args:
        key: Random key; a pass depends on it and on its own index alone.
        sampler: The sampler.
        flows: Flows for it, or None.
        label: What to call it.
        num_repeats: Number of passes.
        progress: Show a live line with log Z and ESS.
        callback: One or several functions of a `PassSnapshot`, called after each pass.
        checkpoint: Where finished passes are saved; the same call goes on from there.
        workers: Where they are made; None for this process, each of its devices with
            passes of its own. The numbers are the same.
    """
    made: Iterator[_Pass] | None = None

    def advance(work: _Passes) -> tuple[_Passes, PassSnapshot]:
        nonlocal made
        if made is None:
            left = range(work.done, num_repeats)
            if workers is None:
                programs = compile_passes(sampler, flows, len(left))
                used = max(work.num_devices, num_devices_of(programs))
                work = dataclasses.replace(work, num_devices=used)
                made = _passes_here(key, sampler, programs, left)
            else:
                made = _passes_there(workers, key, sampler, flows, left)
        new = next(made)
        times = np.append(work.times, new.seconds)
        work = dataclasses.replace(
            work,
            done=work.done + 1,
            seconds=float(times.sum()),
            first=new.result if work.first is None else work.first,
            rows=np.append(work.rows, [new.row], axis=0),
            times=times,
        )
        return work, PassSnapshot(work.done, num_repeats, new.row, work.seconds)

    passes = drive(
        advance,
        _Passes(total=num_repeats),
        label=f"{label}, passes",
        describe=lambda snapshot: _describe(snapshot.row),
        unit="passes",
        callbacks=as_callbacks(callback),
        may_stop=False,
        progress=progress,
        store=checkpoint,
        identity=lambda: {
            "work": "evaluate",
            "num_repeats": num_repeats,
            "key": fingerprint(key),
            "sampler": fingerprint((sampler, flows)),
        },
    )
    assert passes.first is not None
    log_normalizers, stderrs, ess, lowest_ess = passes.rows.T
    return Evaluation(
        label=label,
        sampler=sampler,
        flows=flows,
        result=passes.first,
        log_normalizers=log_normalizers,
        stderrs=stderrs,
        ess=ess,
        lowest_ess=lowest_ess,
        seconds=float(passes.times.min()),
        num_devices=passes.num_devices,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Passes(Work):
    """Passes under way.

    Attributes:
        first: The first one, in full.
        rows: The numbers of each.
        times: Seconds of each.
        num_devices: Devices that made them.
    """

    first: Result | None = None
    rows: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 4)))
    times: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    num_devices: int = 1


class _Pass(NamedTuple):
    """What a pass gave.

    Attributes:
        row: Its numbers.
        seconds: Its time.
        result: All of it, of the first one.
    """

    row: np.ndarray
    seconds: float
    result: Result | None


class _Maker:
    """Makes passes, one at a time.

    Attributes:
        run: From an index to the pass.
    """

    def __init__(self, key: PRNGKeyArray, sampler: Sampler, program: Program):
        self._num_particles = sampler.num_particles
        self.run: Callable[[int], Result] = lambda i: program.run(jr.fold_in(key, i))

    def make(self, index: int) -> _Pass:
        """A pass, by its index."""
        began = time.perf_counter()
        result = self.run(index)
        seconds = time.perf_counter() - began
        row = pass_numbers(result, self._num_particles)
        return _Pass(row, seconds, _at_home(result) if index == 0 else None)


def _at_home(result: Result) -> Result:
    """The result on the device where all else is."""
    arrays, rest = eqx.partition(result, eqx.is_array)
    return eqx.combine(jax.tree.map(jnp.asarray, jax.device_get(arrays)), rest)


def _passes_here(
    key: PRNGKeyArray, sampler: Sampler, programs: list[Program], indices: range
) -> Iterator[_Pass]:
    makers = [_Maker(key, sampler, each) for each in programs]
    makers[0].run(0)  # the first call is slower than the others
    tasks = [(index,) for index in indices]
    yield from _in_order(side_by_side([each.make for each in makers], tasks))


def _passes_there(
    workers: Workers,
    key: PRNGKeyArray,
    sampler: Sampler,
    flows: AbstractBijection | None,
    indices: range,
) -> Iterator[_Pass]:
    """In order, as they come from workers."""
    message = as_message((key_message(key), sampler, flows), "the sampler")
    tasks = [(message, index, settings_here()) for index in indices]
    for done in _in_order(workers.each(_make_there, tasks)):
        yield done._replace(result=jax.tree.map(jnp.asarray, done.result))


def _in_order(found: Iterator[tuple[int, _Pass]]) -> Iterator[_Pass]:
    early, position = {}, 0
    for index, one in found:
        early[index] = one
        while position in early:
            yield early.pop(position)
            position += 1


def _make_there(message: bytes, index: int, settings: dict[str, Any]) -> _Pass:
    """What a worker is asked."""
    with settings_as(settings):
        made = _maker_of(message, tuple(settings.items())).make(index)
        arrays, rest = eqx.partition(made, eqx.is_array)
        return eqx.combine(jax.device_get(arrays), rest)


@functools.lru_cache(maxsize=1)  # compiled once in a worker
def _maker_of(message: bytes, _: tuple) -> _Maker:
    key, sampler, flows = cloudpickle.loads(message)
    maker = _Maker(read_key(key), sampler, compile_pass(sampler, flows))
    maker.run(0)
    return maker


def _describe(row: np.ndarray) -> str:
    log_normalizer, _, ess, _ = row
    return f"log Z {log_normalizer:.4f}  ESS {ess:.0%}"


def pass_numbers(result: Result, num_particles: int) -> np.ndarray:
    """What a `PassSnapshot` says of a pass."""
    numbers = (
        result.log_normalizer,
        result.log_normalizer_stderr,
        result.ess / num_particles,
        result.steps.ess.min() / num_particles,
    )
    return np.array([float(number) for number in numbers])


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What `annealax run` found.

    Attributes:
        name: Name of the experiment.
        method: Name of the method.
        seed: The seed.
        problem: What was sampled.
        fit: The training, if the method trains.
        evaluations: The method first, then what it is compared with.
    """

    name: str
    method: str
    seed: int
    problem: Problem
    fit: Fit | None
    evaluations: tuple[Evaluation, ...]

    @property
    def settings(self) -> Experiment:
        """The experiment."""
        return self.problem.settings

    @property
    def truth(self) -> float | None:
        """Exact log Z, or None."""
        return self.problem.target.log_normalizer

    @property
    def main(self) -> Evaluation:
        """The passes of the method itself."""
        return self.evaluations[0]


@dataclasses.dataclass(frozen=True)
class Stages:
    """What every stage of long work is given.

    Attributes:
        progress: Whether to show it live.
        say: Called with a line of text when a stage begins.
        callbacks: From the name of a stage to its callbacks.
        checkpoint: Where every stage saves its state; the same work goes on from
            there, with the same numbers to the bit.
        workers: Where passes are made; None for this process.
    """

    progress: bool = False
    say: Callable[[str], None] = lambda text: None
    callbacks: Callable[[str], list[Callback]] = lambda stage: []
    checkpoint: Checkpoint | None = None
    workers: Workers | None = None

    def options(self, stage: str) -> dict[str, Any]:
        """The options of `fit` and `evaluate` for a stage."""
        store = None if self.checkpoint is None else self.checkpoint.child(stage)
        return {
            "progress": self.progress,
            "callback": self.callbacks(stage),
            "checkpoint": store,
        }


def run_experiment(
    settings: Experiment | Problem,
    *,
    method: str | None = None,
    seed: int = 0,
    name: str = "",
    stages: Stages | None = None,
) -> Outcome:
    """Train, deploy, and compare with plain SMC at the same cost.

    The same seed gives the same numbers; only how many temperatures SMC gets for the
    same cost depends on the machine (the setting `smc_transitions` fixes it).

    Args:
        settings: The experiment, or its problem if that is built already.
        method: A name in `METHODS` or of the experiment's own; None for its default.
        seed: Seed of all that is random, from 0 to 2**32 - 1.
        name: Name of the experiment, for reports.
        stages: Progress, callbacks and checkpoints of the stages.
    """
    stages = stages or Stages()
    problem = settings.problem() if isinstance(settings, Experiment) else settings
    settings = problem.settings
    method = method or settings.default_method
    chosen = find_method(method, settings)
    keys = jr.split(jr.key(seed_number(seed)), 4)
    key_flow, key_fit, key_deploy, key_compare = keys
    fitted = None
    if chosen.trainer is not None:
        stages.say(f"compiling and training, {settings.num_train_steps} steps")
        fitted = fit(
            key_fit,
            chosen.trainer(problem),
            problem.flow(key_flow),
            num_steps=chosen.num_fit_steps(settings),
            **stages.options("training"),
        )
    stages.say(f"deploying {chosen.label}, {settings.num_repeats} passes")
    main = evaluate(
        key_deploy,
        chosen.sampler(problem),
        None if fitted is None else fitted.flows,
        label=chosen.label,
        num_repeats=settings.num_repeats,
        workers=stages.workers,
        **stages.options("deployment"),
    )
    plain = method == "smc"
    found: tuple[Evaluation, ...] = (main,)
    if not plain:
        found = (main, *_plain_smc(key_compare, problem, main, stages))
        times = once(
            stages.checkpoint,
            "pass-seconds",
            lambda: times_in_turn(key_compare, found),
            identity={"work": "pass-seconds"},
        )
        found = tuple(map(_with_seconds, found, times))
    return Outcome(name, method, seed, problem, fitted, found)


def _with_seconds(evaluation: Evaluation, seconds: float) -> Evaluation:
    return dataclasses.replace(evaluation, seconds=seconds)


def _plain_smc(
    key: PRNGKeyArray, problem: Problem, main: Evaluation, stages: Stages
) -> tuple[Evaluation, ...]:
    """Plain SMC with the same temperatures, and with as many as cost the same."""
    settings = problem.settings

    def smc(count: int, label: str, stage: str) -> Evaluation:
        stages.say(f"{label}: {count} transitions")
        return evaluate(
            jr.fold_in(key, count),
            problem.sampler(num_transitions=count),
            label=label,
            num_repeats=settings.num_repeats,
            workers=stages.workers,
            **stages.options(stage),
        )

    same_ladder = smc(settings.num_transitions, "SMC, same ladder", "smc-same-ladder")
    if main.flows is None:
        return (same_ladder,)
    count = settings.smc_transitions
    if count > 0:
        return same_ladder, smc(count, "SMC, given ladder", "smc-given-ladder")
    count = settings.num_transitions * once(  # measured, so the first one counts
        stages.checkpoint,
        "smc-ladders",
        lambda: _ladders_for(key, main, same_ladder),
        identity={"work": "smc-ladders"},
    )
    if count == settings.num_transitions:  # flows cost nothing to speak of
        return (same_ladder,)
    return same_ladder, smc(count, "SMC, same cost", "smc-same-cost")


def _ladders_for(key: PRNGKeyArray, main: Evaluation, plain: Evaluation) -> int:
    """How many times the ladder plain SMC may have for what a pass with flows costs.

    Rounded up: plain SMC gets no less, and the same on every machine of a kind.
    """
    with_flows, without = times_in_turn(key, [main, plain])
    return max(1, math.ceil(with_flows / without))


_CALIBRATION_SECONDS = 1.0
_CALIBRATION_PASSES = (3, 30)
"""Passes of each kind that are timed: at least, and at most within the seconds."""


def times_in_turn(key: PRNGKeyArray, evaluations: Sequence[Evaluation]) -> list[float]:
    """Time of a pass of each sampler, the fastest of several.

    They take turns: what else the machine does at a time slows all of them alike.
    """
    fewest, most = _CALIBRATION_PASSES
    best, began = [math.inf] * len(evaluations), time.perf_counter()
    for index in range(most):
        if index >= fewest and time.perf_counter() - began > _CALIBRATION_SECONDS:
            break
        for which, each in enumerate(evaluations):
            start = time.perf_counter()
            jax.block_until_ready(each.sampler.run(key, each.flows))
            best[which] = min(best[which], time.perf_counter() - start)
    return best

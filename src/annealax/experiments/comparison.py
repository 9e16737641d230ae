"""Several methods on one problem, each with the same budget: `annealax compare`.

A budget is time, compilation apart, or gradient evaluations, which every method counts.
How it is spent:

- methods that train spend three quarters of it on training (how many steps that is, is
  measured first, and the learning rate follows a schedule of that length) and the rest
  on passes of the frozen sampler;
- SMC and AIS make ten passes, on the ladder of the settings drawn out so that these
  take all of it;
- HMC and NUTS spend a third on warm-up; they do not estimate Z.

What was measured first may not hold later: training ends when its share is spent, and
passes when there is no room for another. What cannot be split, a first pass, the
training of AFT and the chains of HMC and NUTS, can still take longer; reports say so.

Several passes are pooled by averaging Z. Finding out how fast a method is, is free.
"""

import contextlib
import dataclasses
import functools
import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import cloudpickle
import jax
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection
from jax.experimental.compilation_cache import compilation_cache
from jaxtyping import PRNGKeyArray
from pydantic import ConfigDict, Field

from annealax._errors import InvalidInputError
from annealax._estimates import log_mean
from annealax._keys import key_message, read_key
from annealax._mcmc import MarkovChains, mcmc
from annealax._work.budget import Budget, as_budget
from annealax._work.checkpoint import Checkpoint, once
from annealax._work.copies import devices_for_tasks, may_move, whole_tasks
from annealax._work.drive import Callback, call_all
from annealax._work.executors import (
    Workers,
    as_message,
    settings_as,
    settings_here,
)
from annealax._work.fingerprint import fingerprint
from annealax.experiments.evaluation import PassSnapshot, compile_pass, pass_numbers
from annealax.experiments.experiment import Experiment, Problem
from annealax.experiments.methods import Method, find_method
from annealax.trainers.fit import Fit, Snapshot, fit

TRAINING_SHARE = 0.75
WARMUP_SHARE = 1 / 3
NUM_CHAINS = 32
_MAX_PASSES = 1000
_SMC_PASSES = 10
_MAX_TRANSITIONS = 20_000
_MAX_STEPS = 10**6
_TRAINING_CALLS = 25
"""Training looks at what it has spent so many times, so it ends within 4 % or so."""

_TRIAL_STEPS = 4
_TRIAL_CALLS = 3
_TRIAL_ITERATIONS = (3, 12)
_TRIAL_DRAWS = 150
DIRECT: Mapping[str, Literal["hmc", "nuts"]] = {"hmc": "hmc", "nuts": "nuts"}
"""Methods that run on the target itself, without annealing."""
_Callbacks = Callable[[str], list[Callback]]


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One repeat of one method.

    Attributes:
        log_normalizer: Pooled estimate of log Z; None for direct MCMC.
        ess: Mean effective sample size of a pass, as a share of its particles; for
            direct MCMC the lowest bulk effective sample size as a share of its draws.
        rhat: The largest R-hat of direct MCMC.
        evaluations: Gradient evaluations, training included.
        training_seconds: Time of training or warm-up.
        seconds: Time in all, compilation apart.
        compile_seconds: Time to compile.
        memory: Bytes that the largest program needs.
        curve: Rows of (seconds, evaluations, log Z so far): of each training pass,
            then of all deployment passes up to here.
        num_devices: Devices that its particles were spread over, or that repeats were
            made on side by side.
    """

    log_normalizer: float | None
    ess: float | None
    rhat: float | None
    evaluations: float
    training_seconds: float
    seconds: float
    compile_seconds: float
    memory: int
    curve: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 3)))
    num_devices: int = 1

    __pydantic_config__ = ConfigDict(arbitrary_types_allowed=True, strict=True)


@dataclasses.dataclass(frozen=True)
class Row:
    """All repeats of one method.

    Attributes:
        method: Name of the method.
        label: What to call it.
        what: How it spent its budget, in words.
        attempts: The repeats.
    """

    method: str
    label: str
    what: str
    attempts: Annotated[tuple[Attempt, ...], Field(min_length=1)]

    @property
    def log_normalizers(self) -> np.ndarray:
        """Estimate of log Z of each repeat; empty if the method has none."""
        return self.known("log_normalizer")

    def known(self, name: str) -> np.ndarray:
        """A number of `Attempt`, of each repeat that has it."""
        found = [getattr(attempt, name) for attempt in self.attempts]
        return np.array([value for value in found if value is not None], np.float64)

    def average(self, name: str) -> float:
        """Mean over repeats of a number of `Attempt`."""
        found = self.known(name)
        return float(found.mean()) if len(found) else math.nan


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All methods on one problem.

    Attributes:
        name: Name of the experiment.
        seed: The seed.
        budget: What each repeat of each method could spend.
        log_normalizer_true: Exact log Z, or None.
        rows: The methods.
    """

    name: str
    seed: int
    budget: Budget
    log_normalizer_true: float | None
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]


def find_methods(names: str, settings: Experiment) -> list[str]:
    """Names of methods from text with commas between."""
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    if not chosen:
        raise InvalidInputError("name at least one method, such as craft,smc.")
    for name in chosen:
        if name not in DIRECT:
            find_method(name, settings, DIRECT)
    return list(dict.fromkeys(chosen))


def compare(
    problem: Problem,
    methods: list[str],
    budget: Budget | str | float,
    *,
    num_repeats: int,
    seed: int,
    say: Callable[[str], None] = lambda text: None,
    callbacks: _Callbacks = lambda stage: [],
    checkpoint: Checkpoint | None = None,
    workers: Workers | None = None,
    waiting: Callable[[], None] = lambda: None,
) -> list[Row]:
    """Give every method the same budget, several times.

    Args:
        problem: The problem; its settings hold for every method.
        methods: Names in `METHODS` or `DIRECT`, or of the experiment's own.
        budget: What each repeat may spend: a time such as "60s", or a number of
            evaluations.
        num_repeats: Repeats with different seeds, training included.
        seed: Seed.
        say: Called with a line of text when something begins or ends.
        callbacks: From a stage, such as "craft-1-training" or "smc-3-passes", to its
            callbacks.
        checkpoint: Where plans and finished repeats are kept; the same call goes on
            with the first repeat that is missing.
        workers: Where repeats are made, side by side and without callbacks; None for
            this process: side by side on its devices, if there are several, as many
            repeats at least, and evaluations to spend; else one after the other.
        waiting: Called every second or so while repeats are made side by side; may
            raise to give up.
    """
    budget = as_budget(budget)
    identity = {
        "work": "compare",
        "settings": fingerprint(problem.settings.values()),
        "budget": list(dataclasses.astuple(budget)),
        "seed": seed,
    }
    keys = jr.split(jr.fold_in(jr.key(seed), 1), num_repeats)
    devices = _devices_for_repeats(problem, budget) if workers is None else []
    rows = []
    for name in methods:
        contender = _contender(name, problem, budget)

        def measure(contender=contender) -> tuple[int, ...]:
            say(f"{contender.label}: measuring its speed")
            return contender.plan(jr.fold_in(jr.key(seed), 2))

        # What takes the clock is measured once.
        plan = once(checkpoint, f"plan-{name}", measure, identity=identity)
        what = contender.what(*plan)
        say(f"{contender.label}: {what}")
        stages = [f"{name}-{index + 1}" for index in range(num_repeats)]

        def keep(
            index: int, make: Callable[[], Attempt], stages=stages, contender=contender
        ) -> Attempt:
            attempt = once(checkpoint, stages[index], make, identity=identity)
            value = attempt.log_normalizer
            result = "" if value is None else f"log Z {value:.4f}, "
            place = f"{index + 1}/{num_repeats}"
            say(f"{contender.label} {place}: {result}{attempt.seconds:.1f} s")
            return attempt

        made: dict[int, Attempt] = {}
        missing: list[int] = []
        if workers is not None or devices:
            missing = [
                index
                for index, stage in enumerate(stages)
                if checkpoint is None or not checkpoint.child(stage).latest(identity)
            ]
        if workers is not None:
            message = as_message((name, problem, budget, plan), "the problem")
            facts = (settings_here(), getattr(jax.config, _CACHE))
            tasks = [(message, key_message(keys[index]), *facts) for index in missing]
            for position, attempt in workers.each(_attempt_there, tasks, waiting):
                index = missing[position]
                made[index] = keep(index, functools.partial(_itself, attempt))
        elif 1 < len(devices) <= len(missing):
            told = _one_at_a_time(callbacks)
            calls = [(keys[i], plan, _below(told, stages[i])) for i in missing]
            with contextlib.closing(
                whole_tasks(contender.attempt, calls, devices, waiting)
            ) as found:
                for position, alone in found:
                    index = missing[position]
                    attempt = dataclasses.replace(alone, num_devices=len(devices))
                    made[index] = keep(index, functools.partial(_itself, attempt))
        for index, key in enumerate(keys):
            watchers = _below(callbacks, stages[index])
            make = functools.partial(contender.attempt, key, plan, watchers)
            made[index] = made[index] if index in made else keep(index, make)
        attempts = tuple(made[index] for index in range(num_repeats))
        rows.append(Row(name, contender.label, what, attempts))
    return rows


def _itself(attempt: Attempt) -> Attempt:
    return attempt


def _attempt_there(
    message: bytes,
    key: tuple[Any, ...],
    settings: dict[str, Any],
    cache: str | None,
) -> Attempt:
    """What a worker is asked."""
    with settings_as(settings), reuse_compiled_programs(cache):
        name, problem, budget, plan = cloudpickle.loads(message)
        nobody: _Callbacks = lambda stage: []  # noqa: E731
        return _contender(name, problem, budget).attempt(read_key(key), plan, nobody)


def _devices_for_repeats(problem: Problem, budget: Budget) -> list[jax.Device]:
    """Those that repeats go over; none where they would change what repeats do.

    Time is what repeats would take from each other: devices share this process and, if
    they are parts of a processor, its cores. Densities that call Python, and what
    somebody has put on a device, stay where they are.
    """
    devices = devices_for_tasks()
    if budget.unit == "seconds" or len(devices) < 2:
        return []
    path = problem.sampler().path

    def between(key: PRNGKeyArray) -> Any:
        x, _ = path.sample(key, 1)
        return path.at(0.5)(x[0])

    return devices if may_move(between, jr.key(0)) else []


def _one_at_a_time(callbacks: _Callbacks) -> _Callbacks:
    """Callbacks for several threads: they may write to the same file."""
    alone = threading.Lock()

    def of_stage(stage: str) -> list[Callback]:
        several = callbacks(stage)

        def call(snapshot: Any) -> bool:
            with alone:
                return call_all(several, snapshot)

        return [call]

    return of_stage


def _below(callbacks: _Callbacks, stage: str) -> _Callbacks:
    return lambda part: callbacks(f"{stage}-{part}")


class _Contender(NamedTuple):
    """A method with its budget.

    Attributes:
        label: What to call it.
        plan: Measures its speed: how long its parts shall be.
        what: That plan in words.
        attempt: One repeat.
    """

    label: str
    plan: Callable[[PRNGKeyArray], tuple[int, ...]]
    what: Callable[..., str]
    attempt: Callable[[PRNGKeyArray, tuple[int, ...], _Callbacks], Attempt]


def _contender(name: str, problem: Problem, budget: Budget) -> _Contender:
    if name in DIRECT:
        return _Contender(
            name.upper(),
            lambda key: _plan_chains(key, problem, DIRECT[name], budget),
            lambda warmup, draws: f"{NUM_CHAINS} chains, {warmup} + {draws} steps",
            lambda key, plan, _: run_chains(key, problem, DIRECT[name], plan),
        )
    method, settings = find_method(name, problem.settings), problem.settings
    if method.trainer is None:
        field, unit, plan = "num_transitions", "transitions", _plan_ladder
    else:
        one_pass = method.num_fit_steps(settings) == 1
        unit = "updates each" if one_pass else "steps"
        field, plan = "num_train_steps", _plan_training

    def attempt(key, plan, callbacks) -> Attempt:
        planned = problem.replace(**{field: plan[0]})
        return train_and_deploy(key, method, planned, budget, callbacks)

    return _Contender(
        method.label,
        lambda key: (plan(key, method, problem, budget),),
        lambda count: f"{count} {unit}",
        attempt,
    )


def _plan_training(
    key: PRNGKeyArray, method: Method, problem: Problem, budget: Budget
) -> int:
    """As many training steps as the budget has room for."""
    allowed = TRAINING_SHARE * budget.amount

    def trial(num_train_steps: int) -> float:
        """Cost of a step, the cheapest of a few calls: the first ones are slow."""
        changed = problem.replace(num_train_steps=num_train_steps)
        times = [0.0]

        def note(snapshot: Snapshot) -> None:
            times.append(snapshot.seconds)

        size = min(_TRIAL_STEPS, method.num_fit_steps(changed.settings))
        trained = train(
            key,
            method,
            changed,
            num_steps=_TRIAL_CALLS * size,
            steps_per_call=size,
            callback=note,
        )
        if budget.unit == "evaluations":
            return count_evaluations(trained) / (_TRIAL_CALLS * size)
        return float(np.diff(times).min()) / size

    if (
        method.num_fit_steps(problem.settings) == 1
    ):  # one pass: the updates within it count
        few, many = _TRIAL_ITERATIONS
        first = trial(few)
        each = max((trial(many) - first) / (many - few), 1e-9)
        count = few + (allowed - first) / each
    else:
        count = allowed / max(trial(_TRIAL_STEPS), 1e-9)
    return int(np.clip(count, 1, _MAX_STEPS))


def _plan_ladder(
    key: PRNGKeyArray, method: Method, problem: Problem, budget: Budget
) -> int:
    """As many transitions as a tenth of the budget has room for."""
    compiled = compile_pass(method.sampler(problem))
    compiled.run(key)
    began = time.perf_counter()
    result = compiled.run(key)
    spent = {
        "seconds": time.perf_counter() - began,
        "evaluations": float(result.num_evaluations),
    }[budget.unit]
    ratio = budget.amount / _SMC_PASSES / spent
    return int(np.clip(problem.settings.num_transitions * ratio, 1, _MAX_TRANSITIONS))


def _plan_chains(
    key: PRNGKeyArray, problem: Problem, kind: Any, budget: Budget
) -> tuple[int, int]:
    """Steps of warm-up and steps after it."""
    trial = sample_chains(key, problem, kind, _TRIAL_DRAWS, _TRIAL_DRAWS)
    spent = {"seconds": trial.seconds, "evaluations": trial.num_evaluations}
    total = budget.amount * 2 * _TRIAL_DRAWS / spent[budget.unit]
    warmup = int(np.clip(WARMUP_SHARE * total, 20, _MAX_STEPS))
    return warmup, int(np.clip(total - warmup, 4, _MAX_STEPS))


def train(
    key: PRNGKeyArray,
    method: Method,
    problem: Problem,
    *,
    num_steps: int | None = None,
    **options: Any,
) -> Fit:
    """Train the flows of a method; `options` are those of `fit`."""
    assert method.trainer is not None
    key_flow, key_fit = jr.split(key)
    return fit(
        key_fit,
        method.trainer(problem),
        problem.flow(key_flow),
        num_steps=method.num_fit_steps(problem.settings)
        if num_steps is None
        else num_steps,
        **options,
    )


def count_evaluations(trained: Fit) -> float:
    """Evaluations of a training."""
    return float(np.asarray(trained.history.steps.num_evaluations, np.float64).sum())


def train_and_deploy(
    key: PRNGKeyArray,
    method: Method,
    problem: Problem,
    budget: Budget,
    callbacks: Callable[[str], list[Callback]] = lambda stage: [],
) -> Attempt:
    """Train if the method does, then make passes until the budget is spent.

    Args:
        key: Random key.
        method: The method.
        problem: What to sample, with its settings.
        budget: What it may spend.
        callbacks: From "training" and "passes" to the callbacks of that stage.
    """
    key_train, key_deploy = jr.split(key)
    curve: list[tuple[float, float, float]] = []
    flows: AbstractBijection | None = None
    seconds = evaluations = compile_seconds = 0.0
    memory = 0
    if method.trainer is not None:
        planned = method.num_fit_steps(problem.settings)
        trained = train(
            key_train,
            method,
            problem,
            callback=[*callbacks("training"), _stops_at(TRAINING_SHARE, budget)],
            steps_per_call=max(1, planned // _TRAINING_CALLS),
        )
        flows, history = trained.flows, trained.history
        costs = np.asarray(history.steps.num_evaluations, np.float64).sum(axis=1)
        times = np.linspace(0, trained.seconds, len(costs) + 1)[1:]
        passes = np.asarray(history.log_normalizer, np.float64)
        curve += list(zip(times, np.cumsum(costs), passes, strict=True))
        seconds, evaluations = trained.seconds, float(costs.sum())
        compile_seconds, memory = trained.compile_seconds, trained.memory
    training_seconds = seconds
    compiled = compile_pass(method.sampler(problem), flows)
    compiled.run(key_deploy)  # the first call is slower than the others
    rows, before = np.zeros((0, 4)), 0.0
    watchers = callbacks("passes")
    for index in range(_MAX_PASSES):
        spent = {"seconds": seconds, "evaluations": evaluations}[budget.unit]
        if index > 0 and spent + (spent - before) > budget.amount:  # no room for it
            break
        before = spent
        began = time.perf_counter()
        result = compiled.run(jr.fold_in(key_deploy, index))
        seconds += time.perf_counter() - began
        evaluations += float(result.num_evaluations)
        row = pass_numbers(result, problem.settings.num_particles)
        rows = np.append(rows, [row], axis=0)
        curve.append((seconds, evaluations, log_mean(rows[:, 0])))
        call_all(watchers, PassSnapshot(index + 1, index + 1, row, seconds))
    return Attempt(
        log_normalizer=log_mean(rows[:, 0]),
        ess=float(np.mean(rows[:, 2])),
        rhat=None,
        evaluations=evaluations,
        training_seconds=training_seconds,
        seconds=seconds,
        compile_seconds=compile_seconds + compiled.compile_seconds,
        memory=max(memory, compiled.memory),
        curve=np.array(curve),
        num_devices=compiled.num_devices,
    )


def _stops_at(share: float, budget: Budget) -> Callback:
    """A callback that ends training once it has spent a share of the budget."""
    evaluations = 0.0

    def is_spent(snapshot: Snapshot) -> bool:
        nonlocal evaluations
        counts = np.asarray(snapshot.info.steps.num_evaluations, np.float64)
        evaluations += float(counts.sum())
        spent = {"seconds": snapshot.seconds, "evaluations": evaluations}[budget.unit]
        return spent >= share * budget.amount

    return is_spent


def sample_chains(
    key: PRNGKeyArray, problem: Problem, kind: Any, warmup: int, draws: int
) -> MarkovChains:
    """Direct MCMC on the target."""
    return mcmc(
        key,
        problem.sampler().path,
        method=kind,
        num_chains=NUM_CHAINS,
        num_warmup=warmup,
        num_samples=draws,
        num_leapfrog=problem.settings.num_leapfrog,
        observables=dict(problem.observables) or None,
    )


def run_chains(
    key: PRNGKeyArray, problem: Problem, kind: Any, lengths: tuple[int, ...]
) -> Attempt:
    """Direct MCMC as an attempt."""
    warmup, draws = lengths
    chains = sample_chains(key, problem, kind, warmup, draws)
    share = chains.num_warmup_evaluations / chains.num_evaluations
    lowest = min(float(np.min(value)) for value in chains.ess.values())
    return Attempt(
        log_normalizer=None,
        ess=lowest / (NUM_CHAINS * draws),
        rhat=max(float(np.max(value)) for value in chains.rhat.values()),
        evaluations=chains.num_evaluations,
        training_seconds=share * chains.seconds,
        seconds=chains.seconds,
        compile_seconds=chains.compile_seconds,
        memory=chains.memory,
    )


_CACHE = "jax_compilation_cache_dir"


@contextlib.contextmanager
def reuse_compiled_programs(folder: str | None = None) -> Iterator[None]:
    """Keep compiled programs in a folder that goes away at the end.

    Repeats of a training compile the same program; they find it there. A folder that
    JAX was given already (JAX_COMPILATION_CACHE_DIR) does as well.

    Args:
        folder: One that another process made; taken if it is there.
    """
    if getattr(jax.config, _CACHE):
        yield
        return
    names: dict[str, Any] = {
        _CACHE: None,
        "jax_persistent_cache_min_compile_time_secs": 0.5,
    }
    before = {name: getattr(jax.config, name) for name in names}
    with contextlib.ExitStack() as stack:
        if folder is None or not Path(folder).is_dir():
            made = tempfile.TemporaryDirectory(prefix="annealax-")
            folder = stack.enter_context(made)
        names[_CACHE] = folder
        try:
            for name, value in names.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()
            yield
        finally:
            for name, value in before.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()

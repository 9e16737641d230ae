"""Several methods on one problem, each with the same budget: `annealax compare`.

A budget is time, compilation apart, or gradient evaluations, which every method counts.
How it is spent:

- methods that train spend three quarters of it on training (how many steps that is, is
  measured first, and the learning rate follows a schedule of that length) and the rest
  on passes of the frozen sampler;
- SMC and AIS make ten passes, on the ladder of the settings drawn out so that these
  take all of it;
- HMC and NUTS spend a third on warm-up; they do not estimate Z.

Several passes are pooled by averaging Z. Finding out how fast a method is, is free.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from annealax._errors import InvalidInputError
from annealax._work.budget import Budget
from annealax._work.checkpoint import Checkpoint
from annealax._work.drive import Callback
from annealax._work.fingerprint import fingerprint
from annealax.experiments._attempt import (
    NUM_CHAINS,
    Attempt,
    KeptAttempts,
    count_evaluations,
    run_chains,
    sample_chains,
    train,
    train_and_deploy,
)
from annealax.experiments._names import unknown_name
from annealax.experiments._settings import Settings
from annealax.experiments.evaluate import compile_pass
from annealax.experiments.run import METHODS, Method
from annealax.trainers.fit import Snapshot

TRAINING_SHARE = 0.75
WARMUP_SHARE = 1 / 3
_SMC_PASSES = 10
_MAX_TRANSITIONS = 20_000
_MAX_STEPS = 10**6
_TRIAL_STEPS = 4
_TRIAL_CALLS = 3
_TRIAL_ITERATIONS = (3, 12)
_TRIAL_DRAWS = 150
DIRECT: Mapping[str, Literal["hmc", "nuts"]] = {"hmc": "hmc", "nuts": "nuts"}
"""Methods that run on the target itself, without annealing."""
_Callbacks = Callable[[str], list[Callback]]


@dataclasses.dataclass(frozen=True)
class Row:
    """All repeats of one method.

    Attributes:
        name: Name of the method.
        label: What to call it.
        what: How it spent its budget, in words.
        attempts: The repeats.
    """

    name: str
    label: str
    what: str
    attempts: tuple[Attempt, ...]

    @property
    def log_normalizers(self) -> np.ndarray:
        """Estimate of log Z of each repeat; empty if the method has none."""
        found = [a.log_normalizer for a in self.attempts]
        return np.array([value for value in found if value is not None], np.float64)

    def average(self, name: str) -> float:
        """Mean over repeats of a number of `Attempt`."""
        return float(np.mean([getattr(attempt, name) for attempt in self.attempts]))


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All methods on one problem.

    Attributes:
        name: Name of the experiment.
        seed: The seed.
        budget: What each repeat of each method could spend.
        truth: Exact log Z, or None.
        rows: The methods.
    """

    name: str
    seed: int
    budget: Budget
    truth: float | None
    rows: tuple[Row, ...]


def find_methods(names: str) -> list[str]:
    """Names of methods from text with commas between."""
    known = [*METHODS, *DIRECT]
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    if not chosen:
        raise InvalidInputError(f"name at least one method of {', '.join(known)}.")
    for name in chosen:
        if name not in known:
            raise unknown_name("method", name, dict.fromkeys(known))
    return list(dict.fromkeys(chosen))


def compare(
    settings: Settings,
    methods: list[str],
    budget: Budget,
    *,
    num_repeats: int,
    seed: int,
    say: Callable[[str], None] = lambda text: None,
    callbacks: _Callbacks = lambda stage: [],
    checkpoint: Checkpoint | None = None,
) -> list[Row]:
    """Give every method the same budget, several times.

    Args:
        settings: The problem; its settings hold for every method.
        methods: Names in `METHODS` or `DIRECT`.
        budget: What each repeat may spend.
        num_repeats: Repeats with different seeds, training included.
        seed: Seed.
        say: Called with a line of text when something begins or ends.
        callbacks: From a stage, such as "craft-1-training" or "smc-3-passes", to its
            callbacks.
        checkpoint: Where plans and finished repeats are kept; the same call goes on
            with the first repeat that is missing.
    """
    kept = KeptAttempts(
        checkpoint,
        {
            "work": "compare",
            "settings": fingerprint(settings.values()),
            "budget": list(dataclasses.astuple(budget)),
            "seed": seed,
        },
    )
    keys = jr.split(jr.fold_in(jr.key(seed), 1), num_repeats)
    rows = []
    for name in methods:
        contender = _contender(name, settings, budget)

        def measure(contender=contender) -> tuple[int, ...]:
            say(f"{contender.label}: measuring its speed")
            return contender.plan(jr.fold_in(jr.key(seed), 2))

        plan = kept.plan(name, measure)
        what = contender.what(*plan)
        say(f"{contender.label}: {what}")
        attempts = []
        for index, key in enumerate(keys):
            stage = f"{name}-{index + 1}"
            attempt = kept.attempt(
                stage,
                functools.partial(
                    contender.attempt, key, plan, _below(callbacks, stage)
                ),
            )
            value = attempt.log_normalizer
            result = "" if value is None else f"log Z {value:.4f}, "
            place = f"{index + 1}/{num_repeats}"
            say(f"{contender.label} {place}: {result}{attempt.seconds:.1f} s")
            attempts.append(attempt)
        rows.append(Row(name, contender.label, what, tuple(attempts)))
    return rows


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


def _contender(name: str, settings: Settings, budget: Budget) -> _Contender:
    if name in DIRECT:
        return _Contender(
            name.upper(),
            lambda key: _plan_chains(key, settings, DIRECT[name], budget),
            lambda warmup, draws: f"{NUM_CHAINS} chains, {warmup} + {draws} steps",
            lambda key, plan, _: run_chains(key, settings, DIRECT[name], plan),
        )
    method = METHODS[name]
    if method.trainer is None:
        field, unit, plan = "num_transitions", "transitions", _plan_ladder
    else:
        one_pass = method.num_fit_steps(settings) == 1
        unit = "updates each" if one_pass else "steps"
        field, plan = "num_train_steps", _plan_training

    def attempt(key, plan, callbacks) -> Attempt:
        planned = dataclasses.replace(settings, **{field: plan[0]})
        return train_and_deploy(key, method, planned, budget, callbacks)

    return _Contender(
        method.label,
        lambda key: (plan(key, method, settings, budget),),
        lambda count: f"{count} {unit}",
        attempt,
    )


def _plan_training(
    key: PRNGKeyArray, method: Method, settings: Settings, budget: Budget
) -> int:
    """As many training steps as the budget has room for."""
    allowed = TRAINING_SHARE * budget.amount

    def trial(num_train_steps: int) -> float:
        """Cost of a step, the cheapest of a few calls: the first ones are slow."""
        changed = dataclasses.replace(settings, num_train_steps=num_train_steps)
        times = [0.0]

        def note(snapshot: Snapshot) -> None:
            times.append(snapshot.seconds)

        size = min(_TRIAL_STEPS, method.num_fit_steps(changed))
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

    if method.num_fit_steps(settings) == 1:  # one pass: the updates within it count
        few, many = _TRIAL_ITERATIONS
        first = trial(few)
        each = max((trial(many) - first) / (many - few), 1e-9)
        count = few + (allowed - first) / each
    else:
        count = allowed / max(trial(_TRIAL_STEPS), 1e-9)
    return int(np.clip(count, 1, _MAX_STEPS))


def _plan_ladder(
    key: PRNGKeyArray, method: Method, settings: Settings, budget: Budget
) -> int:
    """As many transitions as a tenth of the budget has room for."""
    compiled = compile_pass(method.sampler(settings))
    compiled.run(key)
    began = time.perf_counter()
    result = compiled.run(key)
    spent = {
        "seconds": time.perf_counter() - began,
        "evaluations": float(result.num_evaluations),
    }[budget.unit]
    ratio = budget.amount / _SMC_PASSES / spent
    return int(np.clip(settings.num_transitions * ratio, 1, _MAX_TRANSITIONS))


def _plan_chains(
    key: PRNGKeyArray, settings: Settings, kind: Any, budget: Budget
) -> tuple[int, int]:
    """Steps of warm-up and steps after it."""
    trial = sample_chains(key, settings, kind, _TRIAL_DRAWS, _TRIAL_DRAWS)
    spent = {"seconds": trial.seconds, "evaluations": trial.num_evaluations}
    total = budget.amount * 2 * _TRIAL_DRAWS / spent[budget.unit]
    warmup = int(np.clip(WARMUP_SHARE * total, 20, _MAX_STEPS))
    return warmup, int(np.clip(total - warmup, 4, _MAX_STEPS))

"""One attempt of one method: train, deploy, and count what it took."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import PRNGKeyArray

from annealax._mcmc import MarkovChains, mcmc
from annealax._work.budget import Budget
from annealax._work.checkpoint import Checkpoint
from annealax._work.drive import Callback, call_all
from annealax._work.serialise import Saved
from annealax.experiments._settings import Settings
from annealax.experiments.evaluate import PassSnapshot, compile_pass, pass_numbers
from annealax.experiments.run import Method
from annealax.trainers.fit import Fit, fit

NUM_CHAINS = 32
_MAX_PASSES = 1000


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
    """

    log_normalizer: float | None
    ess: float
    rhat: float | None
    evaluations: float
    training_seconds: float
    seconds: float
    compile_seconds: float
    memory: int
    curve: np.ndarray


class KeptAttempts:
    """Plans and finished attempts on disk, for a comparison that was cut short.

    Args:
        store: Where they are kept; None to keep nothing.
        identity: What the comparison is: pieces of another one are an error.
    """

    def __init__(self, store: Checkpoint | None, identity: Mapping[str, Any]):
        self._store = store
        self._identity = identity

    def plan(
        self, name: str, compute: Callable[[], tuple[int, ...]]
    ) -> tuple[int, ...]:
        """How long the parts of a method are: measured once, for it takes the clock."""

        def numbers(saved: Saved) -> tuple[int, ...]:
            return tuple(saved.meta["plan"])

        def save(store: Checkpoint, plan: tuple[int, ...]) -> None:
            store.save((), identity=self._identity, meta={"plan": list(plan)})

        return self._once(f"plan-{name}", compute, numbers, save)

    def attempt(self, name: str, compute: Callable[[], Attempt]) -> Attempt:
        """A repeat of a method."""

        def whole(saved: Saved) -> Attempt:
            like = np.zeros((saved.meta["length"], 3))
            return Attempt(**saved.meta["numbers"], curve=saved.restore(like))

        def save(store: Checkpoint, attempt: Attempt) -> None:
            numbers = dataclasses.asdict(attempt)
            curve = numbers.pop("curve")
            meta = {"numbers": numbers, "length": len(curve)}
            store.save(curve, identity=self._identity, meta=meta)

        return self._once(name, compute, whole, save)

    def _once(self, name, compute, load, save):
        if self._store is None:
            return compute()
        store = self._store.child(name)
        if (saved := store.latest(self._identity)) is not None:
            return load(saved)
        found = compute()
        save(store, found)
        return found


def train(
    key: PRNGKeyArray,
    method: Method,
    settings: Settings,
    *,
    num_steps: int | None = None,
    **options: Any,
) -> Fit:
    """Train the flows of a method; `options` are those of `fit`."""
    assert method.trainer is not None
    key_flow, key_fit = jr.split(key)
    return fit(
        key_fit,
        method.trainer(settings),
        settings.flow(key_flow),
        num_steps=method.num_fit_steps(settings) if num_steps is None else num_steps,
        **options,
    )


def count_evaluations(trained: Fit) -> float:
    """Evaluations of a training."""
    return float(np.asarray(trained.history.steps.num_evaluations, np.float64).sum())


def train_and_deploy(
    key: PRNGKeyArray,
    method: Method,
    settings: Settings,
    budget: Budget,
    callbacks: Callable[[str], list[Callback]] = lambda stage: [],
) -> Attempt:
    """Train if the method does, then make passes until the budget is spent.

    Args:
        key: Random key.
        method: The method.
        settings: Its settings.
        budget: What it may spend.
        callbacks: From "training" and "passes" to the callbacks of that stage.
    """
    key_train, key_deploy = jr.split(key)
    curve: list[tuple[float, float, float]] = []
    flows: AbstractBijection | None = None
    seconds = evaluations = compile_seconds = 0.0
    memory = 0
    if method.trainer is not None:
        trained = train(key_train, method, settings, callback=callbacks("training"))
        flows, history = trained.flows, trained.history
        costs = np.asarray(history.steps.num_evaluations, np.float64).sum(axis=1)
        times = np.linspace(0, trained.seconds, len(costs) + 1)[1:]
        passes = np.asarray(history.log_normalizer, np.float64)
        curve += list(zip(times, np.cumsum(costs), passes, strict=True))
        seconds, evaluations = trained.seconds, float(costs.sum())
        compile_seconds, memory = trained.compile_seconds, trained.memory
    training_seconds = seconds
    compiled = compile_pass(method.sampler(settings), flows)
    compiled.run(key_deploy)  # the first call is slower than the others
    rows, before = np.zeros((0, 4)), 0.0
    watchers = callbacks("passes")
    for index in range(_MAX_PASSES):
        spent = {"seconds": seconds, "evaluations": evaluations}[budget.unit]
        # Half a pass too much or too little: as near to the budget as can be.
        if index > 0 and spent + 0.5 * (spent - before) > budget.amount:
            break
        before = spent
        began = time.perf_counter()
        result = compiled.run(jr.fold_in(key_deploy, index))
        seconds += time.perf_counter() - began
        evaluations += float(result.num_evaluations)
        row = pass_numbers(result, settings.num_particles)
        rows = np.append(rows, [row], axis=0)
        curve.append((seconds, evaluations, pool(rows[:, 0])))
        call_all(watchers, PassSnapshot(index + 1, index + 1, row, seconds))
    return Attempt(
        log_normalizer=pool(rows[:, 0]),
        ess=float(np.mean(rows[:, 2])),
        rhat=None,
        evaluations=evaluations,
        training_seconds=training_seconds,
        seconds=seconds,
        compile_seconds=compile_seconds + compiled.compile_seconds,
        memory=max(memory, compiled.memory),
        curve=np.array(curve),
    )


def pool(log_normalizers: Sequence[float] | np.ndarray) -> float:
    """Logarithm of the average of Z."""
    values = np.asarray(log_normalizers)
    top = values.max()
    return float(top + np.log(np.mean(np.exp(values - top))))


def sample_chains(
    key: PRNGKeyArray, settings: Settings, kind: Any, warmup: int, draws: int
) -> MarkovChains:
    """Direct MCMC on the target."""
    return mcmc(
        key,
        settings.sampler().path,
        method=kind,
        num_chains=NUM_CHAINS,
        num_warmup=warmup,
        num_samples=draws,
        num_leapfrog=settings.num_leapfrog,
        observables=dict(settings.target().observables) or None,
    )


def run_chains(
    key: PRNGKeyArray, settings: Settings, kind: Any, lengths: tuple[int, ...]
) -> Attempt:
    """Direct MCMC as an attempt."""
    warmup, draws = lengths
    chains = sample_chains(key, settings, kind, warmup, draws)
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
        curve=np.zeros((0, 3)),
    )

"""Whether flows pay for themselves, and which.

Families are compared in short CRAFT fits by the work that is left: the free energy
above log Z, summed over transitions. The best is trained on, deployed, and kept if it
gives a smaller error in the same time, or finds mass that plain SMC misses.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping

import jax
import jax.random as jr
import numpy as np
import optax
from flowjax.bijections import AbstractBijection
from jaxtyping import PRNGKeyArray

from annealax import flows
from annealax._estimates import log_mean
from annealax._keys import named_key
from annealax._sampler import Sampler
from annealax.trainers import CRAFT
from annealax.trainers.fit import Fit, Snapshot, fit

_TRIAL_STEPS = 40
_TRAINING_STEPS = 300
_PLATEAU = 40
_PASSES = 4
_LEARNING_RATE = 0.02

Family = Callable[[PRNGKeyArray, tuple[int, ...]], AbstractBijection]

FAMILIES: Mapping[str, Family] = {
    "diagonal affine": flows.diagonal_affine,
    "affine autoregressive": lambda key, shape: flows.affine_autoregressive(
        key, shape, hidden=(32, 32)
    ),
    "spline coupling": lambda key, shape: flows.coupling(
        key, shape, transformer="spline", num_layers=2, hidden=(32,)
    ),
}
"""Families of flows by name."""


@dataclasses.dataclass(frozen=True)
class Passes:
    """A few passes of a sampler.

    Attributes:
        log_normalizers: log Z of each.
        stderrs: Standard error of each.
        seconds: Time of one, compilation apart.
        num_evaluations: Density evaluations of all.
    """

    log_normalizers: np.ndarray
    stderrs: np.ndarray
    seconds: float
    num_evaluations: int

    @property
    def cost(self) -> float:
        """Squared error times time."""
        spread = np.var(self.log_normalizers, ddof=1)
        return float(max(spread, np.mean(self.stderrs**2)) * self.seconds)


@dataclasses.dataclass(frozen=True)
class FlowChoice:
    """The decision.

    Attributes:
        flows: Trained flows, or None.
        reason: In words.
        num_evaluations: Density evaluations made.
        index: Which of the families; -1 for none.
    """

    flows: AbstractBijection | None
    reason: str
    num_evaluations: int
    index: int


def families_for(size: int) -> tuple[str, ...]:
    """Families that suit a dimension."""
    if size == 1:
        return ("diagonal affine",)
    if size <= 64:
        return ("diagonal affine", "affine autoregressive", "spline coupling")
    return ("diagonal affine",)


def choose_flows(
    key: PRNGKeyArray,
    sampler: Sampler,
    families: tuple[str, ...],
    say: Callable[[str], None] = lambda text: None,
    decided: int | None = None,
    *,
    forced: bool = False,
) -> FlowChoice:
    """Try families of flows on a tuned sampler.

    Args:
        key: Random key.
        sampler: The sampler to be helped.
        families: Names in `FAMILIES`.
        say: Called with a line of text now and then.
        decided: What an earlier call decided: the index of a family, or -1. The
            decision rests on the clock, and must not be taken twice.
        forced: Keep the flows whatever they bring.
    """
    if decided is not None:
        if decided < 0:
            return FlowChoice(None, "tried and dropped before", 0, -1)
        subkey = named_key(key, "training", families[decided])
        fitted = _train(subkey, sampler, families[decided], _TRAINING_STEPS)
        spent = int(np.sum(fitted.history.steps.num_evaluations))
        reason = f"{families[decided]}, as decided before"
        return FlowChoice(fitted.flows, reason, spent, decided)
    plain = run_passes(named_key(key, "plain"), sampler, None)
    spent = plain.num_evaluations
    left: dict[str, float] = {}
    for name in families:
        if len(families) == 1:  # nothing to choose from
            left[name] = 0.0
            continue
        fitted = _train(named_key(key, "trial", name), sampler, name, _TRIAL_STEPS)
        spent += int(np.sum(fitted.history.steps.num_evaluations))
        left[name] = _work(fitted, 10)
        say(f"{name} flows: {left[name]:.3g} nats of work left after {_TRIAL_STEPS}")
    name = min(left, key=lambda each: left[each])
    index = families.index(name)
    fitted = _train(named_key(key, "training", name), sampler, name, _TRAINING_STEPS)
    spent += int(np.sum(fitted.history.steps.num_evaluations))
    helped = run_passes(named_key(key, "helped"), sampler, fitted.flows)
    spent += helped.num_evaluations
    gain = plain.cost / max(helped.cost, 1e-12)
    ratio = f"{1 / max(gain, 1e-9):.2g} times that of plain SMC in the same time"
    if forced:
        reason = f"{name}, as asked: squared error {ratio}"
        return FlowChoice(fitted.flows, reason, spent, index)
    rise = log_mean(helped.log_normalizers) - log_mean(plain.log_normalizers)
    noise = np.hypot(
        *(
            max(np.std(each.log_normalizers, ddof=1), np.mean(each.stderrs))
            / np.sqrt(_PASSES)
            for each in (plain, helped)
        )
    )
    if rise > 3 * noise + 0.02:
        return FlowChoice(
            fitted.flows, f"{name}: log Z is {rise:.2g} higher with them", spent, index
        )
    if gain > 1.5 and rise > -3 * noise - 0.02:
        return FlowChoice(
            fitted.flows,
            f"{name}: squared error {gain:.1f} times smaller in the same time",
            spent,
            index,
        )
    return FlowChoice(
        None,
        f"tried and dropped: {name} flows, the best of {len(families)} families, give "
        f"a squared error {ratio}",
        spent,
        -1,
    )


def run_passes(
    key: PRNGKeyArray, sampler: Sampler, stacked: AbstractBijection | None
) -> Passes:
    """Passes for a decision, never for an answer."""
    values, seconds, count = [], [], 0
    for index in range(_PASSES):
        began = time.perf_counter()
        result = jax.block_until_ready(sampler.run(named_key(key, index), stacked))
        seconds.append(time.perf_counter() - began)
        values.append((result.log_normalizer, result.log_normalizer_stderr))
        count += int(result.num_evaluations)
    log_normalizers, stderrs = np.asarray(values, np.float64).T
    return Passes(log_normalizers, stderrs, float(np.min(seconds)), count)


def _train(key: PRNGKeyArray, sampler: Sampler, name: str, num_steps: int) -> Fit:
    key_flow, key_fit = jr.split(key)
    schedule = optax.cosine_decay_schedule(_LEARNING_RATE, num_steps, 0.05)
    return fit(
        key_fit,
        CRAFT(sampler, optax.adam(schedule)),
        FAMILIES[name](key_flow, sampler.path.shape),
        num_steps=num_steps,
        steps_per_call=20,
        callback=Plateau(),
    )


class Plateau:
    """Stops a fit whose work no longer falls.

    The decision is taken on blocks of a fixed number of steps: it does not depend on
    the clock.
    """

    def __init__(self, block: int = _PLATEAU):
        self._block = block
        self._work: list[float] = []

    def __call__(self, snapshot: Snapshot) -> bool:
        """Whether to stop."""
        info = snapshot.info
        self._work.extend(np.asarray(info.loss + info.log_normalizer, np.float64))
        if len(self._work) < 3 * self._block:
            return False
        old = np.mean(self._work[-2 * self._block : -self._block])
        new = np.mean(self._work[-self._block :])
        return bool(new > 0.98 * old)


def _work(fitted: Fit, count: int) -> float:
    history = fitted.history
    return float(np.mean((history.loss + history.log_normalizer)[-count:]))

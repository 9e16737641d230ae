"""Whether flows pay for themselves, and which.

Families are compared in short CRAFT fits by the work that is left: the free energy
above log Z, summed over transitions. The best is trained on, deployed, and kept if it
gives a smaller error in the same time, or finds mass that plain SMC misses.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.random as jr
import numpy as np
import optax
from flowjax.bijections import AbstractBijection
from jaxtyping import PRNGKeyArray

from annealax import flows
from annealax._errors import SamplingError
from annealax._estimates import log_mean
from annealax._keys import named_key
from annealax._sampler import Sampler
from annealax.auto.density import CountedDensity
from annealax.auto.tuning import run_pass
from annealax.trainers import CRAFT
from annealax.trainers.fit import Fit, Snapshot, fit

_TRIAL_STEPS, _TRIAL_END = 40, 10
"""Steps of a fit that only compares families, by its last few."""

_TRAINING_STEPS = 300
"""Steps of the fit that is deployed, at most."""

_PLATEAU, _STILL_FALLS = 40, 0.98
"""A fit ends where a block of so many steps has not lowered the work by this factor."""

_PASSES = 4
"""Passes with flows and without, by which they are judged."""

_LEARNING_RATE = 0.02
"""Of Adam, at the start: the flows are small, and begin as the identity."""

_GAIN_NEEDED = 1.5
"""Flows must lower the squared error at equal time by this factor."""

_RISE = 0.02
"""Log Z that rises by these nats more than noise explains was too low before."""

_MANY_DIMENSIONS = 64
"""Above these, networks cost more than they gain: only the diagonal family."""

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
    """

    log_normalizers: np.ndarray
    stderrs: np.ndarray
    seconds: float

    @property
    def cost(self) -> float:
        """Squared error times time."""
        spread = np.var(self.log_normalizers, ddof=1)
        return float(max(spread, np.mean(self.stderrs**2)) * self.seconds)

    @property
    def noise(self) -> float:
        """Standard error of their mean log Z."""
        spread = float(np.std(self.log_normalizers, ddof=1))
        return max(spread, float(np.mean(self.stderrs))) / np.sqrt(_PASSES)


@dataclasses.dataclass(frozen=True)
class FlowChoice:
    """The decision.

    Attributes:
        flows: Trained flows, or None.
        reason: In words.
        family: Which one they are of; "" for none.
    """

    flows: AbstractBijection | None
    reason: str
    family: str = ""


def families_for(size: int) -> tuple[str, ...]:
    """Families that suit a dimension."""
    if 1 < size <= _MANY_DIMENSIONS:
        return tuple(FAMILIES)
    return ("diagonal affine",)


def choose_flows(
    key: PRNGKeyArray,
    sampler: Sampler,
    density: CountedDensity,
    families: tuple[str, ...],
    say: Callable[[str], None] = lambda text: None,
    *,
    forced: bool = False,
) -> FlowChoice:
    """Try families of flows on a tuned sampler.

    Args:
        key: Random key.
        sampler: The sampler to be helped.
        density: Where evaluations are counted.
        families: Names in `FAMILIES`.
        say: Called with a line of text now and then.
        forced: Keep the flows whatever they bring.
    """
    plain = run_passes(named_key(key, "plain"), sampler, density, None)
    name = families[0]
    if len(families) > 1:
        left = {each: _work_left(key, sampler, density, each, say) for each in families}
        name = min(left, key=lambda each: left[each])
    try:
        trained = train_flows(key, sampler, density, name)
        helped = run_passes(named_key(key, "helped"), sampler, density, trained)
    except SamplingError as error:
        if forced:
            raise
        return FlowChoice(None, f"tried and dropped: {name} flows: {error}")
    gain = plain.cost / max(helped.cost, 1e-12)
    ratio = f"{1 / max(gain, 1e-9):.2g} times that of plain SMC in the same time"
    if forced:
        return FlowChoice(trained, f"{name}, as asked: squared error {ratio}", name)
    rise = log_mean(helped.log_normalizers) - log_mean(plain.log_normalizers)
    tolerance = 3 * np.hypot(plain.noise, helped.noise) + _RISE
    if rise > tolerance:
        reason = f"{name}: log Z is {rise:.2g} higher with them"
        return FlowChoice(trained, reason, name)
    if gain > _GAIN_NEEDED and rise > -tolerance:
        reason = f"{name}: squared error {gain:.1f} times smaller in the same time"
        return FlowChoice(trained, reason, name)
    return FlowChoice(
        None,
        f"tried and dropped: {name} flows, the best of {len(families)} families, give "
        f"a squared error {ratio}",
    )


def train_flows(
    key: PRNGKeyArray, sampler: Sampler, density: CountedDensity, name: str
) -> AbstractBijection:
    """Flows of a family, as they are deployed: the same for the same key."""
    subkey = named_key(key, "training", name)
    return _train(subkey, sampler, density, name, _TRAINING_STEPS).flows


def _work_left(key, sampler, density, name: str, say) -> float:
    """Nats per pass that flows of a family leave after a short fit."""
    subkey = named_key(key, "trial", name)
    fitted = _train(subkey, sampler, density, name, _TRIAL_STEPS)
    work = _work_of(fitted.history)
    left = float(np.mean(work[-_TRIAL_END:]))
    say(f"{name} flows: {left:.3g} nats of work left after {_TRIAL_STEPS}")
    return left


def run_passes(
    key: PRNGKeyArray,
    sampler: Sampler,
    density: CountedDensity,
    stacked: AbstractBijection | None,
) -> Passes:
    """Passes for a decision, never for an answer."""
    values, seconds = [], []
    for index in range(_PASSES):
        began = time.perf_counter()
        result = jax.block_until_ready(
            run_pass(sampler, named_key(key, index), stacked)
        )
        seconds.append(time.perf_counter() - began)
        values.append((result.log_normalizer, result.log_normalizer_stderr))
        density.spend(float(np.asarray(result.steps.num_evaluations).sum()))
    log_normalizers, stderrs = np.asarray(values, np.float64).T
    return Passes(log_normalizers, stderrs, float(np.min(seconds)))


def _train(key, sampler: Sampler, density, name: str, num_steps: int) -> Fit:
    key_flow, key_fit = jr.split(key)
    schedule = optax.cosine_decay_schedule(_LEARNING_RATE, num_steps, 0.05)
    fitted = fit(
        key_fit,
        CRAFT(sampler, optax.adam(schedule)),
        FAMILIES[name](key_flow, sampler.path.shape),
        num_steps=num_steps,
        steps_per_call=20,
        callback=Plateau(),
    )
    density.spend(float(np.sum(fitted.history.steps.num_evaluations)))
    return fitted


def _work_of(info: Any) -> np.ndarray:
    """Free energy above log Z at each step; NaN where no particle arrived."""
    with np.errstate(invalid="ignore"):
        return np.asarray(info.loss + info.log_normalizer, np.float64)


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
        self._work.extend(_work_of(snapshot.info))
        if len(self._work) < 3 * self._block:
            return False
        old = np.mean(self._work[-2 * self._block : -self._block])
        new = np.mean(self._work[-self._block :])
        return bool(new > _STILL_FALLS * old)

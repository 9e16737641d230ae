r"""Models compared by their evidence: Bayes factors, probabilities, prior sensitivity.

With prior probabilities $p_m$ of models and evidences $Z_m$,

$$P(m \mid y) = \frac{p_m Z_m}{\sum_k p_k Z_k}, \qquad B_{ab} = Z_a / Z_b.$$

**Errors.** Estimates of log Z have errors, and what is made of them is not linear: with
an error of 3 nats a delta method would give probabilities beyond 0 and 1. So errors are
simulated: log Z of each model is drawn many times from Student's t distribution about
its estimate, with its error bar and as many degrees of freedom as the error bar has
(one less than there are replicates), independently of the others; an answer that
another start contradicts is drawn from either. Intervals are quantiles of what follows.

**Prior sensitivity.** The prior $\pi$ is raised to a power and normalised again,

$$\pi_\alpha(\theta) = \pi(\theta)^\alpha / C_\alpha, \qquad
  C_\alpha = \int \pi(\theta)^\alpha \,\mathrm d\theta,$$

which makes a normal distribution wider ($\alpha < 1$) or narrower by
$\alpha^{-1/2}$, in the parameters as the model has them (it is not invariant to
their choice), and leaves a uniform one as it is. The evidence under it is, without
another run,

$$\log \frac{Z_\alpha}{Z}
  = \log \mathrm E_{\text{posterior}}[\pi^{\alpha-1}] - \log C_\alpha, \qquad
  C_\alpha = \mathrm E_{\pi}[\pi^{\alpha-1}],$$

the former by the weighted draws of the answer, the latter by draws from the prior; and
at $\alpha = 1$ it rises with

$$\frac{\mathrm d \log Z_\alpha}{\mathrm d \log \alpha}
  = \mathrm E_{\text{posterior}}[\log \pi] - \mathrm E_\pi[\log \pi].$$

Where one of the averages has a tail that is too heavy (Pareto k above 0.7; some priors
to a power have no integral at all), no value is given.
"""

import dataclasses
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.random as jr
import numpy as np

from annealax._doubts import Doubt
from annealax._errors import InvalidInputError
from annealax._estimates import log_mean, logsumexp, pareto_shape, pooled_stderr
from annealax._words import brief_text, listed
from annealax.auto.precision import in_precision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POWERS = (0.8, 1.25)
"""The prior to these powers: not much wider and not much narrower than it is."""

_SIMULATIONS = 40_000
_PRIOR_DRAWS = 20_000
_HEAVY = 0.7
"""Pareto k above which a mean cannot be trusted (Vehtari et al. 2024)."""

_WIDTH = 79
_LARGE_ERROR = 0.5
_MOST_NATS = 700.0
"""Beyond this a factor is not a number of double precision."""


class Interval(NamedTuple):
    """An estimate, its standard error, and an interval that holds it with 95 %."""

    value: float
    stderr: float
    low: float
    high: float


class ScaledPrior(NamedTuple):
    """The evidence of a model whose prior is raised to a power and normalised again.

    Attributes:
        power: The power, alpha.
        change: log Z with it, less log Z with the prior as it is; NaN if unknown.
        stderr: Standard error of the change.
        pareto_k: The heavier of the two tails; above 0.7 there is no `change`.
    """

    power: float
    change: float
    stderr: float
    pareto_k: float


class PriorSensitivity(NamedTuple):
    """How the evidence of a model depends on how strong its prior is.

    Attributes:
        slope: Derivative of log Z by the logarithm of the power, at power one.
        slope_stderr: Its standard error.
        scaled: The evidence with the prior to some powers.
    """

    slope: float
    slope_stderr: float
    scaled: tuple[ScaledPrior, ...]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a result says about log Z.

    Attributes:
        value: log Z.
        stderr: Its standard error.
        freedom: Degrees of freedom of the error bar.
        doubts: Reasons to doubt it.
        other: Another value and its error that may be right as well, or None.
    """

    value: float
    stderr: float
    freedom: float | int = math.inf
    doubts: tuple[str, ...] = ()
    other: tuple[float, float] | None = None

    def simulate(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Values that log Z may have."""
        value, stderr = np.full(count, self.value), np.full(count, self.stderr)
        if self.other is not None:
            either = rng.uniform(size=count) < 0.5
            value[either], stderr[either] = self.other
        if math.isinf(self.freedom):
            return value + stderr * rng.normal(size=count)
        return value + stderr * rng.standard_t(self.freedom, size=count)


@dataclasses.dataclass(frozen=True, repr=False)
class EvidenceComparison:
    """Models compared by their evidence.

    Attributes:
        names: Of the models.
        log_normalizers: Their log evidence, log Z.
        log_normalizer_stderrs: Its standard errors.
        priors: Prior probabilities of the models; they add up to one.
        simulated: Values of log Z within their errors, (simulations, models).
        sensitivities: How log Z depends on the prior, for the models whose prior is
            known.
        messages: Reasons to doubt the results, each with the name of its model.
    """

    names: tuple[str, ...]
    log_normalizers: np.ndarray
    log_normalizer_stderrs: np.ndarray
    priors: np.ndarray
    simulated: np.ndarray
    sensitivities: Mapping[str, PriorSensitivity]
    messages: tuple[Doubt, ...] = ()

    @property
    def best(self) -> str:
        """Name of the most probable model."""
        found = self.probabilities
        return max(found, key=lambda name: found[name])

    @property
    def probabilities(self) -> dict[str, float]:
        """Posterior probability of each model, by the estimates of log Z."""
        found = _probabilities(self.log_normalizers, self.priors)
        return dict(zip(self.names, map(float, found), strict=True))

    @property
    def probability_stderrs(self) -> dict[str, float]:
        """Standard deviation of each probability over the simulated errors."""
        found = self._simulated_probabilities.std(axis=0)
        return dict(zip(self.names, map(float, found), strict=True))

    @property
    def probability_intervals(self) -> dict[str, tuple[float, float]]:
        """Intervals that hold each probability with 95 %."""
        ends = np.quantile(self._simulated_probabilities, [0.025, 0.975], axis=0)
        return {
            name: (float(low), float(high))
            for name, low, high in zip(self.names, *ends, strict=True)
        }

    @property
    def _simulated_probabilities(self) -> np.ndarray:
        return _probabilities(self.simulated, self.priors)

    @property
    def certainty(self) -> float:
        """Share of the simulated errors in which the best model is still the best."""
        best = self.names.index(self.best)
        found = np.argmax(self._simulated_probabilities, axis=1)
        return float(np.mean(found == best))

    def log_bayes_factor(self, first: str, second: str) -> Interval:
        """Logarithm of the Bayes factor of one model against another.

        Args:
            first: Name of the model that a positive number speaks for.
            second: Name of the other.
        """
        a, b = (self._index(name) for name in (first, second))
        if a == b:
            return Interval(0.0, 0.0, 0.0, 0.0)
        found = self.simulated[:, a] - self.simulated[:, b]
        low, high = map(float, np.quantile(found, [0.025, 0.975]))
        value = float(self.log_normalizers[a] - self.log_normalizers[b])
        errors = self.log_normalizer_stderrs
        stderr = float(np.hypot(errors[a], errors[b]))
        return Interval(value, stderr, low, high)

    def bayes_factor(self, first: str, second: str) -> Interval:
        """The Bayes factor of one model against another.

        The interval is that of its logarithm; the standard error, by the delta method,
        means something only where it is small.
        """
        found = self.log_bayes_factor(first, second)
        value = _exp(found.value)
        return Interval(value, value * found.stderr, _exp(found.low), _exp(found.high))

    @property
    def log_bayes_factors(self) -> np.ndarray:
        """Logarithms of all Bayes factors: the row's model against the column's."""
        values = self.log_normalizers
        return values[:, None] - values

    @property
    def log_bayes_factor_stderrs(self) -> np.ndarray:
        """Their standard errors."""
        errors = self.log_normalizer_stderrs
        found = np.hypot(errors[:, None], errors)
        np.fill_diagonal(found, 0.0)
        return found

    def probabilities_with(self, powers: Mapping[str, float | int]) -> dict[str, float]:
        """Probabilities of the models with the priors of some to other powers.

        Args:
            powers: By name of the model; one of those in its `sensitivities`, or 1.

        Raises:
            InvalidInputError: If that is not known.
        """
        values = self.log_normalizers.copy()
        for name, power in powers.items():
            index = self._index(name)
            if power == 1:
                continue
            known = self.sensitivities.get(name)
            found = {each.power: each for each in known.scaled} if known else {}
            if power not in found or not math.isfinite(found[power].change):
                raise InvalidInputError(
                    f"the evidence of {name} with its prior to the power {power} is "
                    f"not known; known are {sorted(found) or 'none'}"
                )
            values[index] += found[power].change
        probabilities = _probabilities(values, self.priors)
        return dict(zip(self.names, map(float, probabilities), strict=True))

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise InvalidInputError(
                f"there is no model {name!r}; there are {listed(self.names, 20)}"
            )
        return self.names.index(name)

    def warnings(self) -> list[Doubt]:
        """Reasons to doubt the results that are compared, with the model's name."""
        return list(self.messages)

    def headline(self) -> str:
        """Who won, by how much, and how sure that is."""
        best = self.best
        probability, error = self.probabilities[best], self.probability_stderrs[best]
        low, high = self.probability_intervals[best]
        value = f"{probability:.4g}" if probability < 1 - 1e-6 else "1"
        if error > 1e-6:
            value = brief_text(probability, error)
        sure = self.certainty
        words = "also within the errors of log Z"
        if sure < 0.9995:
            words = f"and stays first in {sure:.1%} of the simulated errors of log Z"
        if low < 0.5 < high and len(self.names) == 2 and sure < 0.975:
            words = f"but the errors of log Z leave that open ({sure:.0%} sure)"
        return f"{best} is the most probable model: {value}, {words}"

    def summary(self) -> str:
        """All that matters, as text."""
        from annealax.report.tables import (  # noqa: PLC0415
            evidence_tables,
            table_text,
        )

        lines = textwrap.wrap(f"{self.headline()}.", _WIDTH)
        for doubt in self.messages:
            text = f"{doubt} [{doubt.code}: {Doubt.CODES[doubt.code][1]}]"
            lines += textwrap.wrap(
                text, _WIDTH, initial_indent="  - ", subsequent_indent="    "
            )
        for table in evidence_tables(self):
            lines += ["", table.title, table_text(table)]
        return "\n".join(lines).replace("±", "+-")

    def __str__(self) -> str:
        """The summary."""
        return self.summary()

    def __repr__(self) -> str:
        """The winner in a line."""
        return f"<EvidenceComparison of {listed(self.names)}: {self.headline()}>"

    def _repr_html_(self) -> str:
        """The comparison in a notebook."""
        from annealax.report.notebook import evidence_html  # noqa: PLC0415

        return evidence_html(self)

    def plot(self) -> "Figure":
        """Probabilities, Bayes factors and what the priors do, as a picture."""
        from annealax.report.charts import compose, evidence_panels  # noqa: PLC0415

        return compose(evidence_panels(self))

    def as_json(self) -> dict[str, Any]:
        """The comparison as numbers and text."""
        best = self.best
        models = {}
        for name, value, stderr, prior in zip(
            self.names,
            self.log_normalizers,
            self.log_normalizer_stderrs,
            self.priors,
            strict=True,
        ):
            factor = self.log_bayes_factor(name, best)
            models[name] = {
                "log_normalizer": float(value),
                "log_normalizer_stderr": float(stderr),
                "prior": float(prior),
                "probability": self.probabilities[name],
                "probability_interval": list(self.probability_intervals[name]),
                "log_bayes_factor_against_best": factor._asdict(),
            }
        warnings = [{"code": d.code, "text": str(d)} for d in self.messages]
        return {
            "best": best,
            "certainty": self.certainty,
            "models": models,
            "warnings": warnings,
        }


def compare_evidence(
    results: Mapping[str, Any],
    priors: Mapping[str, float | int] | None = None,
    *,
    powers: Sequence[float | int] = POWERS,
    seed: int = 0,
) -> EvidenceComparison:
    """Compare models by their evidence.

    Log Z is the evidence of a model where its density is that of the data and the
    parameters together: normalised prior times likelihood, no constant left out, and
    the same data for all.

    Args:
        results: By name of the model: what `annealax.sample`, `Sampler.run` or
            `annealax.load_run` gave, several runs of a sampler in a list, or a pair of
            log Z and its standard error.
        priors: Prior probabilities of the models, up to a constant; None for the same
            for all.
        powers: Powers of the prior of each model for which the evidence is computed
            too, where the prior is known.
        seed: Seed of the simulated errors and of draws from priors.

    Raises:
        InvalidInputError: If a result has no log Z, or the priors are none.
    """
    if not isinstance(results, Mapping) or len(results) < 2:
        raise InvalidInputError(
            "results must be a dict of at least two results by name, such as "
            f'{{"small": a, "large": b}}; got {type(results).__name__}'
            + (f" with {len(results)}" if isinstance(results, Mapping) else "")
        )
    found = {str(name): _estimate(str(name), each) for name, each in results.items()}
    names = tuple(found)
    for power in powers:
        if not (math.isfinite(power) and power > 0):
            raise InvalidInputError(f"powers must be positive numbers, got {power}")
    rng = np.random.default_rng(seed)
    simulated = [each.simulate(rng, _SIMULATIONS) for each in found.values()]
    sensitivities = {}
    for name, result in results.items():
        known = _sensitivity(_unwrapped(result), powers, seed)
        if known is not None:
            sensitivities[str(name)] = known
    return EvidenceComparison(
        names,
        np.array([each.value for each in found.values()]),
        np.array([each.stderr for each in found.values()]),
        as_probabilities(names, priors),
        np.stack(simulated, axis=1),
        sensitivities,
        tuple(_messages(found)),
    )


def _messages(found: Mapping[str, Estimate]) -> Iterator[Doubt]:
    for name, each in found.items():
        codes = set()
        for doubt in each.doubts:
            code = getattr(doubt, "code", None)
            codes.add(code)
            if code is not None:
                yield Doubt(code, f"{name}: {doubt}")
        if each.stderr > _LARGE_ERROR and "large-error" not in codes:
            yield Doubt(
                "large-error",
                f"{name}: the error of log Z is {each.stderr:.2g}, and it may not be "
                "normal: what follows from it is rough",
            )


def _unwrapped(result: Any) -> Any:
    """What a run folder holds, if it is one."""
    if not hasattr(result, "log_normalizer") and hasattr(result, "result"):
        return result.result
    return result


def _estimate(name: str, result: Any) -> Estimate:
    """What a result says about log Z."""
    result = _unwrapped(result)
    if isinstance(result, Estimate):
        _pair(name, (result.value, result.stderr))
        return result
    if isinstance(result, list) and result and hasattr(result[0], "log_normalizer"):
        each = [_estimate(name, one) for one in result]
        values = np.array([one.value for one in each])
        errors = np.array([one.stderr for one in each])
        if len(each) == 1:
            return each[0]
        return Estimate(
            log_mean(values),
            pooled_stderr(values, errors),
            len(each) - 1,
            tuple(dict.fromkeys(d for one in each for d in one.doubts)),
        )
    if hasattr(result, "log_normalizer") and hasattr(result, "log_normalizer_stderr"):
        pair = (result.log_normalizer, result.log_normalizer_stderr)
        value, stderr = _pair(name, pair)
        replicates = getattr(result, "replicate_log_normalizers", None)
        freedom = math.inf if replicates is None else max(len(replicates) - 1, 1)
        warnings = getattr(result, "warnings", None)
        other = None
        if getattr(result, "is_contradicted", False):
            other = result.search.most_mass[1:]
        doubts = tuple(warnings()) if callable(warnings) else ()
        return Estimate(value, stderr, freedom, doubts, other)
    return Estimate(*_pair(name, result))


def _pair(name: str, pair: Any) -> tuple[float, float]:
    try:
        value, stderr = map(float, pair)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"the result of {name} must be a result of annealax, or a pair of log Z "
            f"and its standard error such as (-12.3, 0.1); got {type(pair).__name__}"
        ) from None
    if not math.isfinite(value):
        raise InvalidInputError(f"log Z of {name} must be finite, got {value}")
    if not (math.isfinite(stderr) and stderr >= 0):
        raise InvalidInputError(
            f"the standard error of log Z of {name} must be finite and not negative, "
            f"got {stderr}"
        )
    return value, stderr


def as_probabilities(
    names: tuple[str, ...], priors: Mapping[str, float | int] | None
) -> np.ndarray:
    """Prior probabilities of models, in order; the same for all if there are none.

    Raises:
        InvalidInputError: If they are no probabilities, or not of these models.
    """
    if priors is None:
        return np.full(len(names), 1 / len(names))
    if not isinstance(priors, Mapping) or set(map(str, priors)) != set(names):
        raise InvalidInputError(
            f"priors must be a dict with a number for each of {list(names)}; got "
            f"{priors!r}"
        )
    by_name = {str(name): value for name, value in priors.items()}
    try:
        values = np.array([float(by_name[name]) for name in names])
    except (TypeError, ValueError):
        values = np.array([math.nan])
    if not (np.all(np.isfinite(values)) and np.all(values >= 0) and values.sum() > 0):
        raise InvalidInputError(
            f"priors must be numbers, not negative, and not all zero; got {priors!r}"
        )
    return values / values.sum()


def _probabilities(log_normalizers: np.ndarray, priors: np.ndarray) -> np.ndarray:
    """Posterior probabilities; the last axis is over the models."""
    with np.errstate(divide="ignore"):
        logs = log_normalizers + np.log(priors)
    logs = logs - logs.max(axis=-1, keepdims=True)
    return np.exp(logs) / np.exp(logs).sum(axis=-1, keepdims=True)


def _exp(value: float) -> float:
    return math.exp(value) if value < _MOST_NATS else math.inf


# What the prior does.


def _sensitivity(
    result: Any, powers: Sequence[float | int], seed: int
) -> PriorSensitivity | None:
    """How log Z of a result depends on its prior; None if that is not known."""
    model = getattr(result, "model", None)
    if model is None or getattr(model, "prior", None) is None:
        return None
    with in_precision(result.dtype):
        keys = jr.split(jr.key(seed), _PRIOR_DRAWS)
        log_prior = jax.jit(jax.vmap(model.log_prior))
        drawn = jax.jit(jax.vmap(model.prior.sample))(keys)
        before = np.asarray(log_prior(drawn), np.float64)
        after = np.asarray(log_prior(result.x), np.float64)
        weights = np.asarray(result.weights, np.float64)
    before = before[np.isfinite(before)]
    usable = np.isfinite(after) | (weights == 0)
    if len(before) < 0.999 * _PRIOR_DRAWS or not usable.all():
        return None  # the density is infinite somewhere: a power of it means nothing
    shares = (weights / weights.sum()).reshape(result.num_replicates, -1)
    after = np.where(weights > 0, after, 0.0).reshape(shares.shape)
    mean = float(np.sum(shares * after))
    slope = mean - float(np.mean(before))
    error = np.hypot(
        _error_of_mean(shares, after - mean),
        np.std(before, ddof=1) / math.sqrt(len(before)),
    )
    scaled = tuple(_scaled(float(power), shares, after, before) for power in powers)
    return PriorSensitivity(slope, float(error), scaled)


def _error_of_mean(shares: np.ndarray, centred: np.ndarray) -> float:
    """Standard error of a weighted mean, by the differences between replicates."""
    count = len(shares)
    if count < 2:
        return math.nan
    parts = np.sum(shares * centred, axis=1)
    return math.sqrt(count / (count - 1) * float(np.sum(parts**2)))


def _scaled(
    power: float, shares: np.ndarray, after: np.ndarray, before: np.ndarray
) -> ScaledPrior:
    """The evidence with the prior to a power.

    Args:
        power: The power.
        shares: Weights of the draws, (replicates, draws); they add up to one.
        after: Log prior density of the draws.
        before: Log prior density of draws from the prior.
    """
    if power == 1:
        return ScaledPrior(power, 0.0, 0.0, math.nan)
    with np.errstate(divide="ignore"):
        logs = np.log(shares) + (power - 1) * after
    top = logsumexp(logs.ravel())
    contributions = np.exp(logs - top)
    # Each replicate's share of the new evidence, against its share of the old.
    moved = contributions.sum(axis=1) - shares.sum(axis=1)
    count = len(shares)
    first = math.sqrt(count / max(count - 1, 1) * float(np.sum(moved**2)))
    terms = (power - 1) * before
    log_constant = log_mean(terms)
    relative = np.exp(terms - log_constant)
    second = float(np.std(relative, ddof=1)) / math.sqrt(len(relative))
    tails = [pareto_shape(contributions.ravel()), pareto_shape(relative)]
    known = [k for k in tails if math.isfinite(k)]
    k = max(known) if known else math.nan
    if k > _HEAVY:
        return ScaledPrior(power, math.nan, math.nan, k)
    return ScaledPrior(power, top - log_constant, math.hypot(first, second), k)

"""What `annealax.sample` returns."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Float, PRNGKeyArray

from annealax._arviz import choose_draws, to_arviz
from annealax._checks import whole_number
from annealax._device import to_device
from annealax._doubts import Doubt
from annealax._errors import InvalidInputError, MissingExtraError
from annealax._estimates import (
    log_mean,
    logsumexp,
    pareto_shape,
    pooled_stderr,
    weighted_quantiles,
)
from annealax._result import Result, StepInfo
from annealax._sampler import Sampler
from annealax._words import headline, listed
from annealax.auto.density import FreeDensity
from annealax.auto.modes import ModeTable
from annealax.auto.parameters import Space
from annealax.auto.precision import in_own_precision
from annealax.auto.starts.base import Start
from annealax.auto.tuning import Plan
from annealax.models.base import Model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PRIOR_DRAWS = 4000
"""ArviZ gets at most so many draws from the prior."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """What a stage of the work cost.

    Attributes:
        name: Which one.
        evaluations: Density evaluations, most of them with gradient.
        seconds: Wall-clock time, compilation included.
        compiling: How much of it was compilation.
    """

    name: str
    evaluations: int
    seconds: float
    compiling: float = 0.0


@dataclasses.dataclass(frozen=True)
class SearchReport:
    """What the search for a start can say for itself.

    Attributes:
        where: Where was looked, in words.
        is_limited: Whether nothing was looked at outside of a region or a prior.
        num_points: Points from which ascents were made, or would have ended at a mode
            that was known; without a gradient, from which particles began.
        hits: How many of them ended at each mode that counts.
        num_unseen: Modes that there probably are beyond these.
        all_known: Whether each was hit so often that another would have been hit too.
        chance_of_a_miss: Probability that one more, as unlike these as they are, was
            not found.
        other_start: The start, other than that of the answer, with the longest way to
            the density: the second opinion.
        other_log_normalizer: What passes from it say; NaN if there is none.
        other_stderr: The error of this.
        most_mass: Name, log Z and error of the start that surely found most mass.
        lost: Largest share of the mass, at a mode that is known, where the answer has
            next to no draws.
        is_rarely_positive: Whether the density is zero at nearly all points.
        num_terms: Terms that the density is the sum of, all of whose modes are known;
            zero if it is not written as a sum, or they are not.
    """

    where: str
    is_limited: bool
    num_points: int
    hits: np.ndarray
    num_unseen: float
    all_known: bool
    chance_of_a_miss: float
    other_start: str
    other_log_normalizer: float
    other_stderr: float
    most_mass: tuple[str, float, float]
    lost: float = 0.0
    is_rarely_positive: bool = False
    num_terms: int = 0

    @property
    def smallest_share(self) -> float:
        """Share of the points by which a further mode is found with 95 %."""
        return min(1.0, 3.0 / max(self.num_points, 1))


class ReplicateSnapshot(NamedTuple):
    """What a callback of `sample` sees after each replicate.

    Attributes:
        step: Replicates made so far.
        num_steps: Replicates that there will be.
        result: This replicate.
        seconds: Time of all replicates so far.
    """

    step: int
    num_steps: int
    result: Result
    seconds: float

    def metrics(self) -> dict[str, np.ndarray]:
        """Log Z of the replicate, its error bar, ESS and mean acceptance."""
        result = self.result
        numbers = {
            "log_normalizer": result.log_normalizer,
            "log_normalizer_stderr": result.log_normalizer_stderr,
            "ess": result.ess,
            "acceptance_rate": np.mean(result.steps.acceptance_rate),
        }
        return {name: np.asarray(value)[None] for name, value in numbers.items()}


@dataclasses.dataclass(frozen=True, repr=False)
class Sample:
    """Weighted draws of a density and its normalising constant.

    The draws of all replicates are pooled, each replicate with its own estimate of Z
    as weight: so expectations are those of one large run.

    Attributes:
        vectors: Unconstrained draws of all replicates.
        log_weights: Their normalised log weights.
        roots: Which initial draw of its replicate each descends from.
        replicate_log_normalizers: log Z of each replicate.
        replicate_stderrs: Standard error of each from that replicate alone.
        steps: Diagnostics: arrays of replicates by transitions.
        plan: The sampler that made the replicates: start, temperatures, step sizes.
        flows: The flows that helped it, if any.
        density: The density, as a function of an unconstrained vector.
        model: What was sampled: likelihood, prior, names of axes, and what the model
            computes or predicts from parameters (`annealax.models.base.Model`).
        pareto_k: Shape of the tail of what initial draws contribute to Z; above 0.7
            neither Z nor its error bar can be trusted.
        modes: Peaks among the draws.
        search: What the search can say for itself.
        choices: What was decided, in words.
        stages: What each stage cost.
        messages: Reasons for doubt, in words.
        num_devices: Devices of this process, or of each worker, that made the
            replicates.
    """

    vectors: Float[Array, "draws size"]
    log_weights: Float[Array, " draws"]
    roots: np.ndarray
    replicate_log_normalizers: np.ndarray
    replicate_stderrs: np.ndarray
    steps: StepInfo
    plan: Plan
    flows: AbstractBijection | None
    density: FreeDensity
    model: Model
    pareto_k: float
    modes: ModeTable
    search: SearchReport
    choices: Mapping[str, str]
    stages: tuple[Stage, ...]
    messages: tuple[Doubt, ...] = ()
    num_devices: int = 1

    @property
    def dtype(self) -> np.dtype:
        """The type of its numbers."""
        return np.dtype(self.vectors.dtype)

    @property
    def space(self) -> Space:
        """Names, shapes and supports of the parameters."""
        return self.density.space

    @property
    @in_own_precision
    def sampler(self) -> Sampler:
        """The frozen sampler; it works in the coordinates of its start."""
        return self.plan.sampler(self.density)

    @property
    def betas(self) -> np.ndarray:
        """Temperatures."""
        return self.plan.betas

    @property
    def step_sizes(self) -> np.ndarray:
        """Step sizes of HMC at the end of each transition."""
        return self.plan.step_sizes

    @property
    def num_leapfrog(self) -> int:
        """Leapfrog steps of a trajectory."""
        return self.plan.num_leapfrog

    @property
    def num_replicates(self) -> int:
        """Independent runs of the frozen sampler."""
        return len(self.replicate_log_normalizers)

    @property
    def num_particles(self) -> int:
        """Particles of each."""
        return len(self.log_weights) // self.num_replicates

    @property
    @in_own_precision
    def x(self) -> Any:
        """The draws in the user's space: an array, or arrays in the structure given."""
        return self.space.ordered(self.space.values(self.vectors))

    def _ordered(self, values: Any) -> Any:
        """Parameters in the order in which they were given: JAX sorts names."""
        if not self.space.named:
            return values
        first = [each.name for each in self.space.parameters]
        return {name: values[name] for name in dict.fromkeys([*first, *values])}

    @property
    @in_own_precision
    def values(self) -> Any:
        """The draws of `x`, and with names also of what the model computes from them.

        Parameters come first, in the order in which they were given.
        """
        return self._transformed(self.vectors)

    def _transformed(self, vectors: Array) -> Any:
        """Parameters of many vectors, and with names what the model makes of them."""
        if not self.space.named:
            return self.space.values(vectors)

        def transform(vector: Array) -> dict[str, Array]:
            return self.model.transform(self.space.constrain(vector)[0])

        return self._ordered(jax.jit(jax.vmap(transform))(vectors))

    @property
    @in_own_precision
    def weights(self) -> Float[Array, " draws"]:
        """Normalised weights of the draws."""
        return to_device(np.exp(np.asarray(self.log_weights)))

    @property
    def log_normalizer(self) -> float:
        """Log Z: the logarithm of the mean of the replicates' Z, which is unbiased."""
        return log_mean(self.replicate_log_normalizers)

    @property
    def log_normalizer_stderr(self) -> float:
        """Standard error of log Z.

        The larger of two, between and within replicates, widened where the tail of the
        weights is heavy (`pareto_k` above 0.35), and never below what the precision of
        the numbers allows.
        """
        return pooled_stderr(
            self.replicate_log_normalizers, self.replicate_stderrs, self.pareto_k
        )

    def log_normalizer_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Interval that holds log Z with the probability `level`.

        It also holds what passes from another start say that found more mass.
        By Student's t distribution: the error bar is itself known from the replicates
        alone, so with few of them the interval is wider than 1.96 error bars.
        """
        if not 0 < level < 1:
            raise InvalidInputError(f"level must be between 0 and 1, got {level}")
        from scipy import special  # noqa: PLC0415 (importing it takes a while)

        freedom = max(self.num_replicates - 1, 1)
        quantile = float(special.stdtrit(freedom, 0.5 + 0.5 * level))
        reach = quantile * self.log_normalizer_stderr
        low, high = self.log_normalizer - reach, self.log_normalizer + reach
        if self.is_contradicted:
            _, value, error = self.search.most_mass
            high = max(high, value + quantile * error)
        return low, high

    @property
    def is_contradicted(self) -> bool:
        """Whether passes from another start found significantly more mass."""
        _, value, error = self.search.most_mass
        tolerance = 0.1 + 4 * float(np.hypot(error, self.log_normalizer_stderr))
        return bool(value - self.log_normalizer > tolerance)

    @property
    def ess(self) -> float:
        """Effective sample size of the weights."""
        return effective_draws(self.log_weights)

    @property
    def num_evaluations(self) -> int:
        """Density evaluations of the whole call."""
        return sum(stage.evaluations for stage in self.stages)

    @property
    def seconds(self) -> float:
        """Wall-clock time of the whole call."""
        return sum(stage.seconds for stage in self.stages)

    @in_own_precision
    def expectation(self, function: Callable[[Any], Array]) -> Any:
        """Weighted average of a function of one point in the user's space."""
        return self._pool(self._values(function)).mean

    @in_own_precision
    def expectation_stderr(self, function: Callable[[Any], Array]) -> Any:
        """Its standard error, from the differences between replicates."""
        return self._pool(self._values(function)).stderr

    def _values(self, function: Callable[[Any], Array]) -> Any:
        return jax.vmap(lambda vector: function(self.space.constrain(vector)[0]))(
            self.vectors
        )

    def _pool(self, values: Any) -> "_Pooled":
        """Mean and standard error of values per draw (an array or a dict of them)."""
        count = self.num_replicates
        shares = np.asarray(self.weights, np.float64).reshape(count, -1)

        def mean(leaf: Array) -> np.ndarray:
            flat = np.asarray(leaf, np.float64).reshape(*shares.shape, -1)
            total = np.einsum("rn,rnk->k", shares, np.where(shares[..., None], flat, 0))
            return total.reshape(leaf.shape[1:])

        def stderr(leaf: Array) -> np.ndarray:
            flat = np.asarray(leaf, np.float64).reshape(*shares.shape, -1)
            centre = mean(leaf).reshape(-1)
            part = np.einsum(
                "rn,rnk->rk", shares, np.where(shares[..., None], flat - centre, 0)
            )
            variance = np.sum(part**2, axis=0) * count / max(count - 1, 1)
            return np.sqrt(variance).reshape(leaf.shape[1:])

        return _Pooled(jax.tree.map(mean, values), jax.tree.map(stderr, values))

    @in_own_precision
    def mean(self) -> Any:
        """Mean of the parameters, and of what the model computes from them."""
        return self._ordered(self._pool(self.values).mean)

    @in_own_precision
    def mean_stderr(self) -> Any:
        """Its standard error, from the differences between replicates."""
        return self._ordered(self._pool(self.values).stderr)

    @in_own_precision
    def std(self) -> Any:
        """Standard deviation of what `mean` is the mean of."""
        values = self.values
        centre = self._pool(values).mean
        square = jax.tree.map(lambda leaf, c: (leaf - c) ** 2, values, centre)
        return self._ordered(jax.tree.map(np.sqrt, self._pool(square).mean))

    @in_own_precision
    def quantiles(self, levels: Sequence[float] = (0.05, 0.5, 0.95)) -> Any:
        """Weighted quantiles of what `mean` is the mean of; levels come first."""
        weights = np.asarray(self.weights, np.float64)

        def each(leaf: Array) -> np.ndarray:
            flat = np.asarray(leaf).reshape(len(weights), -1)
            found = [weighted_quantiles(column, weights, levels) for column in flat.T]
            return np.stack(found, axis=1).reshape(len(levels), *leaf.shape[1:])

        return self._ordered(jax.tree.map(each, self.values))

    @in_own_precision
    def draws(
        self, key: PRNGKeyArray | int | None = None, num_draws: int | None = None
    ) -> Any:
        """Unweighted draws in the user's space, chosen independently by weight.

        Where parameters have names, a dict of arrays by name, with what the model
        computes from them; else one array. The first axis is over the draws.

        Args:
            key: Random key; None for one that is always the same. A whole number alone,
                as in `result.draws(1000)`, is the number of draws.
            num_draws: How many; None for as many as the effective sample size.
        """
        if isinstance(key, int | np.integer):
            if num_draws is not None:
                raise InvalidInputError(
                    f"the key of draws must be a random key such as jax.random.key(0); "
                    f"got {key}. For so many draws: draws({key})"
                )
            num_draws, key = int(key), None
        if num_draws is None:
            num_draws = max(1, int(self.ess))
        num_draws = whole_number("num_draws", num_draws)
        index = self._drawn(jr.key(0) if key is None else key, num_draws)
        return self._transformed(self.vectors[index])

    @property
    def _rooted(self) -> dict[str, Any]:
        """What resampling must know of where the draws come from."""
        count, each = self.num_replicates, self.num_particles
        roots = np.asarray(self.roots) + np.repeat(np.arange(count) * each, each)
        return {"roots": roots, "num_replicates": count}

    @in_own_precision
    def to_arviz(self, num_draws: int | None = None, *, seed: int = 0) -> Any:
        """The answer for ArviZ, a chain for each replicate.

        There are no more resampled draws than the weights are worth. All chains
        together have the weights of the answer: a replicate with less than its share
        of Z leaves room in its chain for draws of one with more (`annealax._arviz`).
        R-hat and ESS so say whether replicates agree. The group `sample_stats` has the
        log density `lp` and the replicate of each draw. A model adds the groups
        `log_likelihood`, `observed_data` and `prior` where it knows them.

        Args:
            num_draws: How many over all chains; None for as many as they are worth.
            seed: Seed of the resampling.
        """
        return to_arviz(
            self.values,
            self.log_weights,
            log_normalizer=self.log_normalizer,
            log_normalizer_stderr=self.log_normalizer_stderr,
            num_draws=num_draws,
            seed=seed,
            dims=self.model.dims,
            coords=self.model.coords,
            attributes={
                "replicate_log_normalizers": self.replicate_log_normalizers,
                "warnings": "\n".join(f"{d.code}: {d}" for d in self.messages),
            },
            further=functools.partial(self._further, seed=seed),
            **self._rooted,
        )

    def _further(self, index: np.ndarray, seed: int) -> dict[str, dict[str, Any]]:
        """More groups for ArviZ, of the draws with these indices."""

        def evaluate(vector: Array) -> tuple[Array, dict[str, Array]]:
            point = self.space.constrain(vector)[0]
            pointwise = self.model.pointwise_log_likelihood(point)
            return self.density.log_density(point), pointwise

        found = jax.jit(jax.vmap(evaluate))(self.vectors[index.ravel()])
        lp, pointwise = jax.tree.map(
            lambda leaf: np.asarray(leaf).reshape(*index.shape, *leaf.shape[1:]), found
        )
        groups = {"sample_stats": {"lp": lp}}
        if pointwise:
            groups["log_likelihood"] = pointwise
        if self.model.observed:
            groups["observed_data"] = dict(self.model.observed)
        drawn = self.prior_draws(min(index.size, _PRIOR_DRAWS), seed=seed)
        if drawn is not None:
            named = drawn if self.space.named else {"x": drawn}
            groups["prior"] = {k: np.asarray(v)[None] for k, v in named.items()}
        return groups

    @in_own_precision
    def prior_draws(self, num_draws: int = 2000, *, seed: int = 0) -> Any:
        """Draws from the prior, in the form of `values`; None where it is not known.

        Args:
            num_draws: How many.
            seed: Seed of the draws.
        """
        prior = self.model.prior
        if prior is None:
            return None

        def draw(key: PRNGKeyArray) -> Any:
            value = prior.sample(key)
            return self.model.transform(value) if self.space.named else value

        found = jax.jit(jax.vmap(draw))(jr.split(jr.key(seed), num_draws))
        return self._ordered(found)

    @in_own_precision
    def predict(
        self,
        function: Callable[..., Any] | None = None,
        *,
        key: PRNGKeyArray | None = None,
        num_draws: int | None = None,
    ) -> Any:
        """New data, or anything else, from draws of the parameters.

        Args:
            function: `function(key, parameters)` of one point, random, or
                `function(parameters)`, which is not; None for what the model says, if
                it was made of a model that knows how its data are made.
            key: Random key; None for one that is always the same.
            num_draws: How many draws; None for as many as the effective sample size.

        Returns:
            What the function returns, with a first axis over the draws: of a model, a
            dict of arrays by the name of what was observed.
        """
        key_draws, key_data = jr.split(jr.key(0) if key is None else key)
        random = function is None or _takes_a_key(function)
        if function is None and not self.model.can_predict:
            raise InvalidInputError(
                "predict needs a function here: this model does not say how data are "
                "made. Give predict(function) a function of a key and of parameters, "
                "or sample a model of NumPyro or PyMC"
            )
        call: Callable[..., Any] = function or self.model.predict
        num_draws = max(1, int(self.ess)) if num_draws is None else num_draws
        index = self._drawn(key_draws, whole_number("num_draws", num_draws))

        def predict(key: PRNGKeyArray, vector: Array) -> Any:
            point = self.space.constrain(vector)[0]
            return call(key, point) if random else call(point)

        keys = jr.split(key_data, len(index))
        return jax.jit(jax.vmap(predict))(keys, self.vectors[index])

    def _drawn(self, key: PRNGKeyArray, num_draws: int) -> Array:
        """Indices of draws, chosen independently by weight."""
        return jr.choice(key, len(self.log_weights), (num_draws,), p=self.weights)

    @in_own_precision
    def to_dataframe(self, num_draws: int | None = None, *, seed: int = 0) -> Any:
        """Unweighted draws as a pandas data frame, a column for each number.

        They are the draws of `to_arviz`, so that plain averages over rows are those of
        the answer. The index has the chain and the draw; `attrs` has log Z.

        Args:
            num_draws: How many; None for as many as they are worth.
            seed: Seed of the resampling.
        """
        try:
            import pandas  # noqa: PLC0415 (whoever wants a data frame has it)
        except ImportError as error:
            raise MissingExtraError(
                f"a data frame needs pandas, which cannot be imported ({error}): "
                "pip install pandas"
            ) from error
        names, columns = self.columns()
        chosen = choose_draws(
            {"x": columns},
            self.log_weights,
            num_draws=num_draws,
            seed=seed,
            **self._rooted,
        )
        chains, draws = chosen.index.shape
        index = pandas.MultiIndex.from_product(
            [range(chains), range(draws)], names=["chain", "draw"]
        )
        frame = pandas.DataFrame(columns[chosen.index.ravel()], index, names)
        frame.attrs = {
            "log_normalizer": self.log_normalizer,
            "log_normalizer_stderr": self.log_normalizer_stderr,
        }
        return frame

    @in_own_precision
    def columns(self) -> tuple[list[str], np.ndarray]:
        """All draws as a table: a name for each number, and a row for each draw."""
        values = self.values if self.space.named else {"x": self.values}
        names = [
            f"{name}[{','.join(map(str, index))}]" if index else name
            for name, value in values.items()
            for index in np.ndindex(value.shape[1:])
        ]
        count = len(self.log_weights)
        parts = [np.asarray(each).reshape(count, -1) for each in values.values()]
        return names, np.concatenate(parts, axis=1)

    def warnings(self) -> list[Doubt]:
        """Reasons, in words, to doubt the answer; empty if there are none.

        Each has a `code`, so that a script can refuse an answer.
        """
        return list(self.messages)

    @in_own_precision
    def propose(self, key: PRNGKeyArray) -> "Replicate":
        """One more run of the frozen sampler, in the user's space: for `pimh`."""
        return propose(key, self.density, self.plan, self.flows)

    def summary(self) -> str:
        """All that matters on one screen."""
        from annealax.auto.show import summarise  # noqa: PLC0415

        return summarise(self)

    def __str__(self) -> str:
        """The summary."""
        return self.summary()

    def __repr__(self) -> str:
        """The answer in a line."""
        names = listed([each.name or "x" for each in self.space.parameters])
        verdict = headline(
            self.log_normalizer, self.log_normalizer_stderr, len(self.messages)
        )
        return (
            f"<Sample of {names}: {verdict.partition(', see')[0]}; "
            f"{self.num_replicates} replicates of {self.num_particles} particles>"
        )

    def _repr_html_(self) -> str:
        """The answer in a notebook."""
        from annealax.report.notebook import sample_html  # noqa: PLC0415

        return sample_html(self)

    def plot(self) -> "Figure":
        """Pictures of the answer, as a matplotlib figure that a notebook shows."""
        from annealax.report.charts import draw_sample  # noqa: PLC0415

        return draw_sample(self)


def _takes_a_key(function: Callable[..., Any]) -> bool:
    """Whether a function has two arguments, of which a key is the first."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters if p.kind in kinds and p.default is p.empty]
    if len(needed) not in (1, 2):
        raise InvalidInputError(
            "a function for predict takes (key, parameters) or (parameters); this one "
            f"needs {len(needed)} arguments"
        )
    return len(needed) == 2


@dataclasses.dataclass(frozen=True)
class _Pooled:
    mean: Any
    stderr: Any


class Replicate(eqx.Module):
    """One run of a frozen sampler, in the user's space.

    Attributes:
        result: The run, in the coordinates of its start.
        start: The start.
        space: Names, shapes and supports of the parameters.
    """

    result: Result
    start: Start
    space: Space

    @property
    def dtype(self) -> np.dtype:
        """The type of its numbers."""
        return np.dtype(self.result.log_normalizer.dtype)

    @property
    def log_normalizer(self) -> Array:
        """Estimate of log Z; its exponential is unbiased."""
        return self.result.log_normalizer

    @in_own_precision
    def expectation(self, function: Callable[[Any], Array]) -> Any:
        """Weighted average of a function of one point in the user's space."""
        return self.result.expectation(lambda z: function(self._place(z)))

    @in_own_precision
    def draws(self, key: PRNGKeyArray, num_draws: int) -> Any:
        """Unweighted draws in the user's space, chosen independently by weight."""
        return jax.vmap(self._place)(self.result.draws(key, num_draws))

    def _place(self, z: Array) -> Any:
        return self.space.constrain(self.start.bijection.point(z))[0]


def propose(
    key: PRNGKeyArray,
    density: FreeDensity,
    plan: Plan,
    flows: AbstractBijection | None,
) -> Replicate:
    """A run of the frozen sampler, in the user's space."""
    result = plan.sampler(density).run(key, flows)
    return Replicate(result, plan.start, density.space)


def pool_replicates(results: list[Result], plan: Plan) -> dict[str, Any]:
    """What a `Sample` says of replicates: all draws, weighted by each one's Z."""
    log_normalizers = np.asarray([r.log_normalizer for r in results], np.float64)
    log_weights = np.concatenate(
        [
            np.asarray(r.log_weights, np.float64) + value
            for r, value in zip(results, log_normalizers, strict=True)
        ]
    )
    positions = plan.start.bijection.positions
    vectors = np.concatenate([positions(np.asarray(r.x)) for r in results])
    steps = jax.tree.map(lambda *each: np.stack(each), *[r.steps for r in results])
    return {
        "vectors": to_device(vectors),
        "log_weights": to_device(log_weights - logsumexp(log_weights)),
        "roots": np.concatenate([np.asarray(r.particles.roots) for r in results]),
        "replicate_log_normalizers": log_normalizers,
        "replicate_stderrs": np.asarray(
            [r.log_normalizer_stderr for r in results], np.float64
        ),
        "steps": StepInfo(*steps),
        "pareto_k": pareto_shape(_root_contributions(results, log_normalizers)),
    }


def error_and_draws(results: list[Result], plan: Plan) -> tuple[float, float]:
    """The error of log Z by replicates, and their effective number of draws."""
    pool = pool_replicates(results, plan)
    error = pooled_stderr(
        pool["replicate_log_normalizers"], pool["replicate_stderrs"], pool["pareto_k"]
    )
    return error, effective_draws(pool["log_weights"])


def effective_draws(log_weights: Array) -> float:
    """Effective sample size of normalised weights."""
    return float(np.exp(-logsumexp(2 * np.asarray(log_weights, np.float64))))


def _root_contributions(
    results: list[Result], log_normalizers: np.ndarray
) -> np.ndarray:
    """What each initial draw contributes to Z, through all its descendants."""
    scale = np.exp(log_normalizers - log_normalizers.max())
    parts = []
    for result, factor in zip(results, scale, strict=True):
        count = result.particles.num_particles
        by_root = np.bincount(
            np.asarray(result.particles.roots),
            np.exp(np.asarray(result.log_weights, np.float64)),
            count,
        )
        parts.append(factor * by_root)
    return np.concatenate(parts)

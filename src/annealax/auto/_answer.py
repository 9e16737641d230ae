"""What `annealax.sample` returns."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy import special

from annealax._arviz import to_arviz
from annealax._errors import InvalidInputError
from annealax._estimates import log_mean, logsumexp, pooled_stderr
from annealax._result import Result, StepInfo
from annealax.auto._space import Space

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class ModeTable:
    """Peaks of the density among the draws.

    Attributes:
        points: Where they are, as unconstrained vectors; the heaviest first.
        shares: Share of the draws nearest to each, per replicate.
        weights: The same over all replicates.
    """

    points: np.ndarray
    shares: np.ndarray
    weights: np.ndarray


@dataclasses.dataclass(frozen=True)
class Stage:
    """What a stage of the work cost.

    Attributes:
        name: Which one.
        evaluations: Density evaluations, most of them with gradient.
        seconds: Wall-clock time, compilation included.
    """

    name: str
    evaluations: int
    seconds: float


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


@dataclasses.dataclass(frozen=True)
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
        betas: Temperatures.
        step_sizes: Step sizes of HMC at each.
        num_leapfrog: Leapfrog steps of a trajectory.
        pareto_k: Shape of the tail of what initial draws contribute to Z; above 0.7
            neither Z nor its error bar can be trusted.
        modes: Peaks among the draws.
        choices: What was decided, in words.
        stages: What each stage cost.
        space: Names, shapes and supports.
        messages: Reasons for doubt, in words.
    """

    vectors: Float[Array, "draws size"]
    log_weights: Float[Array, " draws"]
    roots: np.ndarray
    replicate_log_normalizers: np.ndarray
    replicate_stderrs: np.ndarray
    steps: StepInfo
    betas: np.ndarray
    step_sizes: np.ndarray
    num_leapfrog: int
    pareto_k: float
    modes: ModeTable
    choices: Mapping[str, str]
    stages: tuple[Stage, ...]
    space: Space
    messages: tuple[str, ...] = ()

    @property
    def num_replicates(self) -> int:
        """Independent runs of the frozen sampler."""
        return len(self.replicate_log_normalizers)

    @property
    def num_particles(self) -> int:
        """Particles of each."""
        return len(self.log_weights) // self.num_replicates

    @property
    def x(self) -> Any:
        """The draws in the user's space: an array, or a dict of arrays."""
        return self.space.values(self.vectors)

    @property
    def weights(self) -> Float[Array, " draws"]:
        """Normalised weights of the draws."""
        return jnp.exp(self.log_weights)

    @property
    def log_normalizer(self) -> float:
        """Log Z: the logarithm of the mean of the replicates' Z, which is unbiased."""
        return float(log_mean(self.replicate_log_normalizers))

    @property
    def log_normalizer_stderr(self) -> float:
        """Standard error of log Z.

        The larger of two, between and within replicates, widened where the tail of the
        weights is heavy (`pareto_k` above 0.35), and never below what the precision of
        the numbers allows.
        """
        return float(pooled_stderr(*self._estimates, self.pareto_k))

    def log_normalizer_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Interval that holds log Z with the probability `level`.

        By Student's t distribution: the error bar is itself known from the replicates
        alone, so with few of them the interval is wider than 1.96 error bars.
        """
        if not 0 < level < 1:
            raise InvalidInputError(f"level must be between 0 and 1, got {level}")
        freedom = max(self.num_replicates - 1, 1)
        quantile = float(special.stdtrit(freedom, 0.5 + 0.5 * level))
        reach = quantile * self.log_normalizer_stderr
        return self.log_normalizer - reach, self.log_normalizer + reach

    @property
    def _estimates(self) -> tuple[np.ndarray, np.ndarray]:
        return self.replicate_log_normalizers, self.replicate_stderrs

    @property
    def ess(self) -> float:
        """Effective sample size of the weights."""
        return float(np.exp(-logsumexp(2 * np.asarray(self.log_weights, np.float64))))

    @property
    def num_evaluations(self) -> int:
        """Density evaluations of the whole call."""
        return sum(stage.evaluations for stage in self.stages)

    @property
    def seconds(self) -> float:
        """Wall-clock time of the whole call."""
        return sum(stage.seconds for stage in self.stages)

    def expectation(self, function: Callable[[Any], Array]) -> Any:
        """Weighted average of a function of one point in the user's space."""
        return self._pool(self._values(function)).mean

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

    def mean(self) -> Any:
        """Mean of the parameters, in the user's space."""
        return self._pool(self.x).mean

    def mean_stderr(self) -> Any:
        """Its standard error, from the differences between replicates."""
        return self._pool(self.x).stderr

    def std(self) -> Any:
        """Standard deviation of the parameters, in the user's space."""
        values = self.x
        centre = self._pool(values).mean
        square = jax.tree.map(lambda leaf, c: (leaf - c) ** 2, values, centre)
        return jax.tree.map(np.sqrt, self._pool(square).mean)

    def draws(self, key: PRNGKeyArray, num_draws: int) -> Any:
        """Unweighted draws in the user's space, chosen independently by weight."""
        count = len(self.log_weights)
        index = jr.choice(key, count, (num_draws,), p=self.weights)
        return self.space.values(self.vectors[index])

    def to_arviz(self, num_draws: int | None = None, *, seed: int = 0) -> Any:
        """The answer for ArviZ: resampled draws, no more than the weights are worth.

        Args:
            num_draws: How many; None for as many as the effective sample size.
            seed: Seed of the resampling.
        """
        count, each = self.num_replicates, self.num_particles
        return to_arviz(
            self.x,
            self.log_weights,
            log_normalizer=self.log_normalizer,
            log_normalizer_stderr=self.log_normalizer_stderr,
            num_draws=num_draws,
            roots=np.asarray(self.roots) + np.repeat(np.arange(count) * each, each),
            seed=seed,
        )

    def warnings(self) -> list[str]:
        """Reasons, in words, to doubt the answer; empty if there are none."""
        return list(self.messages)

    def summary(self) -> str:
        """All that matters on one screen."""
        from annealax.auto._summary import summarise  # noqa: PLC0415

        return summarise(self)

    def __str__(self) -> str:
        """The summary."""
        return self.summary()

    def plot(self) -> "Figure":
        """Pictures of the answer, as a matplotlib figure."""
        from annealax.auto._plot import draw  # noqa: PLC0415

        return draw(self)


@dataclasses.dataclass(frozen=True)
class _Pooled:
    mean: Any
    stderr: Any

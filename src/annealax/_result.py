"""What a run returns: weighted particles, log Z with its error bar, diagnostics."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from annealax._arviz import to_arviz
from annealax._doubts import Doubt
from annealax._errors import SamplingError
from annealax._particles import Particles
from annealax._path import AbstractPath
from annealax._words import headline


class StepInfo(NamedTuple):
    """What happened at a transition (arrays over transitions in a `Result`).

    Attributes:
        free_energy: Weighted mean of D, the loss that trains the flow (eq. 6).
        log_ratio: Estimate of log Z_k - log Z_(k-1).
        ess: Effective sample size after reweighting, before resampling.
        resampled: Whether resampling took place.
        acceptance_rate: Mean acceptance of the Markov kernel.
        num_nan: Particles whose density or flow was not a number.
        num_infinite: Particles whose density was +inf.
        num_zero: Particles of zero weight, those two included.
        num_evaluations: Density evaluations made, over all particles.
    """

    free_energy: Float[Array, "*transitions"]
    log_ratio: Float[Array, "*transitions"]
    ess: Float[Array, "*transitions"]
    resampled: Bool[Array, "*transitions"]
    acceptance_rate: Float[Array, "*transitions"]
    num_nan: Int[Array, "*transitions"]
    num_infinite: Int[Array, "*transitions"]
    num_zero: Int[Array, "*transitions"]
    num_evaluations: Float[Array, "*transitions"]


class Result(eqx.Module):
    """The outcome of one run of a sampler.

    Attributes:
        particles: The weighted particles at the last temperature.
        steps: Diagnostics per transition.
        num_devices: Devices that the particles were spread over.
    """

    particles: Particles
    steps: StepInfo
    num_devices: int = eqx.field(static=True, default=1)

    @property
    def x(self) -> Float[Array, "particles *shape"]:
        """The configurations."""
        return self.particles.x

    @property
    def weights(self) -> Float[Array, " particles"]:
        """Their normalised weights."""
        return self.particles.weights

    @property
    def log_weights(self) -> Float[Array, " particles"]:
        """Their normalised log weights."""
        return self.particles.log_weights

    @property
    def log_normalizer(self) -> Float[Array, ""]:
        """Estimate of log Z; its exponential is unbiased."""
        return self.particles.log_normalizer

    @property
    def log_normalizer_stderr(self) -> Float[Array, ""]:
        """Standard error of `log_normalizer` from this one run (`_particles`)."""
        return _stderr(self.particles)

    @property
    def lower_bound(self) -> Float[Array, ""]:
        """Estimate of the lower bound on log Z of Section 3.1."""
        return -jnp.sum(self.steps.free_energy)

    @property
    def ess(self) -> Float[Array, ""]:
        """Effective sample size of the final weights, between 1 and N."""
        return 1 / jnp.sum(self.weights * self.weights)

    @property
    def num_roots(self) -> Int[Array, ""]:
        """How many of the initial draws have descendants of positive weight."""
        n = self.particles.num_particles
        return jnp.sum(jax.ops.segment_sum(self.weights, self.particles.roots, n) > 0)

    @property
    def num_evaluations(self) -> Float[Array, ""]:
        """Density evaluations (with gradient, for gradient kernels) of the run."""
        return jnp.sum(self.steps.num_evaluations)

    def expectation(self, function: Callable[[Array], Any]) -> Any:
        """Weighted average of a function of one configuration."""
        return self.particles.expectation(function)

    def expectation_stderr(self, function: Callable[[Array], Array]) -> Array:
        """Standard error of `expectation` from this one run."""
        return self.particles.expectation_stderr(function)

    def mean(self) -> Float[Array, "*shape"]:
        """Mean of the target."""
        return self.expectation(lambda x: x)

    def std(self) -> Float[Array, "*shape"]:
        """Standard deviation of the target, per coordinate."""
        centre = self.mean()
        return jnp.sqrt(self.expectation(lambda x: (x - centre) ** 2))

    def draws(self, key: PRNGKeyArray, num_draws: int) -> Float[Array, "draws *shape"]:
        """Unweighted draws: particles chosen independently by weight."""
        index = jax.random.choice(
            key, self.particles.num_particles, (num_draws,), p=self.weights
        )
        return self.x[index]

    def to_arviz(
        self,
        *,
        num_draws: int | None = None,
        names: Sequence[str] | None = None,
        seed: int = 0,
    ) -> Any:
        """Resampled draws for ArviZ, with log Z and the weights.

        Needs the extra `annealax[arviz]`. See `annealax._arviz` for what it holds.

        Args:
            num_draws: Number of draws; None for as many as the particles are worth, so
                that ArviZ does not take a few heavy particles for many draws.
            names: A name for each coordinate of a vector; None for one variable `x`.
            seed: Seed of the resampling.
        """
        return to_arviz(
            self.x,
            self.log_weights,
            log_normalizer=self.log_normalizer,
            log_normalizer_stderr=self.log_normalizer_stderr,
            num_draws=num_draws,
            names=names,
            roots=self.particles.roots,
            seed=seed,
        )

    def __repr__(self) -> str:
        """The answer in a line, or the shapes of its parts under a trace."""
        if isinstance(self.log_normalizer, jax.core.Tracer) or jnp.ndim(
            self.log_normalizer
        ):
            return eqx.tree_pformat(self)
        doubts = len(self.warnings())
        verdict = headline(
            float(self.log_normalizer), float(self.log_normalizer_stderr), doubts
        )
        return (
            f"<Result: {verdict.partition(', see')[0]}; "
            f"{self.particles.num_particles} particles, ESS {float(self.ess):.0f}>"
        )

    def _repr_html_(self) -> str:
        """The answer in a notebook."""
        from annealax.report.notebook import result_html  # noqa: PLC0415

        return result_html(self)

    def check(self, path: AbstractPath, infinite_share: float = 0.0) -> None:
        """Raise `SamplingError` if the numbers mean nothing (not under a trace).

        Args:
            path: The path of the run.
            infinite_share: Share of the particles, at a temperature, at which the
                density may be infinite. They have weight zero.
        """
        if isinstance(self.log_normalizer, jax.core.Tracer):
            return
        betas = np.asarray(path.betas)[1:]
        infinite = np.asarray(self.steps.num_infinite)
        allowed = infinite_share * self.particles.num_particles
        if np.any(infinite > allowed):
            k = int(np.argmax(infinite > allowed))
            raise SamplingError(
                f"the log density is +inf at {infinite[k]} of "
                f"{self.particles.num_particles} particles at temperature {k + 1} "
                f"(beta={betas[k]:.4g}): a density must be finite or zero (-inf); "
                "look for a division by zero or a log of zero with the wrong sign"
            )
        dead = ~(np.asarray(self.steps.log_ratio) > -np.inf)
        if dead.any():
            k = int(np.argmax(dead))
            nans = int(np.asarray(self.steps.num_nan)[k])
            cause = f" ({nans} gave NaN)" if nans else ""
            raise SamplingError(
                f"every particle has zero weight at temperature {k + 1} "
                f"(beta={betas[k]:.4g}){cause}: add temperatures near there, lower the "
                "step size, or widen the initial distribution so that it overlaps "
                "with where the target is positive"
            )

    def warnings(self) -> list[Doubt]:
        """Reasons to doubt this run; empty if there are none."""
        return list(self._doubts())

    def _doubts(self) -> Iterator[Doubt]:
        n = self.particles.num_particles
        for code, name, counts in (
            ("nan-density", "NaN", np.asarray(self.steps.num_nan)),
            (
                "zero-density",
                "zero",
                np.asarray(self.steps.num_zero - self.steps.num_nan),
            ),
        ):
            if counts.any():
                yield Doubt(
                    code,
                    f"the density was {name} at {counts.sum()} particles over "
                    f"{np.count_nonzero(counts)} temperatures; they got weight zero",
                )
        ess, roots = float(self.ess), int(self.num_roots)
        if ess < min(100, 0.1 * n):
            yield Doubt(
                "few-draws",
                f"the final effective sample size is {ess:.1f} of {n} particles: "
                "expectations rest on few points; add temperatures or particles",
            )
        if roots < min(30, n):
            yield Doubt(
                "few-roots",
                f"only {roots} of {n} initial draws have descendants: the error bar "
                "itself is uncertain, and modes may be missing",
            )
        if (error := float(self.log_normalizer_stderr)) > 0.5:
            yield Doubt(
                "large-error",
                f"the error of log Z is {error:.2g}: too large for a normal "
                "approximation; add temperatures or particles",
            )
        rates = np.asarray(self.steps.acceptance_rate)
        if rates.min() < 0.2:
            k = int(np.argmin(rates))
            yield Doubt(
                "low-acceptance",
                f"acceptance falls to {rates[k]:.2f} at temperature {k + 1}: lower "
                "the step size there",
            )


@eqx.filter_jit
def _stderr(particles: Particles) -> Array:
    """Standard error of log Z, in one program."""
    return jnp.sqrt(particles.log_normalizer_variance)

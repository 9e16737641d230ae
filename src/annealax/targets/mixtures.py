r"""Mixtures: $\log p(x) = \log \sum_k w_k p_k(x)$, with $r_k = w_k p_k(x) / p(x)$."""

import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from annealax._checks import finite_array, positive_number, whole_number
from annealax._device import to_device
from annealax._errors import InvalidInputError
from annealax.targets.base import AbstractTarget, check_configuration
from annealax.targets.synthetic import cholesky, standard_deviations


class AbstractMixture(AbstractTarget):
    """A finite mixture, whose components share one family."""

    log_weights: eqx.AbstractVar[Float[Array, " components"]]

    @abstractmethod
    def component_log_densities(
        self, x: Float[Array, " dim"]
    ) -> Float[Array, " components"]:
        r"""The terms $\log (w_k p_k(x))$ of the mixture."""

    @abstractmethod
    def weighted_score(
        self, x: Float[Array, " dim"], responsibilities: Float[Array, " components"]
    ) -> Float[Array, " dim"]:
        r"""The sum $\sum_k r_k \nabla \log p_k(x)$ for given $r$."""

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log density of one point."""
        check_configuration(self.shape, x)
        return _log_density(self, x)

    def choose_components(
        self, key: PRNGKeyArray, count: int
    ) -> tuple[Int[Array, " count"], PRNGKeyArray]:
        """Components drawn by weight, and a key for what is drawn from them."""
        key_component, key_rest = jr.split(key)
        return jr.categorical(key_component, self.log_weights, shape=(count,)), key_rest

    def mode_of(self, x: Float[Array, " dim"]) -> Int[Array, ""]:
        """Index of the component that is most responsible for one point."""
        return jnp.argmax(self.component_log_densities(x))


# The gradient is given because autodiff goes through the (particles, components, dim)
# array a second time, where one product with the responsibilities does: 2.5 times
# faster for 40 components in 50 dimensions. Derivatives of any order and in both
# modes work, since the rule is itself made of differentiable operations.
@eqx.filter_custom_jvp
def _log_density(mixture: AbstractMixture, x: Array) -> Array:
    return logsumexp(mixture.component_log_densities(x))


@_log_density.def_jvp
def _log_density_jvp(primals, tangents):
    mixture, x = primals
    mixture_tangent, x_tangent = tangents
    terms = mixture.component_log_densities(x)
    value = logsumexp(terms)
    tangent = jnp.zeros_like(value)
    if x_tangent is not None:
        score = mixture.weighted_score(x, jax.nn.softmax(terms))
        tangent = jnp.vdot(score, x_tangent)
    if jax.tree.leaves(mixture_tangent):  # the parameters too: leave them to autodiff
        _, change = eqx.filter_jvp(
            lambda m: logsumexp(m.component_log_densities(x)),
            (mixture,),
            (mixture_tangent,),
        )
        tangent = tangent + change
    return value, tangent


def component_means(value: Any) -> np.ndarray:
    """Means of shape (components, dim)."""
    means = finite_array("means", value)
    if means.ndim != 2:
        raise InvalidInputError(
            f"means must have shape (components, dim), got {means.shape}; for one "
            "component pass means[None]."
        )
    return means


def normalised_weights(weights: Any, num_components: int) -> np.ndarray:
    """Component weights that sum to 1; None means equal weights."""
    if weights is None:
        return np.full(num_components, 1.0 / num_components)
    weights = finite_array("weights", weights)
    if weights.shape != (num_components,):
        raise InvalidInputError(
            f"weights must have shape ({num_components},), one per row of means, got "
            f"{weights.shape}."
        )
    if np.any(weights <= 0):
        raise InvalidInputError(
            f"weights must be above 0, got {weights}; leave out components of weight 0."
        )
    return weights / weights.sum()


class GaussianMixture(AbstractMixture):
    r"""Mixture of Gaussians $\sum_k w_k N(m_k, C_k)$; normalised, so log Z = 0.

    The covariances $C_k = L_k L_k^T$ are factorised once, here, in float64. Squared
    distances are sums of squares of differences, never $|x|^2 - 2 x \cdot m + |m|^2$:
    for means in [-40, 40]^50 that saves half the time but is wrong by 8e-3 in float32.

    Args:
        means: Shape (components, dim).
        covariances: Variances as one number or of shape (components,) (isotropic), of
            shape (components, dim) (diagonal), or matrices (components, dim, dim).
        weights: Relative weights, shape (components,); None for equal ones.

    Raises:
        InvalidInputError: If shapes disagree, a number is not finite, a weight is not
            above 0, or a covariance is not symmetric and positive definite.
    """

    means: Float[Array, "components dim"]
    log_weights: Float[Array, " components"]
    factors: Float[Array, " components #dim"] | Float[Array, "components dim dim"]
    whitenings: Float[Array, " components #dim"] | Float[Array, "components dim dim"]
    log_peaks: Float[Array, " components"]
    shape: tuple[int, ...] = eqx.field(static=True)
    log_normalizer: float | None = eqx.field(static=True)

    def __init__(self, means: Any, covariances: Any = 1.0, weights: Any = None):
        means = component_means(means)
        count, dim = means.shape
        covariances = finite_array("covariances", covariances)
        if covariances.shape in ((), (count,), (count, dim)):
            column = covariances if covariances.ndim == 2 else covariances[..., None]
            factors = standard_deviations("covariances", column)
            factors = np.broadcast_to(factors, (count, factors.shape[-1]))
            whitenings = 1.0 / factors
            diagonals = np.broadcast_to(factors, means.shape)
        elif covariances.shape == (count, dim, dim):
            factors = cholesky("covariances", covariances)
            whitenings = np.tril(np.linalg.inv(factors))
            diagonals = np.diagonal(factors, axis1=1, axis2=2)
        else:
            raise InvalidInputError(
                f"covariances of shape {covariances.shape} do not fit means of shape "
                f"{means.shape}; give (), ({count},), ({count}, {dim}) or "
                f"({count}, {dim}, {dim})."
            )
        log_weights = np.log(normalised_weights(weights, count))
        self.shape = (dim,)
        self.log_normalizer = 0.0
        self.means = to_device(means)
        self.log_weights = to_device(log_weights)
        self.factors = to_device(factors)
        self.whitenings = to_device(whitenings)
        self.log_peaks = to_device(
            log_weights
            - np.log(diagonals).sum(axis=1)
            - 0.5 * dim * math.log(2.0 * math.pi)
        )

    @classmethod
    def forty_modes(cls, dim: int = 2, seed: int = 0) -> "GaussianMixture":
        """40 equal components of unit covariance, means uniform in [-40, 40]^dim.

        The layout of Midgley et al. (2023), "Flow annealed importance sampling
        bootstrap", with means of our own draw.

        Args:
            dim: Dimension.
            seed: Seed of NumPy's generator for the means.
        """
        shape = (40, whole_number("dim", dim, at_least=1))
        return cls(np.random.default_rng(seed).uniform(-40.0, 40.0, shape))

    def component_log_densities(
        self, x: Float[Array, " dim"]
    ) -> Float[Array, " components"]:
        r"""The terms $\log (w_k N(x; m_k, C_k))$."""
        white = self._whiten(x)
        return self.log_peaks - 0.5 * jnp.sum(white * white, axis=1)

    def weighted_score(
        self, x: Float[Array, " dim"], responsibilities: Float[Array, " components"]
    ) -> Float[Array, " dim"]:
        r"""The sum $-\sum_k r_k C_k^{-1} (x - m_k)$."""
        if self.whitenings.ndim == 2:
            precisions = self.whitenings * self.whitenings
            pull = responsibilities @ (precisions * self.means)
            return pull - (responsibilities @ precisions) * x
        white = responsibilities[:, None] * self._whiten(x)
        return -(white.ravel() @ self.whitenings.reshape(-1, x.size))

    def _whiten(self, x: Array) -> Array:
        if self.whitenings.ndim == 2:
            return (x - self.means) * self.whitenings
        # One product for all components: under vmap a plain matrix product, 4 times
        # faster than a batched one, and no less exact than a rounding of x itself.
        whitened = (self.whitenings.reshape(-1, x.size) @ x).reshape(self.means.shape)
        return whitened - jnp.einsum("kij,kj->ki", self.whitenings, self.means)

    @eqx.filter_jit  # one program, not thirty
    def sample(
        self, key: PRNGKeyArray, num_samples: int
    ) -> Float[Array, "num_samples dim"]:
        """Exact, independent draws."""
        component, noise_key = self.choose_components(key, num_samples)
        noise = jr.normal(noise_key, (num_samples, *self.shape), self.means.dtype)
        if self.factors.ndim == 2:
            return self.means[component] + self.factors[component] * noise

        def draw(pair: tuple[Array, Array]) -> Array:
            index, white = pair
            return self.means[index] + self.factors[index] @ white

        # In chunks, since a factor per draw is a large array.
        return jax.lax.map(draw, (component, noise), batch_size=1024)


class StudentTMixture(AbstractMixture):
    r"""Mixture of products of Student-t densities; normalised, so log Z = 0.

    $$ p(x) = \sum_k w_k \prod_i t_\nu((x_i - m_{ki}) / s) / s $$

    Within a component the coordinates are independent, each $t_\nu$ with its own
    location: the tails are heaviest along the axes. This is the choice of Blessing et
    al. (2024), not the elliptical multivariate t, whose coordinates share one scale.

    Args:
        means: Locations, shape (components, dim); means only if `df` is above 1.
        weights: Relative weights, shape (components,); None for equal ones.
        df: Degrees of freedom $\nu$; at 2 or below the variance is infinite.
        scale: Scale $s$ of every coordinate.

    Raises:
        InvalidInputError: If shapes disagree, a number is not finite, or a weight, `df`
            or `scale` is not above 0.
    """

    means: Float[Array, "components dim"]
    log_weights: Float[Array, " components"]
    log_peaks: Float[Array, " components"]
    df: float = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    log_normalizer: float | None = eqx.field(static=True)

    def __init__(
        self, means: Any, weights: Any = None, *, df: float = 2.0, scale: float = 1.0
    ):
        means = component_means(means)
        count, dim = means.shape
        self.df = positive_number("df", df)
        self.scale = positive_number("scale", scale)
        log_weights = np.log(normalised_weights(weights, count))
        log_peak = (
            math.lgamma(0.5 * (self.df + 1.0))
            - math.lgamma(0.5 * self.df)
            - 0.5 * math.log(math.pi * self.df)
            - math.log(self.scale)
        )
        self.shape = (dim,)
        self.log_normalizer = 0.0
        self.means = jnp.asarray(means)
        self.log_weights = jnp.asarray(log_weights)
        self.log_peaks = jnp.asarray(log_weights + dim * log_peak)

    @classmethod
    def ten_modes(cls, dim: int = 2, seed: int = 0) -> "StudentTMixture":
        """10 equal components of 2 degrees of freedom, means uniform in [-10, 10]^dim.

        The mixture of Blessing et al. (2024), "Beyond ELBOs: a large-scale evaluation
        of variational methods for sampling", with means of our own draw.

        Args:
            dim: Dimension.
            seed: Seed of NumPy's generator for the means.
        """
        shape = (10, whole_number("dim", dim, at_least=1))
        return cls(np.random.default_rng(seed).uniform(-10.0, 10.0, shape))

    def component_log_densities(
        self, x: Float[Array, " dim"]
    ) -> Float[Array, " components"]:
        """The terms: log of weight times product of Student-t densities."""
        _, spread = self._spread(x)
        return self.log_peaks - 0.5 * (self.df + 1.0) * jnp.log(spread).sum(axis=1)

    def weighted_score(
        self, x: Float[Array, " dim"], responsibilities: Float[Array, " components"]
    ) -> Float[Array, " dim"]:
        r"""The sum $-\sum_k r_k (1 + 1/\nu) z_k / (1 + z_k^2 / \nu) / s$."""
        centred, spread = self._spread(x)
        factor = (1.0 + 1.0 / self.df) / self.scale
        return -factor * (responsibilities @ (centred / spread))

    def _spread(self, x: Array) -> tuple[Array, Array]:
        r"""Standardised $z = (x - m_k) / s$ and $1 + z^2 / \nu$."""
        centred = (x - self.means) / self.scale
        return centred, 1.0 + centred * centred / self.df

    def sample(
        self, key: PRNGKeyArray, num_samples: int
    ) -> Float[Array, "num_samples dim"]:
        """Exact, independent draws (by the polar method of Bailey, 1994)."""
        component, noise_key = self.choose_components(key, num_samples)
        # If r is the length of a pair of normals z, then z_1 / r times the square root
        # of df (exp(r^2 / df) - 1) is exactly t distributed: no rejection loop.
        shape = (2, num_samples, *self.shape)
        normals = jr.normal(noise_key, shape, self.means.dtype)
        exponent = jnp.sum(normals * normals, axis=0) / self.df
        noise = normals[0] * jnp.sqrt(jnp.expm1(exponent) / exponent)
        return self.means[component] + self.scale * noise


class ChallengingMixture(AbstractTarget):
    r"""The two-dimensional mixture of Arbel, Matthews and Doucet (2021), section 6.1.

    $p(x) = \tfrac12 (q(x_1, x_2) + q(x_2, x_1))$ with $q$ a mixture of three normals
    of equal weights, means (3, 0), (-2.5, 0), (2, 3), and covariances diag(0.7, 0.05)
    twice and [[1, 0.95], [0.95, 1]].

    Six narrow normals, symmetric under exchange of the coordinates, some of them far
    out in a standard normal; normalised, so log Z = 0. Reference: "Annealed flow
    transport Monte Carlo", and the code published with it, for the numbers.
    """

    mixture: GaussianMixture
    shape: tuple[int, ...] = eqx.field(static=True)
    log_normalizer: float | None = eqx.field(static=True)

    def __init__(self):
        means = np.array([[3.0, 0.0], [-2.5, 0.0], [2.0, 3.0]])
        thin = [[0.7, 0.0], [0.0, 0.05]]
        covariances = np.array([thin, thin, [[1.0, 0.95], [0.95, 1.0]]])
        self.mixture = GaussianMixture(
            np.concatenate([means, means[:, ::-1]]),
            np.concatenate([covariances, covariances[:, ::-1, ::-1]]),
        )
        self.shape = self.mixture.shape
        self.log_normalizer = self.mixture.log_normalizer

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log density of one point."""
        return self.mixture(x)

    def mode_of(self, x: Float[Array, " dim"]) -> Int[Array, ""]:
        """Index, 0 to 5, of the component most responsible for one point."""
        return self.mixture.mode_of(x)

    def sample(
        self, key: PRNGKeyArray, num_samples: int
    ) -> Float[Array, "num_samples dim"]:
        """Exact, independent draws."""
        return self.mixture.sample(key, num_samples)

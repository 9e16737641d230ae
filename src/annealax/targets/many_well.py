r"""$\log p(x) = \sum_j (-a_j^4 + 6 a_j^2 + a_j/2 - b_j^2/2)$ over pairs $(a, b)$."""

import math
from collections.abc import Callable, Mapping

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from annealax._checks import whole_number
from annealax._errors import InvalidInputError
from annealax.targets.base import AbstractTarget, check_configuration


class ManyWell(AbstractTarget):
    r"""Independent pairs of a double well $a$ and a standard normal $b$.

    Coordinates alternate, $x = (a_1, b_1, a_2, b_2, \dots)$. Each well has a minor mode
    near $a = -1.7$ and a major one near $a = 1.8$, so there are $2^{d/2}$ modes.
    References: Wu, Koehler and Noe (2020), "Stochastic normalizing flows"; Midgley et
    al. (2023), "Flow annealed importance sampling bootstrap".

    Args:
        dim: Dimension, even.

    Attributes:
        log_normalizer: Exact log Z, by quadrature at construction.
        positive_probability: Exact probability that a well has $a > 0$.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    log_normalizer: float | None = eqx.field(static=True)
    positive_probability: float = eqx.field(static=True)

    def __init__(self, dim: int = 32):
        dim = whole_number("dim", dim, at_least=2)
        if dim % 2:
            raise InvalidInputError(
                f"dim must be even, since coordinates come in pairs, got {dim}; use "
                f"{dim - 1} or {dim + 1}."
            )
        negative, positive = _well_masses()
        log_pair = math.log(negative + positive) + 0.5 * math.log(2.0 * math.pi)
        self.shape = (dim,)
        self.log_normalizer = dim // 2 * log_pair
        self.positive_probability = positive / (negative + positive)

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log density of one point, not normalised."""
        check_configuration(self.shape, x)
        square = x * x
        well = square * (6.0 - square) + 0.5 * x
        # A mask is half the time of slicing the pairs apart (gradients, 2 CPU cores).
        return jnp.sum(jnp.where(_is_well(x), well, -0.5 * square))

    @property
    def observables(self) -> Mapping[str, Callable[[Array], Array]]:
        """The fraction of wells on the positive side; see `positive_probability`."""

        def positive_fraction(x: Array) -> Array:
            return 2.0 * jnp.mean(_is_well(x) & (x > 0.0), dtype=x.dtype)

        return {"positive_fraction": positive_fraction}


def _is_well(x: Array) -> Array:
    return jnp.arange(x.size) % 2 == 0


def _well_masses() -> tuple[float, float]:
    """Integrals of the double well over negative and over positive $a$."""
    # Past 6 the integrand is below exp(-1000); the integrand is entire, so that 200
    # Gauss-Legendre nodes on [0, 6] reach the rounding error of float64.
    nodes, weights = np.polynomial.legendre.leggauss(200)
    nodes, weights = 3.0 * (nodes + 1.0), 3.0 * weights

    def mass(a: np.ndarray) -> float:
        return float(weights @ np.exp(-(a**4) + 6.0 * a**2 + 0.5 * a))

    return mass(-nodes), mass(nodes)

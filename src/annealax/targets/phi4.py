r"""Scalar $\phi^4$ theory on a periodic lattice (Section 4.3).

The density is $p(\phi) \propto \exp\{-S(\phi)\}$ with the action of the paper,

$$S(\phi) = \sum_x \Bigl\{ \phi(x) \sum_\mu \bigl[ 2 \phi(x) - \phi(x + \hat\mu)
    - \phi(x - \hat\mu) \bigr] + m^2 \phi(x)^2 + \lambda \phi(x)^4 \Bigr\}.$$

The lattice Laplacian is self-adjoint, so that the gradient needs it once,

$$\partial S / \partial\phi(x) = 2 \sum_\mu [\dots] + 2 m^2 \phi(x)
    + 4 \lambda \phi(x)^3,$$

where automatic differentiation would apply it twice, the second time as a slow adjoint
of shifts. The gradient is therefore given as a rule; it can be differentiated again,
in both modes.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from annealax import observables
from annealax._checks import finite_number, whole_numbers
from annealax._errors import InvalidInputError
from annealax.targets.base import AbstractTarget, check_configuration


class Phi4(AbstractTarget):
    """The phi^4 theory on a periodic lattice in two dimensions.

    Along a side of length 2 both neighbours are the same site, along a side of length
    1 they are the site itself, so that (n, 1) is a chain. The density is symmetric
    under all translations, under reflections and under a change of sign.

    Args:
        shape: Numbers of sites along the two sides.
        mass_squared: Coefficient of phi^2; below zero the field prefers either sign.
        coupling: Coefficient of phi^4, not negative.

    Attributes:
        log_normalizer: None, except without coupling, where the field is Gaussian.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    mass_squared: float = eqx.field(static=True)
    coupling: float = eqx.field(static=True)
    log_normalizer: float | None = eqx.field(static=True)

    def __init__(self, shape: tuple[int, ...], mass_squared: float, coupling: float):
        if len(shape) != 2:
            raise InvalidInputError(
                f"shape must hold the two sides of the lattice, got {shape}; use "
                "(n, 1) for a chain."
            )
        self.shape = whole_numbers("a side of the lattice", shape)
        self.mass_squared = finite_number("mass_squared", mass_squared)
        self.coupling = finite_number("coupling", coupling)
        if self.coupling < 0 or (self.coupling == 0 and self.mass_squared <= 0):
            raise InvalidInputError(
                "the density cannot be normalised with "
                f"mass_squared={mass_squared} and coupling={coupling}; coupling must "
                "be above 0, or be 0 with mass_squared above 0."
            )
        free = self.coupling == 0
        self.log_normalizer = _log_free(self.shape, self.mass_squared) if free else None

    def __call__(self, x: Float[Array, "sites_0 sites_1"]) -> Float[Array, ""]:
        """Minus the action of one field."""
        check_configuration(self.shape, x)
        return -_action(x, self.mass_squared, self.coupling)

    @property
    def observables(self) -> Mapping[str, Callable[[Array], Array]]:
        """All of `annealax.observables.LATTICE`."""
        return observables.LATTICE


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _action(x: Array, mass_squared: float, coupling: float) -> Array:
    local = x * (mass_squared + coupling * (x * x))
    return jnp.sum(x * (_laplacian(x) + local))


@_action.defjvp
def _action_jvp(mass_squared, coupling, primals, tangents):
    (x,), (tangent,) = primals, tangents
    laplacian, square = _laplacian(x), x * x
    action = jnp.sum(x * (laplacian + x * (mass_squared + coupling * square)))
    gradient = 2 * laplacian + x * (2 * mass_squared + 4 * coupling * square)
    return action, jnp.sum(gradient * tangent)


def _laplacian(x: Array) -> Array:
    """Minus the lattice Laplacian, positive semidefinite."""
    return 4 * x - _neighbours(x, 0) - _neighbours(x, 1)


def _neighbours(x: Array, axis: int) -> Array:
    """Sum of the two neighbours along an axis, with the wrap at the ends.

    One concatenation of sums: 100 leapfrog steps of 2000 fields of 14 x 14 take 38 ms
    (13 ms with the particle axis last, as HMC has it), against 53 ms for a sum of two
    `jnp.roll`.
    """
    if x.shape[axis] == 1:
        return 2 * x
    part = partial(jax.lax.slice_in_dim, x, axis=axis)
    last = x.shape[axis] - 1
    first_row = part(1, 2) + part(last, last + 1)
    last_row = part(0, 1) + part(last - 1, last)
    middle = part(0, last - 1) + part(2, last + 1)
    return jnp.concatenate([first_row, middle, last_row], axis)


def _log_free(shape: tuple[int, ...], mass_squared: float) -> float:
    """Log Z without coupling: plane waves diagonalise the action."""
    waves = [2 - 2 * np.cos(2 * np.pi * np.arange(n) / n) for n in shape]
    eigenvalues = mass_squared + np.add.outer(*waves)
    return float(0.5 * np.sum(math.log(math.pi) - np.log(eigenvalues)))

r"""Expectations, and the observables of a field on a periodic lattice.

Functions of one configuration (collected in `LATTICE`) have expectations; other
quantities are functions of such expectations, and take them as a mapping from the same
names. Any estimate of the expectations will do: weighted particles, a Markov chain, or
the leave-one-out averages of a jackknife. They are differentiable too, for the delta
method.

With $V$ sites the definitions are those of Albergo, Kanwar and Shanahan (2019),

$$G(r) = \Bigl\langle \frac1V \sum_x \phi(x) \phi(x + r) \Bigr\rangle, \quad
  \chi_2 = \sum_r G(r), \quad E = \frac1d \sum_\mu G(\hat\mu), \quad
  C(t) = \frac1{L_1} \sum_s G(t, s),$$

without the product of means $\langle\phi\rangle^2$ that makes them connected: it
is zero by symmetry for $\phi^4$ theory, and its estimate would only add noise and
bias. :func:`connected_two_point_function` subtracts it for theories without symmetry.
Time runs along the first axis.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PyTree

from annealax._particles import weighted_mean

_Field = Float[Array, "time space"]
_Scalar = Float[Array, ""]
_Observable = Callable[[Array], Array]


def expectation(
    function: _Observable | Mapping[str, _Observable],
    x: Float[Array, "particles *shape"],
    weights: Float[Array, " particles"] | None = None,
) -> PyTree[Array]:
    """Weighted average of a function of one configuration, or of several by name.

    Args:
        function: From one configuration to an array, or a mapping of names to such.
        x: Configurations.
        weights: Normalised weights; equal ones if left out.
    """
    if weights is None:
        weights = jnp.full(x.shape[0], 1 / x.shape[0], x.dtype)
    if isinstance(function, Mapping):
        return {name: expectation(each, x, weights) for name, each in function.items()}
    return weighted_mean(weights, jax.vmap(function)(x))


def magnetisation(x: _Field) -> _Scalar:
    """Mean of the field over the lattice, M."""
    return jnp.mean(x)


def abs_magnetisation(x: _Field) -> _Scalar:
    """Modulus of M."""
    return jnp.abs(jnp.mean(x))


def magnetisation_squared(x: _Field) -> _Scalar:
    """M squared."""
    return jnp.square(jnp.mean(x))


def magnetisation_fourth(x: _Field) -> _Scalar:
    """M to the fourth power."""
    return jnp.square(jnp.square(jnp.mean(x)))


def positive_magnetisation(x: _Field) -> _Scalar:
    """One if M is positive, else zero: its mean is the fraction of positive signs."""
    return (jnp.mean(x) > 0).astype(x.dtype)


def two_point_susceptibility(x: _Field) -> _Scalar:
    """The two-point function summed over separations: (sum of the field)^2 / V."""
    return jnp.square(jnp.sum(x)) / x.size


def ising_energy_density(x: _Field) -> _Scalar:
    """Product of nearest neighbours, averaged over sites and over both directions."""
    forward = jnp.roll(x, -1, 0) + jnp.roll(x, -1, 1)
    return 0.5 * jnp.mean(x * forward)


def two_point_function(x: _Field) -> _Field:
    """Products of sites at each separation, averaged over the lattice: G(r)."""
    return _autocorrelation(x)


def zero_momentum_correlator(x: _Field) -> Float[Array, " time"]:
    """Correlation of means over space at each separation in time: C(t)."""
    return _autocorrelation(jnp.mean(x, axis=1))


LATTICE: Mapping[str, _Observable] = MappingProxyType(
    {
        function.__name__: function
        for function in (
            two_point_susceptibility,
            ising_energy_density,
            magnetisation,
            abs_magnetisation,
            magnetisation_squared,
            magnetisation_fourth,
            positive_magnetisation,
            two_point_function,
            zero_momentum_correlator,
        )
    }
)
"""Observables of a lattice field, by name."""


def binder_cumulant(expected: Mapping[str, ArrayLike]) -> _Scalar:
    r"""$1 - \langle M^4\rangle / 3 \langle M^2\rangle^2$.

    Zero for a Gaussian M, two thirds where M has one modulus and either sign.
    """
    square = jnp.square(expected["magnetisation_squared"])
    return 1 - jnp.asarray(expected["magnetisation_fourth"]) / (3 * square)


def connected_two_point_function(
    expected: Mapping[str, ArrayLike],
) -> Float[Array, "time space"]:
    r"""$G(r) - \langle M\rangle^2$."""
    square = jnp.square(expected["magnetisation"])
    return jnp.asarray(expected["two_point_function"]) - square


def effective_mass(expected: Mapping[str, ArrayLike]) -> Float[Array, " half_time"]:
    r"""$\operatorname{arccosh}[(C(t-1) + C(t+1)) / 2 C(t)]$.

    For the separations t = 1, 2, ... up to half the lattice; the other half mirrors
    them. Where excited states have died out this is the lowest mass in lattice units.
    NaN where noise takes the ratio below one.
    """
    correlator = jnp.asarray(expected["zero_momentum_correlator"])
    neighbours = jnp.roll(correlator, 1) + jnp.roll(correlator, -1)
    ratio = neighbours / (2 * correlator)
    return jnp.arccosh(ratio[1 : correlator.size // 2 + 1])


def _autocorrelation(x: Array) -> Array:
    """Mean of x(i) x(i + r) over i, for every periodic separation r."""
    power = jnp.square(jnp.abs(jnp.fft.rfftn(x)))
    return jnp.fft.irfftn(power, x.shape).astype(x.dtype) / x.size

"""Names, shapes and supports."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flowjax.bijections import Exp, SoftPlus
from scipy import integrate

from annealax import InvalidInputError
from annealax.auto.density import FreeDensity
from annealax.auto.parameters import Space
from annealax.auto.supports import Simplex


def test_a_tuple_is_an_array_without_constraints():
    space = Space((2, 3))
    assert space.size == 6
    value, log_det = space.constrain(jnp.arange(6.0))
    assert value.shape == (2, 3)
    assert log_det == 0
    assert space.coordinate_names()[:2] == ["x[0,0]", "x[0,1]"]


@pytest.mark.parametrize(
    ("support", "low", "high"),
    [
        ("positive", 0.0, np.inf),
        ("unit", 0.0, 1.0),
        ((-2.0, 5.0), -2.0, 5.0),
        ((1.0, None), 1.0, np.inf),
        ((None, -3.0), -np.inf, -3.0),
        (Exp(()), 0.0, np.inf),
        (SoftPlus(()), 0.0, np.inf),
    ],
)
def test_the_jacobian_makes_log_z_the_same_in_both_spaces(support, low, high):
    """The integral over the line of a density on the support, by quadrature."""

    def log_density(x):  # a skewed bump, placed inside every support
        centre = {True: 0.3, False: (high if np.isinf(low) else low) + 0.7}[high == 1]
        u = x[0] - centre
        return -3 * u**2 + 0.8 * jnp.sin(3 * u)

    space = Space((1,), support)
    with jax.enable_x64(True):
        free = FreeDensity.of(log_density, space)
        inside, _ = integrate.quad(
            lambda x: float(jnp.exp(log_density(jnp.asarray([x])))),
            max(low, -20),
            min(high, 20),
            points=[max(low, -20) + 0.7] if np.isinf(high) else None,
            limit=200,
        )
        grid = jnp.linspace(-25, 25, 20001)[:, None]
        value, _ = jax.vmap(space.constrain)(grid)
        line = jnp.trapezoid(jnp.exp(jax.vmap(free)(grid)), grid[:, 0])
    assert np.all(np.asarray(value) >= low)
    assert np.all(np.asarray(value) <= high)
    np.testing.assert_allclose(float(line), inside, rtol=2e-3)


@pytest.mark.parametrize(
    ("support", "low", "high"),
    [
        ("positive", 0, np.inf),
        ("unit", 0, 1),
        ((2, 5), 2, 5),
        ((None, -1), -np.inf, -1),
        ((-3, 0), -3, 0),
        ("simplex", 0, 1.001),
    ],
)
def test_values_never_lie_on_the_bounds(support, low, high):
    """There the density of beta(1/2, 1/2) is infinite."""
    space = Space(3, support)
    for far in (-200.0, 0.0, 200.0):
        value, _ = space.constrain(jnp.full(space.size, far))
        assert jnp.isfinite(value).all()
        # Also as compiled programs see it, which take the smallest numbers for zero.
        assert bool(jax.jit(lambda x: jnp.all((x > low) & (x < high)))(value))


def test_simplex_against_automatic_differentiation():
    simplex = Simplex((4,))
    x = jnp.asarray([0.3, -1.0, 0.7])
    shares, log_det = simplex.transform_and_log_det(x)
    np.testing.assert_allclose(float(jnp.sum(shares)), 1, rtol=1e-6)
    jacobian = jax.jacobian(lambda y: simplex.transform_and_log_det(y)[0][:-1])(x)
    np.testing.assert_allclose(
        float(log_det), float(jnp.linalg.slogdet(jacobian)[1]), rtol=1e-5
    )
    even, _ = simplex.transform_and_log_det(jnp.zeros(3))
    np.testing.assert_allclose(np.asarray(even), 0.25, rtol=1e-6)


def test_named_parameters_come_back_by_name():
    space = Space(
        {"mu": (), "tau": (2,), "share": (3,)},
        {"tau": "positive", "share": "simplex"},
    )
    assert space.size == 1 + 2 + 2
    values = space.values(jnp.zeros((7, 5)))
    assert {name: each.shape for name, each in values.items()} == {
        "mu": (7,),
        "tau": (7, 2),
        "share": (7, 3),
    }
    assert space.coordinate_names()[:3] == ["mu", "tau[0]", "tau[1]"]


@pytest.mark.parametrize(
    ("shape", "support", "message"),
    [
        ((0,), None, "positive whole numbers"),
        ((2.5,), None, "positive whole numbers"),
        ({"a": ()}, {"b": "positive"}, "support names \\['b'\\]"),
        ({"a": ()}, "positive", "must be a dict"),
        ((2,), "negative", "unknown support 'negative'"),
        ((2,), (3.0, 1.0), "must rise"),
        ((1,), "simplex", "at least two"),
        ((2,), 7, "a pair of bounds"),
        ((2,), (0, 1, 2), "a pair of bounds"),
        ((2,), (math.nan, 1), r"rise, got \(nan, 1.0\)"),
        ((2,), (math.inf, 1), r"rise, got \(inf, 1.0\)"),
        ((2,), (-math.inf, -math.inf), "rise"),
        ((2,), (0, 1e300), "must lie within"),
        ((2,), (0, 10**400), "a pair of bounds"),
        ((10**12,), None, "at most 10,000,000 numbers"),
        ((10**20, 10**20), None, "at most 10,000,000 numbers"),
        ({"a": 10**20}, None, "at most 10,000,000 numbers"),
        ((2,), Exp((3,)), "has shape"),
    ],
)
def test_errors_name_the_cause(shape, support, message, untyped):
    with pytest.raises(InvalidInputError, match=message):
        Space(shape, support)


def test_a_density_that_returns_an_array_is_refused():
    with pytest.raises(InvalidInputError, match="one number for one point"):
        FreeDensity.of(lambda x: x, Space((3,)))
    with pytest.raises(InvalidInputError, match="cannot be evaluated"):
        FreeDensity.of(lambda x: x @ jnp.ones((5, 5)), Space((3,)))

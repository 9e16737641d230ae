"""Lattice observables: plain double loops, exact expectations, derived quantities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests_exact import chain, grid, square

from annealax import observables
from annealax.targets import Phi4

PARAMETERS = -1.7, 2.3


def separations(phi):
    """G(r) of one field, site by site."""
    rows, columns = phi.shape
    out = np.zeros(phi.shape)
    for a in range(rows):
        for b in range(columns):
            for i in range(rows):
                for j in range(columns):
                    out[a, b] += phi[i, j] * phi[(i + a) % rows, (j + b) % columns]
    return out / phi.size


@pytest.mark.parametrize("shape", [(4, 6), (5, 3), (7, 1), (1, 1), (2, 2)], ids=str)
def test_one_field(shape):
    phi = np.random.default_rng(3).normal(0.3, 1.0, shape)
    two_point, mean = separations(phi), phi.mean()
    neighbours = two_point[1 % shape[0], 0] + two_point[0, 1 % shape[1]]
    expected = {
        "two_point_susceptibility": two_point.sum(),
        "ising_energy_density": 0.5 * neighbours,
        "magnetisation": mean,
        "abs_magnetisation": abs(mean),
        "magnetisation_squared": mean**2,
        "magnetisation_fourth": mean**4,
        "positive_magnetisation": float(mean > 0),
        "two_point_function": two_point,
        "zero_momentum_correlator": two_point.mean(axis=1),
    }
    lattice = Phi4(shape, *PARAMETERS).observables
    assert set(lattice) == set(expected)

    @jax.jit
    def evaluate(x):
        return {name: function(x) for name, function in lattice.items()}

    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-5)):
        with jax.enable_x64(dtype == np.float64):
            values = evaluate(jnp.asarray(phi, dtype))
        for name, value in values.items():
            assert value.dtype == dtype
            np.testing.assert_allclose(
                value, expected[name], rtol=tolerance, atol=tolerance
            )
    assert evaluate(jnp.asarray(-phi))["positive_magnetisation"] == (mean < 0)


@pytest.mark.parametrize(
    ("shape", "parameters", "bound", "count"),
    [((3, 1), (-1.7, 2.3), 2.2, 40), ((2, 2), (1.0, 1.0), 2.0, 24)],
    ids=["chain", "square"],
)
def test_exact_expectations(shape, parameters, bound, count):
    """A weighted average over the nodes of a quadrature is an exact expectation."""
    fields, measure = grid(shape, bound=bound, count=count)
    target = Phi4(shape, *parameters)

    @jax.jit
    def average(x, measure):
        weights = measure * jnp.exp(jax.vmap(target)(x))
        return observables.expectation(target.observables, x, weights / weights.sum())

    with jax.enable_x64(True):
        means = average(fields, measure)
        connected = observables.connected_two_point_function(means)
    exact = square(*parameters) if shape == (2, 2) else chain(3, *parameters)
    two_point = exact.two_point_function
    expected = {
        "two_point_function": two_point,
        "two_point_susceptibility": exact.susceptibility,
        "ising_energy_density": 0.5 * (two_point[1, 0] + two_point[0, 1 % shape[1]]),
        "zero_momentum_correlator": two_point.mean(axis=1),
        "magnetisation_squared": exact.susceptibility / fields[0].size,
        "magnetisation": 0.0,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(means[name], value, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(connected, two_point, rtol=1e-7)


def test_effective_mass_is_the_gap_of_the_transfer_matrix():
    """On a long chain the gap dominates, and the arccosh undoes the wrap exactly."""
    length = 24
    exact = chain(length, *PARAMETERS)
    correlator = exact.two_point_function.mean(axis=1)
    mass = observables.effective_mass({"zero_momentum_correlator": correlator})
    assert mass.shape == (length // 2,)
    far = chain(400, *PARAMETERS).two_point_function[:, 0]
    gap = np.log(far[20] / far[21])
    np.testing.assert_allclose(mass[6:], gap, rtol=2e-3)
    exactly = {"zero_momentum_correlator": np.cosh(0.3 * (np.arange(9) - 4.5))}
    np.testing.assert_allclose(observables.effective_mass(exactly), 0.3, rtol=1e-4)


def test_derived_quantities():
    key = jax.random.key(0)
    gaussian = jax.random.normal(key, (200_000, 1, 1))
    signs = jnp.where(gaussian > 0, 1.0, -1.0)
    for x, expected, tolerance in ((gaussian, 0.0, 0.02), (signs, 2 / 3, 1e-5)):
        means = observables.expectation(observables.LATTICE, x)
        binder = observables.binder_cumulant(means)
        np.testing.assert_allclose(binder, expected, atol=tolerance)
    shifted = {"two_point_function": jnp.full((2, 2), 5.0), "magnetisation": 2.0}
    connected = observables.connected_two_point_function(shifted)
    np.testing.assert_allclose(connected, 1.0)


def test_expectation():
    x = jnp.arange(6.0).reshape(3, 2)
    weights = jnp.array([0.5, 0.5, 0.0])
    mean = observables.expectation(lambda x: x, x, weights)
    np.testing.assert_allclose(mean, [1.0, 2.0])
    np.testing.assert_allclose(observables.expectation(jnp.sum, x), 5.0, rtol=1e-6)
    broken = x.at[2].set(jnp.nan)
    means = observables.expectation({"sum": jnp.sum}, broken, weights)
    np.testing.assert_allclose(means["sum"], 3.0)

"""The phi^4 action: a plain double loop, derivatives, symmetries, exact log Z."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests_exact import chain, grid, square

import annealax as ax
from annealax.targets import Phi4

SHAPES = [(1, 1), (5, 1), (1, 4), (2, 1), (2, 2), (3, 5), (2, 7), (6, 4)]
MASS_SQUARED, COUPLING = -1.7, 2.3


def action(phi):
    """Equation (10) of the paper, site by site."""
    rows, columns = phi.shape
    total = 0.0
    for i in range(rows):
        for j in range(columns):
            here = phi[i, j]
            neighbour = (2 * here - phi[(i + 1) % rows, j] - phi[(i - 1) % rows, j]) + (
                2 * here - phi[i, (j + 1) % columns] - phi[i, (j - 1) % columns]
            )
            total += here * neighbour + MASS_SQUARED * here**2 + COUPLING * here**4
    return total


def field(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.fixture(params=SHAPES, ids=str)
def target(request):
    return Phi4(request.param, MASS_SQUARED, COUPLING)


@jax.jit(static_argnums=0)
def derivatives(target, x, direction, other):
    """The target with first and second derivatives, in both modes."""
    gradient = jax.grad(target)
    value, slope = jax.value_and_grad(target)(x)
    return {
        "value": value,
        "gradient": slope,
        "forward": jax.jvp(target, (x,), (direction,))[1],
        "forward_over_reverse": jax.jvp(gradient, (x,), (direction,))[1],
        # Which is how SNF differentiates through HMC.
        "reverse_over_reverse": jax.grad(lambda x: jnp.vdot(gradient(x), other))(x),
    }


def test_action_and_derivatives(target):
    x, direction, other = (field(target.shape, seed) for seed in range(3))
    with jax.enable_x64(True):
        out = derivatives(target, x, direction, other)
        near = [
            derivatives(target, x + step * direction, direction, other)["gradient"]
            for step in (1e-5, -1e-5)
        ]
    assert out["value"].dtype == np.float64
    np.testing.assert_allclose(out["value"], -action(x), rtol=1e-13)
    numerical = [
        (action(x + 1e-5 * basis) - action(x - 1e-5 * basis)) / 2e-5
        for basis in np.eye(x.size).reshape(-1, *x.shape)
    ]
    gradient, along = out["gradient"], out["forward_over_reverse"]
    np.testing.assert_allclose(-np.ravel(gradient), numerical, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(out["forward"], np.vdot(gradient, direction), rtol=1e-12)
    numerical = np.subtract(*near) / 2e-5
    np.testing.assert_allclose(along, numerical, rtol=1e-6, atol=1e-6)
    mixed = np.vdot(out["reverse_over_reverse"], direction)
    np.testing.assert_allclose(mixed, np.vdot(along, other), rtol=1e-12)


@pytest.mark.parametrize("shape", [(1, 4), (3, 5)], ids=str)
def test_batches_along_any_axis(shape):
    target = Phi4(shape, MASS_SQUARED, COUPLING)
    function = jax.jit(jax.vmap(jax.value_and_grad(target)))
    function_last = jax.jit(jax.vmap(jax.value_and_grad(target), -1, (0, -1)))
    x = field((4, *shape)).astype(np.float32)
    values, gradients = function(x)
    last_values, last_gradients = function_last(np.moveaxis(x, 0, -1))
    np.testing.assert_allclose(values, [-action(each) for each in x], rtol=1e-5)
    np.testing.assert_allclose(last_values, values, rtol=1e-5)
    last_gradients = np.moveaxis(last_gradients, -1, 0)
    np.testing.assert_allclose(last_gradients, gradients, rtol=1e-4, atol=1e-5)


def test_symmetries():
    target = jax.jit(Phi4((4, 6), MASS_SQUARED, COUPLING))
    x = field((4, 6)).astype(np.float32)
    images = [-x, x[::-1], x[:, ::-1]]
    images += [np.roll(x, shift, (0, 1)) for shift in [(1, 0), (0, 1), (3, 5)]]
    for image in images:
        np.testing.assert_allclose(target(image), target(x), rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "parameters", "bound", "count"),
    [
        ((1, 1), (MASS_SQUARED, COUPLING), 3.0, 100),
        ((2, 1), (MASS_SQUARED, COUPLING), 3.0, 100),
        ((1, 3), (MASS_SQUARED, COUPLING), 2.2, 40),
        ((2, 2), (1.0, 1.0), 2.0, 24),
    ],
    ids=str,
)
def test_log_normalizer_of_small_lattices(shape, parameters, bound, count):
    fields, measure = grid(shape, bound=bound, count=count)
    with jax.enable_x64(True):
        log_density = np.asarray(jax.jit(jax.vmap(Phi4(shape, *parameters)))(fields))
    log_normalizer = np.log(np.sum(measure * np.exp(log_density)))
    exact = square(*parameters) if shape == (2, 2) else chain(max(shape), *parameters)
    np.testing.assert_allclose(log_normalizer, exact.log_normalizer, rtol=1e-8)


@pytest.mark.parametrize("parameters", [(MASS_SQUARED, COUPLING), (-4.75, 5.1)])
@pytest.mark.parametrize("solve", [square, lambda *args, **kw: chain(12, *args, **kw)])
def test_exact_answers_do_not_depend_on_their_grid(solve, parameters):
    exact, fine = solve(*parameters), solve(*parameters, bound=5.0, count=250)
    for one, other in zip(exact, fine, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11)


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (2, 2), (3, 4)], ids=str)
def test_free_field(shape):
    target = Phi4(shape, 0.8, 0.0)
    with jax.enable_x64(True):
        size = int(np.prod(shape))
        hessian = -jax.jit(jax.hessian(target))(np.zeros(shape)).reshape(size, size)
        _, log_det = np.linalg.slogdet(np.asarray(hessian) / (2 * np.pi))
    np.testing.assert_allclose(target.log_normalizer, -0.5 * log_det, rtol=1e-10)
    assert Phi4(shape, 0.8, 0.1).log_normalizer is None


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((4,), 1.0, 1.0), r"two sides .* got \(4,\)"),
        (((4, 0), 1.0, 1.0), "at least 1, got .4, 0"),
        (((4, 2.5), 1.0, 1.0), "whole numbers.*2.5"),
        (((4, 4), float("nan"), 1.0), "finite number, got nan"),
        (((4, 4), 1.0, -1.0), "coupling=-1.0"),
        (((4, 4), -1.0, 0.0), "cannot be normalised"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ax.InvalidInputError, match=message):
        Phi4(*arguments)


@pytest.mark.usefixtures("untyped")
def test_refuses_a_batch():
    with pytest.raises(ax.InvalidInputError, match="use jax.vmap"):
        Phi4((4, 4), 1.0, 1.0)(jnp.zeros((3, 4, 4)))

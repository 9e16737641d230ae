"""Maps onto supports: inverses, Jacobians, integrals; parameters in any structure."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import special

import annealax as ax
from annealax.auto.parameters import Space

# Support, shape, and the numbers that the measure is of.
MAPS: dict[str, tuple[Any, tuple[int, ...], Any]] = {
    "ordered": ("ordered", (4,), lambda y: y),
    "positive_ordered": ("positive_ordered", (4,), lambda y: y),
    "simplex": ("simplex", (4,), lambda y: y[:-1]),
    "correlation_cholesky": (
        "correlation_cholesky",
        (4, 4),
        lambda y: y[jnp.tril_indices(4, -1)],
    ),
    "several factors": (
        "correlation_cholesky",
        (2, 3, 3),
        lambda y: y[:, *jnp.tril_indices(3, -1)].ravel(),
    ),
    "bounds that differ": (
        (np.array([0.0, -np.inf, 1.0]), np.array([2.0, 3.0, np.inf])),
        (3,),
        lambda y: y,
    ),
}


@pytest.mark.parametrize("name", MAPS)
def test_jacobian_and_inverse(name):
    support, shape, measured = MAPS[name]
    with jax.enable_x64(True):
        space = Space(shape, support)
        x = jnp.asarray(np.random.default_rng(0).normal(size=space.size))
        value, log_det = space.constrain(x)
        assert value.shape == shape
        matrix = jax.jacfwd(lambda x: measured(space.constrain(x)[0]).ravel())(x)
        right = np.linalg.slogdet(np.asarray(matrix).reshape(space.size, -1))[1]
        np.testing.assert_allclose(log_det, right, rtol=1e-9)
        np.testing.assert_allclose(space.unconstrain(value), x, rtol=1e-8, atol=1e-9)


def test_values_are_where_they_should_be():
    x = jr.normal(jr.key(0), (100, 6))
    ordered = Space((6,), "ordered").values(x)
    assert (np.diff(ordered) > 0).all()
    positive = Space((6,), "positive_ordered").values(x)
    assert (positive > 0).all()
    assert (np.diff(positive) > 0).all()
    factor = Space((4, 4), "correlation_cholesky").values(x)
    np.testing.assert_allclose(jnp.sum(factor**2, -1), 1.0, rtol=1e-5)
    assert (np.triu(factor, 1) == 0).all()
    assert (jnp.diagonal(factor, axis1=1, axis2=2) > 0).all()
    unit = Space((2, 3), "unit_vector").values(x)
    np.testing.assert_allclose(jnp.linalg.norm(unit, axis=-1), 1.0, rtol=1e-5)
    hours = Space((3,), ("periodic", 0, 24)).values(x)
    assert (hours >= 0).all()
    assert (hours <= 24).all()


@pytest.mark.parametrize(
    ("support", "shape", "log_density", "right"),
    [
        (
            "circular",
            (),
            lambda a: 2.0 * jnp.cos(a - 3.0),
            np.log(2 * np.pi * special.i0(2.0)),
        ),
        (
            ("periodic", 0, 24),
            (),
            lambda h: jnp.cos(2 * np.pi * h / 24),
            np.log(24 * special.i0(1.0)),
        ),
        (
            "unit_vector",
            (3,),
            lambda u: 1.5 * u[0] + 0.5 * u[2],
            np.log(4 * np.pi * np.sinh(np.sqrt(2.5)) / np.sqrt(2.5)),
        ),
    ],
)
def test_directions_have_the_integral_of_their_circle_or_sphere(
    support, shape, log_density, right
):
    """By draws from the shell of directions itself; 4 errors are below 0.05."""
    space = Space(shape, support)
    uniform = jr.normal(jr.key(1), (20_000, space.size))

    def weight(key, x):
        point, _ = space.constrain(x)
        vector = space.unconstrain(point, key)
        value, _ = space.constrain(vector)
        return jnp.exp(log_density(value)), vector

    keys = jr.split(jr.key(2), len(uniform))
    found, vectors = jax.vmap(weight)(keys, uniform)
    area = {(): 2 * np.pi, (3,): 4 * np.pi}[shape]
    area = 24.0 if support == ("periodic", 0, 24) else area
    error = found.std() / found.mean() / np.sqrt(len(found))
    assert abs(np.log(area * found.mean()) - right) < 4 * error < 0.05
    # and the density of these draws is 1 / area, with the Jacobian
    radius = np.linalg.norm(vectors, axis=1)
    grid = np.linspace(1e-3, 3, 4001)
    line = jnp.stack([jnp.zeros_like(jnp.asarray(grid))] * space.size, -1)
    line = line.at[:, 0].set(grid)
    density = np.exp(jax.vmap(lambda x: space.constrain(x)[1])(line))
    surface = 2 * np.pi * grid if space.size == 2 else 4 * np.pi * grid**2
    whole = np.trapezoid(density * surface, grid)
    np.testing.assert_allclose(whole, area, rtol=1e-3)
    inside = np.trapezoid((density * surface)[grid < 1], grid[grid < 1]) / area
    assert np.mean(radius < 1) == pytest.approx(inside, abs=4 * 0.5 / np.sqrt(20_000))


class Pair(NamedTuple):
    """Two parameters."""

    place: Any
    scale: Any


def test_parameters_in_any_structure():
    shape = {"layer": Pair((2,), ()), "rest": [(3,), {"top": ()}]}
    support = {"layer": {"scale": "positive"}, "rest": [None, {"top": (0, 1)}]}
    space = Space(shape, support)
    names = [each.name for each in space.parameters]
    assert names == ["layer.place", "layer.scale", "rest.0", "rest.1.top"]
    point, _ = space.constrain(jnp.arange(7.0))
    assert isinstance(point["layer"], Pair)
    np.testing.assert_allclose(point["layer"].scale, np.exp(2.0), rtol=1e-6)
    np.testing.assert_allclose(point["rest"][1]["top"], special.expit(6.0), rtol=1e-6)
    np.testing.assert_allclose(space.unconstrain(point), jnp.arange(7.0), rtol=1e-4)
    assert space.coordinate_names()[2] == "layer.scale"
    assert Space([2, 3]).parameters[0].shape == (2, 3)
    with pytest.raises(ax.InvalidInputError, match="expected a dict with"):
        space.unconstrain({"layer": Pair(1.0, 2.0)})


def test_supports_that_depend_on_other_parameters():
    def inside(values):
        return -values["a"], 2 * values["a"]

    space = Space({"a": (), "b": (2,)}, {"a": "positive", "b": inside})
    vectors = jr.normal(jr.key(0), (200, 3))
    values = space.values(vectors)
    assert (values["b"] > -values["a"][:, None]).all()
    assert (values["b"] < 2 * values["a"][:, None]).all()
    back = jax.vmap(space.unconstrain)(values)
    np.testing.assert_allclose(back, vectors, atol=1e-3)
    matrix = jax.jacfwd(lambda x: jnp.hstack(list(space.constrain(x)[0].values())))
    right = np.linalg.slogdet(np.asarray(matrix(vectors[0])))[1]
    np.testing.assert_allclose(space.constrain(vectors[0])[1], right, rtol=1e-4)
    with pytest.raises(ax.InvalidInputError, match="must come before it"):
        Space({"b": (2,), "a": ()}, {"b": inside})


def test_constraints_of_numpyro():
    constraints = pytest.importorskip("numpyro.distributions.constraints")
    pairs = [
        (constraints.positive, "positive"),
        (constraints.ordered_vector, "ordered"),
        (constraints.corr_cholesky, "correlation_cholesky"),
        (constraints.interval(0.0, 2.0), (0, 2)),
    ]
    for constraint, word in pairs:
        shape = (3, 3) if word == "correlation_cholesky" else (3,)
        x = jnp.array([0.3, -1.0, 0.5])
        for one, other in zip(
            jax.tree.leaves(Space(shape, constraint).constrain(x)),
            jax.tree.leaves(Space(shape, word).constrain(x)),
            strict=True,
        ):
            np.testing.assert_array_equal(one, other)
    space = Space((3, 3), constraints.positive_definite)
    matrix, _ = space.constrain(jnp.arange(6.0) / 5)
    assert (np.linalg.eigvalsh(matrix) > 0).all()
    np.testing.assert_allclose(
        space.unconstrain(matrix), jnp.arange(6.0) / 5, atol=1e-4
    )
    for wrong in (constraints.boolean, constraints.integer_interval(0, 3)):
        with pytest.raises(ax.InvalidInputError, match="is not understood"):
            Space((3,), wrong)


@pytest.mark.parametrize(
    ("support", "shape", "words"),
    [
        ("ordered", (), "needs an axis"),
        ("correlation_cholesky", (3, 2), "the same size"),
        ("unit_vector", (1,), "at least two"),
        (("periodic", 3, 3), (), "must rise"),
        (("periodic", 0, None), (), "two bounds"),
        ((np.array([0.0, 2.0]), np.array([1.0, 1.5])), (2,), "must rise"),
        ((np.array([0.0, 2.0]), None), (3,), "do not fit"),
        ("orderd", (3,), "'positive_ordered'"),
    ],
)
def test_errors_say_what_fits(support, shape, words):
    with pytest.raises(ax.InvalidInputError, match=words):
        Space(shape, support)

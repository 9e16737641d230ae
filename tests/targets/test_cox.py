"""The Cox process against SciPy, its derivatives, its symmetry and its CSV reader."""

from importlib import resources

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln
from tests_problems import shipped_columns

from annealax.targets import LogGaussianCox, LogGaussianCoxPines

PINES_WINDOW = ((-5, 5), (-8, 2))
NAMES = ("variance", "length_scale", "mean")


def covariance_of(columns, rows, variance, length_scale, sides=(1.0, 1.0)):
    """Written cell by cell, in a plain double loop over positions."""
    cells = [
        (sides[0] * i / columns, sides[1] * j / rows)
        for i in range(columns)
        for j in range(rows)
    ]
    return np.array(
        [
            [
                variance * np.exp(-np.hypot(p[0] - q[0], p[1] - q[1]) / length_scale)
                for q in cells
            ]
            for p in cells
        ]
    )


def log_density(fields, counts, mean, covariance):
    """SciPy's normal and Poisson, less the constant that the target leaves out."""
    counts, area = counts.reshape(-1), 1 / counts.size
    factor = stats.Covariance.from_cholesky(np.linalg.cholesky(covariance))
    prior = stats.multivariate_normal(np.full(counts.size, mean), factor)
    poisson = stats.poisson(area * np.exp(fields))
    constant = np.sum(counts * np.log(area) - gammaln(counts + 1))
    return prior.logpdf(fields) + poisson.logpmf(counts).sum(-1) - constant


def random_counts(columns, rows):
    return np.random.default_rng(columns).poisson(0.7, (columns, rows)).astype(float)


# Odd and even sides have different folds.
CASES = {
    "even": {"counts": random_counts(6, 6)},
    "odd": {"counts": random_counts(5, 7), "variance": 0.8, "length_scale": 0.3},
    "oblong": {
        "counts": random_counts(4, 9),
        "mean": 0.4,
        "sides": (0.5, 1.0),
        "length_scale": 2,
    },
    "smallest": {"counts": np.array([[1, 0], [0, 3]])},
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def expected(case, field):
    counts = case["counts"]
    variance = case.get("variance", 1.91)
    mean = case.get("mean", np.log(counts.sum()) - variance / 2)
    covariance = covariance_of(
        *counts.shape,
        variance,
        case.get("length_scale", 1 / 33),
        case.get("sides", (1.0, 1.0)),
    )
    return log_density(field, counts, mean, covariance), mean, covariance


@pytest.mark.parametrize("x64", [False, True])
def test_density_matches_scipy(case, x64):
    with jax.enable_x64(x64), jax.numpy_dtype_promotion("strict"):
        target, white = (LogGaussianCox(**case, whitened=w) for w in (False, True))
        noise = np.random.default_rng(0).normal(size=target.shape)
        _, mean, covariance = expected(case, noise)
        factor = np.linalg.cholesky(covariance)
        field = mean + factor @ noise
        value, _, _ = expected(case, field)
        tolerance = {"rtol": 1e-12, "atol": 1e-10} if x64 else {"rtol": 3e-6}
        x, z = jnp.asarray(field), jnp.asarray(noise)
        assert eqx.filter_jit(target)(x).dtype == x.dtype
        np.testing.assert_allclose(eqx.filter_jit(target)(x), value, **tolerance)
        square = x.reshape(case["counts"].shape)
        np.testing.assert_allclose(eqx.filter_jit(target)(square), value, **tolerance)
        shifted = value + np.log(np.diagonal(factor)).sum()
        np.testing.assert_allclose(eqx.filter_jit(white)(z), shifted, **tolerance)
        mapped = eqx.filter_jit(white.log_intensity)(z).reshape(-1)
        np.testing.assert_allclose(mapped, field, rtol=0, atol=1e-12 if x64 else 1e-5)


def test_pines_match_scipy_in_float32():
    """To the last digits: values near a thousand have a float32 spacing of 1.2e-4."""
    points = shipped_columns("finpines_raw.csv", "x_m", "y_m")
    edges = np.linspace(-5, 5, 33), np.linspace(-8, 2, 33)
    counts = np.histogram2d(*points, bins=edges)[0]
    target, white = LogGaussianCoxPines(), LogGaussianCoxPines(whitened=True)
    assert target.shape == white.shape == (1024,)
    assert target.num_points == 126
    np.testing.assert_array_equal(target.counts, counts)
    index = np.stack(np.meshgrid(*[np.arange(32)] * 2, indexing="ij"), -1)
    index = index.reshape(-1, 2)
    distance = np.linalg.norm(index[:, None] - index[None], axis=-1)
    covariance = 1.91 * np.exp(-distance / (32 / 33))
    mean = np.log(126) - 1.91 / 2
    factor = np.linalg.cholesky(covariance)
    noise = np.random.default_rng(0).normal(size=(5, 1024)).astype(np.float32)
    fields = (mean + noise @ factor.T).astype(np.float32)
    values = log_density(fields.astype(float), counts, mean, covariance)
    batch = jax.jit(jax.vmap(target))
    np.testing.assert_allclose(batch(fields), values, rtol=0, atol=1e-3)
    shifted = values + np.log(np.diagonal(factor)).sum()
    batch = jax.jit(jax.vmap(white))
    np.testing.assert_allclose(batch(noise), shifted, rtol=0, atol=1e-3)
    for name in ("expected_count", "mean_log_intensity"):
        observed = eqx.filter_jit(white.observables[name])(noise[0])
        same = eqx.filter_jit(target.observables[name])(fields[0])
        np.testing.assert_allclose(observed, same, rtol=1e-5)


@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("name", ["smallest", "odd"])
def test_derivatives_match_finite_differences(name, whitened):
    with jax.enable_x64(True):
        target = LogGaussianCox(**CASES[name], whitened=whitened)
        x, direction = jr.normal(jr.key(1), (2, *target.shape))
        steps = 1e-5 * jnp.eye(x.size)
        gradient = jax.grad(target)

        def slope(x):
            return jax.jvp(target, (x,), (direction,))[1]

        @jax.jit
        def derivatives(x):
            second = (
                jax.hessian(target)(x) @ direction,  # forward over reverse
                jax.jacrev(gradient)(x) @ direction,  # reverse over reverse
                jax.jvp(gradient, (x,), (direction,))[1],
                jax.grad(slope)(x),  # reverse over forward
            )
            return gradient(x), slope(x), second

        @jax.jit
        def differences(x):
            up, down = x + steps, x - steps
            first = (jax.vmap(target)(up) - jax.vmap(target)(down)) / 2e-5
            second = (jax.vmap(gradient)(up) - jax.vmap(gradient)(down)) / 2e-5
            return first, second @ direction

        (first, along, seconds), (first_check, second_check) = (
            derivatives(x),
            differences(x),
        )
        tolerance = {"rtol": 1e-6, "atol": 1e-7}
        np.testing.assert_allclose(first, first_check, **tolerance)
        np.testing.assert_allclose(along, first @ direction, rtol=1e-10)
        for second in seconds:
            np.testing.assert_allclose(second, second_check, **tolerance)


def products(function, *arguments):
    """Sizes of the products of a compiled function: (left shape, right shape)."""
    program = jax.make_jaxpr(function)(*arguments)
    found = []

    def visit(jaxpr):
        for equation in jaxpr.eqns:
            if equation.primitive.name == "dot_general":
                found.append(tuple(v.aval.shape for v in equation.invars))
            for value in equation.params.values():
                if hasattr(value, "jaxpr"):
                    visit(value.jaxpr)

    visit(program.jaxpr)
    return found


@pytest.mark.parametrize("transform", [lambda f: f, jax.grad, jax.value_and_grad])
def test_one_product_with_each_block(transform):
    """Under vmap too: (particles, m) x (m, m), and no more for the gradient."""
    target = LogGaussianCoxPines()
    x = jnp.zeros((7, 1024))
    assert products(jax.vmap(transform(target)), x) == 4 * [((7, 256), (256, 256))]
    program = str(jax.make_jaxpr(jax.vmap(transform(target)))(x))
    for operation in ("cholesky", "triangular_solve", "lu", "eigh", "gather"):
        assert f"{operation}[" not in program


@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("name", ["smallest", "odd"])
def test_parametric_density(name, whitened):
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        case = {**CASES[name], "whitened": whitened}
        target = LogGaussianCox(**case)
        x = jr.normal(jr.key(2), target.shape)
        learnt = jax.jit(jax.value_and_grad(lambda p: target.log_density(x, *p)))

        parameters = np.array([0.9, 0.21, 0.3])
        value, gradient = learnt(parameters)
        rebuilt = case | dict(zip(NAMES, parameters.tolist(), strict=True))
        expected = eqx.filter_jit(LogGaussianCox(**rebuilt))(x)
        np.testing.assert_allclose(value, expected, rtol=1e-11)
        differences = [
            (learnt(parameters + h)[0] - learnt(parameters - h)[0]) / 2e-5
            for h in 1e-5 * np.eye(3)
        ]
        np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-7)
        own = eqx.filter_jit(target.log_density)(x)
        np.testing.assert_allclose(own, eqx.filter_jit(target)(x), rtol=1e-11)


def test_default_mean_follows_the_variance():
    with jax.enable_x64(True):
        target = LogGaussianCox(CASES["smallest"]["counts"])
        other = LogGaussianCox(CASES["smallest"]["counts"], variance=3)
        x = jr.normal(jr.key(3), target.shape)
        value = eqx.filter_jit(target.log_density)(x, 3.0)
        np.testing.assert_allclose(value, eqx.filter_jit(other)(x), rtol=1e-11)


def test_parametric_density_factorises_once_for_all_particles():
    target = LogGaussianCox(CASES["even"]["counts"])
    x = jnp.zeros((7, 36))
    program = jax.make_jaxpr(jax.vmap(target.log_density, in_axes=(0, None, None)))(
        x, 1.91, 1 / 33
    )
    assert "f32[7,9,9]" not in str(program)


# Point patterns -----------------------------------------------------------------------


def test_from_csv_is_the_pines():
    data = resources.files("annealax.targets") / "data" / "finpines_raw.csv"
    with resources.as_file(data) as path:
        target = LogGaussianCox.from_csv(path, window=PINES_WINDOW, grid=8)
    np.testing.assert_array_equal(target.counts, LogGaussianCoxPines(8).counts)
    x = jnp.linspace(-1, 1, 64)
    assert eqx.filter_jit(target)(x) == eqx.filter_jit(LogGaussianCoxPines(8))(x)


def test_edges_and_oblong_windows(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("id,y,x\n1,0,0\n2,4,2\n3,4,0\n4,1,1\n5,1,1\n")
    target = LogGaussianCox.from_csv(
        path, window=[[0, 2], [0, 4]], grid=(2, 4), variance=1, whitened=True
    )
    expected = [[1, 0, 0, 1], [0, 2, 0, 1]]
    np.testing.assert_array_equal(target.counts, expected)
    assert target.sides == (0.5, 1.0)
    assert (target.variance, target.whitened, target.num_points) == (1.0, True, 5)
    points = [[0, 0], [2, 4], [0, 4], [1, 1], [1, 1]]
    same = LogGaussianCox.from_points(points, window=((0, 2), (0, 4)), grid=(2, 4))
    np.testing.assert_array_equal(same.counts, expected)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (
            "x,y\n0.5,0.5\n0.5,1.5\n",
            {},
            r"line 3, columns x, y: the point \(0.5, 1.5\)",
        ),
        ("x,y\n0.5,0.5\n7,8\n", {}, r"1 of 2 points do\); widen the window"),
        ("x\n0.5\n", {}, "has one column, x; a point needs two"),
        ("x,y\n0.5,a\n", {}, "line 2, column 'y': expected a finite number"),
        ("x,y\n", {}, "no rows"),
        ("", {}, "is empty"),
        ("x,y\n0,0\n", {"columns": ("x", "z")}, "no column 'z'"),
        ("x,y\n0,0\n", {"grid": 1}, "grid .* at least 2"),
        ("x,y\n0,0\n", {"window": ((0, 1), (1, 0))}, "ymin < ymax"),
        ("x,y\n0,0\n", {"window": ((0, 1),)}, "window must be"),
        ("x,y\n0,0\n", {"length_scale": -1.0}, "length_scale .* above zero"),
        ("x,y\n0,0\n", {"length_scale": 1e30}, "singular in float64; shorten it"),
    ],
)
def test_errors_of_from_csv(tmp_path, content, options, message):
    path = tmp_path / "points.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        LogGaussianCox.from_csv(
            path, **({"window": ((0, 1), (0, 1)), "grid": 4} | options)
        )


def test_errors_of_missing_file_and_counts(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file .*absent"):
        LogGaussianCox.from_csv(tmp_path / "absent", window=PINES_WINDOW, grid=4)
    with pytest.raises(ValueError, match="at least 2 x 2 cells"):
        LogGaussianCox([1.0, 2.0])
    with pytest.raises(ValueError, match="whole numbers"):
        LogGaussianCox([[0.5, 1.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match="no points; give the prior mean"):
        LogGaussianCox(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="row 1 of points"):
        LogGaussianCox.from_points([[0, 0], [2, 0]], window=((0, 1), (0, 1)), grid=2)
    with pytest.raises(ValueError, match="use jax.vmap"):
        LogGaussianCoxPines(4)(jnp.zeros((3, 16)))

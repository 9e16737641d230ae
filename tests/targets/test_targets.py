"""The targets with known log Z: contract, independent evaluation, quadrature, draws."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp, softmax

from annealax import targets

MEANS = np.array([[-3.0, 1.0], [2.0, 2.5], [0.5, -2.0]])
WEIGHTS = np.array([0.5, 0.2, 0.3])
VARIANCES = np.array([[0.4, 1.5], [1.0, 0.3], [0.6, 0.6]])
COVARIANCES = np.array(
    [[[0.5, 0.3], [0.3, 1.0]], [[1.2, -0.4], [-0.4, 0.3]], [[0.2, 0.0], [0.0, 2.0]]]
)
COVARIANCE = np.array([[2.0, 1.2, 0.3], [1.2, 1.0, -0.1], [0.3, -0.1, 0.5]])

# Functions, so that each test builds its targets in its own precision.
TARGETS = {
    "normal_diagonal": lambda: targets.Normal(
        [[1.0, -2.0]], [[0.5, 2.0]], log_normalizer=1.5
    ),
    "normal_full": lambda: targets.Normal([1.0, -2.0, 0.5], COVARIANCE),
    "funnel": targets.Funnel,
    "challenging_mixture": targets.ChallengingMixture,
    "many_well": lambda: targets.ManyWell(6),
    "mixture_isotropic": lambda: targets.GaussianMixture(
        MEANS, [0.5, 1.0, 2.0], WEIGHTS
    ),
    "mixture_diagonal": lambda: targets.GaussianMixture(MEANS, VARIANCES, WEIGHTS),
    "mixture_full": lambda: targets.GaussianMixture(MEANS, COVARIANCES, WEIGHTS),
    "student_t_mixture": lambda: targets.StudentTMixture(
        MEANS, WEIGHTS, df=1.5, scale=0.7
    ),
}
SAMPLED = [name for name in TARGETS if name != "many_well"]
MIXTURES = [name for name in TARGETS if name.startswith(("mixture", "student"))]
NUM_DRAWS = 20_480
CHUNK = 4096


@functools.cache
def target_of(name, x64=False):
    with jax.enable_x64(x64):
        return TARGETS[name]()


@eqx.filter_jit
def _draw(target, key):
    return target.sample(key, NUM_DRAWS)


def draw(target, seed=11):
    return np.asarray(_draw(target, jr.key(seed, impl="rbg")))  # compiles fastest


@functools.cache
def draws_of(name):
    return draw(target_of(name))


def points(target, num_points=5, seed=0):
    rng = np.random.default_rng(seed)
    return 1.5 * rng.normal(size=(num_points, *target.shape))


@eqx.filter_jit
def _value_and_grad(target, x):
    return jax.vmap(jax.value_and_grad(target))(x)


def evaluate(target, x, x64=True):
    """Log densities and gradients, in chunks of one size so as to compile once."""
    padding = [(0, -len(x) % CHUNK)] + [(0, 0)] * (x.ndim - 1)
    chunks = np.pad(x, padding, mode="edge").reshape(-1, CHUNK, *x.shape[1:])
    with jax.enable_x64(x64):
        pairs = [_value_and_grad(target, jnp.asarray(chunk, float)) for chunk in chunks]
    values, gradients = (np.concatenate(part) for part in zip(*pairs, strict=True))
    return values[: len(x)], gradients[: len(x)]


# Contract ---------------------------------------------------------------------------


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", TARGETS)
def test_contract(name, x64):
    target, dtype = target_of(name, x64), jnp.float64 if x64 else jnp.float32
    assert isinstance(target, targets.AbstractTarget)
    assert isinstance(target.shape, tuple)
    assert isinstance(target.log_normalizer, float)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(target))
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(target))
    with jax.enable_x64(x64), jax.numpy_dtype_promotion("strict"):
        x = jax.ShapeDtypeStruct(target.shape, dtype)
        for function in (target, *target.observables.values()):
            value = jax.eval_shape(function, x)
            assert (value.shape, value.dtype) == ((), dtype)
    values, gradients = evaluate(target, points(target), x64)
    assert values.dtype == gradients.dtype == dtype
    assert gradients.shape == (5, *target.shape)
    assert np.all(np.isfinite(values))


@pytest.mark.parametrize("name", TARGETS)
def test_gradient_matches_finite_differences(name):
    target = target_of(name, x64=True)
    for x in points(target, 3):
        steps = 1e-5 * np.eye(x.size).reshape(-1, *x.shape)
        values, _ = evaluate(target, np.concatenate([x + steps, x - steps]))
        differences = (values[: x.size] - values[x.size :]) / 2e-5
        gradient = evaluate(target, x[None])[1].ravel()
        np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", MIXTURES[1:])
def test_second_derivatives_of_given_gradients(name):
    """Forward over reverse and reverse over reverse agree with finite differences."""
    target = target_of(name, x64=True)
    x = points(target, 1)[0]

    @eqx.filter_jit
    def second(target, x):
        return jax.hessian(target)(x), jax.jacrev(jax.grad(target))(x)

    with jax.enable_x64(True):
        forward, reverse = second(target, jnp.asarray(x))
    np.testing.assert_allclose(forward, reverse, rtol=1e-10)
    steps = 1e-5 * np.eye(x.size)
    above, below = evaluate(target, x + steps)[1], evaluate(target, x - steps)[1]
    np.testing.assert_allclose(forward, (above - below) / 2e-5, rtol=1e-5, atol=1e-6)


def test_derivative_in_the_parameters():
    target = target_of("mixture_full", x64=True)
    x, direction = points(target, 1)[0], points(target, len(MEANS), seed=1)

    @jax.jit
    def shifted(step):
        moved = eqx.tree_at(lambda t: t.means, target, target.means + step * direction)
        return moved(jnp.asarray(x) + step)

    with jax.enable_x64(True):
        derivative = jax.jit(jax.grad(shifted))(0.0)
        difference = float(shifted(1e-5) - shifted(-1e-5)) / 2e-5
    assert abs(difference) > 1e-2
    np.testing.assert_allclose(derivative, difference, rtol=1e-6)


@pytest.mark.parametrize("name", TARGETS)
def test_density_does_not_factorise(name):
    target = target_of(name)
    program = str(jax.make_jaxpr(jax.grad(target))(jnp.ones(target.shape)))
    for operation in ("cholesky", "triangular_solve", "lu", "eigh", "qr"):
        assert f"{operation}[" not in program


@pytest.mark.parametrize("name", TARGETS)
def test_wrong_shape_is_refused(name):
    target = target_of(name)
    wrong = tuple(n + 1 for n in target.shape)
    with pytest.raises(ValueError, match=r"use jax\.vmap"):
        target(jnp.zeros(wrong))


@pytest.mark.parametrize("name", SAMPLED)
def test_float32_keeps_its_digits(name):
    """At typical points float32 differs from float64 by rounding errors only."""
    x = draws_of(name)[:500]
    single, _ = evaluate(target_of(name), x, x64=False)
    double, _ = evaluate(target_of(name, x64=True), x)
    np.testing.assert_allclose(single, double, rtol=1e-5, atol=3e-4)


def test_float32_near_fifty_dimensional_modes():
    """The expanded square |x|^2 - 2 x.m + |m|^2 would fail this by a factor of 100."""
    mixture = targets.GaussianMixture.forty_modes(50)
    means = np.asarray(mixture.means, np.float64)
    noise = np.random.default_rng(0).normal(size=(1000, 50))
    x = np.float32(means[np.arange(1000) % 40] + noise)
    squares = np.float64(x)[:, None] - means
    exact = logsumexp(-0.5 * (squares * squares).sum(-1), axis=1)
    exact -= math.log(40) + 25 * math.log(2 * math.pi)
    single, _ = evaluate(mixture, x, x64=False)
    np.testing.assert_allclose(single, exact, rtol=0, atol=3e-5)


# Independent evaluations --------------------------------------------------------------


def mixture_log_density(log_components):
    return logsumexp(np.log(WEIGHTS) + np.stack(log_components, axis=1), axis=1)


def normal_mixture(covariances):
    return lambda x: mixture_log_density(
        [
            stats.multivariate_normal(mean, covariance).logpdf(x)
            for mean, covariance in zip(MEANS, covariances, strict=True)
        ]
    )


def challenging(x):
    swapped = np.concatenate([x, x[:, ::-1]])
    components = [
        stats.multivariate_normal(mean, covariance).pdf(swapped)
        for mean, covariance in (
            ([3, 0], np.diag([0.7, 0.05])),
            ([-2.5, 0], np.diag([0.7, 0.05])),
            ([2, 3], [[1, 0.95], [0.95, 1]]),
        )
    ]
    return np.log(np.sum(components, axis=0).reshape(2, -1).sum(axis=0) / 6)


def funnel(x):
    first = stats.norm.logpdf(x[:, 0], scale=3.0)
    rest = stats.norm.logpdf(x[:, 1:], scale=np.exp(x[:, :1] / 2))
    return first + rest.sum(axis=1)


REFERENCES = {
    "normal_diagonal": lambda x: (
        1.5 + stats.multivariate_normal([1, -2], [0.5, 2.0]).logpdf(x[:, 0])
    ),
    "normal_full": stats.multivariate_normal([1, -2, 0.5], COVARIANCE).logpdf,
    "funnel": funnel,
    "challenging_mixture": challenging,
    "many_well": lambda x: sum(
        -(x[:, i] ** 4) + 6 * x[:, i] ** 2 + x[:, i] / 2 - x[:, i + 1] ** 2 / 2
        for i in (0, 2, 4)
    ),
    "mixture_isotropic": normal_mixture([0.5, 1.0, 2.0]),
    "mixture_diagonal": normal_mixture(VARIANCES),
    "mixture_full": normal_mixture(COVARIANCES),
    "student_t_mixture": lambda x: mixture_log_density(
        [stats.t.logpdf(x, 1.5, mean, 0.7).sum(axis=1) for mean in MEANS]
    ),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_agrees_with_scipy(name):
    target = target_of(name, x64=True)
    x = points(target, 20)
    values, _ = evaluate(target, x)
    np.testing.assert_allclose(values, REFERENCES[name](x), rtol=1e-10)


# Log Z by quadrature ------------------------------------------------------------------


def grid(limit, step):
    """Points of a square grid and the log area of a cell: the trapezium rule."""
    axis = np.arange(-limit, limit + step / 2, step)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    return points, 2 * math.log(step)


def test_normal_log_normalizer_by_quadrature():
    x, log_cell = grid(12.0, 0.1)
    values, _ = evaluate(target_of("normal_diagonal", x64=True), x[:, None])
    assert logsumexp(values) + log_cell == pytest.approx(1.5, abs=1e-9)


def test_many_well_log_normalizer_by_quadrature():
    x, log_cell = grid(8.0, 0.05)
    with jax.enable_x64(True):
        target = targets.ManyWell(2)
    log_z = logsumexp(evaluate(target, x)[0]) + log_cell
    assert log_z == pytest.approx(target.log_normalizer, abs=1e-9)


@pytest.mark.parametrize("name", ["challenging_mixture", *MIXTURES[:-1]])
def test_mixture_log_normalizer_by_quadrature(name):
    # The narrowest direction has standard deviation 0.22; the rule's error then is of
    # order exp(-2 (pi 0.22 / 0.06)^2), below rounding.
    x, log_cell = grid(12.0, 0.06)
    values, _ = evaluate(target_of(name, x64=True), x)
    assert logsumexp(values) + log_cell == pytest.approx(0.0, abs=1e-9)


def test_forty_modes_log_normalizer_by_quadrature():
    x, log_cell = grid(48.0, 0.4)
    with jax.enable_x64(True):
        target = targets.GaussianMixture.forty_modes()
    values, _ = evaluate(target, x)
    assert logsumexp(values) + log_cell == pytest.approx(0.0, abs=1e-9)


def test_funnel_log_normalizer_by_quadrature():
    # On (v, u) with x = (v, exp(v / 2) u), a change of variables of log volume v / 2.
    x, log_cell = grid(30.0, 0.25)
    v, u = x.T
    with jax.enable_x64(True):
        target = targets.Funnel(2)
    values, _ = evaluate(target, np.stack([v, np.exp(v / 2) * u], axis=1))
    assert logsumexp(values + v / 2) + log_cell == pytest.approx(0.0, abs=1e-9)


def test_student_t_mixture_log_normalizer_by_quadrature():
    # On u with x = sinh(u), which makes the tails exponential.
    u, log_cell = grid(18.0, 0.06)
    values, _ = evaluate(target_of("student_t_mixture", x64=True), np.sinh(u))
    log_volume = np.log(np.cosh(u)).sum(axis=1)
    assert logsumexp(values + log_volume) + log_cell == pytest.approx(0.0, abs=1e-9)


def test_many_well_known_values():
    assert targets.ManyWell().shape == (32,)
    assert targets.ManyWell().log_normalizer == pytest.approx(164.69567532, abs=1e-8)
    assert targets.ManyWell(2).log_normalizer == pytest.approx(10.29347971, abs=1e-8)
    a = np.linspace(-6, 6, 200_001)
    density = np.exp(-(a**4) + 6 * a**2 + a / 2)
    positive = (density[a > 0].sum() + density[100_000] / 2) / density.sum()
    target = targets.ManyWell(8)
    assert target.positive_probability == pytest.approx(positive, abs=1e-9)
    assert round(target.positive_probability, 4) == 0.8443
    x = jnp.array([1.0, -1.0, -2.0, 5.0, 0.5, -1.0, 2.0, -3.0])
    assert target.observables["positive_fraction"](x) == 0.75


# Exact draws --------------------------------------------------------------------------
# Each statistic is a mean of 20 480 independent terms of known expectation. It may lie
# 5 standard errors off: false alarm rate 6e-7 each, below 1e-4 for all of them (about
# 100). Seeds are fixed, so that a pass stays a pass.


def z_score(terms, expectation):
    error = terms.std(axis=0) / math.sqrt(len(terms))
    return (terms.mean(axis=0) - expectation) / error


# The funnel's score has too heavy a tail for a normal approximation; see below.
@pytest.mark.parametrize("name", [n for n in SAMPLED if n != "funnel"])
def test_draws_obey_the_density(name):
    """Stein's identity E[f(x) d log p / dx_i + df / dx_i] = 0, with f asymmetric."""
    target = target_of(name, x64=True)
    x = np.float64(draws_of(name))
    assert x.shape == (NUM_DRAWS, *target.shape)
    _, score = evaluate(target, x)
    x, score = x.reshape(NUM_DRAWS, -1), score.reshape(NUM_DRAWS, -1)
    # f_i = exp(tanh(x_i - c_i)) + tanh(sum of x): sees each coordinate and all of them.
    each = np.tanh(x - np.median(x, axis=0) - 0.4)
    total = np.tanh(x.sum(axis=1, keepdims=True))
    slope = (1 - each**2) * np.exp(each) + 1 - total**2
    assert np.abs(z_score((np.exp(each) + total) * score + slope, 0.0)).max() < 5


@pytest.mark.parametrize("name", MIXTURES)
def test_draws_populate_components_by_weight(name):
    """The responsibilities have the weights as expectation, exactly."""
    target = target_of(name)
    log_terms = jax.jit(jax.vmap(target.component_log_densities))(draws_of(name))
    terms = softmax(np.float64(log_terms), axis=1)
    assert np.abs(z_score(terms, np.exp(target.log_weights))).max() < 5


@pytest.mark.parametrize("name", ["normal_full", "funnel"])
def test_draws_are_standard_after_whitening(name):
    """Kolmogorov-Smirnov, 13 p-values above 1e-7: false alarm rate 1.3e-6."""
    target, x = target_of(name), np.float64(draws_of(name))
    if name == "funnel":
        white = np.c_[x[:, 0] / 3.0, x[:, 1:] * np.exp(-x[:, :1] / 2)]
    else:
        white = np.linalg.solve(np.float64(target.factor), (x - target.mean).T).T
    for column in white.T:
        assert stats.kstest(column, stats.norm.cdf).pvalue > 1e-7
    # Correlations have standard error 0.007.
    assert np.abs(np.corrcoef(white.T) - np.eye(len(white.T))).max() < 0.04


def test_student_t_draws_are_student_t():
    """Kolmogorov-Smirnov, p-value above 1e-7 (the false alarm rate), and the tails."""
    target = targets.StudentTMixture([[2.0]], df=1.3, scale=0.5)
    x = np.float64(draw(target))[:, 0]
    exact = stats.t(1.3, 2.0, 0.5)
    assert stats.kstest(x, exact.cdf).pvalue > 1e-7
    assert x.max() > exact.isf(1e-3)
    assert x.min() < exact.ppf(1e-3)


# Particulars --------------------------------------------------------------------------


def test_ill_conditioned_has_its_condition_number():
    key = jr.key(0, impl="rbg")
    for condition_number in (1.0, 1e6):
        with jax.enable_x64(True):
            target = targets.Normal.ill_conditioned(
                key, 20, condition_number, log_normalizer=3.0
            )
        assert target.log_normalizer == 3.0
        factor = np.asarray(target.factor)
        smallest, *_, largest = np.linalg.eigvalsh(factor @ factor.T)
        assert largest / smallest == pytest.approx(condition_number, rel=1e-5)
        assert np.linalg.det(factor) == pytest.approx(1.0, rel=1e-6)
        # The target is the same in either precision.
        single = targets.Normal.ill_conditioned(key, 20, condition_number)
        np.testing.assert_allclose(single.factor, factor, rtol=1e-5, atol=1e-4)


def test_ill_conditioned_float32_quadratic_form():
    """A float32 quadratic form in the precision matrix would lose twice the digits."""
    single = targets.Normal.ill_conditioned(jr.key(1), 20, 1e8)
    with jax.enable_x64(True):
        double = targets.Normal.ill_conditioned(jr.key(1), 20, 1e8)
    x = draw(single)
    exact, _ = evaluate(double, x)
    errors = np.abs(evaluate(single, x, x64=False)[0] - exact)
    whitening = np.asarray(double.whitening)
    precision = np.float32(whitening.T @ whitening)
    centred = x - np.asarray(single.mean)
    squares = np.sum(centred @ precision * centred, axis=1)
    naive_errors = np.abs(np.float64(double.log_peak) - 0.5 * squares - exact)
    assert np.median(errors) < 0.05 * np.median(naive_errors)


def test_equal_mixtures_in_every_parametrisation():
    x = points(target_of("mixture_full"), 10)
    forms = [
        0.8,
        np.full(3, 0.8),
        np.full((3, 2), 0.8),
        0.8 * np.stack([np.eye(2)] * 3),
    ]
    mixtures = [targets.GaussianMixture(MEANS, form, 10 * WEIGHTS) for form in forms]
    np.testing.assert_allclose(jnp.exp(mixtures[0].log_weights), WEIGHTS, rtol=1e-6)
    first, *rest = (evaluate(mixture, x, x64=False) for mixture in mixtures)
    for values, gradients in rest:
        np.testing.assert_allclose(values, first[0], rtol=1e-5)
        np.testing.assert_allclose(gradients, first[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "count", "limit"),
    [
        (targets.GaussianMixture.forty_modes, 40, 40.0),
        (targets.StudentTMixture.ten_modes, 10, 10.0),
    ],
)
def test_named_mixtures(family, count, limit):
    target = family(dim=3, seed=7)
    assert target.means.shape == (count, 3)
    assert 0.9 * limit < np.abs(target.means).max() <= limit
    assert not np.array_equal(target.means, family(dim=3, seed=8).means)
    modes = jax.jit(jax.vmap(target.mode_of))(target.means)
    np.testing.assert_array_equal(modes, np.arange(count))


def test_challenging_mixture_has_six_modes():
    modes = jax.jit(jax.vmap(target_of("challenging_mixture").mode_of))
    counts = np.bincount(modes(draws_of("challenging_mixture")), minlength=6)
    # Overlap moves some draws from component to component, but not many.
    np.testing.assert_allclose(counts / NUM_DRAWS, 1 / 6, atol=0.03)


NAN = float("nan")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: targets.Normal([0.0, NAN]), "mean must be finite"),
        (lambda: targets.Normal([]), "empty"),
        (lambda: targets.Normal([0.0, 0.0], [1.0, 0.0]), "above 0, got"),
        (lambda: targets.Normal([0.0, 0.0], np.ones(3)), r"\(3,\) does not fit"),
        (lambda: targets.Normal([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]]), "-1; remove"),
        (lambda: targets.Normal([0.0, 0.0], [[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
        (lambda: targets.Normal([0.0], log_normalizer=NAN), "log_normalizer"),
        (
            lambda: targets.Normal.ill_conditioned(jr.key(0), 2, 0.5),
            r"\[1, 1e12\], got 0.5",
        ),
        (lambda: targets.Normal.ill_conditioned(jr.key(0), 1, 2.0), "at least 2"),
        (lambda: targets.Funnel(1), "dim .* at least 2, got 1"),
        (lambda: targets.Funnel(scale=0.0), "scale .* above zero"),
        (lambda: targets.ManyWell(5), "even.*got 5; use 4 or 6"),
        (lambda: targets.ManyWell(0), "at least 2, got 0"),
        (lambda: targets.GaussianMixture([1.0, 2.0]), r"\(components, dim\)"),
        (lambda: targets.GaussianMixture(MEANS, np.ones(2)), r"\(2,\) do not fit"),
        (lambda: targets.GaussianMixture(MEANS, -1.0), "above 0, got"),
        (lambda: targets.GaussianMixture(MEANS, weights=[1.0, 2.0]), r"shape \(3,\)"),
        (
            lambda: targets.GaussianMixture(MEANS, weights=[1.0, 0.0, 1.0]),
            "components of weight 0",
        ),
        (lambda: targets.GaussianMixture.forty_modes(0), "positive .* got 0"),
        (lambda: targets.StudentTMixture(MEANS, df=-1.0), "df .* above zero"),
        (lambda: targets.StudentTMixture(MEANS, scale=NAN), "scale must be a finite"),
    ],
)
def test_bad_input_is_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()

"""The log Z that the zoo of the benchmarks states is right, density by density."""

import math
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from _zoo.densities import CONVERSIONS, COUNTS, HIDDEN, zoo
from _zoo.table import summary, table, verdict

ZOO = zoo()
DRAWN = [name for name, density in ZOO.items() if density.draw is not None]
BY_QUADRATURE = [name for name, each in ZOO.items() if each.known_by == "quadrature"]
IMPROPER = [name for name, density in ZOO.items() if density.improper]


def values(density, vectors, x64=True):
    """Log densities at many vectors of free numbers, in either precision."""
    with jax.enable_x64(x64):
        function = jax.jit(jax.vmap(lambda v: density.log_density(density.point(v))))
        return np.asarray(function(jnp.asarray(vectors)), np.float64)


def ellipsoid(points):
    """Mean and factor of the covariance of points."""
    covariance = np.cov(points.T).reshape(points.shape[1], -1)
    return points.mean(axis=0), np.linalg.cholesky(covariance)


def log_z_around(density, x, logs, near, rng):
    r"""Log Z and its error from draws x of the density, around some of them.

    For any set $E$, $E_p[1_E(x) / \gamma(x)] = |E| / Z$. Here $E$ is an ellipsoid, cut
    off where the density is zero.
    """
    size = x.shape[1]
    center, factor = ellipsoid(near)
    radius = math.sqrt(size + 1)
    inside = (
        np.linalg.norm(np.linalg.solve(factor, (x - center).T), axis=0) < radius
    )
    ball = rng.normal(size=(2000, size))
    ball *= radius / np.linalg.norm(ball, axis=1, keepdims=True)
    ball *= rng.uniform(size=(2000, 1)) ** (1 / size)
    share = np.isfinite(values(density, center + ball @ factor.T)).mean()
    log_volume = (
        0.5 * size * math.log(math.pi)
        - scipy.special.gammaln(0.5 * size + 1)
        + size * math.log(radius)
        + np.log(np.diag(factor)).sum()
        + math.log(share)
    )
    top = -logs[inside].min()
    ratios = np.where(inside, np.exp(np.minimum(-logs - top, 0)), 0)
    mean, error = ratios.mean(), ratios.std() / math.sqrt(len(x))
    error = math.hypot(error / mean, math.sqrt((1 - share) / share / 2000))
    return log_volume - top - math.log(mean), error


def pieces(x, labels, rng):
    """Draws of the heaviest and the lightest component; where curved, neighbours."""
    counts = np.bincount(labels)
    enough = np.flatnonzero(counts > 40 * x.shape[1] / 10 + 60)
    for label in {enough[counts[enough].argmax()], enough[counts[enough].argmin()]}:
        near = x[labels == label]
        yield near
        if x.shape[1] <= 10:
            scale = np.subtract(*np.quantile(near, [0.75, 0.25], axis=0))
            away = (near - near[rng.integers(len(near))]) / scale
            yield near[np.argsort((away**2).sum(axis=1))[: max(len(near) // 20, 200)]]


@pytest.mark.parametrize("name", DRAWN)
def test_exact_draws_agree_with_log_z(name):
    density, rng = ZOO[name], np.random.default_rng(5)
    x, labels = density.draw(rng, 20_000)
    logs = values(density, x)
    assert np.isfinite(logs).all()
    found = [log_z_around(density, x, logs, near, rng) for near in pieces(x, labels, rng)]
    for log_z, error in found:
        assert abs(log_z - density.log_z) < 5 * error + 1e-9
    assert min(error for _, error in found) < 0.1


@pytest.mark.parametrize("name", DRAWN)
def test_single_precision_is_enough_where_draws_are(name):
    density = ZOO[name]
    x, _ = density.draw(np.random.default_rng(6), 500)
    x = x.astype(np.float32)
    off = np.abs(values(density, x, x64=False) - values(density, x.astype(float)))
    assert np.quantile(off, 0.95) < 0.02


@pytest.mark.parametrize("name", BY_QUADRATURE)
def test_quadrature_agrees_with_log_z(name):
    density = ZOO[name]
    low, high = density.box()
    count = 700
    ticks = (np.arange(count) + 0.5) / count
    axes = low + np.outer(ticks, high - low)
    grid = np.stack(np.meshgrid(*axes.T), axis=-1).reshape(-1, 2)
    total = scipy.special.logsumexp(values(density, grid))
    found = total + np.log((high - low) / count).sum()
    assert found == pytest.approx(density.log_z, abs=1e-3)


def beta(a, b):
    return lambda x: scipy.stats.beta.logpdf(x, a, b).sum()


def gamma(shape, scale):
    return lambda x: scipy.stats.gamma.logpdf(x, shape, scale=scale).sum()


def dirichlet(a):
    return lambda x: scipy.stats.dirichlet.logpdf([*x, 1 - sum(x)], a)


def four_supports(x):
    return (
        scipy.stats.gamma.logpdf(x[:2], 2.3, scale=4.0).sum()
        + scipy.stats.beta.logpdf(x[2], 3.0, 0.7)
        + scipy.stats.truncnorm.logpdf(x[3], -3.0, 0.5, 5.0, 2.0)
        + scipy.stats.expon.logpdf(3.0 - x[4], scale=2.0)
    )


def conversions(x):
    a, b, hits, trials = CONVERSIONS
    return beta(a + hits, b + trials - hits)(x)


def counts(x):
    shape, scale, total, exposure = COUNTS
    return gamma(shape + total, 1 / (1 / scale + exposure))(x)


IN_SCIPY = {
    "beta(0.1, 0.1) 3-d": beta(0.1, 0.1),
    "unlike betas 4-d": beta([0.15, 3.0, 0.6, 12.0], [0.4, 0.8, 0.5, 2.5]),
    "gamma(0.02) 5-d": gamma(0.02, 1.0),
    "unlike gammas 4-d": gamma([0.07, 2.4, 0.6, 9.0], [3.0, 0.01, 200.0, 1.0]),
    "Dirichlet(0.01) 9-d": dirichlet([0.01] * 10),
    "unlike Dirichlet 3-d": dirichlet([0.3, 2.0, 0.8, 5.5]),
    "four supports by name 5-d": four_supports,
    "three conversion rates 3-d": conversions,
    "two rates of counts 2-d": counts,
}


@pytest.mark.parametrize("name", IN_SCIPY)
def test_scipy_agrees_with_log_z(name):
    density, rng = ZOO[name], np.random.default_rng(7)
    low, high = density.box()
    shares = rng.dirichlet(np.ones(density.dimension + 1), 20)[:, :-1]
    x = low + (high - low) * shares
    assert all(density.inside(each) for each in x)
    expected = density.log_z + np.array([IN_SCIPY[name](each) for each in x])
    np.testing.assert_allclose(values(density, x), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", IMPROPER)
def test_improper_densities_have_as_much_mass_in_every_decade(name):
    density, size = ZOO[name], ZOO[name].dimension
    rng, edges = np.random.default_rng(8), np.arange(1.0, 6.0)
    directions = rng.normal(size=(5000, size))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    sign = 1
    if density.support == "positive":  # the pole is at zero, along the first axis
        sign, directions = -1, np.abs(directions)
    masses = []
    for edge in edges:
        radii = 10 ** (sign * (edge + np.linspace(0, 1, 20)))
        if sign == 1:
            x, power = radii[:, None, None] * directions, size
        else:
            x, power = np.broadcast_to(directions, (20, 5000, size)).copy(), 1
            x[..., 0] = radii[:, None]
        logs = values(density, x.reshape(-1, size)).reshape(20, -1)
        masses.append(scipy.special.logsumexp(logs + power * np.log(radii)[:, None]))
    assert (np.diff(masses) > -0.3).all()


def test_every_density_has_its_log_z_checked():
    checked = {*DRAWN, *BY_QUADRATURE, *IN_SCIPY, *IMPROPER}
    assert checked == set(ZOO)
    assert len(ZOO) >= 44


@pytest.mark.parametrize(
    "name",
    [n for n in DRAWN if ZOO[n].dimension > 10 and ZOO[n].group != "heavy tails"],
)
def test_hidden_modes_are_those_that_a_wide_start_would_miss(name):
    density, rng = ZOO[name], np.random.default_rng(9)
    x, labels = density.draw(rng, 20_000)
    wide = rng.multivariate_normal(x.mean(axis=0), np.cov(x.T), 50_000)
    # The component that is largest at a point is the one that it would climb to.
    logs = []
    for label in range(labels.max() + 1):
        center, factor = ellipsoid(x[labels == label])
        z = np.linalg.solve(factor, (wide - center).T)
        weight = np.log(np.mean(labels == label)) - np.log(np.diag(factor)).sum()
        logs.append(weight - 0.5 * (z**2).sum(axis=0))
    hits = np.bincount(np.argmax(logs, axis=0), minlength=len(logs))
    assert (hits.min() < 5) == (HIDDEN in density.tags)


@pytest.mark.parametrize("name", [n for n, each in ZOO.items() if each.region])
def test_regions_hold_the_mass_and_have_the_form_of_a_point(name):
    density = ZOO[name]
    low, high = density.box()
    assert low.shape == high.shape == (density.dimension,)
    assert (low < high).all()
    if density.draw is not None:
        x, _ = density.draw(np.random.default_rng(10), 20_000)
        assert ((low < x) & (x < high)).all(axis=1).mean() > 0.998


@pytest.mark.parametrize("name", [n for n, each in ZOO.items() if each.prior])
def test_prior_times_likelihood_is_the_density(name):
    density = ZOO[name]
    prior, likelihood = density.prior(), density.likelihood()
    for x in prior.sample(jax.random.key(0), (3,)):
        both = prior.log_prob(x) + likelihood(x)
        assert float(both) == pytest.approx(float(density.log_density(x)), rel=1e-4)


def row(**changes):
    default = {
        "method": "sample",
        "name": "a",
        "group": "g",
        "dimension": 2,
        "tags": [],
        "seed": 0,
        "truth": 1.0,
        "answer": 1.0,
        "stderr": 0.01,
        "interval": [0.98, 1.02],
        "warnings": [],
        "seconds": 1.0,
    }
    return default | changes


def test_verdicts():
    off = {"answer": 1.2, "interval": [1.18, 1.22]}
    assert verdict(row()).covered
    assert verdict(row(**off)).silent
    assert not verdict(row(**off, warnings=["a-code"])).silent
    assert not verdict(row(**off, stderr=0.06)).silent  # 3.3 errors
    assert not verdict(row(answer=1.04, interval=[1.039, 1.041], stderr=0.001)).silent
    assert verdict(row(warnings=["a-code"])).false_alarm
    assert verdict(row(truth=None)).silent
    assert not verdict(row(error="ValueError: no")).silent
    assert verdict(row(answer=None)).silent


def test_table_and_summary_count_verdicts():
    rows = [
        row(),
        row(seed=1, warnings=["a-code"]),
        row(name="b", answer=1.2, interval=[1.18, 1.22]),
        row(name="c", dimension=20, tags=["hidden"], error="ValueError: no"),
    ]
    lines = table(rows).splitlines()
    assert len(lines) == 5
    assert "| 2 of 2 | 1 (a-code) | 0 | 1 |" in lines[2]
    assert "| **1** |" in lines[3]
    assert "c (hidden)" in lines[4]
    text = summary(rows)
    assert "silent failures up to 10 dimensions: 1 of 3" in text
    assert "false alarms: 1 of 2" in text
    assert "coverage without a warning: 1 of 2" in text

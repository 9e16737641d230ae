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

from _zoo.densities import (
    CONVERSIONS,
    COUNTS,
    HIDDEN,
    SCHOOLS,
    _sparse_data,
    horseshoe_marginal,
    schools_marginal,
    zoo,
)
from _zoo.drawn import drawn, find
from _zoo.peers import Peer, _problem
from _zoo.run import Sampling, chosen, run_all
from _zoo.table import read, summary, table, verdict

ZOO = zoo()
# Of these two, sets that draws hit often are hard to find; scipy checks them, below.
NOT_BY_DRAWS = ("spikes and slabs 8-d", "funnel 10-d")
DRAWN = [n for n, each in ZOO.items() if each.draw and n not in NOT_BY_DRAWS]
BY_QUADRATURE = [name for name, each in ZOO.items() if each.known_by == "quadrature"]
IMPROPER = [name for name, density in ZOO.items() if density.improper]


BATCH = 8000
"""jax 0.10.2 on CPUs gets `sum((A @ (x - m)) ** 2)` wrong beyond 16384 points."""


def values(density, vectors, x64=True):
    """Log densities at many vectors of free numbers, in either precision."""
    with jax.enable_x64(x64):
        function = jax.jit(jax.vmap(lambda v: density.log_density(density.point(v))))
        size = min(BATCH, len(vectors))
        padded = np.resize(
            vectors, (-(-len(vectors) // size) * size, *vectors.shape[1:])
        )
        logs = [
            function(jnp.asarray(each))
            for each in padded.reshape(-1, size, *vectors.shape[1:])
        ]
        return np.concatenate(logs).astype(np.float64)[: len(vectors)]


def ellipsoid(points):
    """Mean and factor of the covariance of points."""
    covariance = np.cov(points.T).reshape(points.shape[1], -1)
    return points.mean(axis=0), np.linalg.cholesky(covariance)


def in_ball(center, factor, count, rng):
    """Uniform draws from an ellipsoid, and the logarithm of its volume."""
    size = len(center)
    radius = math.sqrt(size + 1)
    ball = rng.normal(size=(count, size))
    ball *= radius / np.linalg.norm(ball, axis=1, keepdims=True)
    ball *= rng.uniform(size=(count, 1)) ** (1 / size)
    log_volume = (
        0.5 * size * math.log(math.pi)
        - scipy.special.gammaln(0.5 * size + 1)
        + size * math.log(radius)
        + np.log(np.diag(factor)).sum()
    )
    return center + ball @ factor.T, log_volume


def pieces(x, labels, rng):
    """Draws of the heaviest and the lightest component; where curved, neighbours."""
    counts = np.bincount(labels)
    enough = np.flatnonzero(counts > 4 * x.shape[1] + 60)
    for label in {enough[counts[enough].argmax()], enough[counts[enough].argmin()]}:
        near = x[labels == label]
        scale = np.subtract(*np.quantile(near, [0.75, 0.25], axis=0))
        centers = [(np.median(near, axis=0), 2 * len(near) // 3)]
        if x.shape[1] <= 12:
            centers.append((near[rng.integers(len(near))], max(len(near) // 20, 200)))
        for center, count in centers:
            away = (((near - center) / scale) ** 2).sum(axis=1)
            yield near[np.argsort(away)[:count]]


@pytest.mark.parametrize("name", DRAWN)
def test_exact_draws_agree_with_log_z(name):
    r"""For any set $E$, $E_p[1_E(x) / \gamma(x)] = |E| / Z$.

    Here $E$ is where the density is above some height in an ellipsoid, both found from
    other draws.
    """
    density, rng = ZOO[name], np.random.default_rng(5)
    x, labels = density.draw(rng, 10_000)
    sets = [ellipsoid(each) for each in pieces(x[:5000], labels[:5000], rng)]
    balls = [in_ball(*each, 4000, rng) for each in sets]
    rounded = x[:500].astype(np.float32)
    every = np.concatenate([x, *(points for points, _ in balls), rounded])
    ends = [10_000 + 4000 * i for i in range(len(balls) + 1)]
    logs, *of_balls, double = np.split(values(density, every), ends)
    assert np.isfinite(logs).all()
    found = []
    for (center, factor), (_, log_volume), heights in zip(
        sets, balls, of_balls, strict=True
    ):
        z = np.linalg.solve(factor, (x - center).T)
        inside = (z**2).sum(axis=0) < len(center) + 1
        if not inside[:5000].any():
            continue
        lowest = np.quantile(logs[:5000][inside[:5000]], 0.3) - 1e-9
        share = (heights >= lowest).mean()
        chosen = inside[5000:] & (logs[5000:] >= lowest)
        if share == 0 or not chosen.any():
            continue
        ratios = np.where(chosen, np.exp(lowest - np.maximum(logs[5000:], lowest)), 0)
        error = math.hypot(
            ratios.std() / ratios.mean() / math.sqrt(5000),
            math.sqrt((1 - share) / share / 4000),
        )
        log_z = log_volume + math.log(share) + lowest - math.log(ratios.mean())
        found.append((log_z, error))
    useful = [(log_z, error) for log_z, error in found if error < 0.25]
    assert useful
    for log_z, error in useful:
        assert abs(log_z - density.log_z) < 4.5 * error + 1e-9
    single = values(density, rounded, x64=False)
    assert np.quantile(np.abs(single - double), 0.95) < 0.02


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


def funnel(x):
    v, rest = x[0], x[1:]
    inner = scipy.stats.norm.logpdf(rest, np.linspace(-1, 2, 9), np.exp(v / 2)).sum()
    return scipy.stats.norm.logpdf(v, -0.3, 3.0) + inner


def spikes(x):
    share, shift = np.linspace(0.25, 0.6, 8), np.linspace(-0.9, 1.3, 8)
    norm = scipy.stats.norm.pdf
    return np.log(share * norm(x, 0, 0.05) + (1 - share) * norm(x, shift, 1.5)).sum()


IN_SCIPY = {
    "funnel 10-d": funnel,
    "spikes and slabs 8-d": spikes,
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


FREE = {"constant 2-d": [1.0, 0.5], "one direction free 3-d": [0.0, 1.0, -1.0]}


@pytest.mark.parametrize("name", FREE)
def test_improper_densities_do_not_change_along_a_line(name):
    x = np.random.default_rng(8).normal(size=(20, ZOO[name].dimension))
    for far in (10.0, 1e4):
        moved = values(ZOO[name], x + far * np.asarray(FREE[name]))
        np.testing.assert_allclose(moved, values(ZOO[name], x), atol=1e-9)


@pytest.mark.parametrize("name", [name for name in IMPROPER if name not in FREE])
def test_improper_densities_have_as_much_mass_in_every_decade(name):
    density, size = ZOO[name], ZOO[name].dimension
    directions = np.random.default_rng(8).normal(size=(2000, size))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    masses = []
    for decade in range(1, 5):
        radii = 10 ** (decade + np.linspace(0, 1, 20))
        if density.support == "positive":  # towards the pole, along the first axis
            x, power = np.abs(np.broadcast_to(directions, (20, *directions.shape))), -1
            x[..., 0] = 1 / radii[:, None]
        else:
            x, power = radii[:, None, None] * directions, size
        logs = values(density, x.reshape(-1, size)).reshape(20, -1)
        masses.append(scipy.special.logsumexp(logs + power * np.log(radii)[:, None]))
    assert (np.diff(masses) > -0.1).all()


def test_eight_schools_are_their_marginal_times_normals():
    density, rng = ZOO["eight schools, centred 10-d"], np.random.default_rng(12)
    effects, errors = SCHOOLS
    x = rng.normal(0, 2, (20, 10))
    mean, log_scale, each = x[:, 0], x[:, 1], x[:, 2:]
    precision = 1 / errors**2 + np.exp(-2 * log_scale)[:, None]
    centre = effects / errors**2 + (mean * np.exp(-2 * log_scale))[:, None]
    rest = scipy.stats.norm.logpdf(each, centre / precision, precision**-0.5)
    expected = schools_marginal(mean, log_scale) + rest.sum(axis=1)
    np.testing.assert_allclose(values(density, x), expected, rtol=1e-9)
    means, scales = np.linspace(-45, 60, 1001), np.linspace(-25, 14, 1001)
    total = scipy.special.logsumexp(schools_marginal(means[:, None], scales))
    area = (means[1] - means[0]) * (scales[1] - scales[0])
    assert total + np.log(area) == pytest.approx(density.log_z, abs=1e-4)


def test_the_horseshoe_is_its_marginal_times_normals():
    density, rng = ZOO["horseshoe regression 17-d"], np.random.default_rng(13)
    X, y = _sparse_data()
    x = rng.normal(0, 1.5, (20, 17))
    z, local, overall = x[:, :8], x[:, 8:16], x[:, 16]
    slope = np.exp(local + overall[:, None])
    precision = 1 + len(y) * slope**2
    rest = scipy.stats.norm.logpdf(z, slope * (y @ X) / precision, precision**-0.5)
    constant, each, last = horseshoe_marginal(local, overall)
    expected = constant + (each + rest).sum(axis=1) + last
    np.testing.assert_allclose(values(density, x), expected, rtol=1e-9)
    ticks = np.linspace(-40, 40, 801)
    total = []
    for overall in ticks:
        _, each, last = horseshoe_marginal(np.repeat(ticks[:, None], 8, 1), overall)
        total.append(scipy.special.logsumexp(each, axis=0).sum() + last)
    found = constant + scipy.special.logsumexp(total) + 9 * np.log(ticks[1] - ticks[0])
    assert found == pytest.approx(density.log_z, abs=1e-4)


def test_drawn_sets_are_new_for_each_seed_and_named_by_it():
    ours, others = drawn(5), drawn(6)
    assert len({each.log_z for each in (*ours, *others) if not each.improper}) > 15
    assert all(each.name.endswith(", drawn 5") for each in ours)
    for density in ours[::4]:
        x, _ = density.draw(np.random.default_rng(0), 5)
        logs = values(density, x)
        assert np.isfinite(logs).all()
        np.testing.assert_array_equal(logs, values(find(density.name), x))
    names = [each.name for each in chosen(["rings", "boxes"], [5, 6])]
    assert len(names) == 4


def test_every_density_has_its_log_z_checked():
    by_marginal = {n for n, each in ZOO.items() if "marginal" in each.known_by}
    assert by_marginal == {"eight schools, centred 10-d", "horseshoe regression 17-d"}
    checked = {*DRAWN, *BY_QUADRATURE, *IN_SCIPY, *IMPROPER, *by_marginal}
    assert checked == set(ZOO)
    assert len(ZOO) >= 44


@pytest.mark.parametrize(
    "name",
    [n for n in DRAWN if ZOO[n].dimension > 10 and ZOO[n].group != "heavy tails"],
)
def test_hidden_modes_are_those_that_a_wide_start_would_miss(name):
    density, rng = ZOO[name], np.random.default_rng(9)
    x, labels = density.draw(rng, 10_000)
    wide = rng.multivariate_normal(x.mean(axis=0), np.cov(x.T), 20_000)
    # The component that is largest at a point is the one that it would climb to.
    logs = []
    for label in range(labels.max() + 1):
        center, factor = ellipsoid(x[labels == label])
        z = np.linalg.solve(factor, (wide - center).T)
        weight = np.log(np.mean(labels == label)) - np.log(np.diag(factor)).sum()
        logs.append(weight - 0.5 * (z**2).sum(axis=0))
    hits = np.bincount(np.argmax(logs, axis=0), minlength=len(logs))
    assert (hits.min() < 2) == (HIDDEN in density.tags)


@pytest.mark.parametrize("name", [n for n, each in ZOO.items() if each.region])
def test_regions_hold_the_mass_and_have_the_form_of_a_point(name):
    density = ZOO[name]
    low, high = density.box()
    assert low.shape == high.shape == (density.dimension,)
    assert (low < high).all()
    if density.draw is not None:
        x, _ = density.draw(np.random.default_rng(10), 4000)
        assert ((low < x) & (x < high)).all(axis=1).mean() > 0.997


@pytest.mark.parametrize(
    "name", [n for n, each in ZOO.items() if each.log_likelihood is not None]
)
def test_prior_times_likelihood_is_the_density(name):
    density = ZOO[name]
    prior, likelihood = density.prior(), density.likelihood()
    x = prior.sample(jax.random.key(0))
    both, whole = jax.jit(
        lambda x: (prior.log_prob(x) + likelihood(x), density.log_density(x))
    )(x)
    assert float(both) == pytest.approx(float(whole), rel=1e-4)


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


class Sevens:
    """A method that always answers 7, except where it fails."""

    method = "sevens"

    def __init__(self):
        self.runs = []

    def can(self, density):
        return density.region is not None

    def __call__(self, density, seed):
        self.runs.append((density.name, seed))
        if density.name == "banana 2-d":
            raise ValueError("no bananas")
        return {"answer": 7.0, "stderr": 0.1, "interval": [6.8, 7.2], "warnings": []}


def test_runs_are_appended_resumed_and_survive_errors(tmp_path, capsys):
    out, method = tmp_path / "rows.jsonl", Sevens()
    densities = [ZOO[n] for n in ("ring 2-d", "banana 2-d", "constant 2-d")]
    run_all(method, densities, [0, 1], out, workers=1)
    whole = out.read_text()
    assert [row["name"] for row in read(out)] == ["ring 2-d"] * 2 + ["banana 2-d"] * 2
    assert read(out)[0]["truth"] == 2.2
    assert read(out)[2]["error"] == "ValueError: no bananas"
    assert "constant 2-d: left out" in capsys.readouterr().out
    lines = whole.splitlines(keepends=True)
    out.write_text("".join(lines[:2]) + lines[2][:30])  # ended while it wrote
    method.runs.clear()
    run_all(method, densities, [0, 1], out, workers=1)
    assert method.runs == [("banana 2-d", 0), ("banana 2-d", 1)]
    assert len(read(out)) == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["needle inside 2-d", "six normals 8-d, draw 33", "constant 2-d"]
)
def test_what_once_was_wrong_in_silence_is_not(name):
    """By 0.22 and 0.51 with errors of 0.002; the needle is now found, and covered."""
    density = ZOO[name]
    found = row(truth=None if density.improper else density.log_z)
    judged = verdict(found | Sampling(None, None)(density, 201))
    assert not judged.silent
    if name == "needle inside 2-d":
        assert judged.covered


@pytest.mark.parametrize(
    "name", ["unlike Dirichlet 3-d", "four supports by name 5-d", "three boxes 4-d"]
)
def test_peers_see_the_density_over_the_box(name):
    density, rng = ZOO[name], np.random.default_rng(11)
    calls = [0]
    with jax.enable_x64(True):
        problem = _problem(density, None, calls)
        x = problem.low + problem.width * rng.uniform(size=(10_000, problem.size))
        logs = problem.likelihood(x)
    assert calls == [10_000]
    # The mean likelihood under the uniform prior is the evidence.
    ratios = np.exp(logs - density.log_z)
    error = ratios.std() / math.sqrt(len(x))
    assert ratios.mean() == pytest.approx(1, abs=5 * error)
    assert error < 0.7


def test_a_peer_that_is_not_there_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dynesty", None)
    with pytest.raises(SystemExit, match="pip install dynesty"):
        Peer("dynesty", None)

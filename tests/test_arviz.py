"""Export to ArviZ: resampled draws that claim no more than the weights hold."""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import annealax as ax
from annealax import InvalidInputError, _arviz

arviz = _arviz.import_arviz()


def weighted(ess, count=2000, seed=0):
    """Draws of a standard normal pair with log-normal weights of this ESS."""
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(count, 2)), rng.normal(size=count)
    low, high = 0.0, 50.0
    for _ in range(60):
        scale = (low + high) / 2
        weights = np.exp(scale * (z - z.max()))
        enough = weights.sum() ** 2 / (weights**2).sum() > ess
        low, high = (scale, high) if enough else (low, scale)
    return x, scale * z


@pytest.mark.parametrize("ess", [10, 100, 1000])
def test_a_low_ess_does_not_pretend_to_be_many_draws(ess):
    x, log_weights = weighted(ess + 0.5)
    data = _arviz.to_arviz(x, log_weights)
    assert data.posterior.sizes == {"chain": 1, "draw": ess, "x_dim_0": 2}
    assert data.posterior.attrs["ess"] == pytest.approx(ess + 0.5, rel=1e-3)
    assert data.posterior.attrs["num_particles"] == 2000
    assert arviz.ess(data).x.max() < 1.3 * ess


def test_copies_of_a_point_count_once():
    points = np.random.default_rng(0).normal(size=(10, 3))
    x = np.repeat(points, 200, axis=0)  # what resampling leaves, equal weights
    data = _arviz.to_arviz(x, np.zeros(2000))
    assert data.posterior.attrs["ess"] == pytest.approx(10)
    assert data.posterior.sizes["draw"] == 10
    np.testing.assert_array_equal(
        np.sort(data.posterior.x.values[0], axis=0), np.sort(points, axis=0)
    )


def test_relatives_that_stayed_together_count_once():
    """Resampled at the end with few survivors: equal weights, but clusters."""
    rng = np.random.default_rng(0)
    roots = np.repeat(np.arange(10), 200)
    x = rng.normal(size=(10, 3))[roots] + 0.01 * rng.normal(size=(2000, 3))
    data = _arviz.to_arviz(x, np.zeros(2000), roots=roots)
    assert data.posterior.attrs["ess"] == pytest.approx(2000)
    assert 7 <= data.posterior.sizes["draw"] <= 13


def test_relatives_that_the_kernel_mixed_count_in_full():
    rng = np.random.default_rng(0)
    counts = []
    for _ in range(20):
        x, roots = rng.normal(size=(2000, 20)), rng.integers(0, 25, 2000)
        data = _arviz.to_arviz(x, np.zeros(2000), roots=roots)
        counts.append(data.posterior.sizes["draw"])
    assert 1500 < np.mean(counts) <= 2000


def test_without_resampling_roots_change_little():
    x, log_weights = weighted(200)
    plain = _arviz.to_arviz(x, log_weights)
    rooted = _arviz.to_arviz(x, log_weights, roots=np.arange(2000))
    ratio = rooted.posterior.sizes["draw"] / plain.posterior.sizes["draw"]
    assert 0.7 < ratio <= 1


def test_one_root_is_worth_one_draw():
    x = np.random.default_rng(0).normal(size=(50, 2))
    data = _arviz.to_arviz(x, np.zeros(50), roots=np.full(50, 7))
    assert data.posterior.sizes["draw"] == 1


def test_more_draws_than_the_ess_are_a_warning_and_copies_stand_together():
    x, log_weights = weighted(10)
    with pytest.warns(UserWarning, match="2000 draws .* worth 10.0 independent"):
        data = _arviz.to_arviz(x, log_weights, num_draws=2000)
    draws = data.posterior.x.values[0, :, 0]
    changes = np.count_nonzero(np.diff(draws)) + 1
    assert changes == len(np.unique(draws)) < 600
    assert arviz.ess(data).x.max() < 200


def test_equal_weights_give_every_particle_once_in_another_order():
    x = np.arange(100.0).reshape(100, 1)
    data = _arviz.to_arviz(x, np.full(100, -3.0))
    draws = data.posterior.x.values.ravel()
    np.testing.assert_array_equal(np.sort(draws), x.ravel())
    assert abs(np.corrcoef(draws, x.ravel())[0, 1]) < 0.3


def test_resampling_follows_the_weights():
    weights = np.array([0.0, 0.5, 0.2, 0.3, 0.0])
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights)
    counts = np.zeros(5)
    for seed in range(150):
        data = _arviz.to_arviz(np.arange(5.0), log_weights, num_draws=2, seed=seed)
        counts += np.bincount(data.posterior.x.values.astype(int).ravel(), minlength=5)
    assert counts[0] == counts[4] == 0
    np.testing.assert_allclose(counts / 300, weights, atol=0.08)


def test_same_seed_same_draws():
    x, log_weights = weighted(50)
    first, again, other = (
        _arviz.to_arviz(x, log_weights, seed=seed).posterior.x.values
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_file_keeps_weights_and_log_z(tmp_path):
    x, log_weights = weighted(20)
    values = {"scope/rate": x[:, 0], "matrix": np.stack([x, x], axis=1)}
    data = _arviz.to_arviz(
        values, log_weights, log_normalizer=-3.5, log_normalizer_stderr=0.25
    )
    _arviz.to_netcdf(tmp_path / "a.nc", data)
    assert [path.name for path in tmp_path.iterdir()] == ["a.nc"]
    read = arviz.from_netcdf(tmp_path / "a.nc")
    for group in ("posterior", "weighted_posterior", "importance_sampling"):
        assert group in read
    assert read.posterior["matrix"].shape == (1, 20, 2, 2)
    assert read.posterior["scope.rate"].shape == (1, 20)
    np.testing.assert_array_equal(read.weighted_posterior["scope.rate"], x[:, 0])
    group = read.importance_sampling
    assert float(group.log_normalizer) == -3.5
    assert float(group.log_normalizer_stderr) == 0.25
    np.testing.assert_allclose(np.exp(group.log_weight), group.weight)
    assert float(group.weight.sum()) == pytest.approx(1)
    estimate = float((group.weight * read.weighted_posterior["scope.rate"]).sum())
    weights = np.exp(log_weights - log_weights.max())
    assert estimate == pytest.approx(np.average(x[:, 0], weights=weights))
    assert read.posterior.attrs["log_normalizer"] == -3.5
    assert len(arviz.summary(read)) == 5
    read.close()


def test_a_result_exports_itself():
    particles = ax.Particles.uniform(jr.normal(jr.key(0), (256, 2)), jnp.zeros(256))
    particles = dataclasses.replace(
        particles,
        log_weights=jax.nn.log_softmax(jnp.linspace(0.0, 2.0, 256)),
        log_normalizer=jnp.asarray(1.25),
        roots=jnp.arange(256) // 2,
    )
    steps = ax.StepInfo(*(jnp.ones(2) for _ in ax.StepInfo._fields))
    result = ax.Result(particles, steps)
    data = result.to_arviz(names=["a", "b"])
    assert set(data.posterior.data_vars) == {"a", "b"}
    attrs = data.posterior.attrs
    assert attrs["log_normalizer"] == pytest.approx(float(result.log_normalizer))
    assert attrs["ess"] == pytest.approx(float(result.ess), rel=1e-4)
    assert 0.6 * attrs["ess"] < attrs["effective_draws"] <= attrs["ess"]
    assert data.posterior.sizes["draw"] == int(attrs["effective_draws"])
    assert result.to_arviz().posterior.x.shape[2:] == (2,)


def replicates(log_z, shift, count=600, seed=0):
    """Normal draws of replicates, with these log Z, each with its mean moved."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(len(log_z), count)) + np.asarray(shift)[:, None]
    log_weights = np.repeat(np.asarray(log_z, float), count)
    return {"a": x.ravel()}, log_weights - log_weights.max()


def test_replicates_become_chains_that_keep_the_weights_of_the_answer():
    """Means go with Z: equal weights for all would be off by 20 standard errors."""
    log_z = np.linspace(-1.5, 1.5, 8)
    values, log_weights = replicates(log_z, shift=0.5 * log_z)
    data = _arviz.to_arviz(values, log_weights, num_replicates=8)
    draws = data.posterior.a
    assert draws.shape == (8, int(data.posterior.attrs["effective_draws"]) // 8)
    wanted = np.average(values["a"], weights=np.exp(log_weights))
    assert float(draws.mean()) == pytest.approx(wanted, abs=0.03)
    assert abs(values["a"].mean() - wanted) > 0.4
    shares = np.exp(log_z) / np.exp(log_z).sum()
    found = np.bincount(data.sample_stats.replicate.values.ravel(), minlength=8)
    np.testing.assert_allclose(found / found.sum(), shares, atol=0.003)


def test_chains_of_equal_replicates_are_the_replicates():
    values, log_weights = replicates(np.zeros(6), shift=np.zeros(6))
    data = _arviz.to_arviz(values, log_weights, num_replicates=6)
    np.testing.assert_array_equal(
        data.sample_stats.replicate.values, np.repeat(np.arange(6)[:, None], 600, 1)
    )
    np.testing.assert_array_equal(
        np.sort(data.posterior.a.values, axis=1),
        np.sort(values["a"].reshape(6, 600), axis=1),
    )


def test_rhat_says_whether_replicates_agree():
    """Split R-hat of 8 chains of 600 independent draws is below 1.01 nearly always."""
    for shift, low, high in ((0.0, 0.99, 1.01), (0.5, 1.05, 1.6)):
        shifts = shift * np.tile([1.0, -1.0], 4)
        values, log_weights = replicates(np.zeros(8), shift=shifts)
        data = _arviz.to_arviz(values, log_weights, num_replicates=8)
        assert low < float(arviz.rhat(data).a) < high


def test_few_draws_share_chains():
    values, log_weights = replicates(np.zeros(12), shift=np.zeros(12), count=20)
    data = _arviz.to_arviz(values, log_weights, num_replicates=12)
    assert data.posterior.sizes == {"chain": 9, "draw": 26}
    one = _arviz.to_arviz(values, log_weights, num_replicates=12, num_draws=30)
    assert one.posterior.sizes == {"chain": 1, "draw": 30}
    assert len(np.unique(one.sample_stats.replicate)) > 8


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40).filter(sum))
def test_an_alias_table_keeps_all_shares(shares):
    kept, partner = _arviz.alias_table(np.array(shares))
    count = len(shares)
    assert np.all((kept >= 0) & (kept <= 1))
    found = kept + np.bincount(partner, 1 - kept, count)
    np.testing.assert_allclose(found / count, shares / np.sum(shares), atol=1e-9)


@pytest.mark.parametrize(
    ("values", "log_weights", "options", "words"),
    [
        (np.zeros((3, 2)), np.zeros(4), {}, "shape .3, 2., but there are 4 weights"),
        (np.zeros(2), np.full(2, -np.inf), {}, "must be finite, got -inf"),
        (np.zeros(2), np.array([0, np.nan]), {}, "must be finite, got nan"),
        (np.zeros(2), np.zeros((2, 1)), {}, "one axis"),
        (np.zeros(2), np.zeros(2), {"num_draws": 0}, "at least 1, got 0"),
        (np.zeros((2, 3)), np.zeros(2), {"names": ["a", "b"]}, r"\['a', 'b'\] for"),
        ({"a": np.zeros(2)}, np.zeros(2), {"names": ["b"]}, "leave names out"),
        ({}, np.zeros(2), {}, "at least one array"),
    ],
)
def test_bad_input(untyped, values, log_weights, options, words):
    with pytest.raises(InvalidInputError, match=words):
        _arviz.to_arviz(values, log_weights, **options)


def test_without_arviz_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(_arviz.MissingExtraError, match=r"pip install 'annealax\[arviz"):
        _arviz.to_arviz(np.zeros(2), np.zeros(2))

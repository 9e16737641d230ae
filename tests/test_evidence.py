"""Models compared by evidence: exact values, errors, priors to a power."""

import dataclasses

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax.distributions import Normal
from scipy import stats

import annealax as ax
from annealax import InvalidInputError

Y = np.array([0.8, 1.9, 0.3, 1.4])
TAU = 1.5
"""Data with unit noise about a mean that has a normal prior of this width."""


def exact_log_z(width):
    """Of the data, whose marginal is normal."""
    covariance = np.eye(len(Y)) + width**2
    return stats.multivariate_normal.logpdf(Y, np.zeros(len(Y)), covariance)


def log_likelihood(x):
    return jnp.sum(-0.5 * (Y - x) ** 2) - 0.5 * len(Y) * np.log(2 * np.pi)


@pytest.fixture(scope="module")
def conjugate():
    prior = Normal(jnp.zeros(()), TAU)
    return ax.sample(log_likelihood, prior=prior, seed=1, num_particles=1000)


def test_two_numbers_by_hand():
    """With log Z of 0 and 1 the odds are e; 5e-3 is twice the error of simulation."""
    found = ax.compare_evidence({"a": (0.0, 0.1), "b": (1.0, 0.1)})
    odds = np.e / (1 + np.e)
    assert found.best == "b"
    assert found.probabilities["b"] == pytest.approx(odds)
    spread = odds * (1 - odds) * np.sqrt(0.02)  # small: the delta method is right
    assert found.probability_stderrs["b"] == pytest.approx(spread, rel=0.05)
    factor = found.log_bayes_factor("b", "a")
    np.testing.assert_allclose(factor[:2], [1.0, np.sqrt(0.02)])
    half = stats.norm.ppf(0.975) * np.sqrt(0.02)
    np.testing.assert_allclose(factor[2:], [1 - half, 1 + half], atol=5e-3)
    assert found.bayes_factor("a", "b").value == pytest.approx(np.exp(-1))
    np.testing.assert_allclose(found.log_bayes_factors, [[0, -1], [1, 0]])
    assert found.certainty > 0.999
    assert found.warnings() == []


def test_prior_probabilities_count():
    pairs = {"a": (0.0, 0.0), "b": (1.0, 0.0), "c": (-2.0, 0.0)}
    priors = {"a": 6, "b": 3, "c": 1}
    found = ax.compare_evidence(pairs, priors=priors).probabilities
    wanted = np.array([6, 3, 1]) * np.exp([0.0, 1.0, -2.0])
    np.testing.assert_allclose(list(found.values()), wanted / wanted.sum())
    never = ax.compare_evidence(pairs, priors={"a": 1, "b": 0, "c": 1})
    assert never.probabilities["b"] == 0
    assert never.probability_intervals["b"] == (0, 0)


def test_large_errors_stay_within_zero_and_one():
    """An error of 4 nats: probabilities are anything, and it says so."""
    found = ax.compare_evidence({"a": (0.0, 4.0), "b": (1.0, 0.0)})
    low, high = found.probability_intervals["a"]
    bounds = 1 / (1 + np.exp(1 - 4 * stats.norm.ppf([0.025, 0.975])))
    np.testing.assert_allclose([low, high], bounds, rtol=0.15, atol=1e-3)
    exact = stats.norm.cdf(1 / 4)
    assert found.certainty == pytest.approx(exact, abs=0.01)
    assert [doubt.code for doubt in found.warnings()] == ["large-error"]
    assert "open" in found.headline()
    far = ax.compare_evidence({"a": (0.0, 0.1), "b": (5000.0, 0.1)})
    assert far.bayes_factor("b", "a").value == np.inf
    assert far.probabilities == {"a": 0.0, "b": 1.0}
    assert "5000.00" in far.summary()


def test_few_replicates_make_wide_intervals(conjugate):
    """Student's t with one degree of freedom, as `log_normalizer_interval` has it."""
    few = dataclasses.replace(
        conjugate,
        replicate_log_normalizers=conjugate.replicate_log_normalizers[:2],
        replicate_stderrs=conjugate.replicate_stderrs[:2],
    )
    found = ax.compare_evidence({"a": few, "b": (0.0, 0.0)}).log_bayes_factor("a", "b")
    low, high = few.log_normalizer_interval()
    assert found.low == pytest.approx(low, abs=0.15 * (high - low))
    assert found.high == pytest.approx(high, abs=0.15 * (high - low))


def test_a_conjugate_model_against_its_closed_form(conjugate):
    """The normalised prior to a power is normal, of width tau / sqrt(alpha).

    Five standard errors, and errors small enough to tell from a forgotten constant.
    """
    found = ax.compare_evidence(
        {"wide": conjugate, "point": (exact_log_z(0.0), 0.0)}, powers=(0.8, 1.25, 2.0)
    )
    exact = exact_log_z(TAU)
    factor = found.log_bayes_factor("wide", "point")
    assert abs(factor.value - (exact - exact_log_z(0.0))) < 5 * factor.stderr < 0.05
    assert set(found.sensitivities) == {"wide"}
    known = found.sensitivities["wide"]
    assert [each.power for each in known.scaled] == [0.8, 1.25, 2.0]
    for each in known.scaled:
        change = exact_log_z(TAU / np.sqrt(each.power)) - exact
        assert abs(each.change - change) < 5 * each.stderr < 0.05
        constant = 0.5 * (1 - each.power) * np.log(2 * np.pi * TAU**2)
        assert abs(constant - 0.5 * np.log(each.power)) > 10 * each.stderr
    step = 1e-4
    slope = exact_log_z(TAU * np.exp(-step / 2)) - exact_log_z(TAU * np.exp(step / 2))
    assert abs(known.slope - slope / (2 * step)) < 5 * known.slope_stderr < 0.1
    weaker = found.probabilities_with({"wide": 0.8})
    logs = exact_log_z(TAU / np.sqrt(0.8)) - exact_log_z(0.0)
    assert weaker["wide"] == pytest.approx(1 / (1 + np.exp(-logs)), abs=0.02)
    with pytest.raises(InvalidInputError, match="power 3"):
        found.probabilities_with({"wide": 3})
    with pytest.raises(InvalidInputError, match="not known"):
        found.probabilities_with({"point": 0.8})


def test_a_power_that_has_no_integral_gives_no_value(conjugate):
    """A normal to the power 0.1 is wide: draws from the prior say nothing about it."""
    found = ax.compare_evidence(
        {"wide": conjugate, "point": (-5.0, 0.0)}, powers=(0.1,)
    )
    (scaled,) = found.sensitivities["wide"].scaled
    assert scaled.pareto_k > 0.7
    assert np.isnan(scaled.change)
    assert "not known" in found.summary()


def test_warnings_are_carried_along(conjugate):
    doubt = ax.Doubt("heavy-tail", "a tail that is <heavy> & long")
    poor = dataclasses.replace(conjugate, messages=(doubt,))
    found = ax.compare_evidence({"a<b>": poor, "c": conjugate})
    (carried,) = found.warnings()
    assert (carried.code, str(carried)) == ("heavy-tail", f"a<b>: {doubt}")
    assert str(doubt) in found.summary()
    page = found._repr_html_()
    assert "a&lt;b&gt;: a tail that is &lt;heavy&gt; &amp; long" in page
    assert "<b>" not in page


def test_what_another_start_found_counts(conjugate):
    search = dataclasses.replace(conjugate.search, most_mass=("wide", 10.0, 0.1))
    torn = dataclasses.replace(conjugate, search=search)
    found = ax.compare_evidence({"a": torn, "b": (0.0, 0.1)})
    low, high = found.log_bayes_factor("a", "b")[2:]
    assert low < conjugate.log_normalizer < 0
    assert high > 9.5
    assert found.certainty == pytest.approx(0.5, abs=0.02)


def test_runs_of_a_sampler_and_lists_of_them():
    path = ax.GeometricPath((1,), lambda x: -0.5 * jnp.sum(x**2 / 4), betas=3)
    sampler = ax.Sampler(path, ax.kernels.RandomWalk(1.0), num_particles=400)
    runs = [sampler.run(jr.key(seed)) for seed in range(4)]
    found = ax.compare_evidence({"one": runs[0], "all": runs, "no": (0.0, 1e-3)})
    exact = np.log(2 * np.sqrt(2 * np.pi))
    for name in ("one", "all"):
        factor = found.log_bayes_factor(name, "no")
        assert abs(factor.value - exact) < 5 * factor.stderr < 0.6
    one, many = found.log_normalizer_stderrs[:2]
    assert many < one


def test_it_can_be_read_and_drawn(conjugate, tmp_path):
    found = ax.compare_evidence(
        {"a model with a long name": conjugate, "b": (-6.0, 0.3), "c": (-30.0, 0.1)}
    )
    text = found.summary()
    assert text.startswith("a model with a long name is the most probable")
    assert max(map(len, text.splitlines())) < 80
    assert len(repr(found)) < 200
    assert "<svg" in found._repr_html_()
    found.plot().savefig(tmp_path / "evidence.png")
    numbers = found.as_json()
    assert numbers["best"] == "a model with a long name"
    assert set(numbers["models"]["b"]) >= {"probability", "log_normalizer"}


@pytest.mark.parametrize(
    ("results", "priors", "message"),
    [
        ([(0.0, 1.0)], None, "a dict of at least two"),
        ({"a": (0.0, 1.0)}, None, "dict with 1"),
        ({"a": (0.0, 1.0), "b": 3.0}, None, "result of b"),
        ({"a": (0.0, 1.0), "b": (np.nan, 1.0)}, None, "log Z of b must be finite"),
        ({"a": (0.0, -1.0), "b": (0.0, 1.0)}, None, "error of log Z of a"),
        ({"a": (0.0, 1.0), "b": (0.0, 1.0)}, {"a": 1.0}, "a number for each"),
        ({"a": (0.0, 1.0), "b": (0.0, 1.0)}, {"a": 1, "b": -1}, "not negative"),
        ({"a": (0.0, 1.0), "b": (0.0, 1.0)}, {"a": 0, "b": 0}, "not all zero"),
    ],
)
def test_wrong_input(untyped, results, priors, message):
    with pytest.raises(InvalidInputError, match=message):
        ax.compare_evidence(results, priors=priors)

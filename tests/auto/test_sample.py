"""The automatic mode from end to end, on targets with known answers."""

import dataclasses
import shutil

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy import stats

import annealax as ax
from annealax import InvalidInputError, SamplingError
from annealax._work.budget import Budget
from annealax.auto import ModeTable
from annealax.auto.aim import Aim
from annealax.auto.density import CountedDensity
from annealax.auto.doubts import doubts
from annealax.auto.modes import Ascents
from annealax.auto.places import Everywhere
from annealax.auto.sample import Ledger
from annealax.auto.tuning import Measured


def _log_density(p):
    """tau is Gamma(2), mu is N(1, 4)."""
    return -p["tau"] - 0.5 * (p["mu"] - 1) ** 2 / 4 + jnp.log(p["tau"])


def _sample(**arguments):
    return ax.sample(
        _log_density,
        {"mu": (), "tau": ()},
        support={"tau": "positive"},
        seed=3,
        num_particles=300,
        **arguments,
    )


@pytest.fixture(scope="module")
def model():
    return _sample()


def test_the_newcomers_script():
    def log_density(x):
        return -0.5 * jnp.sum(((x - 3.0) / 0.5) ** 2)

    result = ax.sample(log_density, shape=(2,), seed=0)
    exact = np.log(2 * np.pi * 0.25)
    error = result.log_normalizer - exact
    assert abs(error) < 5 * result.log_normalizer_stderr < 0.05
    np.testing.assert_allclose(result.mean(), 3.0, atol=0.05)
    np.testing.assert_allclose(result.std(), 0.5, atol=0.03)
    assert result.warnings() == []


def test_named_parameters_in_their_own_space(model):
    """tau is Gamma(2): mean 2, variance 2; mu is N(1, 4). Five standard errors."""
    exact = np.log(np.sqrt(2 * np.pi) * 2)
    assert abs(model.log_normalizer - exact) < 5 * model.log_normalizer_stderr
    assert set(model.x) == {"mu", "tau"}
    assert np.all(np.asarray(model.x["tau"]) > 0)
    mean, error = model.mean(), model.mean_stderr()
    assert abs(mean["tau"] - 2) < 5 * error["tau"] < 0.5
    assert abs(mean["mu"] - 1) < 5 * error["mu"] < 0.5
    np.testing.assert_allclose(model.std()["tau"], np.sqrt(2), rtol=0.1)
    square = model.expectation(lambda p: p["tau"] ** 2)
    np.testing.assert_allclose(square, 6, rtol=0.15)


def test_the_answer_can_be_read_and_drawn(model, tmp_path):
    text = model.summary()
    assert "log Z" in text
    assert "tau" in text
    assert len(text.splitlines()) < 45
    model.plot().savefig(tmp_path / "answer.png")
    draws = model.draws(jr.key(0), 11)
    assert draws["mu"].shape == (11,)


def test_an_interrupted_call_goes_on_to_the_same_answer(model, tmp_path):
    """Also: the same seed gives the same answer."""
    whole = _sample(checkpoint=tmp_path)
    assert whole.log_normalizer == model.log_normalizer
    for index in range(5, whole.num_replicates + 1):
        shutil.rmtree(tmp_path / f"replicate-{index}")
    resumed = _sample(checkpoint=tmp_path)
    assert resumed.log_normalizer == whole.log_normalizer
    np.testing.assert_array_equal(resumed.vectors, whole.vectors)
    np.testing.assert_array_equal(resumed.log_weights, whole.log_weights)
    with pytest.raises(InvalidInputError, match="arguments"):
        _sample(checkpoint=tmp_path, num_replicates=4)


def test_arviz_gets_a_chain_for_each_replicate(model):
    """And no more draws than the weights are worth; means within five errors."""
    data = model.to_arviz()
    assert list(data.posterior.data_vars) == ["mu", "tau"]
    sizes = data.posterior.sizes
    assert sizes["chain"] == model.num_replicates
    assert sizes["chain"] * sizes["draw"] <= model.ess + 1
    assert np.isclose(data.posterior.attrs["log_normalizer"], model.log_normalizer)
    for name, value in model.mean().items():
        found = float(data.posterior[name].mean())
        assert abs(found - value) < 5 * model.mean_stderr()[name]
    tau, mu = (data.posterior[name].values for name in ("tau", "mu"))
    exact = _log_density({"tau": tau, "mu": mu})
    np.testing.assert_allclose(data.sample_stats.lp, exact, rtol=1e-4, atol=1e-5)


def test_draws_by_name_and_as_a_data_frame(model):
    draws = model.draws()
    assert list(draws) == ["mu", "tau"]
    assert draws["tau"].shape == (int(model.ess),)
    np.testing.assert_array_equal(model.draws(7)["mu"], model.draws(num_draws=7)["mu"])
    with pytest.raises(InvalidInputError, match=r"draws\(3\)"):
        model.draws(3, 4)
    with pytest.raises(InvalidInputError, match="num_draws"):
        model.draws(num_draws=0)
    frame = model.to_dataframe()
    assert list(frame.columns) == ["mu", "tau"]
    assert frame.index.names == ["chain", "draw"]
    assert frame.attrs["log_normalizer"] == model.log_normalizer
    for name, value in model.mean().items():
        assert abs(frame[name].mean() - value) < 5 * model.mean_stderr()[name]
    quantiles = model.quantiles()["tau"]  # of Gamma(2)
    np.testing.assert_allclose(quantiles, [0.355, 1.678, 4.744], rtol=0.05)


def test_an_answer_is_a_line_and_a_small_page(model):
    assert len(repr(model)) < 160
    assert "nothing to doubt" in repr(model)
    value = float(model.summary().removeprefix("log Z = ").split()[0])
    assert abs(value - model.log_normalizer) < 0.1 * model.log_normalizer_stderr
    assert max(map(len, model.summary().splitlines())) < 80
    page = model._repr_html_()
    assert page.count("<svg") == 2
    for words in ("nothing to doubt", "mu", "tau", "95%", "Dotted", "second opinion"):
        assert words in page
    poor = dataclasses.replace(model, messages=(ax.Doubt("few-draws", "a <b> & c"),))
    assert "a &lt;b&gt; &amp; c." in poor._repr_html_()
    assert "add particles" in poor._repr_html_()
    assert "1 reason to doubt it" in repr(poor)
    assert model.plot()._repr_png_()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_a_neck_that_no_normal_reaches():
    """Noise that may vanish: 3 % of the mass is where its scale is below exp(-4)."""
    data = np.array([0.3, -1.2, 0.8, 2.1, -0.4, 1.7])

    def log_density(v):
        return (
            norm.logpdf(v[0], 0, 2)
            + jnp.sum(norm.logpdf(v[1:]))
            + jnp.sum(norm.logpdf(data, v[1:], jnp.exp(v[0])))
        )

    result = ax.sample(log_density, 7, seed=3)
    assert result.choices["start"] == "normal that follows coordinates 0"
    grid = np.linspace(-16, 12, 28_001)
    spread = np.sqrt(1 + np.exp(2 * grid))[:, None]
    exact = stats.norm.logpdf(grid, 0, 2)
    exact += stats.norm.logpdf(data, 0, spread).sum(axis=1)
    z = np.sum(np.exp(exact)) * 1e-3
    error = result.log_normalizer - np.log(z)
    assert abs(error) < 5 * result.log_normalizer_stderr < 0.05
    share = np.sum(np.exp(exact[grid < -4])) * 1e-3 / z
    found = result.expectation(lambda v: v[0] < -4)
    np.testing.assert_allclose(found, share, rtol=0.25)


@pytest.mark.slow
def test_many_rulers():
    """A horseshoe: the scale of every second coordinate is another one's."""

    def log_density(x):
        scales, others = x[:6], x[6:]
        return jnp.sum(norm.logpdf(scales, -0.5, 1.2)) + jnp.sum(
            norm.logpdf(others, 1.0, jnp.exp(scales))
        )

    result = ax.sample(log_density, 12, seed=1)
    assert "scales that depend" in result.choices["start"]
    assert abs(result.log_normalizer) < 5 * result.log_normalizer_stderr < 0.05


@pytest.mark.slow
def test_flows_that_are_asked_for_are_used(tmp_path):
    """Also: a call that goes on with another trains the same flows again."""
    arguments = {"flow": "diagonal affine", "num_replicates": 4, "num_particles": 200}
    target = ax.targets.Normal(np.array([2.0, -1.0]), log_normalizer=0.5)
    result = ax.sample(target, seed=0, checkpoint=tmp_path, **arguments)
    assert "diagonal affine, as asked" in result.choices["flows"]
    assert abs(result.log_normalizer - 0.5) < 5 * result.log_normalizer_stderr
    shutil.rmtree(tmp_path / "replicate-3")
    again = ax.sample(target, seed=0, checkpoint=tmp_path, **arguments)
    np.testing.assert_array_equal(again.vectors, result.vectors)


@pytest.mark.slow
def test_modes_that_a_standard_normal_would_miss():
    target = ax.targets.GaussianMixture(
        np.array([[-25.0, 10.0], [20.0, 30.0], [5.0, -30.0]]), weights=[1, 2, 3]
    )
    result = ax.sample(target, seed=0)
    assert abs(result.log_normalizer) < 0.1
    np.testing.assert_allclose(result.modes.weights, [1 / 2, 1 / 3, 1 / 6], atol=0.05)


def test_a_narrow_mode_that_no_ascent_finds():
    """All ascents end in the broad mode; particles of a wide start settle in both."""

    def log_density(x):
        broad = jnp.sum(norm.logpdf(x, 0.0, 2.0)) + np.log(0.6)
        narrow = jnp.sum(norm.logpdf(x, 6.0, 0.5)) + np.log(0.4)
        return jnp.logaddexp(broad, narrow)

    ascents = Ascents(CountedDensity(log_density, 5))
    assert len(ascents.from_places(jr.key(0), Everywhere(5)).points) == 1
    result = ax.sample(log_density, 5, seed=0)
    low, high = result.log_normalizer_interval(0.9999)
    assert low < 0 < high
    share = np.asarray(result.weights) @ (np.asarray(result.vectors).mean(axis=1) > 4)
    assert share == pytest.approx(0.4, abs=0.02)


def test_zero_density_nearly_everywhere_is_an_error():
    with pytest.raises(SamplingError, match="no pass reached"):
        ax.sample(lambda x: jnp.sum(x) * jnp.nan, (2,), num_particles=100)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": (2,), "seed": -1}, "seed"),
        ({"shape": (2,), "flow": "magic"}, "unknown flow 'magic'"),
        ({"shape": (2,), "num_replicates": 1}, "num_replicates"),
        ({"shape": (2,), "budget": "soon"}, "a budget is a time"),
        ({"shape": (2,), "budget": -3}, "positive"),
        ({}, "shape is needed"),
    ],
)
def test_wrong_arguments(arguments, message, untyped):
    with pytest.raises(InvalidInputError, match=message):
        ax.sample(lambda x: -jnp.sum(x**2), **arguments)


def test_an_error_of_the_function_says_what_is_missing():
    with pytest.raises(InvalidInputError, match="asks for the parameter 'b', but"):
        ax.sample(lambda p: -(p["a"] ** 2) - p["b"] ** 2, {"a": ()})

    def strict(x):
        if x.shape != (3,):  # as a bare assert does; pytest gives those words
            raise AssertionError
        return -jnp.sum(x**2)

    with pytest.raises(InvalidInputError, match="AssertionError: no message; look"):
        ax.sample(strict, (2,))


def test_doubts_are_put_in_words(model):
    shares = np.array([[1, 0]] * 9 + [[0.5, 0.5]])
    modes = ModeTable(np.zeros((2, 2)), shares, np.array([0.9, 0.1]))
    log_z = np.array([0.0] * 9 + [3.0])
    weights = np.r_[np.full(50, 1.0), np.full(2950, 1e-30)]
    poor = dataclasses.replace(
        model,
        vectors=jnp.zeros((3000, 2)),
        log_weights=jnp.asarray(np.log(weights / weights.sum())),
        replicate_log_normalizers=log_z,
        replicate_stderrs=np.full(10, 0.01),
        modes=modes,
        search=dataclasses.replace(
            model.search, num_unseen=2.6, most_mass=("a wide normal", 40.0, 0.01)
        ),
        pareto_k=0.9,
    )
    np.testing.assert_allclose(poor.ess, 50, rtol=1e-5)
    codes = {doubt.code for doubt in doubts(poor, 0.3, Aim())}
    assert codes == {
        "replicates-disagree",
        "large-error",
        "few-draws",
        "not-as-precise",
        "heavy-tail",
        "uncertain-modes",
        "unseen-modes",
        "not-integrable",
        "second-opinion",
    }
    low, high = poor.log_normalizer_interval()
    assert low < poor.log_normalizer < 40.0 < high
    large = dataclasses.replace(
        poor, replicate_log_normalizers=np.full(10, 3e6), pareto_k=0.0
    )
    (found,) = (doubt for doubt in doubts(large) if doubt.code == "rounding")
    assert "rounded to 0.36" in found


def test_the_interval_is_students(model):
    low, high = model.log_normalizer_interval()
    stderr, freedom = model.log_normalizer_stderr, model.num_replicates - 1
    np.testing.assert_allclose((low + high) / 2, model.log_normalizer)
    np.testing.assert_allclose(high - low, 2 * stats.t.ppf(0.975, freedom) * stderr)
    narrow = model.log_normalizer_interval(0.5)
    assert low < narrow[0] < narrow[1] < high
    with pytest.raises(InvalidInputError, match=r"level.*95"):
        model.log_normalizer_interval(95.0)


def test_a_budget_decides_how_many_replicates_there_are():
    density = CountedDensity(lambda x: -jnp.sum(x**2), 2)
    density.spend(10_000)
    measured = Measured(stderr=0.01, seconds=1.0, evaluations=100, ess=1000.0)
    ledger = Ledger(density)
    assert ledger.replicates(Budget(12_000.0, "evaluations"), measured, Aim()) == 20
    assert ledger.replicates(None, measured, Aim()) == 8


def test_precision_that_is_asked_for_is_given_or_missed_with_a_warning(model):
    """`model` shares its programs with these."""
    assert model.log_normalizer_stderr <= 0.02
    assert model.ess >= 4000
    assert model.num_replicates < 40
    rough, precise = (_sample(precision=each, draws=100) for each in (0.1, 0.004))
    assert rough.num_replicates == 8
    assert precise.log_normalizer_stderr <= 0.004
    missed = _sample(precision=1e-4, num_replicates=8)
    assert "not-as-precise" in [each.code for each in missed.warnings()]


def test_the_frozen_sampler_proposes_in_the_users_space(model):
    """Particle MCMC on top of an answer; five standard errors."""
    observables = {"tau": lambda p: p["tau"], "mu": lambda p: p["mu"]}
    chain = ax.pimh(jr.key(0), model.propose, num_steps=30, observables=observables)
    assert chain.acceptance_rate > 0.5
    assert abs(chain.mean["tau"] - 2) < 5 * chain.stderr["tau"] < 0.5
    assert abs(chain.mean["mu"] - 1) < 5 * chain.stderr["mu"] < 0.5

"""Densities without JAX: what they see, where they run, what goes wrong."""

import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

import annealax as ax
from annealax.auto import gradient_free
from annealax.auto.density import CountedDensity, FreeDensity
from annealax.auto.knowledge import gather
from annealax.auto.parameters import Space

pytestmark = pytest.mark.optimised

MEAN = np.array([1.0, -2.0])


def normal(x):
    """Normalised."""
    return stats.norm.logpdf(x, MEAN, [0.5, 2.0]).sum()


def sampler(box, kernel, num_particles=1000):
    path = ax.GeometricPath((2,), box, 6)
    return ax.Sampler(path, kernel, num_particles=num_particles)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_are_those_of_the_function(dtype):
    """One point, many, and many of many; in double precision to the last bit."""
    box = ax.black_box(normal, 2)
    with jax.enable_x64(dtype == "float64"):
        x = jr.normal(jr.key(0), (4, 3, 2))
        exact = stats.norm.logpdf(np.asarray(x, np.float64), MEAN, [0.5, 2]).sum(-1)
        for values, expected in (
            (box(x[0, 0]), exact[0, 0]),
            (jax.vmap(box)(x[0]), exact[0]),
            (jax.jit(jax.vmap(jax.vmap(box)))(x), exact),
        ):
            assert values.dtype == dtype
            np.testing.assert_array_equal(values, expected.astype(dtype))
    assert box.calls.made == 12  # each point once


def test_parameters_have_names_and_shapes():
    seen = []

    def density(value):
        seen.append({name: each.shape for name, each in value.items()})
        value["a"] += 1  # its own copy
        return -(value["a"] ** 2) - np.sum(value["b"] ** 2)

    box = ax.black_box(density, {"b": (2, 2), "a": ()})
    value = box({"a": jnp.asarray(1.0), "b": jnp.arange(4.0).reshape(2, 2)})
    assert float(value) == -4.0 - 14.0
    assert seen == [{"a": (), "b": (2, 2)}]


def test_a_vectorised_function_takes_whole_populations():
    sizes = []

    def density(x):
        sizes.append(x.shape)
        return -0.5 * np.sum(x**2, axis=1)

    box = ax.black_box(density, 3, vectorised=True)
    jax.vmap(box)(jr.normal(jr.key(0), (50, 3)))
    assert sizes == [(50, 3)]


def test_asking_for_a_gradient_names_the_remedy():
    box = ax.black_box(normal, 2)
    with pytest.raises(ax.InvalidInputError, match="EnsembleWalk"):
        sampler(box, ax.kernels.HMC(0.1)).run(jr.key(0))
    with pytest.raises(ax.InvalidInputError, match="black_box"):
        ax.sample(normal, (2,), seed=0)


def test_a_sampler_by_hand_is_right():
    box = ax.black_box(normal, 2)
    result = sampler(box, ax.kernels.RandomWalk(0.7, num_steps=4)).run(jr.key(0))
    error = float(result.log_normalizer_stderr)
    assert abs(float(result.log_normalizer)) < 4 * error < 1.5  # false alarm 6e-5
    # Where a particle stays, and where transport finds it, nothing is evaluated.
    assert box.calls.made <= 1000 * (1 + 6 * 4)


def test_workers_give_the_same_bits():
    x = jr.normal(jr.key(0), (300, 2))
    here = jax.vmap(ax.black_box(normal, 2))(x)
    with ThreadPoolExecutor(2) as pool:
        box = ax.black_box(normal, 2, executor=pool)
        np.testing.assert_array_equal(here, jax.vmap(box)(x))
        box.close()  # ours to end are only those that we started
        assert pool.submit(int, "1").result() == 1
    local = ax.black_box(lambda x: -np.sum(x**2), 2, executor=1)
    np.testing.assert_allclose(local(jnp.ones(2)), -2.0)
    assert local.calls.made == 1
    local.close()


@pytest.fixture(scope="module")
def answer():
    """A bounded problem with a prior; some calls fail."""

    def likelihood(value):
        if value["rate"] > 4.0:
            raise ValueError("too steep")
        if value["rate"] > 3.9:
            return np.nan
        return stats.norm.logpdf(value["place"], 3.0, 0.1) - value["rate"]

    from numpyro import distributions as priors

    # The rate lives below 3.9: log Z = log(1 - exp(-2 * 3.9)) - log 2 + log N.
    prior = {"place": priors.Normal(0.0, 2.0), "rate": priors.Exponential(1.0)}
    box = ax.black_box(likelihood, {"place": (), "rate": ()})
    lines = []
    result = ax.sample(
        box, prior=prior, seed=0, num_replicates=4, progress=lines.append
    )
    return box, result, lines


def test_sample_takes_a_black_box(answer):
    _, result, lines = answer
    exact = np.log(0.5 * -np.expm1(-7.8)) + stats.norm.logpdf(3, 0, np.hypot(2, 0.1))
    low, high = result.log_normalizer_interval(0.9999)
    assert low < exact < high  # false alarm 1e-4
    assert result.log_normalizer_stderr < 0.1
    assert abs(float(result.mean()["place"]) - 3.0 * 4 / 4.01) < 0.03
    assert any("calls of the density" in line for line in lines) or len(lines) > 3
    assert "no gradient" in result.summary()


def test_calls_that_fail_are_counted(answer):
    box, result, _ = answer
    codes = {doubt.code for doubt in result.warnings()}
    assert {"failed-calls", "nan-density"} <= codes
    assert "ValueError: too steep" in " ".join(result.warnings())
    assert box.calls.failed > 0
    assert box.calls.nan > 0


def test_what_is_known_is_not_evaluated_again(answer):
    box, result, _ = answer
    assert box.calls.made < 0.95 * result.num_evaluations


def test_a_function_that_always_raises_is_an_error_at_once():
    def broken(x):
        raise KeyError("rate")

    began = time.perf_counter()
    with pytest.raises(ax.InvalidInputError, match="KeyError: 'rate'"):
        ax.sample(ax.black_box(broken, 2), seed=0)
    assert time.perf_counter() - began < 60


@pytest.mark.parametrize("executor", ["threads:2", -1, 1.5, object()])
def test_absurd_executors_are_errors(executor):
    with pytest.raises(ax.InvalidInputError, match="executor"):
        ax.black_box(normal, 2, executor=executor)


def test_flows_need_gradients():
    with pytest.raises(ax.InvalidInputError, match="gradient"):
        ax.sample(ax.black_box(normal, 2), flow="spline coupling", num_replicates=2)


def two_modes(share, far, width):
    """Normalised: a standard normal and a narrower one far away."""

    def log_density(x):
        wide = stats.norm.logpdf(x).sum(-1)
        narrow = stats.norm.logpdf(x, far, width).sum(-1)
        return np.logaddexp(np.log1p(-share) + wide, np.log(share) + narrow)

    return ax.black_box(log_density, 2, vectorised=True)


def is_right(result):
    low, high = result.log_normalizer_interval(0.9999)  # false alarm 1e-4
    return low < 0 < high


def test_a_far_needle_is_found_or_the_answer_warns():
    """Without a prior or a region nothing supports that there is no more."""
    box = two_modes(0.5, [27.0, 33.0], 0.08)
    result = ax.sample(box, seed=4, num_replicates=2)
    doubts = {doubt.code: doubt for doubt in result.warnings()}
    assert "unseen-modes" in doubts
    assert "standard deviation 10 and 100" in doubts["unseen-modes"]
    assert "1000 of them began" in " ".join(result.summary().split())
    assert "wider normal" in result.choices["starts tried"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_modes_of_unlike_weight_and_width_are_found(seed):
    result = ax.sample(
        two_modes(0.85, [9.0, -6.0], 0.25), region=(-15.0, 15.0), seed=seed
    )
    codes = {doubt.code for doubt in result.warnings()}
    assert is_right(result) or codes & {"second-opinion", "replicates-disagree"}
    assert "unseen-modes" not in codes  # a region says that there is no more


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_chance_of_a_miss_is_that_of_draws(size):
    """Where the narrow mode is the nearer one, in units of its width."""
    random = np.random.default_rng(size)
    mode = np.zeros(size)
    mode[0] = np.sqrt(size)
    share, counts = 0.0, 0
    for _ in range(20):
        x = random.normal(size=(100_000, size))
        to_mode = np.linalg.norm(x - mode, axis=1)
        share += np.sum(10 * to_mode < np.linalg.norm(x, axis=1))
        counts += len(x)
    expected = (1 - share / counts) ** gradient_free.PARTICLES
    # The density is taken to be the same everywhere in the ball.
    found = gradient_free.chance_of_a_miss(size)
    assert np.log(found) == pytest.approx(np.log(expected), rel=0.15)


def test_what_a_support_maps_is_not_looked_at_wider():
    space = Space({"real": (), "scale": ()}, {"scale": "positive"})
    free = FreeDensity.of(lambda value: -(value["real"] ** 2) - value["scale"], space)
    known = gather(jr.key(0), space, None, None, None)
    _, wider = gradient_free.wide_starts(CountedDensity(free, 2), known)
    scale = np.std(np.asarray(wider.start.sample(jr.key(1), (4000,))), axis=0)
    first, second = (parameter.name for parameter in space.parameters)
    wide = {"real": 100.0, "scale": 10.0}  # heavier tails than a normal: ratios
    assert scale[0] / scale[1] == pytest.approx(wide[first] / wide[second], rel=0.1)

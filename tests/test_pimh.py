"""Particle MCMC: exactness, error bars, on-device bookkeeping."""

import threading
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from tests_problems import LOPSIDED_MEAN, lopsided_log_density

import annealax as ax
from annealax._estimates import integrated_autocorrelation_time
from annealax._pimh import _metropolis

SIGMA = 0.8


class Fake(NamedTuple):
    """One configuration z with log Z = s z - s^2 / 2, z standard normal.

    Under the chain z has mean s and variance 1: exp(log Z) tilts the normal.
    """

    z: jax.Array

    @property
    def log_normalizer(self):
        return SIGMA * self.z - SIGMA**2 / 2

    def expectation(self, function):
        return function(self.z)

    def draws(self, key, num_draws):
        return jnp.full(num_draws, self.z)


def propose(key):
    return Fake(jr.normal(key))


@pytest.fixture(scope="module")
def chain():
    functions = {"z": lambda z: z, "powers": lambda z: jnp.stack([z, z**2])}
    return ax.pimh(
        jr.key(0), propose, num_steps=10_000, num_chains=2, observables=functions
    )


def test_the_chain_corrects_the_proposals(chain):
    # The proposals have mean 0; |z| < 4 has a false-alarm rate of 6e-5 each.
    assert abs(chain.mean["z"] - SIGMA) < 4 * chain.stderr["z"]
    expected = np.array([SIGMA, 1 + SIGMA**2])
    assert np.all(np.abs(chain.mean["powers"] - expected) < 4 * chain.stderr["powers"])
    assert chain.stderr["z"] < 0.03
    for name in ("mean", "stderr", "autocorrelation_time"):
        attribute = getattr(chain, name)
        assert attribute() is attribute  # chain.mean() reads like result.mean()
        assert set(attribute) == {"z", "powers"}
    assert np.var(chain.proposed_log_normalizer) == pytest.approx(SIGMA**2, rel=0.05)


def test_bookkeeping(chain):
    assert chain.accepted.shape == (2, 10_000)
    assert chain.observables["powers"].shape == (2, 10_000, 2)
    assert np.all(chain.accepted[:, 0])
    assert 0.5 < chain.acceptance_rate < 0.9
    stays = ~chain.accepted[:, 1:]
    z = chain.observables["z"]
    assert np.all(z[:, 1:][stays] == z[:, :-1][stays])
    assert chain.autocorrelation_time["z"] > 1.2
    assert chain.configurations is None


def test_error_bars_cover_over_repeats():
    """One hundred chains: the exact mean is within 1.96 errors in 85 % or more; with
    95 % coverage fewer has probability 1e-4."""
    hits = 0
    chains = ax.pimh(jr.key(1), propose, num_steps=400, num_chains=100)
    for trace in chains.observables["x"]:
        time = integrated_autocorrelation_time(trace[None])
        error = np.sqrt(trace.var(ddof=1) * time / trace.size)
        hits += abs(trace.mean() - SIGMA) < 1.96 * error
    assert hits >= 85


def test_derived_quantities_by_jackknife(chain):
    value, stderr = chain.derived(
        lambda mean: mean["powers"][1] - mean["powers"][0] ** 2
    )
    assert abs(value - 1) < 4 * stderr
    assert 0.003 < stderr < 0.05


def test_configurations_follow_the_chain():
    chain = ax.pimh(jr.key(2), propose, num_steps=50, configurations=True)
    assert np.array_equal(chain.configurations, chain.observables["x"])


def test_grouping_of_device_calls_does_not_matter(monkeypatch):
    whole = ax.pimh(jr.key(3), propose, num_steps=20)
    monkeypatch.setattr("annealax._pimh._MAX_PER_CALL", 3)
    parts = ax.pimh(jr.key(3), propose, num_steps=20)
    assert np.array_equal(whole.observables["x"], parts.observables["x"])


def test_metropolis_by_hand():
    log_z = np.log([[1.0, 0.5, 4.0, 2.0]])
    uniforms = np.array([[0.9, 0.6, 0.99, 0.4]])
    state, accepted = _metropolis(log_z, uniforms)
    assert state.tolist() == [[0, 0, 2, 3]]
    assert accepted.tolist() == [[True, False, True, True]]


def test_dead_proposals_are_never_accepted_from_a_live_state():
    log_z = np.array([[-np.inf, 1.0, -np.inf, 0.5]])
    state, _ = _metropolis(log_z, np.full((1, 4), 0.5))
    assert state.tolist() == [[0, 1, 1, 3]]
    with pytest.raises(ax.SamplingError, match="Z = 0"):
        _metropolis(np.full((1, 3), -np.inf), np.full((1, 3), 0.5))


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_autocorrelation_time_of_an_autoregression(phi):
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((4, 50_000))
    trace = np.zeros_like(noise)
    for t in range(1, trace.shape[1]):
        trace[:, t] = phi * trace[:, t - 1] + noise[:, t]
    expected = (1 + phi) / (1 - phi)
    assert integrated_autocorrelation_time(trace) == pytest.approx(expected, rel=0.06)


def test_constant_traces_have_no_correlation():
    assert integrated_autocorrelation_time(np.ones((1, 10))) == 1


def test_with_a_sampler_of_few_particles():
    """SMC with 12 particles is visibly biased; the chain on top of it is not."""
    path = ax.GeometricPath((2,), lopsided_log_density, 2)
    sampler = ax.Sampler(path, ax.kernels.HMC(0.3, 2), num_particles=12)
    chain = ax.pimh(jr.key(0), sampler.run, num_steps=20_000)
    assert np.all(np.abs(chain.mean["x"] - LOPSIDED_MEAN) < 4 * chain.stderr["x"])
    assert np.all(chain.stderr["x"] < 0.02)


def test_advice():
    chain = ax.pimh(jr.key(0), propose, num_steps=2000)
    assert "near 1" in chain.advice(100)
    noisy = chain._replace(proposed_log_normalizer=4 * chain.proposed_log_normalizer)
    assert "use about" in noisy.advice(100)


@pytest.mark.parametrize(
    "arguments", [{"num_steps": 0}, {"num_steps": 3, "num_chains": 0}]
)
def test_bad_arguments(arguments):
    with pytest.raises(ax.InvalidInputError, match="num_"):
        ax.pimh(jr.key(0), propose, **arguments)


def test_workers_make_the_same_chain(tmp_path):
    """To the bit; proposals that are in the checkpoint are not made again."""
    path = ax.GeometricPath((2,), lambda x: -jnp.sum((x - 1) ** 2), 3)
    sampler = ax.Sampler(path, ax.kernels.RandomWalk(0.5), num_particles=16)

    def run(**further):
        return ax.pimh(jr.key(1), sampler.run, num_steps=5, num_chains=2, **further)

    steps = []
    here = run()
    there = run(
        executor=2, checkpoint=tmp_path, callback=lambda now: steps.append(now.step)
    )
    again = run(executor="processes:1", checkpoint=tmp_path)  # makes none
    for chain in (there, again):
        for name in ("proposed_log_normalizer", "accepted"):
            np.testing.assert_array_equal(getattr(here, name), getattr(chain, name))
        np.testing.assert_array_equal(here.observables["x"], chain.observables["x"])
    assert steps[0] == 2  # one for each worker
    assert steps[-1] == 10


def test_what_workers_cannot_get_is_an_error():
    lock = threading.Lock()

    def propose_locked(key):
        with lock:
            return propose(key)

    with pytest.raises(ax.InvalidInputError, match=r"lock.*executor="):
        ax.pimh(jr.key(0), propose_locked, num_steps=2, executor=1)

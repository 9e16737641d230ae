"""SMC, CRAFT and particle MCMC on lattices whose answers are known to 8 digits.

Ten numbers are compared at four standard errors: false alarm below 7e-4 in all.
"""

import jax.random as jr
import numpy as np
import optax
import pytest
import tests_exact

import annealax as ax
from annealax.observables import two_point_susceptibility

MASS_SQUARED, COUPLING = -2.5, 1.5
CASES = {
    "chain": (
        (6, 1),
        tests_exact.chain(6, MASS_SQUARED, COUPLING),
        lambda key: ax.flows.lattice_modes(key, (6, 1)),
    ),
    "square": (
        (2, 2),
        tests_exact.square(MASS_SQUARED, COUPLING),
        lambda key: ax.flows.lattice_coupling(key, (2, 2), odd=True),
    ),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    shape, exact, build = CASES[request.param]
    target = ax.targets.Phi4(shape, MASS_SQUARED, COUPLING)
    path = ax.GeometricPath(None, target, 8)
    sampler = ax.Sampler(path, ax.kernels.HMC(0.2, 5, 2), num_particles=20_000)
    small = ax.Sampler(path, sampler.kernel, num_particles=500)
    # With larger steps one fit in some twenty ends with a flow whose weights have so
    # heavy a tail that the error bar of one pass is too small.
    craft = ax.CRAFT(small, optax.adam(3e-3))
    flows = ax.fit(jr.key(0), craft, build(jr.key(1)), num_steps=200).flows
    return target, exact, sampler, small, flows


@pytest.mark.parametrize("method", ["smc", "craft"])
def test_samplers_agree_with_the_exact_values(case, method):
    _, exact, sampler, _, flows = case
    result = sampler.run(jr.key(2), flows if method == "craft" else None)
    error = float(result.log_normalizer_stderr)
    assert error < 0.04
    assert abs(float(result.log_normalizer) - exact.log_normalizer) < 4 * error
    error = float(result.expectation_stderr(two_point_susceptibility))
    assert error < 0.03 * exact.susceptibility
    mean = float(result.expectation(two_point_susceptibility))
    assert abs(mean - exact.susceptibility) < 4 * error


def test_craft_is_closer_to_perfect_transport_than_smc(case):
    _, exact, sampler, _, flows = case
    gap = [
        exact.log_normalizer - float(sampler.run(jr.key(2), f).lower_bound)
        for f in (flows, None)
    ]
    assert 0 < gap[0] < 0.7 * gap[1]


def test_particle_mcmc_agrees_with_the_exact_values(case):
    target, exact, _, small, flows = case
    chain = ax.pimh(
        jr.key(3),
        lambda key: small.run(key, flows),
        num_steps=300,
        observables=target.observables,
    )
    for name, expected in (
        ("two_point_susceptibility", exact.susceptibility),
        ("two_point_function", exact.two_point_function),
        ("positive_magnetisation", 0.5),
    ):
        error = chain.stderr[name]
        assert np.all(error < 0.02 * np.max(expected))
        assert np.all(np.abs(chain.mean[name] - expected) < 4 * error)

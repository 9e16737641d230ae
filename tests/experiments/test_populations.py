"""The particles at intermediate temperatures."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import Loc

from annealax import flows
from annealax.experiments.populations import populations
from annealax.experiments.problems.bimodal import Bimodal


def test_populations_follow_the_ladder():
    settings = Bimodal(num_particles=200, num_transitions=3, num_leapfrog=2)
    sampler = settings.sampler()
    found = populations(jr.key(0), sampler, None, [0, 2, 3])
    np.testing.assert_allclose(
        [p.beta for p in found], np.asarray(sampler.path.betas)[[0, 2, 3]]
    )
    for population in found:
        assert population.x.shape == population.moved.shape == (200, 2)
        np.testing.assert_allclose(population.weights.sum(), 1, rtol=1e-5)
        np.testing.assert_allclose(population.moved_weights.sum(), 1, rtol=1e-5)
    # Without a flow, what moves on to the next temperature is what was there.
    np.testing.assert_array_equal(found[2].moved, found[1].x)
    np.testing.assert_array_equal(found[2].moved_weights, found[1].weights)


def test_flows_move_the_particles():
    settings = Bimodal(num_particles=50, num_transitions=1, num_leapfrog=2)
    sampler = settings.sampler()
    shift = flows.replicate(Loc(jnp.asarray([10.0, 10.0])), 1)
    start, end = populations(jr.key(0), sampler, shift, [0, 1])
    np.testing.assert_allclose(end.moved, start.x + 10, atol=1e-4)

"""Whether flows pay: what happens where they do not."""

import jax.numpy as jnp
import jax.random as jr
import pytest

import annealax as ax
from annealax.auto import flows
from annealax.auto.density import CountedDensity
from annealax.auto.flows import choose_flows


def test_a_density_that_overflows_far_out_does_not_end_the_call():
    """One particle in a thousand is where it is +inf; a plain pass may meet it, too."""

    def log_density(x):
        return jnp.where(x[0] > 3.0, jnp.inf, -0.5 * jnp.sum((x - 0.3) ** 2))

    path = ax.GeometricPath((2,), log_density, betas=3)
    sampler = ax.Sampler(path, ax.kernels.HMC(0.3, 2), num_particles=1000)
    density = CountedDensity(log_density, 2)
    found = choose_flows(jr.key(0), sampler, density, ("diagonal affine",))
    assert found.flows is None or found.family == "diagonal affine"
    assert "diagonal affine" in found.reason


def test_flows_that_break_a_pass_are_dropped(monkeypatch):
    path = ax.GeometricPath((1,), lambda x: -0.5 * jnp.sum((x - 1) ** 2), betas=2)
    sampler = ax.Sampler(path, ax.kernels.HMC(0.3, 2), num_particles=50)
    density = CountedDensity(path.target, 1)
    run_pass = flows.run_pass

    def breaking(sampler, key, moved_by=None):
        if moved_by is not None:
            raise ax.SamplingError("the log density is +inf at 7 of 50 particles")
        return run_pass(sampler, key)

    monkeypatch.setattr(flows, "run_pass", breaking)
    found = choose_flows(jr.key(1), sampler, density, ("diagonal affine",))
    assert found.flows is None
    assert found.reason.startswith("tried and dropped")
    assert "+inf at 7" in found.reason
    with pytest.raises(ax.SamplingError, match="7 of 50"):
        choose_flows(jr.key(1), sampler, density, ("diagonal affine",), forced=True)

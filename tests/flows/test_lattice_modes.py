"""Flows of plane waves, of the magnetisation and of single sites."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from flowjax.distributions import StandardNormal
from tests_problems import perturb

import annealax as ax
from annealax.targets import Phi4

BUILDERS = {
    "modes": ax.flows.lattice_modes,
    "sites": ax.flows.lattice_sites,
}
SHAPES = [(6, 4), (5, 5), (7, 1), (1, 1)]


def fields(shape, scale=1.5):
    """Fields with a magnetisation, so that odd and even parts both show."""
    return scale * jr.normal(jr.key(2), (20, *shape)) + 0.4


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", BUILDERS)
class TestConformance:
    def test_starts_exactly_as_the_identity(self, name, shape):
        flow, x = BUILDERS[name](None, shape), fields(shape)
        y, log_det = jax.jit(jax.vmap(flow.transform_and_log_det))(x)
        assert np.array_equal(x, y)
        assert np.all(log_det == 0)

    def test_matches_autodiff_and_inverts(self, name, shape):
        flow, x = perturb(jr.key(1), BUILDERS[name](None, shape), 0.4), fields(shape)
        y, log_det = jax.jit(jax.vmap(flow.transform_and_log_det))(x)
        assert float(jnp.abs(y - x).max()) > 0.05
        size = int(np.prod(shape))
        jacobian = jax.jit(jax.vmap(jax.jacfwd(flow.transform)))(x)
        sign, expected = np.linalg.slogdet(
            np.asarray(jacobian, np.float64).reshape(-1, size, size)
        )
        assert np.all(sign == 1)
        assert np.allclose(log_det, expected, atol=1e-4)
        back, inverse_log_det = jax.jit(jax.vmap(flow.inverse_and_log_det))(y)
        assert np.allclose(back, x, atol=1e-4)
        assert np.allclose(inverse_log_det, -log_det, atol=1e-3)

    def test_commutes_with_every_symmetry_of_the_lattice(self, name, shape):
        flow, x = perturb(jr.key(1), BUILDERS[name](None, shape), 0.4), fields(shape)
        apply = jax.jit(jax.vmap(flow.transform))
        y = apply(x)
        symmetries = [
            lambda x: jnp.roll(x, 1, 1),
            lambda x: jnp.roll(x, 2, 2),
            lambda x: x[:, ::-1],
            lambda x: x[:, :, ::-1],
            lambda x: -x,
        ]
        if shape[0] == shape[1]:
            symmetries.append(lambda x: x.transpose(0, 2, 1))
        for symmetry in symmetries:
            assert np.allclose(apply(symmetry(x)), symmetry(y), atol=2e-5)


def test_modes_are_the_exact_transport_between_free_fields():
    """Without coupling the best flow has loss -log Z, and all weights are equal."""
    target = Phi4((4, 6), mass_squared=0.3, coupling=0.0)
    waves = [2 - 2 * np.cos(2 * np.pi * np.arange(n // 2 + 1) / n) for n in (4, 6)]
    variance = 0.5 / (0.3 + np.add.outer(*waves))
    flow = ax.flows.lattice_modes(None, (4, 6))
    log_scales = jnp.asarray(0.5 * np.log(variance), jnp.float32)
    flow = eqx.tree_at(lambda flow: flow.log_scales, flow, log_scales)
    path = ax.GeometricPath(StandardNormal((4, 6)), target, 1)
    result = ax.Sampler(path, num_particles=100).run(
        jr.key(0), ax.flows.replicate(flow, 1)
    )
    assert float(result.log_normalizer) == pytest.approx(
        target.log_normalizer, abs=1e-4
    )
    assert float(result.ess) == pytest.approx(100, rel=1e-4)


def test_training_finds_it():
    target = Phi4((4, 4), mass_squared=0.3, coupling=0.0)
    path = ax.GeometricPath(None, target, 1)
    sampler = ax.Sampler(path, num_particles=200)
    craft = ax.CRAFT(sampler, optax.adam(3e-2))
    flow = ax.flows.lattice_modes(None, (4, 4), num_bins=2)
    trained = ax.fit(jr.key(0), craft, flow, num_steps=150)
    loss = np.asarray(trained.history.loss)
    # From the loss of the identity to the exact bound, up to the noise of a pass.
    assert loss[0] > -target.log_normalizer + 3
    assert loss[-20:].mean() == pytest.approx(-target.log_normalizer, abs=0.3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ax.flows.lattice_modes(None, (4, 4, 4)),
        lambda: ax.flows.lattice_modes(None, (4, 4), num_bins=3),
        lambda: ax.flows.lattice_modes(None, (4, 4), bound=0.0),
        lambda: ax.flows.lattice_sites(None, (0, 4)),
    ],
)
def test_bad_settings(make, untyped):
    with pytest.raises(ax.InvalidInputError):
        make()

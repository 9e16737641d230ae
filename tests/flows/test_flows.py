"""Every flow: the identity at the start, the right log-determinant, an inverse."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from tests_problems import flow_families, perturb

import annealax as ax
from annealax.flows.base import partition

DIMS = [2, 3, 7]
FAMILIES = list(flow_families(jr.key(0), 2))


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("family", FAMILIES)
class TestConformance:
    def test_starts_exactly_as_the_identity(self, family, dim):
        flow, _ = flow_families(jr.key(0), dim)[family]
        x = 3 * jr.normal(jr.key(1), (50, dim))
        y, log_det = jax.jit(jax.vmap(flow.transform_and_log_det))(x)
        assert np.array_equal(x, y)
        assert np.all(log_det == 0)

    def test_matches_autodiff_and_inverts(self, family, dim):
        flow, size = flow_families(jr.key(0), dim)[family]
        flow = perturb(jr.key(1), flow, 5 * size)
        x = 1.5 * jr.normal(jr.key(2), (20, dim))
        y, log_det = jax.jit(jax.vmap(flow.transform_and_log_det))(x)
        assert float(jnp.abs(y - x).max()) > 0.05
        jacobian = jax.jit(jax.vmap(jax.jacfwd(flow.transform)))(x)
        jacobian = np.asarray(jacobian, np.float64)
        sign, expected = np.linalg.slogdet(jacobian)
        assert np.all(sign == 1)
        assert np.allclose(log_det, expected, atol=1e-4)
        back, inverse_log_det = jax.jit(jax.vmap(flow.inverse_and_log_det))(y)
        assert np.allclose(back, x, atol=1e-4)
        assert np.allclose(inverse_log_det, -log_det, atol=1e-3)

    def test_every_coordinate_moves(self, family, dim):
        flow, size = flow_families(jr.key(0), dim)[family]
        flow = perturb(jr.key(1), flow, 5 * size)
        x = 1.5 * jr.normal(jr.key(2), (50, dim))
        moved = jnp.abs(jax.jit(jax.vmap(flow.transform))(x) - x).max(axis=0)
        assert np.all(moved > 1e-3)


@pytest.mark.parametrize("hidden", [(16,), (5, 40), (), (7,)])
@pytest.mark.parametrize("dim", [1, 2, 7, 20])
def test_autoregressive_networks_see_only_earlier_coordinates(dim, hidden):
    flow = ax.flows.affine_autoregressive(jr.key(0), dim, hidden=hidden)
    flow = perturb(jr.key(1), flow, 1.0)
    x = jr.normal(jr.key(2), (dim,))
    # Parameter, output, input.
    seen = np.asarray(jax.jit(jax.jacfwd(lambda x: flow.network(x)))(x))
    allowed = np.tril(np.ones((dim, dim), bool), -1)
    assert np.all(seen[:, ~allowed] == 0)
    if hidden and min(hidden) >= dim:
        assert np.all(np.any(seen[:, allowed] != 0, axis=0))


def test_any_shape_is_accepted():
    for build in (
        ax.flows.diagonal_affine,
        ax.flows.affine_autoregressive,
        ax.flows.spline_autoregressive,
        ax.flows.coupling,
    ):
        flow = perturb(jr.key(1), build(jr.key(0), (2, 3)), 0.05)
        x = jr.normal(jr.key(1), (2, 3))
        y, back = jax.jit(
            lambda x, f=flow: (f.transform(x), f.inverse(f.transform(x)))
        )(x)
        assert y.shape == (2, 3)
        assert np.allclose(back, x, atol=1e-5)


def test_non_trainable_leaves_stay_out():
    import paramax

    flow = ax.flows.diagonal_affine(None, 3)
    frozen = eqx.tree_at(
        lambda f: f.loc, flow, paramax.NonTrainable(flow.loc + 1.0), is_leaf=None
    )
    params, rest = partition(frozen)
    assert len(jax.tree.leaves(params)) == 1
    assert np.array_equal(eqx.combine(params, rest).transform(jnp.zeros(3)), np.ones(3))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ax.flows.diagonal_affine(None, 0),
        lambda: ax.flows.diagonal_affine(None, ()),
        lambda: ax.flows.coupling(jr.key(0), 1),
        lambda: ax.flows.coupling(jr.key(0), 4, transformer="cubic"),
        lambda: ax.flows.coupling(jr.key(0), 4, num_layers=0),
        lambda: ax.flows.spline_autoregressive(jr.key(0), 4, num_bins=1),
        lambda: ax.flows.spline_autoregressive(jr.key(0), 4, bound=-1.0),
        lambda: ax.flows.affine_autoregressive(jr.key(0), 4, hidden=(0,)),
    ],
)
def test_bad_settings(make, untyped):
    with pytest.raises(ax.InvalidInputError):
        make()

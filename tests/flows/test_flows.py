"""Every flow: the identity at the start, the right log-determinant, an inverse."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from tests_problems import flow_families, perturb

import annealax as ax
from annealax.flows._transformers import Affine, Spline
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


class TestSpline:
    spline = Spline(num_bins=6, bound=3.0)

    def params(self, seed=0, size=1.0):
        shape = (self.spline.num_params, 1000)
        return size * jr.normal(jr.key(seed), shape[:1])[:, None] * jnp.ones(shape)

    def test_against_the_textbook_form(self):
        """Durkan et al. 2019, equations 4 to 8, in float64 NumPy."""
        params = np.asarray(self.params(), np.float64)[:, 0]
        n, bound = 6, 3.0

        def lengths(logits):
            e = np.exp(logits - logits.max())
            return 2 * bound * (1e-3 + (1 - 6e-3) * e / e.sum())

        knots_x = np.concatenate([[-bound], -bound + np.cumsum(lengths(params[:n]))])
        knots_y = np.concatenate(
            [[-bound], -bound + np.cumsum(lengths(params[n : 2 * n]))]
        )
        slopes = np.exp(7 * np.tanh(params[2 * n :] / 7))
        slopes = np.concatenate([[1.0], slopes, [1.0]])
        x = np.linspace(-2.999, 2.999, 1000)
        k = np.clip(np.searchsorted(knots_x, x, side="right") - 1, 0, n - 1)
        w, h = np.diff(knots_x)[k], np.diff(knots_y)[k]
        s, d0, d1 = h / w, slopes[k], slopes[k + 1]
        xi = (x - knots_x[k]) / w
        below = s + (d1 + d0 - 2 * s) * xi * (1 - xi)
        y = knots_y[k] + h * (s * xi**2 + d0 * xi * (1 - xi)) / below
        slope = s**2 * (d1 * xi**2 + 2 * s * xi * (1 - xi) + d0 * (1 - xi) ** 2)
        got, log_slope = self.spline.forward(self.params(), jnp.asarray(x))
        assert np.allclose(got, y, atol=1e-5)
        assert np.allclose(log_slope, np.log(slope / below**2), atol=1e-4)

    def test_is_the_identity_outside(self):
        x = jnp.concatenate([jnp.linspace(-50, -3, 500), jnp.linspace(3, 50, 500)])
        y, log_slope = self.spline.forward(self.params(), x)
        assert np.array_equal(x, y)
        assert np.all(log_slope == 0)

    @pytest.mark.parametrize("size", [0.5, 5.0, 50.0])
    def test_is_increasing_and_finite_for_extreme_parameters(self, size):
        x = jnp.linspace(-3.5, 3.5, 1000)
        params = self.params(seed=3, size=size)
        forward = jax.jit(self.spline.forward)
        y, log_slope = forward(params, x)
        # Up to the rounding of numbers of size 3.
        assert np.all(np.diff(np.asarray(y)) >= -1e-6)
        assert np.all(np.isfinite(log_slope))
        back, _ = jax.jit(self.spline.inverse)(params, y)
        assert np.all(np.isfinite(back))
        gradient = jax.grad(lambda p: jnp.sum(forward(p, x)[0]))(params)
        assert np.all(np.isfinite(gradient))


def test_transformers_count_their_parameters():
    assert Affine().num_params == 2
    assert Spline(num_bins=10).num_params == 29


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

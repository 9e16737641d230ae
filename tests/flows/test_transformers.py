"""Transformers of one coordinate: affine maps and splines."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from annealax.flows._transformers import Affine, Spline


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

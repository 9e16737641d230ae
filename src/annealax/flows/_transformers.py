r"""Elementwise maps whose parameters a network gives: affine, rational quadratic.

Both are exactly the identity, log-determinant included, when all parameters are zero.

Parameters come with their kind along the first axis and the coordinates along the
last, so that the long axis is the one that vectorises.
"""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from annealax._checks import positive_number, unknown_name
from annealax._errors import InvalidInputError

_Params = Float[Array, "params *shape"]
_Coordinates = Float[Array, "*shape"]


class AbstractTransformer(eqx.Module):
    """An increasing map of each coordinate, with its inverse."""

    @property
    @abstractmethod
    def num_params(self) -> int:
        """Number of parameters per coordinate."""

    @abstractmethod
    def forward(
        self, params: _Params, x: _Coordinates
    ) -> tuple[_Coordinates, _Coordinates]:
        """Value and log derivative at each coordinate."""

    @abstractmethod
    def inverse(
        self, params: _Params, y: _Coordinates
    ) -> tuple[_Coordinates, _Coordinates]:
        """Inverse value and log derivative of the inverse."""


class Affine(AbstractTransformer):
    """Shift and log scale: `y = x exp(s) + t`."""

    @property
    def num_params(self) -> int:
        """Two: shift and log scale."""
        return 2

    def forward(self, params, x):
        """Scale, then shift."""
        shift, log_scale = params
        return x * jnp.exp(log_scale) + shift, log_scale

    def inverse(self, params, y):
        """Undo the shift, then the scale."""
        shift, log_scale = params
        return (y - shift) * jnp.exp(-log_scale), -log_scale


class Spline(AbstractTransformer):
    r"""Monotone rational quadratic spline (Durkan et al. 2019) on [-bound, bound].

    Outside it is the identity. In a bin of width $w$ and height $h$, with
    slope $s = h / w$, end derivatives $d_0, d_1$ and position
    $\xi \in [0, 1]$, the map is written as a displacement,

    $$y = x + (y_0 - x_0) + (h - w)\xi + h\xi(1-\xi)
        \frac{(d_0 - s) - (d_0 + d_1 - 2s)\xi}{s + (d_0 + d_1 - 2s)\xi(1 - \xi)},$$

    which equals the usual form, and is exactly `x` for equal bins and unit slopes.

    Args:
        num_bins: Number of bins.
        bound: Half the length of the interval.
    """

    num_bins: int = eqx.field(static=True, default=8)
    bound: float = eqx.field(static=True, default=5.0)

    _MIN_BIN = 1e-3
    _MAX_LOG_SLOPE = 7.0

    def __check_init__(self):
        """Validate."""
        if not 1 < self.num_bins < 1 / self._MIN_BIN:
            raise InvalidInputError(
                f"num_bins must be at least 2 and below 1000, got {self.num_bins}"
            )
        positive_number("bound", self.bound)

    @property
    def num_params(self) -> int:
        """Widths, heights, and derivatives at the inner knots."""
        return 3 * self.num_bins - 1

    def forward(self, params, x):
        """Value and log derivative."""
        inside, x_in = self._clip(x)
        b = self._bin(params, x_in, by_height=False)
        xi = (x_in - b.x0) / b.width
        y, log_slope = _displace(b, xi)
        return (
            jnp.where(inside, x_in + y, x),
            jnp.where(inside, log_slope, 0),
        )

    def inverse(self, params, y):
        """Solve the quadratic of the bin."""
        inside, y_in = self._clip(y)
        b = self._bin(params, y_in, by_height=True)
        slope = b.height / b.width
        bend = b.d0 + b.d1 - 2 * slope
        rise = y_in - b.y0
        a = b.height * (slope - b.d0) + rise * bend
        half = b.height * b.d0 - rise * bend
        root = jnp.sqrt(jnp.maximum(half * half + 4 * a * slope * rise, 0))
        xi = jnp.clip(2 * slope * rise / (half + root), 0, 1)
        _, log_slope = _displace(b, xi)
        return (
            jnp.where(inside, b.x0 + xi * b.width, y),
            jnp.where(inside, -log_slope, 0),
        )

    def _clip(self, x):
        inside = jnp.abs(x) < self.bound
        return inside, jnp.where(inside, x, 0)

    def _bin(self, params: _Params, value: _Coordinates, *, by_height: bool) -> "_Bin":
        """The bin that holds each value; all loops run over the bins."""
        n = self.num_bins
        widths = self._lengths(params[:n])
        heights = self._lengths(params[n : 2 * n])
        # One at the boundary and for parameters of zero.
        limit = self._MAX_LOG_SLOPE
        slopes = jnp.exp(limit * jnp.tanh(params[2 * n :] / limit))
        one = jnp.ones_like(value)
        x0 = y0 = jnp.full_like(value, -self.bound)
        found = _Bin(x0, y0, widths[0], heights[0], one, slopes[0])
        for k in range(1, n):
            x0, y0 = x0 + widths[k - 1], y0 + heights[k - 1]
            last = slopes[k] if k < n - 1 else one
            here = _Bin(x0, y0, widths[k], heights[k], slopes[k - 1], last)
            beyond = value >= (y0 if by_height else x0)
            found = jax.tree.map(
                lambda new, old, beyond=beyond: jnp.where(beyond, new, old),
                here,
                found,
            )
        return found

    def _lengths(self, logits: Array) -> Array:
        """Positive bin lengths that add up to the interval."""
        floor = self._MIN_BIN
        exponentials = jnp.exp(logits - jax.lax.stop_gradient(jnp.max(logits, axis=0)))
        shares = exponentials / jnp.sum(exponentials, axis=0)
        return 2 * self.bound * (floor + (1 - floor * self.num_bins) * shares)


class _Bin(NamedTuple):
    """Corner, size and end derivatives of a bin."""

    x0: Array
    y0: Array
    width: Array
    height: Array
    d0: Array
    d1: Array


def _displace(b: _Bin, xi: Array) -> tuple[Array, Array]:
    """Displacement y - x inside a bin, and the log derivative."""
    slope = b.height / b.width
    rest = 1 - xi
    bend = b.d0 + b.d1 - 2 * slope
    below = slope + bend * xi * rest
    bump = b.height * xi * rest * ((b.d0 - slope) - bend * xi) / below
    shift = (b.y0 - b.x0) + (b.height - b.width) * xi + bump
    above = slope + (b.d1 - slope) * xi * xi + (b.d0 - slope) * rest * rest
    return shift, 2 * jnp.log(slope / below) + jnp.log(above)


def transformer_named(name: str, num_bins: int, bound: float) -> AbstractTransformer:
    """The transformer that an option of a flow names."""
    kinds = {"affine": Affine(), "spline": Spline(num_bins, bound)}
    if name not in kinds:
        raise unknown_name("transformer", name, kinds)
    return kinds[name]

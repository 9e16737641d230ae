r"""Flows of a periodic lattice that act on all sites alike, or on the field as a whole.

Coupling layers with small kernels see a few neighbours; what changes along an annealing
path of a field theory near its phase transition is long waves and the magnetisation.
Here these are moved directly, at the cost of a few small matrix products.

`lattice_modes`: in the basis of plane waves $\tilde\phi(k)$ every wave is scaled,

$$\tilde\phi(k) \leftarrow e^{a(|k_1|, |k_2|)} \tilde\phi(k),$$

which is the exact transport between any two free fields, and then the magnetisation
$M$ is moved by an odd monotone spline, $\phi \leftarrow \phi + f(M) - M$.

`lattice_sites`: the same odd map at every site,

$$\phi \leftarrow e^{b} s \sinh\bigl(\delta \operatorname{arsinh}(\phi / s)\bigr)
    / \delta,$$

which makes the tails lighter for $\delta < 1$, as a quartic potential does.

Both commute with every translation and reflection of the lattice and with a change of
sign.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Float, PRNGKeyArray

from annealax._errors import InvalidInputError
from annealax.flows._transformers import Spline
from annealax.flows.base import flow_shape


def lattice_modes(
    key: PRNGKeyArray | None,
    shape: tuple[int, int],
    *,
    num_bins: int = 12,
    bound: float = 12.0,
) -> "LatticeModes":
    """Scale every plane wave, then move the magnetisation; starts as the identity.

    Args:
        key: Not used: there is nothing random in it. Every builder takes a key first.
        shape: Numbers of sites along the two sides.
        num_bins: Bins of the spline of the magnetisation, even.
        bound: The spline acts where |M| times the square root of the volume is below.
    """
    del key
    sides = flow_shape(shape)
    if len(sides) != 2:
        raise InvalidInputError(f"a lattice has two sides, got the shape {shape}")
    if num_bins % 2 or num_bins < 2:
        raise InvalidInputError(
            f"num_bins must be even and at least 2, got {num_bins}: the spline is odd"
        )
    return LatticeModes(
        shape=sides,
        cond_shape=None,
        log_scales=jnp.zeros(tuple(n // 2 + 1 for n in sides)),
        half_spline=jnp.zeros(3 * num_bins // 2),
        spline=Spline(num_bins, bound),
    )


def lattice_sites(key: PRNGKeyArray | None, shape: tuple[int, ...]) -> "LatticeSites":
    """Apply one odd map, with its tails, to all sites; starts as the identity.

    Args:
        key: Not used: there is nothing random in it. Every builder takes a key first.
        shape: Shape of a configuration.
    """
    del key
    zero = jnp.zeros(())
    return LatticeSites(flow_shape(shape), None, zero, zero, zero)


class LatticeModes(AbstractBijection):
    """Plane waves scaled, magnetisation moved.

    Attributes:
        log_scales: By the moduli of both wave numbers.
        half_spline: Parameters of half the spline; the other half mirrors it.
        spline: Its map.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] | None = eqx.field(static=True)
    log_scales: Float[Array, "*stack waves_0 waves_1"]
    half_spline: Float[Array, "*stack params"]
    spline: Spline

    def transform_and_log_det(self, x, condition=None):
        """Scale the waves, then move the magnetisation."""
        log_scales = self._all_log_scales()
        y = _scale_waves(x, log_scales)
        y, log_slope = self._move_magnetisation(self.spline.forward, y)
        return y, jnp.sum(log_scales) + log_slope

    def inverse_and_log_det(self, y, condition=None):
        """Move the magnetisation back, then scale the waves back."""
        log_scales = self._all_log_scales()
        x, log_slope = self._move_magnetisation(self.spline.inverse, y)
        return _scale_waves(x, -log_scales), log_slope - jnp.sum(log_scales)

    def _all_log_scales(self) -> Float[Array, "sites_0 sites_1"]:
        """One for each element of the basis."""
        first, second = (_basis(n)[1] for n in self.shape)
        table = self.log_scales
        if self.shape[0] == self.shape[1]:  # a square lattice may be turned, too
            table = 0.5 * (table + table.T)
        return table[first[:, None], second[None, :]]

    def _move_magnetisation(self, function, x):
        n = self.spline.num_bins // 2
        widths, heights, slopes = jnp.split(self.half_spline, [n, 2 * n])
        params = [
            *(widths, widths[::-1]),
            *(heights, heights[::-1]),
            *(slopes, slopes[-2::-1]),
        ]
        mode = jnp.sum(x) / np.sqrt(x.size)
        moved, log_slope = function(jnp.concatenate(params), mode)
        return x + (moved - mode) / np.sqrt(x.size), log_slope


class LatticeSites(AbstractBijection):
    """One odd map for all sites.

    Attributes:
        log_scale: Logarithm of a factor.
        log_tail: Logarithm of the exponent that the tails get.
        log_width: Logarithm of the field where the tails begin.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] | None = eqx.field(static=True)
    log_scale: Float[Array, "*stack"]
    log_tail: Float[Array, "*stack"]
    log_width: Float[Array, "*stack"]

    def transform_and_log_det(self, x, condition=None):
        """Apply the map to every site."""
        factor = jnp.exp(self.log_scale)
        y, log_slope = _bend(x, self.log_width, self.log_tail)
        return factor * y, jnp.sum(log_slope) + x.size * self.log_scale

    def inverse_and_log_det(self, y, condition=None):
        """Apply the inverse map to every site: the same with other parameters."""
        factor = jnp.exp(-self.log_scale)
        x, log_slope = _bend(factor * y, self.log_width - self.log_tail, -self.log_tail)
        return x, jnp.sum(log_slope) - y.size * self.log_scale


def _bend(x: Array, log_width: Array, log_tail: Array) -> tuple[Array, Array]:
    """Width / tail * sinh(tail * arsinh(x / width)), and its log slope.

    The inverse has width / tail for the width and 1 / tail for the tail. Where the
    tail is 1 it is the identity, to the bit.
    """
    width, tail = jnp.exp(log_width), jnp.exp(log_tail)
    angle = jnp.arcsinh(x / width)
    bent = width / tail * jnp.sinh(tail * angle)
    log_slope = _log_cosh(tail * angle) - _log_cosh(angle)
    # Exact at the start; the derivatives are those of the map.
    rounding = jax.lax.stop_gradient(jnp.where(log_tail == 0, x - bent, 0))
    return bent + rounding, log_slope


def _log_cosh(x: Array) -> Array:
    magnitude = jnp.abs(x)
    return magnitude + jnp.log1p(jnp.exp(-2 * magnitude)) - np.log(2)


def _scale_waves(x: Array, log_scales: Array) -> Array:
    first, second = (jnp.asarray(_basis(n)[0], x.dtype) for n in x.shape)
    waves = first @ x @ second.T
    return x + first.T @ (jnp.expm1(log_scales) * waves) @ second


@functools.cache
def _basis(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal real plane waves of a ring (rows), and their wave numbers."""
    sites = np.arange(count)
    rows, numbers = [np.full(count, 1 / np.sqrt(count))], [0]
    for wave in range(1, count // 2 + 1):
        angle = 2 * np.pi * wave * sites / count
        if 2 * wave == count:
            rows.append(np.cos(angle) / np.sqrt(count))
            numbers.append(wave)
            continue
        rows += [np.sqrt(2 / count) * np.cos(angle), np.sqrt(2 / count) * np.sin(angle)]
        numbers += [wave, wave]
    return np.stack(rows), np.array(numbers)

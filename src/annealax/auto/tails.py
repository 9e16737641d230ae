r"""Whether a density seems to have a finite integral.

Along a ray, at :math:`t` times the distance of a draw, a shell has the mass
:math:`t^d f(t) \, d \log t`. Where that does not fall however far out one looks, there
is no finite integral. Half of the rays are from the centre of the draws, half from the
origin: draws that run away into a cone lie around a centre that runs with them.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from annealax._keys import generator
from annealax.auto.modes import NUM_SCREENED, Ascents

_FURTHEST, _STEPS = 1e5, 16
"""So far out is looked, in distances of draws, at so many places along a ray."""

_FEW_RAYS = 8
"""Rays of a density without gradient, which may be dear."""

_FALLS = 0.1
"""Nats per factor e that a shell's mass falls by, at least, if there is an integral.

A Student-t distribution falls by its degrees of freedom.
"""

_COUNTS = 20.0
"""What lies so many nats below the draws far out may be a floor against log(0)."""


def share_of_escapes(
    key: PRNGKeyArray,
    ascents: Ascents,
    x: np.ndarray,
    weights: np.ndarray,
    *,
    is_limited: bool = False,
) -> float:
    """Share of directions in which the density does not seem to have an integral.

    Args:
        key: Random key.
        ascents: Evaluates the density.
        x: Draws.
        weights: Their weights.
        is_limited: Whether a prior or a region says where the mass is. Then black
            boxes are not asked about places that may be absurd to them.
    """
    if is_limited and not ascents.has_gradient:
        return 0.0
    count = NUM_SCREENED // _STEPS if ascents.has_gradient else _FEW_RAYS
    shares = np.asarray(weights, np.float64)
    index = generator(key).choice(len(x), count, p=shares / shares.sum())
    centre = np.median(x[index], axis=0) * (np.arange(count) % 2)[:, None]
    log_t = np.linspace(0, np.log(_FURTHEST), _STEPS)
    away = np.exp(log_t)[:, None, None] * (x[index] - centre)
    largest = 0.1 * float(np.finfo(jnp.result_type(float)).max)
    points = np.clip(centre + away, -largest, largest).reshape(-1, x.shape[1])
    values = ascents.evaluate(points).reshape(_STEPS, count)
    shells = values + x.shape[1] * log_t[:, None]
    far = _STEPS // 2
    with np.errstate(invalid="ignore"):
        slope = (shells[-1] - shells[far]) / (log_t[-1] - log_t[far])
        counts = shells[-1] > shells[0] - _COUNTS
    # Copies of the particle at the centre have no direction.
    apart = np.any(x[index] != centre, axis=1)
    return float(np.mean((slope > -_FALLS) & counts & apart))

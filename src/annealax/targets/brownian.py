r"""Brownian motion of unknown scales, seen through noise, with a gap: 32 dimensions.

$$ \alpha, \sigma \sim \mathrm{LogNormal}(0, 2), \quad
   x_1 \sim \mathcal{N}(0, \alpha^2), \quad
   x_t \sim \mathcal{N}(x_{t-1}, \alpha^2), \quad
   y_t \sim \mathcal{N}(x_t, \sigma^2), $$

for 30 times, the middle ten of which are not observed
(`BrownianMotionMissingMiddleObservations` of Inference Gym; Sountsov et al., 2020).
"""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from annealax.targets._posterior import AbstractPosterior, load_numbers, log_normal


class BrownianMotion(AbstractPosterior):
    """Posterior of the Brownian motion with missing observations.

    A configuration is (log alpha, log sigma, x1, ..., x30), with alpha the innovation
    scale and sigma the observation scale. log Z is from quadrature over the two scales,
    the path being integrated exactly; sampling papers report 1.17.
    """

    observations: Float[Array, " observed"]
    times: Int[Array, " observed"]
    shape: tuple[int, ...] = eqx.field(static=True, default=(32,))
    log_normalizer: float | None = eqx.field(static=True, default=1.1877489833)

    def __init__(self):
        values = load_numbers(
            "brownian_observations.csv", ("observed_loc",), missing=True
        )[:, 0]
        times = np.flatnonzero(np.isfinite(values))
        self.observations = jnp.asarray(values[times], jnp.result_type(float))
        self.times = jnp.asarray(times, jnp.int32)

    def __call__(self, x: Float[Array, "32"]) -> Float[Array, ""]:
        """Log density of one configuration."""
        log_scales, path = x[:2], x[2:]
        # The LogNormal density times the Jacobian is a normal density of the logarithm.
        return (
            log_normal(log_scales, math.log(2.0))
            + log_normal(jnp.diff(path, prepend=0.0), log_scales[0])
            + log_normal(self.observations - path[self.times], log_scales[1])
        )

    def constrain(self, x: Float[Array, "32"]) -> dict[str, Array]:
        """The two scales and the path."""
        return {
            "innovation_scale": jnp.exp(x[0]),
            "observation_scale": jnp.exp(x[1]),
            "path": x[2:],
        }

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
from jaxtyping import Array, Float

from annealax.targets._csv import load_numbers
from annealax.targets._posterior import AbstractPosterior, log_normal
from annealax.targets.base import check_configuration


class BrownianMotion(AbstractPosterior):
    """Posterior of the Brownian motion with missing observations.

    A configuration is (log alpha, log sigma, x1, ..., x30), with alpha the innovation
    scale and sigma the observation scale. log Z is from quadrature over the two scales,
    the path being integrated exactly; sampling papers report 1.17.
    """

    observations: Float[Array, " observed"]
    gap: tuple[int, int] = eqx.field(static=True)  # first and last + 1 missing times
    shape: tuple[int, ...] = eqx.field(static=True)
    log_normalizer: float | None = eqx.field(static=True)

    def __init__(self):
        self.shape = (32,)
        self.log_normalizer = 1.1877489833
        values = load_numbers(
            "brownian_observations.csv", ("observed_loc",), missing=True
        )[:, 0]
        missing = np.isnan(values)
        start, stop = np.flatnonzero(missing)[[0, -1]].tolist()
        self.gap = (start, stop + 1)
        self.observations = jnp.asarray(values[~missing], jnp.result_type(float))

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log density of one configuration."""
        check_configuration(self.shape, x)
        log_scales, path = x[:2], x[2:]
        # Slices, not an index array: their gradient is a pad, not a scatter.
        seen = jnp.concatenate([path[: self.gap[0]], path[self.gap[1] :]])
        # The LogNormal density times the Jacobian is a normal density of the logarithm.
        return (
            log_normal(log_scales, math.log(2.0))
            + log_normal(jnp.diff(path, prepend=0.0), log_scales[0])
            + log_normal(self.observations - seen, log_scales[1])
        )

    def constrain(self, x: Float[Array, " dim"]) -> dict[str, Array]:
        """The two scales and the path."""
        return {
            "innovation_scale": jnp.exp(x[0]),
            "observation_scale": jnp.exp(x[1]),
            "path": x[2:],
        }

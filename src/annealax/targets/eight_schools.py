r"""Eight schools: effects of coaching on test scores (Rubin, 1981), 10 dimensions.

$$ \mu \sim \mathcal{N}(0, 5^2), \quad \tau \sim \mathrm{HalfCauchy}(5), \quad
   \theta_j \sim \mathcal{N}(\mu, \tau^2), \quad y_j \sim \mathcal{N}(\theta_j,
   \sigma_j^2) . $$

Data: D. B. Rubin, "Estimation in parallel randomized experiments", *Journal of
Educational Statistics* 6 (1981) 377-401, table 1. Priors: the version of Stan and of
posteriordb.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from annealax.targets._posterior import AbstractPosterior, log_normal
from annealax.targets.base import check_configuration

_EFFECTS = (28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0)
_ERRORS = (15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0)


class EightSchools(AbstractPosterior):
    """Posterior of the eight schools.

    log Z, from quadrature over tau with the rest integrated exactly, is the same for
    both forms; the centred form is hard to sample.

    Args:
        centered: Whether a configuration is (mu, log tau, theta1, ..., theta8); if not,
            the last eight are the standardised (theta - mu) / tau.
    """

    centered: bool = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    log_normalizer: float | None = eqx.field(static=True)

    def __init__(self, centered: bool = False):
        self.centered = centered
        self.shape = (10,)
        self.log_normalizer = -31.3113473523

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log density of one configuration."""
        check_configuration(self.shape, x)
        mu, log_tau, schools = x[0], x[1], x[2:]
        # HalfCauchy density of tau times the Jacobian tau, in log tau.
        log_ratio = log_tau - math.log(5.0)
        scales = (
            log_normal(mu, math.log(5.0))
            + math.log(2 / math.pi)
            + log_ratio
            - jax.nn.softplus(2 * log_ratio)
        )
        if self.centered:
            effects = log_normal(schools - mu, log_tau)
        else:
            effects = log_normal(schools)
        residuals = jnp.asarray(_EFFECTS, x.dtype) - self.constrain(x)["theta"]
        errors = jnp.log(jnp.asarray(_ERRORS, x.dtype))
        return scales + effects + log_normal(residuals, errors)

    def constrain(self, x: Float[Array, " dim"]) -> dict[str, Array]:
        """Mean mu and scale tau of the effects, and the effects theta."""
        mu, tau, schools = x[0], jnp.exp(x[1]), x[2:]
        theta = schools if self.centered else mu + tau * schools
        return {"mu": mu, "tau": tau, "theta": theta}

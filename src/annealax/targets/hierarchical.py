"""Posteriors of hierarchical models on published data; log Z by quadrature."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from annealax.targets._csv import load_numbers
from annealax.targets.base import AbstractPosterior, check_configuration, log_normal


class Seeds(AbstractPosterior):
    r"""Seeds: a logistic regression with random effects, 26 dimensions (Crowder, 1978).

    On plate $i$ of 21, $r_i$ of $n_i$ seeds germinated:

    $$ r_i \sim \mathrm{Binomial}(n_i, \sigma(a_0 + a_1 x_{1i} + a_2 x_{2i}
       + a_{12} x_{1i} x_{2i} + b_i)), \quad b_i \sim \mathcal{N}(0, 1/\tau), $$

    with $a \sim \mathcal{N}(0, 10^2)$ and $\tau \sim \mathrm{Gamma}(0.01,
    \text{rate } 0.01)$.

    A configuration is (a0, a1, a2, a12, log tau, b1, ..., b21). The density is fully
    normalised, binomial coefficients included (they sum to 488.17), which is the
    convention of the published log Z, -73.41. The value here is from nested
    Gauss-Hermite quadrature: over each b at given a and tau, over a at given tau, and
    over log tau.
    """

    successes: Float[Array, " plates"]
    totals: Float[Array, " plates"]
    design: Float[Array, "4 plates"]
    log_constant: float = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    log_normalizer: float | None = eqx.field(static=True)

    def __init__(self):
        self.shape = (26,)
        self.log_normalizer = -73.40618
        table = load_numbers("seeds.csv", ("r", "n", "x1", "x2"))
        successes, totals, seed, extract = table.T
        design = np.stack([np.ones_like(seed), seed, extract, seed * extract])
        self.successes, self.totals, self.design = (
            jnp.asarray(x, jnp.result_type(float)) for x in (successes, totals, design)
        )
        log_coefficients = (
            math.lgamma(n + 1) - math.lgamma(r + 1) - math.lgamma(n - r + 1)
            for r, n in zip(successes, totals, strict=True)
        )
        gamma = 0.01 * math.log(0.01) - math.lgamma(0.01)
        self.log_constant = sum(log_coefficients) + gamma

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log density of one configuration."""
        check_configuration(self.shape, x)
        coefficients, log_tau, effects = x[:4], x[4], x[5:]
        logits = jnp.matmul(coefficients, self.design, precision="highest") + effects
        # Gamma density of tau times the Jacobian tau: the exponent 0.01 - 1 becomes
        # 0.01, and no power of tau is taken.
        prior = (
            log_normal(coefficients, math.log(10.0))
            + log_normal(effects, -0.5 * log_tau)
            + 0.01 * (log_tau - jnp.exp(log_tau))
        )
        likelihood = self.successes * logits - self.totals * jax.nn.softplus(logits)
        return self.log_constant + prior + jnp.sum(likelihood)

    def constrain(self, x: Float[Array, " dim"]) -> dict[str, Array]:
        """Coefficients a0, a1, a2, a12, precision tau, and random effects b."""
        names = ("a0", "a1", "a2", "a12")
        coefficients = dict(zip(names, x[:4], strict=True))
        return coefficients | {"tau": jnp.exp(x[4]), "b": x[5:]}

    def draw_prior(self, key: PRNGKeyArray) -> Float[Array, " dim"]:
        """A configuration drawn from the prior."""
        keys = jr.split(key, 3)
        # Most draws of so wide a gamma distribution are too small for a float.
        log_tau = jr.loggamma(keys[1], 0.01) - math.log(0.01)
        effects = jnp.exp(-0.5 * log_tau) * jr.normal(keys[2], (21,))
        return jnp.concatenate([10 * jr.normal(keys[0], (4,)), log_tau[None], effects])


class BrownianMotion(AbstractPosterior):
    r"""Brownian motion of unknown scales, seen with noise and a gap: 32 dimensions.

    $$ \alpha, \sigma \sim \mathrm{LogNormal}(0, 2), \quad
       x_1 \sim \mathcal{N}(0, \alpha^2), \quad
       x_t \sim \mathcal{N}(x_{t-1}, \alpha^2), \quad
       y_t \sim \mathcal{N}(x_t, \sigma^2), $$

    for 30 times, the middle ten of which are not observed
    (`BrownianMotionMissingMiddleObservations` of Inference Gym; Sountsov et al., 2020).

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

    def draw_prior(self, key: PRNGKeyArray) -> Float[Array, " dim"]:
        """A configuration drawn from the prior."""
        key, subkey = jr.split(key)
        log_scales = 2 * jr.normal(key, (2,))
        path = jnp.exp(log_scales[0]) * jnp.cumsum(jr.normal(subkey, (30,)))
        return jnp.concatenate([log_scales, path])


_EFFECTS = (28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0)
_ERRORS = (15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0)


class EightSchools(AbstractPosterior):
    r"""Eight schools: effects of coaching on test scores (Rubin, 1981), 10 dimensions.

    $$ \mu \sim \mathcal{N}(0, 5^2), \quad \tau \sim \mathrm{HalfCauchy}(5), \quad
       \theta_j \sim \mathcal{N}(\mu, \tau^2), \quad
       y_j \sim \mathcal{N}(\theta_j, \sigma_j^2) . $$

    Data: D. B. Rubin, "Estimation in parallel randomized experiments", *Journal of
    Educational Statistics* 6 (1981) 377-401, table 1. Priors: the version of Stan and
    of posteriordb.

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

    def draw_prior(self, key: PRNGKeyArray) -> Float[Array, " dim"]:
        """A configuration drawn from the prior."""
        keys = jr.split(key, 3)
        mu = 5 * jr.normal(keys[0])
        tau = 5 * jnp.abs(jr.cauchy(keys[1]))
        schools = jr.normal(keys[2], (8,))
        if self.centered:
            schools = mu + tau * schools
        return jnp.concatenate([jnp.stack([mu, jnp.log(tau)]), schools])

r"""Seeds: a logistic regression with random effects, 26 dimensions (Crowder, 1978).

On plate $i$ of 21, $r_i$ of $n_i$ seeds germinated:

$$ r_i \sim \mathrm{Binomial}(n_i, \sigma(a_0 + a_1 x_{1i} + a_2 x_{2i}
   + a_{12} x_{1i} x_{2i} + b_i)), \quad b_i \sim \mathcal{N}(0, 1/\tau), $$

with $a \sim \mathcal{N}(0, 10^2)$ and $\tau \sim \mathrm{Gamma}(0.01,
\text{rate } 0.01)$.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from annealax.targets._csv import load_numbers
from annealax.targets._posterior import AbstractPosterior, log_normal
from annealax.targets.base import check_configuration


class Seeds(AbstractPosterior):
    """Posterior of the seeds model.

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

"""Models of NumPyro that together have every support, with their data."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

_RNG = np.random.default_rng(5)
X = _RNG.normal(size=(12, 2))
Y = X @ np.array([1.0, -0.5]) + 0.3 * _RNG.normal(size=12)
GROUP = np.repeat(np.arange(3), 4)
COUNTS = np.array([3, 7, 2])


def regression(x, y=None):
    """Real and positive, plates, a deterministic site."""
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    with numpyro.plate("feature", x.shape[1]):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
    mean = numpyro.deterministic("mean", x @ slope)
    with numpyro.plate("row", x.shape[0]):
        numpyro.sample("y", dist.Normal(mean, sigma), obs=y)


def nested(group, y):
    """Nested plates."""
    scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
    with numpyro.plate("group", 3, dim=-2):
        centre = numpyro.sample("centre", dist.StudentT(4, 0, 1))
        with numpyro.plate("side", 2, dim=-1):
            level = numpyro.sample("level", dist.Normal(centre, scale))
    numpyro.sample("y", dist.Normal(level[group, 0] - level[group, 1], 0.5), obs=y)


def looks_at_values(group, y):
    """Its shapes depend on values of an integer array."""
    count = len(np.unique(np.asarray(group)))
    level = numpyro.sample("level", dist.Normal(0, 1).expand([count]).to_event(1))
    numpyro.sample("y", dist.Normal(level[group], 0.5), obs=y)


def shares(counts):
    """A simplex and the unit interval."""
    share = numpyro.sample("share", dist.Dirichlet(jnp.array([1.0, 2.0, 0.7])))
    mixed = numpyro.sample("mixed", dist.Beta(2.0, 3.0))
    total = int(np.sum(COUNTS))
    probs = mixed * share + (1 - mixed) / 3
    numpyro.sample("counts", dist.Multinomial(total, probs), obs=counts)


def correlated(y):
    """Cholesky factor of a correlation, and lower bounds."""
    factor = numpyro.sample("factor", dist.LKJCholesky(3, 1.5))
    with numpyro.plate("scales", 3):
        scale = numpyro.sample("scale", dist.Pareto(0.5, 3.0))
    covariance = scale[:, None] * factor
    zero = jnp.zeros(3)
    rows = y.reshape(4, 3)
    numpyro.sample("y", dist.MultivariateNormal(zero, scale_tril=covariance), obs=rows)


def correlation_matrix(y):
    """A correlation matrix, and a positive definite one."""
    matrix = numpyro.sample("matrix", dist.LKJ(2, 2.0))
    wish = numpyro.sample("wish", dist.InverseGamma(3.0, 1.0).expand([2]).to_event(1))
    rows = y.reshape(6, 2)
    spread = jnp.sqrt(wish)
    covariance = spread[:, None] * matrix * spread
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(2), covariance), obs=rows)


def thresholds(y):
    """Ordered numbers."""
    base = dist.Normal(0, 0.5).expand([3]).to_event(1)
    to_order = dist.transforms.OrderedTransform()
    cut = numpyro.sample("cut", dist.TransformedDistribution(base, to_order))
    answers = (y > 0).astype(int) + (y > 1)
    numpyro.sample("y", dist.Normal(cut[answers]), obs=y)


def directions(y):
    """Circular, and unit vectors."""
    angle = numpyro.sample("angle", dist.VonMises(2.5, 1.5))
    unit = numpyro.sample("unit", dist.ProjectedNormal(jnp.array([1.0, 0.5, 0.0])))
    numpyro.sample("y", dist.VonMises(angle + unit[0], 2.0), obs=y)


def bounds(y):
    """Bounds that differ, that depend on other sites, from above, and truncation."""
    top = jnp.array([1.0, 3.0])
    box = numpyro.sample("box", dist.Uniform(jnp.array([-1.0, 0.5]), top).to_event(1))
    width = numpyro.sample("width", dist.Gamma(3.0, 2.0))
    inside = numpyro.sample("inside", dist.Uniform(-width, 2 * width))
    cut = numpyro.sample("cut", dist.TruncatedNormal(0.0, 1.0, low=-0.5, high=2.0))
    below = numpyro.sample("below", dist.RightTruncatedDistribution(dist.Normal(), 1.0))
    numpyro.sample("y", dist.Normal(box.sum() + inside + cut + below, 2.0), obs=y)


def zero_sum(y):
    """Effects that add up to zero, a factor, a scaled and a masked likelihood."""
    effect = numpyro.sample("effect", dist.ZeroSumNormal(1.0, event_shape=(3,)))
    level = numpyro.sample("level", dist.Laplace(0.0, 1.0))
    numpyro.factor("penalty", -0.5 * level**2)
    with numpyro.handlers.scale(scale=0.5), numpyro.handlers.mask(mask=y > -1):
        numpyro.sample("y", dist.Normal(level + effect[GROUP], 1.0), obs=y)


def time_series(y):
    """A random walk within a scan."""
    from numpyro.contrib.control_flow import scan

    drift = numpyro.sample("drift", dist.Normal(0, 1))
    noise = numpyro.sample("noise", dist.LogNormal(0.0, 0.5))

    def step(level, observed):
        level = numpyro.sample("level", dist.Normal(level + drift, noise))
        numpyro.sample("y", dist.Normal(level, 0.5), obs=observed)
        return level, None

    scan(step, jnp.zeros(()), y)


def improper(y):
    """Flat priors, of which one is positive and ordered."""
    rising = dist.constraints.positive_ordered_vector
    rate = numpyro.sample("rate", dist.ImproperUniform(rising, (), (3,)))
    centre = numpyro.sample(
        "centre", dist.ImproperUniform(dist.constraints.real, (), ())
    )
    scale = numpyro.sample("scale", dist.Weibull(1.0, 1.5))
    numpyro.sample("y", dist.Normal(centre + rate.sum(), scale), obs=y)


MODELS = {
    "regression": (regression, (X, Y)),
    "nested": (nested, (GROUP, Y)),
    "looks_at_values": (looks_at_values, (GROUP, Y)),
    "shares": (shares, (COUNTS,)),
    "correlated": (correlated, (Y,)),
    "correlation_matrix": (correlation_matrix, (Y,)),
    "thresholds": (thresholds, (Y,)),
    "directions": (directions, (Y,)),
    "bounds": (bounds, (Y,)),
    "zero_sum": (zero_sum, (Y,)),
    "time_series": (time_series, (Y,)),
    "improper": (improper, (Y,)),
}

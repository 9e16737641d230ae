"""Small problems with exact answers, asymmetric so that sign errors show."""

from importlib import resources

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection, Affine

import annealax as ax
from annealax.flows.base import partition


def shipped_columns(name, *columns):
    """Columns of a table that is shipped with annealax, by NumPy's own reader."""
    text = (resources.files("annealax.targets") / "data" / name).read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    table = np.genfromtxt(lines, delimiter=",", names=True)
    return np.stack([table[column] for column in columns])


def skewed_log_density(x):
    """A bent, skewed density in two dimensions with log Z = log 3.

    x0 is the logarithm of a Gamma(2) variable, x1 given x0 is N(x0^2 / 2, 0.7^2).
    """
    skew = 2 * x[0] - jnp.exp(x[0])
    bend = -0.5 * ((x[1] - 0.5 * x[0] ** 2) / 0.7) ** 2
    return skew + bend - jnp.log(0.7 * jnp.sqrt(2 * jnp.pi)) + jnp.log(3.0)


SKEWED_LOG_NORMALIZER = float(np.log(3.0))


def skewed_sample(key, num_samples):
    """Exact draws of the skewed density."""
    key_gamma, key_normal = jr.split(key)
    x0 = jnp.log(jr.gamma(key_gamma, 2.0, (num_samples,)))
    x1 = 0.5 * x0**2 + 0.7 * jr.normal(key_normal, (num_samples,))
    return jnp.stack([x0, x1], axis=-1)


LOPSIDED_MEAN = np.array([0.3 * -1.0 + 0.7 * 0.8, 0.3 * 0.5 - 0.7 * 0.4])
LOPSIDED_LOG_NORMALIZER = float(np.log(3.0))


def lopsided_log_density(x):
    """Two unequal normals with log Z = log 3, narrower than the initial draws.

    Its tails are lighter than those of a standard normal moved by a mild flow, so that
    incremental weights have finite variance.
    """
    left = -0.5 * jnp.sum(((x - jnp.array([-1.0, 0.5])) / 0.4) ** 2)
    scale = jnp.array([0.35, 0.6])
    right = -0.5 * jnp.sum(((x - jnp.array([0.8, -0.4])) / scale) ** 2)
    left = left + jnp.log(0.3 / (2 * jnp.pi * 0.16))
    right = right + jnp.log(0.7 / (2 * jnp.pi * 0.21))
    return jnp.logaddexp(left, right) + jnp.log(3.0)


def gaussian_transport(mean, scale, betas):
    """Exact affine transports of the geometric path from N(0, I) to N(mean, scale^2).

    The path stays Gaussian: precision 1 - b + b / scale^2, and so on.
    """
    betas = np.asarray(betas, np.float64)[:, None]
    precision = 1 - betas + betas / scale**2
    centre = betas * mean / scale**2 / precision
    factor = np.sqrt(precision[:-1] / precision[1:])
    shift = centre[1:] - factor * centre[:-1]
    return eqx.filter_vmap(Affine)(jnp.asarray(shift), jnp.asarray(factor))


def perturb(key, flow: AbstractBijection, size: float) -> AbstractBijection:
    """Add noise to every trainable leaf of a flow."""
    params, rest = partition(flow)
    leaves, structure = jax.tree.flatten(params)
    keys = jr.split(key, len(leaves))
    noisy = [
        leaf + size * jr.normal(subkey, leaf.shape)
        for leaf, subkey in zip(leaves, keys, strict=True)
    ]
    return eqx.combine(jax.tree.unflatten(structure, noisy), rest)


def flow_families(key, dim):
    """One small flow of every family, at the identity, with a size of noise that
    moves particles by a tenth of a standard deviation or more."""
    return {
        "diagonal_affine": (ax.flows.diagonal_affine(key, dim), 0.15),
        "affine_autoregressive": (
            ax.flows.affine_autoregressive(key, dim, hidden=(16, 16)),
            0.04,
        ),
        "spline_autoregressive": (
            ax.flows.spline_autoregressive(key, dim, hidden=(16,), num_bins=5),
            0.03,
        ),
        "affine_coupling": (
            ax.flows.coupling(key, dim, num_layers=2, hidden=(8,)),
            0.06,
        ),
        "spline_coupling": (
            ax.flows.coupling(
                key, dim, transformer="spline", num_layers=3, hidden=(8,), num_bins=4
            ),
            0.03,
        ),
    }


def z_score(samples, expected):
    """How many standard errors the mean of independent samples is off."""
    samples = np.asarray(samples, np.float64)
    return (samples.mean() - expected) / (samples.std(ddof=1) / np.sqrt(samples.size))

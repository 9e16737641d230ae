r"""Normalised densities that can be drawn from exactly, and how to combine them.

Most of the zoo is made of these. Draws are NumPy in float64; densities are JAX in
whatever precision they are called with. A mixture of parts integrates to one because
its parts do, so

$$\log \gamma(x) = \log Z + \log \sum_k w_k p_k(x)$$

has the log Z that is written down.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

LOG_TWO_PI = math.log(2 * math.pi)


class Part(NamedTuple):
    """A normalised density of a vector.

    Attributes:
        log_density: Its logarithm, of one vector.
        draw: Exact draws from a NumPy generator and a number, with the index of the
            component that each is from.
        low: A box from here
        high: to here holds all of the mass, or all but 0.001 of it.
    """

    log_density: Callable
    draw: Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]
    low: np.ndarray
    high: np.ndarray


def _unlabelled(draw):
    return lambda rng, count: (draw(rng, count), np.zeros(count, int))


def _normal_log_density(x, mean, scale):
    return -0.5 * ((x - mean) / scale) ** 2 - jnp.log(scale) - 0.5 * LOG_TWO_PI


def normals(weights, means, scales, width: float = 7.0) -> Part:
    """A mixture of normals.

    Args:
        weights: Of the components; need not add up to one.
        means: Means, components by dimensions.
        scales: A standard deviation for each component, or for each of its
            coordinates, or lower triangular factors of covariances.
        width: The box reaches so many standard deviations from the means.
    """
    means = np.asarray(means, float)
    count, size = means.shape
    weights = np.asarray(weights, float) / np.sum(weights)
    scales = np.asarray(scales, float)
    if scales.ndim == 1:
        scales = np.repeat(scales[:, None], size, axis=1)
    if scales.ndim == 2:
        factors = np.stack([np.diag(each) for each in scales])
        inverses, logs = 1 / scales, np.log(scales).sum(axis=1)
    else:
        factors, inverses = scales, np.linalg.inv(scales)
        logs = np.log(np.diagonal(scales, axis1=1, axis2=2)).sum(axis=1)
    constants = np.log(weights) - logs - 0.5 * size * LOG_TWO_PI

    def log_density(x):
        away = x - means
        # The factor is applied to the difference, which keeps small scales exact.
        z = (
            away * inverses
            if inverses.ndim == 2
            else jnp.einsum("kij,kj->ki", inverses, away)
        )
        return jax.nn.logsumexp(constants - 0.5 * jnp.sum(z**2, axis=1))

    def draw(rng, number):
        component = rng.choice(count, number, p=weights)
        x = rng.normal(size=(number, size))
        for index in range(count):
            here = component == index
            x[here] = means[index] + x[here] @ factors[index].T
        return x, component

    spread = width * np.sqrt((factors**2).sum(axis=2))
    low, high = (means - spread).min(axis=0), (means + spread).max(axis=0)
    return Part(log_density, draw, low, high)


def normal(mean, scale) -> Part:
    """One normal: `scale` as in `normals`, without the first axis."""
    return normals([1.0], np.asarray(mean)[None], np.asarray(scale)[None])


def mixture(weights: Sequence[float], parts: Sequence[Part]) -> Part:
    """Parts of any families, with these weights."""
    shares = np.asarray(weights, float) / np.sum(weights)

    def log_density(x):
        terms = jnp.stack([part.log_density(x) for part in parts])
        return jax.nn.logsumexp(terms + np.log(shares))

    def draw(rng, number):
        component = rng.choice(len(parts), number, p=shares)
        x = np.empty((number, len(parts[0].low)))
        for index, part in enumerate(parts):
            chosen = component == index
            x[chosen] = part.draw(rng, int(chosen.sum()))[0]
        return x, component

    return Part(
        log_density,
        draw,
        np.min([part.low for part in parts], axis=0),
        np.max([part.high for part in parts], axis=0),
    )


def product(parts: Sequence[Part]) -> Part:
    """Independent parts, one after the other."""
    ends = np.cumsum([len(part.low) for part in parts])
    pieces = [slice(e - len(p.low), e) for p, e in zip(parts, ends, strict=True)]

    def log_density(x):
        terms = [
            part.log_density(x[piece])
            for part, piece in zip(parts, pieces, strict=True)
        ]
        return sum(terms[1:], start=terms[0])

    def draw(rng, number):
        draws = [part.draw(rng, number)[0] for part in parts]
        return np.concatenate(draws, axis=1)

    return Part(
        log_density,
        _unlabelled(draw),
        np.concatenate([part.low for part in parts]),
        np.concatenate([part.high for part in parts]),
    )


def student(location, factor, dof: float) -> Part:
    """A joint Student-t; `factor` is lower triangular or a vector of scales.

    The box holds all but about 0.001 of the mass; below 1.5 degrees of freedom no box
    that a sampler could use does.
    """
    location, factor = np.asarray(location, float), np.asarray(factor, float)
    factor = np.diag(factor) if factor.ndim == 1 else factor
    size, inverse = len(location), np.linalg.inv(factor)
    constant = (
        scipy.special.gammaln(0.5 * (dof + size))
        - scipy.special.gammaln(0.5 * dof)
        - 0.5 * size * math.log(dof * math.pi)
        - np.log(np.diag(factor)).sum()
    )

    def log_density(x):
        z = inverse @ (x - location)
        return constant - 0.5 * (dof + size) * jnp.log1p(jnp.sum(z**2) / dof)

    def draw(rng, number):
        z = rng.normal(size=(number, size)) @ factor.T
        return location + z / np.sqrt(rng.chisquare(dof, (number, 1)) / dof)

    reach = (2e3 * size) ** (1 / dof) * np.sqrt((factor**2).sum(axis=1))
    return Part(log_density, _unlabelled(draw), location - reach, location + reach)


def ring(center, radius, width, angle, concentration) -> Part:
    """Around a circle, denser towards an angle (von Mises); radius normal."""
    center = np.asarray(center, float)
    towards = np.array([math.cos(angle), math.sin(angle)])
    constant = (
        -math.log(width)
        - 0.5 * LOG_TWO_PI
        - math.log(2 * math.pi * scipy.special.ive(0, concentration))
        - concentration
    )

    def log_density(x):
        away = x - center
        r = jnp.sqrt(jnp.sum(away**2) + 1e-12)
        cosine = away @ towards / r
        return (
            constant
            + concentration * cosine
            - jnp.log(r)
            - 0.5 * ((r - radius) / width) ** 2
        )

    def draw(rng, number):
        r = rng.normal(radius, width, number)
        theta = rng.vonmises(angle, concentration, number)
        return center + r[:, None] * np.stack([np.cos(theta), np.sin(theta)], axis=1)

    reach = radius + 7 * width
    return Part(log_density, _unlabelled(draw), center - reach, center + reach)


def shell(center, axes, radius, width) -> Part:
    """Around an ellipsoid whose half axes are `axes` times `radius`."""
    center, axes = np.asarray(center, float), np.asarray(axes, float)
    size = len(center)
    surface = (
        math.log(2) + 0.5 * size * math.log(math.pi) - scipy.special.gammaln(0.5 * size)
    )
    constant = -math.log(width) - 0.5 * LOG_TWO_PI - surface - np.log(axes).sum()

    def log_density(x):
        r = jnp.sqrt(jnp.sum(((x - center) / axes) ** 2) + 1e-12)
        return constant - (size - 1) * jnp.log(r) - 0.5 * ((r - radius) / width) ** 2

    def draw(rng, number):
        direction = rng.normal(size=(number, size))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        r = rng.normal(radius, width, (number, 1))
        return center + r * direction * axes

    reach = axes * (radius + 7 * width)
    return Part(log_density, _unlabelled(draw), center - reach, center + reach)


def funnel(mean, scale, locations) -> Part:
    """First v, normal; then normals around `locations` with variance exp(v)."""
    locations = np.asarray(locations, float)
    size = len(locations)

    def log_density(x):
        v, rest = x[0], x[1:]
        z = (rest - locations) * jnp.exp(-0.5 * v)
        inner = -0.5 * jnp.sum(z**2) - 0.5 * size * (v + LOG_TWO_PI)
        return _normal_log_density(v, mean, scale) + inner

    def draw(rng, number):
        v = rng.normal(mean, scale, (number, 1))
        rest = locations + np.exp(0.5 * v) * rng.normal(size=(number, size))
        return np.concatenate([v, rest], axis=1)

    reach = 4 * math.exp(0.5 * (mean + 4 * scale))
    return Part(
        log_density,
        _unlabelled(draw),
        np.array([mean - 6 * scale, *(locations - reach)]),
        np.array([mean + 6 * scale, *(locations + reach)]),
    )


def banana(mean, scale, bend, shift, width) -> Part:
    """A normal x, then y normal around a parabola in x."""

    def log_density(x):
        along = _normal_log_density(x[0], mean, scale)
        return along + _normal_log_density(x[1], bend * x[0] ** 2 + shift, width)

    def draw(rng, number):
        x = rng.normal(mean, scale, number)
        y = rng.normal(bend * x**2 + shift, width)
        return np.stack([x, y], axis=1)

    ends = np.array([mean - 6 * scale, mean + 6 * scale])
    heights = shift + bend * np.array([*ends**2, 0.0])
    return Part(
        log_density,
        _unlabelled(draw),
        np.array([ends[0], heights.min() - 6 * width]),
        np.array([ends[1], heights.max() + 6 * width]),
    )


def rugged(mean, scale, height, wave, phase) -> Part:
    """One number: a normal times exp(height cos(wave x + phase)), by quadrature."""
    grid = np.linspace(mean - 10 * scale, mean + 10 * scale, 200_001)

    def shape(x, library):
        return height * library.cos(wave * x + phase) - 0.5 * ((x - mean) / scale) ** 2

    values = np.exp(shape(grid, np))
    mass = float(np.trapezoid(values, grid))
    cumulative = np.cumsum(values) / values.sum()

    def log_density(x):
        return shape(x[0], jnp) - math.log(mass)

    def draw(rng, number):
        return np.interp(rng.uniform(size=number), cumulative, grid)[:, None]

    reach = 7 * scale
    return Part(
        log_density,
        _unlabelled(draw),
        np.array([mean - reach]),
        np.array([mean + reach]),
    )


def stairs(center, widths, drops) -> Part:
    """One number: steps of these widths to the left and right, each lower by a drop."""
    masses = np.asarray(widths) / -np.expm1(-np.asarray(drops))
    left, right = widths
    constant = -math.log(masses.sum())

    def log_density(x):
        away = x[0] - center
        leftwards = drops[0] * jnp.floor(-away / left)
        rightwards = drops[1] * jnp.floor(away / right)
        return constant - jnp.where(away < 0, leftwards, rightwards)

    def draw(rng, number):
        goes_right = rng.uniform(size=number) < masses[1] / masses.sum()
        step = np.where(
            goes_right,
            rng.geometric(-math.expm1(-drops[1]), number),
            rng.geometric(-math.expm1(-drops[0]), number),
        )
        away = (step - rng.uniform(size=number)) * np.where(goes_right, right, -left)
        return (center + away)[:, None]

    reach = 16 * np.asarray(widths) / np.asarray(drops)
    return Part(
        log_density,
        _unlabelled(draw),
        np.array([center - reach[0]]),
        np.array([center + reach[1]]),
    )


def box(low, high) -> Part:
    """Uniform; minus infinity outside."""
    low, high = np.asarray(low, float), np.asarray(high, float)
    constant = -np.log(high - low).sum()

    def log_density(x):
        inside = jnp.all((low < x) & (x < high))
        return jnp.where(inside, constant, -jnp.inf)

    def draw(rng, number):
        return rng.uniform(low, high, (number, len(low)))

    return Part(log_density, _unlabelled(draw), low, high)


def split_normal(mean, factor, direction, threshold, ratio) -> Part:
    """A normal whose density jumps by a factor across a plane; zero cuts it off.

    Args:
        mean: Mean of the normal.
        factor: Lower triangular factor of its covariance.
        direction: The plane is where `direction @ x` is the threshold.
        threshold: See there.
        ratio: Density below the threshold, in units of what the normal has.
    """
    mean, factor = np.asarray(mean, float), np.asarray(factor, float)
    direction = np.asarray(direction, float)
    part = normal(mean, factor)
    scale = np.linalg.norm(factor.T @ direction)
    below = float(scipy.special.ndtr((threshold - direction @ mean) / scale))
    mass = ratio * below + 1 - below
    log_ratio = math.log(ratio) if ratio > 0 else -math.inf

    def log_density(x):
        jump = jnp.where(direction @ x < threshold, log_ratio, 0.0)
        return part.log_density(x) + jump - math.log(mass)

    def draw(rng, number):
        # Half more than rejection needs on average.
        needed = 100 + int(1.5 * number * max(ratio, 1.0) / mass)
        x = mean + rng.normal(size=(needed, len(mean))) @ factor.T
        chance = np.where(x @ direction < threshold, ratio, 1.0) / max(ratio, 1.0)
        return x[rng.uniform(size=len(x)) < chance][:number]

    return Part(log_density, _unlabelled(draw), part.low, part.high)

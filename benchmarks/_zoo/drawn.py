"""Densities drawn at random from the families of the zoo: a new set for each seed.

Nobody can have tuned to a seed that was not used before. The listed densities of the
zoo were seen while rules were made; these say whether the rules hold for others.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from _zoo.densities import Density, _from_part, zoo
from _zoo.parts import (
    banana,
    box,
    funnel,
    mixture,
    normal,
    normals,
    product,
    ring,
    student,
)

GROUP = "drawn"


def drawn(seed: int) -> list[Density]:
    """One density of each family, of up to ten dimensions."""
    rng = np.random.default_rng([seed, 17])
    parts = {
        "mixture": _mixture(rng),
        "far mixture": _far(rng),
        "units": _units(rng),
        "needle": _needle(rng),
        "funnel and normal": _funnel(rng),
        "spikes and slabs": _spikes(rng),
        "Student-t mixture": _student(rng),
        "rings": _rings(rng),
        "bananas": _bananas(rng),
        "boxes": _boxes(rng),
    }
    listed = [
        _from_part(
            _name(family, len(part.low), seed), GROUP, part, float(rng.normal(0, 5))
        )
        for family, part in parts.items()
    ]
    return [*listed, _separable(rng, seed)]


def find(name: str) -> Density:
    """A density by its name, listed or drawn."""
    if name in zoo():
        return zoo()[name]
    seed = int(name.rsplit(" ", maxsplit=1)[1])
    return {each.name: each for each in drawn(seed)}[name]


def _name(family: str, size: int, seed: int) -> str:
    return f"{family} {size}-d, drawn {seed}"


def _weights(rng, count):
    """None of them negligible."""
    return 0.02 + rng.dirichlet(np.ones(count))


def _log_uniform(rng, low, high, size=None):
    return np.exp(rng.uniform(math.log(low), math.log(high), size))


def _mixture(rng):
    count, size = rng.integers(2, 7), rng.integers(2, 11)
    means = rng.uniform(3, 9) * rng.normal(size=(count, size))
    return normals(_weights(rng, count), means, _log_uniform(rng, 0.2, 3, count))


def _far(rng):
    count, size = rng.integers(2, 4), rng.integers(1, 6)
    means = 10 ** rng.uniform(1.5, 3) * rng.normal(size=(count, size))
    return normals(_weights(rng, count), means, _log_uniform(rng, 0.5, 5, count))


def _units(rng):
    size, count = rng.integers(2, 7), rng.integers(1, 3)
    unit = 10 ** rng.uniform(-6, 6)
    means = 4 * unit * rng.normal(size=(count, size))
    scales = unit * _log_uniform(rng, 0.3, 1.5, (count, size))
    return normals(_weights(rng, count), means, scales)


def _needle(rng):
    size = rng.integers(1, 6)
    share, scale = rng.uniform(0.1, 0.5), _log_uniform(rng, 0.01, 0.1)
    means = np.stack([np.zeros(size), rng.normal(size=size) / math.sqrt(size)])
    return normals([1 - share, share], means, [1.0, scale])


def _funnel(rng):
    size = rng.integers(3, 11)
    away = rng.uniform(3, 6) * rng.choice([-1, 1], size)
    share = rng.uniform(0.3, 0.7)
    parts = [
        funnel(rng.normal(), rng.uniform(1, 2.5), rng.normal(size=size - 1)),
        normal(away, _log_uniform(rng, 0.3, 1.2, size)),
    ]
    return mixture([share, 1 - share], parts)


def _spikes(rng):
    def one():
        share, shift = rng.uniform(0.2, 0.7), rng.normal()
        return normals(
            [share, 1 - share],
            [[0.0], [shift]],
            [_log_uniform(rng, 0.03, 0.2), rng.uniform(1, 2)],
        )

    return product([one() for _ in range(rng.integers(1, 6))])


def _student(rng):
    size, count = rng.integers(1, 8), rng.integers(1, 3)
    parts = [
        student(
            6 * rng.normal(size=size),
            _log_uniform(rng, 0.3, 2, size),
            rng.uniform(1.5, 5),
        )
        for _ in range(count)
    ]
    return mixture(_weights(rng, count), parts)


def _rings(rng):
    radii = rng.uniform(1, 5, rng.integers(1, 3))
    parts = [
        ring(
            5 * rng.normal(size=2),
            radius,
            radius * rng.uniform(0.02, 0.15),
            rng.uniform(-3, 3),
            rng.uniform(0, 3),
        )
        for radius in radii
    ]
    return mixture(_weights(rng, len(parts)), parts)


def _bananas(rng):
    return product(
        [
            banana(
                rng.normal(),
                rng.uniform(0.7, 2),
                rng.uniform(-0.7, 0.7),
                rng.normal(),
                rng.uniform(0.1, 0.5),
            )
            for _ in range(rng.integers(1, 4))
        ]
    )


def _boxes(rng):
    size = rng.integers(1, 5)
    corners = 4 * rng.normal(size=(rng.integers(1, 4), size))
    parts = [box(low, low + rng.uniform(0.5, 3, size)) for low in corners]
    return mixture(_weights(rng, len(parts)), parts)


def _separable(rng, seed):
    """A logistic regression without a prior on data that a plane separates."""
    size = int(rng.integers(2, 6))
    x = rng.normal(size=(12 * size, size)) * _log_uniform(rng, 0.3, 3, size)
    side = np.sign(x @ rng.normal(size=size) + 0.3 * rng.normal())

    def log_density(p):
        return -jnp.sum(jax.nn.softplus(-side * (p[0] + x @ p[1:])))

    return Density(
        _name("separable logistic regression", size + 1, seed),
        GROUP,
        log_density,
        (size + 1,),
        math.inf,
        known_by="improper",
    )

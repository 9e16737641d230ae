"""The densities of the zoo, each with its exact log Z.

Numbers are arbitrary on purpose and nothing is symmetric, so that no sampler is right
by luck. `zoo()` lists all by name.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import flowjax.distributions
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
import scipy.stats

from _zoo.parts import (
    Part,
    banana,
    box,
    funnel,
    mixture,
    normal,
    normals,
    product,
    ring,
    rugged,
    shell,
    split_normal,
    stairs,
    student,
)

HIDDEN = "hidden"
"""Modes that no wide pass could see: needles above ten dimensions."""

Shape = tuple[int, ...] | dict[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Density:
    """A density of known log Z.

    Attributes:
        name: Its name.
        group: What it is hard for.
        log_density: Log density of one point, an array or a dict of arrays.
        shape: Shape of a point, or shapes by name, as for `annealax.sample`.
        log_z: Logarithm of its integral; infinite if it has none.
        known_by: Where log Z is from: "closed form", "quadrature" (of a marginal, where
            the rest is normal) or "improper".
        support: As for `annealax.sample`.
        region: Lowest and highest corner of a box that holds all of the mass, in the
            form of a point, as a nested sampler would be given; None if no useful box
            does.
        draw: Exact draws from a NumPy generator and a number: points as vectors, and
            the index of the component that each is from. None if there is none.
        prior: A function that gives a flowjax distribution.
        log_likelihood: Density over prior; None to divide.
        tags: What else is known, such as `HIDDEN`.
    """

    name: str
    group: str
    log_density: Callable[[Any], Any]
    shape: Shape
    log_z: float
    known_by: str = "closed form"
    support: Any = None
    region: tuple[Any, Any] | None = None
    draw: Callable | None = None
    prior: Callable[[], Any] | None = None
    log_likelihood: Callable[[Any], Any] | None = None
    tags: frozenset[str] = frozenset()

    @property
    def improper(self) -> bool:
        """Whether the truth is that there is no integral."""
        return math.isinf(self.log_z)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes by name; an array has the empty name."""
        return self.shape if isinstance(self.shape, dict) else {"": self.shape}

    @property
    def dimension(self) -> int:
        """How many numbers are free."""
        whole = sum(math.prod(each) for each in self.shapes.values())
        return whole - (self.support == "simplex")

    def point(self, vector) -> Any:
        """The point that free numbers stand for, without any change of variables."""
        if self.support == "simplex":
            rest = 1 - jnp.sum(vector, keepdims=True)
            vector = jnp.concatenate([vector, rest])
        if not isinstance(self.shape, dict):
            return vector.reshape(self.shape)
        values, start = {}, 0
        for name, shape in self.shape.items():
            stop = start + math.prod(shape)
            values[name] = vector[start:stop].reshape(shape)
            start = stop
        return values

    def box(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The region as vectors of free numbers."""
        if self.region is None:
            return None
        low, high = (
            np.concatenate(
                [np.ravel(end[name] if name else end) for name in self.shapes]
            )[: self.dimension]
            for end in self.region
        )
        return low, high

    def inside(self, vector) -> Any:
        """Whether free numbers lie within the support."""
        if self.support == "simplex":
            return jnp.all(vector > 0) & (jnp.sum(vector) < 1)
        start, answer = 0, jnp.asarray(True)
        for name, shape in self.shapes.items():
            support = self.support.get(name) if name and self.support else self.support
            low, high = {None: (None, None), "positive": (0, None), "unit": (0, 1)}.get(
                support, support
            )
            stop = start + math.prod(shape)
            values, start = vector[start:stop], stop
            if low is not None:
                answer &= jnp.all(values > low)
            if high is not None:
                answer &= jnp.all(values < high)
        return answer

    def likelihood(self) -> Callable[[Any], Any]:
        """Density over prior, as a function."""
        if self.log_likelihood is not None:
            return self.log_likelihood
        assert self.prior is not None
        prior = self.prior()
        return lambda x: self.log_density(x) - prior.log_prob(x)


def _from_part(name, group, part: Part, log_z, *, tags=(), has_box=True, **rest):
    """A density of an array, that of the part times Z."""
    return Density(
        name,
        group,
        lambda x: log_z + part.log_density(x),
        part.low.shape,
        log_z,
        region=(part.low, part.high) if has_box else None,
        draw=part.draw,
        tags=frozenset(tags),
        **rest,
    )


def _wide_prior(size, location, scale):
    def prior():
        return flowjax.distributions.Normal(
            jnp.full(size, location), jnp.full(size, scale)
        )

    return prior


def _box_prior(part: Part):
    return lambda: flowjax.distributions.Uniform(
        jnp.asarray(part.low), jnp.asarray(part.high)
    )


def _random_factor(rng, size, condition):
    """Lower triangular factor of a covariance of this condition, geometric mean 1."""
    rotation, _ = np.linalg.qr(rng.normal(size=(size, size)))
    half = 0.5 * math.log10(condition)
    covariance = (rotation * np.logspace(-half, half, size)) @ rotation.T
    return np.linalg.cholesky(0.5 * (covariance + covariance.T))


def _mixtures():
    """Normals of unlike scales and weights."""
    group = "mixtures"
    recipes = {
        # weights, standard deviations, scale of the means, log Z
        "four": ([0.5, 0.3, 0.15, 0.05], [1.0, 0.5, 0.8, 1.5], 5.0, 3.7),
        "steep": ([0.4, 0.3, 0.2, 0.1], [3.0, 0.5, 1.0, 0.2], 8.0, -2.0),
        "six": (
            [0.31, 0.24, 0.19, 0.13, 0.09, 0.04],
            [0.3, 2.0, 0.7, 1.1, 0.15, 1.6],
            6.0,
            -7.3,
        ),
    }
    rows = [
        ("four", 2, 11), ("four", 3, 12), ("four", 5, 13), ("four", 5, 14),
        ("four", 10, 15), ("four", 10, 16), ("four", 20, 17), ("four", 50, 18),
        ("steep", 2, 21), ("steep", 5, 22), ("steep", 8, 23), ("steep", 20, 24),
        ("six", 2, 31), ("six", 3, 32), ("six", 8, 33), ("six", 10, 34),
    ]  # fmt: skip
    hidden = {("steep", 20, 24)}
    for row in rows:
        kind, size, seed = row
        weights, scales, spread, log_z = recipes[kind]
        means = np.random.default_rng(seed).normal(size=(len(weights), size)) * spread
        yield _from_part(
            f"{kind} normals {size}-d, draw {seed}",
            group,
            normals(weights, means, scales),
            log_z,
            prior=_wide_prior(size, 0.7, 1.5 * spread),
            tags=[HIDDEN] if row in hidden else [],
        )
    for size, seed in ((3, 41), (8, 42), (20, 43)):
        rng = np.random.default_rng(seed)
        factors = [
            scale * _random_factor(rng, size, condition)
            for scale, condition in ((0.6, 50.0), (1.4, 8.0), (0.9, 300.0))
        ]
        yield _from_part(
            f"three tilted normals {size}-d",
            group,
            normals([0.55, 0.34, 0.11], 6 * rng.normal(size=(3, size)), factors),
            5.1,
            prior=_wide_prior(size, -0.4, 9.0),
        )


def _far():
    """Modes far apart, and units that are not of order one."""
    group = "far and scaled"
    part = normals([0.02, 0.98], [[0, 0], [400, 400]], [1.0, 1.0])
    yield _from_part("far mode 2-d", group, part, 0.0, prior=_box_prior(part))
    part = normals(
        [0.03, 0.81, 0.16], [[0, 0], [380, -420], [-75, 290]], [1.0, 0.7, 2.5]
    )
    yield _from_part("two far modes 2-d", group, part, 1.9, prior=_box_prior(part))
    means = np.stack([np.zeros(5), [210.0, -35.0, 160.0, -240.0, 90.0]])
    part = normals([0.12, 0.88], means, [1.3, 0.6])
    yield _from_part("far mode 5-d", group, part, -3.2, prior=_box_prior(part))
    part = normals([0.5, 0.2, 0.3], [[-1900.0], [3.0], [740.0]], [25.0, 0.4, 6.0])
    yield _from_part("three far modes 1-d", group, part, 0.4)
    tiny = 1e-6 * np.array([1.0, 3.0, 0.5])
    part = normal(1e-6 * np.array([4.0, -2.0, 1.0]), tiny)
    yield _from_part("tiny 3-d", group, part, 2.0)
    part = normals(
        [0.7, 0.3],
        1e6 * np.array([[3.1, -0.4, 1.2, 0.1], [-2.6, 2.2, -3.8, 1.5]]),
        1e6 * np.array([[1.0, 0.3, 0.6, 0.2], [0.4, 0.5, 0.2, 0.9]]),
    )
    yield _from_part("huge 4-d, two modes", group, part, -1.0)
    rng = np.random.default_rng(51)
    scale = np.array([1e-4, 1e3, 0.02, 50.0, 1e4, 0.7])
    factor = scale[:, None] * _random_factor(rng, 6, 40.0)
    part = normal(2 * scale * rng.normal(size=6), factor)
    yield _from_part("units from 1e-4 to 1e4 6-d", group, part, 0.9)


def _needles():
    group = "needles"
    for size, share, scale in ((2, 0.2, 1e-3), (5, 0.35, 0.03)):
        means = [np.zeros(size), np.linspace(0.3, 0.8, size)]
        part = normals([1 - share, share], means, [1.0, scale])
        yield _from_part(f"needle inside {size}-d", group, part, 0.6)
    means = np.stack([np.zeros(20), np.linspace(-0.6, 0.7, 20)])
    part = normals([0.9, 0.1], means, [1.0, 0.08])
    yield _from_part(
        "needle inside 20-d",
        group,
        part,
        0.0,
        tags=[HIDDEN],
        prior=_wide_prior(20, 0.2, 2.0),
    )
    means = np.stack([np.zeros(10), np.linspace(1.0, 4.0, 10)])
    part = normals([0.5, 0.5], means, [1.5, 0.1])
    prior = _wide_prior(10, 1.0, 3.0)
    yield _from_part("needle beside 10-d", group, part, 0.0, prior=prior)
    spikes = [
        normals([share, 1 - share], [[0.0], [shift]], [0.05, 1.5])
        for share, shift in zip(
            np.linspace(0.25, 0.6, 8), np.linspace(-0.9, 1.3, 8), strict=True
        )
    ]
    yield _from_part("spikes and slabs 8-d", group, product(spikes), -4.0)


def _curved():
    group = "curved"
    yield _from_part("ring 2-d", group, ring([1.0, -2.0], 5.0, 0.1, 0.8, 1.3), 2.2)
    part = mixture(
        [0.7, 0.3],
        [ring([0, 0], 3.0, 0.06, 2.0, 0.5), ring([9.0, 4.0], 1.2, 0.2, -1.0, 2.0)],
    )
    yield _from_part("two rings 2-d", group, part, -0.8)
    part = mixture(
        [0.65, 0.35],
        [ring([0, 0], 2.0, 0.12, 1.6, 4.0), ring([1.4, 0.9], 2.2, 0.2, -1.4, 3.0)],
    )
    yield _from_part("two moons 2-d", group, part, 1.1)
    part = shell([1, -1, 0.5, 2, 0, -3], [1, 0.4, 2.0, 1.3, 0.8, 1.0], 4.0, 0.05)
    yield _from_part("shell 6-d", group, part, 0.0)
    part = mixture(
        [0.6, 0.4],
        [
            shell(np.zeros(12), np.linspace(0.6, 1.7, 12), 5.0, 0.15),
            shell(np.linspace(14, 9, 12), np.linspace(1.2, 0.5, 12), 3.0, 0.3),
        ],
    )
    yield _from_part("two shells 12-d", group, part, 3.0)
    turn = np.linspace(1.0, 4.2, 60) * math.pi
    means = 0.8 * np.stack([turn * np.cos(turn), 0.7 * turn * np.sin(turn)], axis=1)
    part = normals(np.linspace(0.3, 1.7, 60), means, np.linspace(0.15, 0.35, 60))
    yield _from_part("spiral 2-d", group, part, -2.5)
    yield _from_part("banana 2-d", group, banana(1.0, 2.0, 0.3, -1.0, 0.2), 0.7)
    part = product(
        [
            banana(0.4, 1.5, 0.4, -1.0, 0.3),
            banana(-1.0, 1.0, -0.7, 2.0, 0.2),
            banana(2.0, 0.7, 0.2, 0.0, 0.1),
            banana(0.0, 1.8, 0.5, 1.0, 0.5),
        ]
    )
    yield _from_part("four bananas 8-d", group, part, -5.0)


def _funnels():
    group = "funnels"
    part = funnel(0.4, 2.2, [0.5, -1.0, 2.0, 0.0])
    yield _from_part("funnel 5-d", group, part, 1.3)
    part = funnel(-0.3, 3.0, np.linspace(-1, 2, 9))
    yield _from_part("funnel 10-d", group, part, 0.0)
    for size, away in ((4, 5.0), (10, 4.0)):
        part = mixture(
            [0.55, 0.45],
            [
                funnel(0.0, 2.5, np.zeros(size - 1)),
                normal(np.linspace(away, -away, size), np.linspace(0.4, 1.2, size)),
            ],
        )
        yield _from_part(f"half funnel, half normal {size}-d", group, part, 0.0)
    inner = funnel(0.2, 1.4, [1.0, -0.5])
    yield Density(
        "funnel with names 3-d",
        group,
        lambda p: -1.7 + inner.log_density(jnp.concatenate([p["v"][None], p["x"]])),
        {"v": (), "x": (2,)},
        -1.7,
        region=(
            {"v": inner.low[0], "x": inner.low[1:]},
            {"v": inner.high[0], "x": inner.high[1:]},
        ),
        draw=inner.draw,
    )


def _heavy():
    group = "heavy tails"
    one = [student([m], [s], 1.0) for m, s in ((1.0, 0.5), (-4.0, 2.0), (30.0, 8.0))]
    yield _from_part("Cauchy 3-d", group, product(one), 1.0, has_box=False)
    rng = np.random.default_rng(61)
    for size, dof in ((2, 0.5), (5, 1.0), (10, 1.5), (20, 3.0)):
        factor = _random_factor(rng, size, 20.0)
        part = student(3 * rng.normal(size=size), factor, dof)
        name = f"Student-t {size}-d, {dof:g} degrees of freedom"
        yield _from_part(name, group, part, -0.5 * size, has_box=dof >= 1.5)
    parts = [
        student([m], [s], dof)
        for m, s, dof in ((0, 1, 0.5), (2, 0.3, 1), (-5, 4, 2), (1, 1.6, 3))
    ]
    yield _from_part("Student-t product 4-d", group, product(parts), 2.8, has_box=False)
    parts = [
        student([-6.0, 2, 0, 1, 5], np.linspace(0.5, 1.5, 5), 2.0),
        student([7.0, -3, 4, 0, -8], np.linspace(1.2, 0.3, 5), 3.0),
    ]
    yield _from_part("two Student-t 5-d", group, mixture([0.7, 0.3], parts), 0.0)


def _bounded():
    group = "bounded"

    def beta(name, a, b):
        a, b = np.asarray(a, float), np.asarray(b, float)
        return Density(
            name,
            group,
            lambda x: jnp.sum((a - 1) * jnp.log(x) + (b - 1) * jnp.log1p(-x)),
            a.shape,
            float(scipy.special.betaln(a, b).sum()),
            support="unit",
            region=(np.zeros(a.shape), np.ones(a.shape)),
        )

    def gamma(name, shape, scale):
        shape, scale = np.asarray(shape, float), np.asarray(scale, float)
        log_z = scipy.special.gammaln(shape) + shape * np.log(scale)
        return Density(
            name,
            group,
            lambda x: jnp.sum((shape - 1) * jnp.log(x) - x / scale),
            shape.shape,
            float(log_z.sum()),
            support="positive",
            region=(np.zeros(shape.shape), 20 * scale),
        )

    def dirichlet(name, a):
        a = np.asarray(a, float)
        log_z = scipy.special.gammaln(a).sum() - scipy.special.gammaln(a.sum())
        return Density(
            name,
            group,
            lambda x: jnp.sum((a - 1) * jnp.log(x)),
            a.shape,
            float(log_z),
            support="simplex",
            region=(np.zeros(a.shape), np.ones(a.shape)),
        )

    yield beta("beta(0.1, 0.1) 3-d", [0.1] * 3, [0.1] * 3)
    yield beta("unlike betas 4-d", [0.15, 3.0, 0.6, 12.0], [0.4, 0.8, 0.5, 2.5])
    yield gamma("gamma(0.02) 5-d", [0.02] * 5, [1.0] * 5)
    yield gamma("unlike gammas 4-d", [0.07, 2.4, 0.6, 9.0], [3.0, 0.01, 200.0, 1.0])
    yield dirichlet("Dirichlet(0.01) 9-d", [0.01] * 10)
    yield dirichlet("unlike Dirichlet 3-d", [0.3, 2.0, 0.8, 5.5])
    yield _bounded_by_name(group)
    part = box([-3.0, 0, 10, -0.2, 5], [1.0, 0.5, 90, 0.3, 6])
    yield _from_part("uniform box 5-d", group, part, 4.2)


def _bounded_by_name(group):
    """A gamma, a beta, a truncated normal and a reflected exponential."""
    share = scipy.special.ndtr((6 - 5) / 2) - scipy.special.ndtr((-1 - 5) / 2)
    log_z = (
        2 * (scipy.special.gammaln(2.3) + 2.3 * math.log(4.0))
        + scipy.special.betaln(3.0, 0.7)
        + math.log(share * 2 * math.sqrt(2 * math.pi))
        - math.log(0.5)
    )

    def log_density(p):
        rate, share, shift, level = p["rate"], p["share"], p["shift"], p["level"]
        return (
            jnp.sum(1.3 * jnp.log(rate) - rate / 4.0)
            + 2.0 * jnp.log(share)
            - 0.3 * jnp.log1p(-share)
            - 0.5 * ((shift - 5.0) / 2.0) ** 2
            - 0.5 * (3.0 - level)
        )

    low = {"rate": np.zeros(2), "share": 0.0, "shift": -1.0, "level": -40.0}
    high = {"rate": np.full(2, 80.0), "share": 1.0, "shift": 6.0, "level": 3.0}
    return Density(
        "four supports by name 5-d",
        group,
        log_density,
        {"rate": (2,), "share": (), "shift": (), "level": ()},
        float(log_z),
        support={
            "rate": "positive",
            "share": "unit",
            "shift": (-1, 6),
            "level": (None, 3),
        },
        region=(low, high),
    )


def _jumps():
    group = "jumps"
    part = product(
        [
            stairs(0.5, (1.0, 0.4), (0.7, 0.3)),
            stairs(-3.0, (0.2, 2.0), (0.5, 1.1)),
            stairs(10.0, (5.0, 1.5), (0.9, 0.2)),
        ]
    )
    yield _from_part("stairs 3-d", group, part, 0.0)
    rng = np.random.default_rng(71)
    for name, ratio, threshold in (("step", 7.0, -1.0), ("cut-off", 0.0, 0.8)):
        factor = _random_factor(rng, 4, 10.0)
        direction = rng.normal(size=4)
        part = split_normal(rng.normal(size=4), factor, direction, threshold, ratio)
        yield _from_part(f"normal with a {name} 4-d", group, part, -1.4)
    part = mixture(
        [0.6, 0.3, 0.1],
        [
            box([0, 0, 0, 0], [1.0, 2.0, 0.5, 3.0]),
            box([4, -3, 1, 1], [6.0, -1.0, 2.0, 2.0]),
            box([-5, 3, -4, -3], [-4.5, 3.5, -1, -2]),
        ],
    )
    yield _from_part("three boxes 4-d", group, part, 2.6)


def _labels():
    """All orders of the same parameters are as good."""
    group = "label switching"
    means, scales = np.array([-3.0, -0.5, 1.0, 6.0]), np.array([0.3, 0.8, 0.5, 1.4])
    orders = np.array(list(itertools.permutations(range(4))))
    part = normals(np.ones(24), means[orders], scales[orders])
    yield _from_part("four labels 4-d", group, part, 0.3)
    means = np.array([[0.0, 4.0], [-5.0, 1.0], [2.0, -3.0]])
    scales = np.array([[0.5, 1.0], [1.2, 0.4], [0.7, 0.7]])
    orders = np.array(list(itertools.permutations(range(3))))
    part = normals(
        np.ones(6), means[orders].reshape(6, 6), scales[orders].reshape(6, 6)
    )
    yield _from_part("three labels of pairs 6-d", group, part, -2.2)


def _many_modes():
    group = "many modes"
    rng = np.random.default_rng(81)
    for side, size, step in ((5, 2, 4.0), (7, 2, 3.0), (3, 3, 6.0)):
        places = np.array(list(itertools.product(range(side), repeat=size)), float)
        places = step * (places - 0.3 * side) + 0.5 * rng.normal(size=places.shape)
        count = len(places)
        weights = np.exp(0.7 * rng.normal(size=count))
        part = normals(weights, places, rng.uniform(0.2, 0.6, count))
        yield _from_part(f"{count} modes {size}-d", group, part, 1.0)
    part = product(
        [
            rugged(0.6, 2.0, 3.0, 5.0, 0.4),
            rugged(-1.0, 1.2, 2.0, 8.0, 1.9),
            rugged(4.0, 3.0, 1.5, 3.0, -0.7),
        ]
    )
    yield _from_part("rugged 3-d", group, part, 0.0)
    yield Density(
        "eggs in a box 2-d",
        group,
        _eggs,
        (2,),
        EGGS_LOG_Z,
        known_by="quadrature",
        support=(-300, 400),
        region=(np.full(2, -300.0), np.full(2, 400.0)),
    )


EGGS_LOG_Z = 16.07835


def _eggs(x):
    """The Eggholder surface, scaled to a few units of height."""
    a, b = x[0], x[1] + 47.0
    hills = b * jnp.sin(jnp.sqrt(jnp.abs(0.5 * a + b) + 1e-6))
    hills += a * jnp.sin(jnp.sqrt(jnp.abs(a - b) + 1e-6))
    return hills / 80.0


def _models():
    group = "models"
    yield _dollars(group)
    yield _dollars_unknown_variance(group)
    yield from _two_coefficients(group)
    yield _conversions(group)
    yield _counts(group)
    yield _schools(group)
    yield _horseshoe(group)
    yield from _correlated()


@functools.cache
def _houses():
    """Prices in dollars from areas in square feet, ages in years and rooms."""
    rng = np.random.default_rng(91)
    area, age = rng.normal(1700, 450, 60), rng.gamma(2.0, 15.0, 60)
    rooms = np.clip(np.round(area / 350 + rng.normal(size=60)), 1, 9)
    X = np.stack([np.ones(60), area, age, rooms], axis=1)
    y = X @ np.array([61_000.0, 118.0, -840.0, 6_300.0]) + rng.normal(0, 24_000, 60)
    return X, np.round(y)


def _dollars(group):
    """Known noise, normal prior: the data are normal."""
    X, y = _houses()
    noise = 25_000.0
    mean = np.array([100_000.0, 90.0, -500.0, 5_000.0])
    scale = np.array([150_000.0, 80.0, 1_500.0, 12_000.0])
    factor = np.linalg.cholesky(noise**2 * np.eye(len(y)) + (X * scale**2) @ X.T)
    z = np.linalg.solve(factor, y - X @ mean)
    log_z = (
        -0.5 * z @ z
        - np.log(np.diag(factor)).sum()
        - 0.5 * len(y) * math.log(2 * math.pi)
    )
    precision = X.T @ X / noise**2 + np.diag(1 / scale**2)
    covariance = np.linalg.inv(precision)
    center = covariance @ (X.T @ y / noise**2 + mean / scale**2)

    def log_likelihood(coefficients):
        return jnp.sum(jax.scipy.stats.norm.logpdf(y, X @ coefficients, noise))

    def log_density(coefficients):
        prior = jax.scipy.stats.norm.logpdf(coefficients, mean, scale)
        return log_likelihood(coefficients) + jnp.sum(prior)

    posterior = normal(center, np.linalg.cholesky(covariance))
    return Density(
        "linear regression in dollars 4-d",
        group,
        log_density,
        (4,),
        float(log_z),
        region=(mean - 6 * scale, mean + 6 * scale),
        draw=posterior.draw,
        prior=lambda: flowjax.distributions.Normal(
            jnp.asarray(mean), jnp.asarray(scale)
        ),
        log_likelihood=log_likelihood,
    )


def _dollars_unknown_variance(group):
    """Normal-inverse-gamma prior: the data are Student-t."""
    X, y = _houses()
    X = X[:, :3]
    mean = np.array([100_000.0, 90.0, -500.0])
    prior_precision = np.diag(1 / np.array([6.0, 3e-3, 0.05]) ** 2)
    a, b = 3.0, 1.2e9
    precision = prior_precision + X.T @ X
    center = np.linalg.solve(precision, prior_precision @ mean + X.T @ y)
    a_after = a + 0.5 * len(y)
    b_after = b + 0.5 * (
        y @ y + mean @ prior_precision @ mean - center @ precision @ center
    )
    log_z = (
        -0.5 * len(y) * math.log(2 * math.pi)
        + 0.5
        * (np.linalg.slogdet(prior_precision)[1] - np.linalg.slogdet(precision)[1])
        + a * math.log(b)
        - a_after * math.log(b_after)
        + scipy.special.gammaln(a_after)
        - scipy.special.gammaln(a)
    )
    scale = 1 / np.sqrt(np.diag(prior_precision))
    constant = a * math.log(b) - scipy.special.gammaln(a)

    def log_density(p):
        coefficients, variance = p["coefficients"], p["variance"]
        deviation = jnp.sqrt(variance)
        return (
            jnp.sum(jax.scipy.stats.norm.logpdf(y, X @ coefficients, deviation))
            + jnp.sum(
                jax.scipy.stats.norm.logpdf(coefficients, mean, scale * deviation)
            )
            + constant
            - (a + 1) * jnp.log(variance)
            - b / variance
        )

    factor = np.linalg.cholesky(np.linalg.inv(precision))

    def draw(rng, number):
        variance = b_after / rng.gamma(a_after, size=(number, 1))
        z = rng.normal(size=(number, 3)) @ factor.T
        x = np.concatenate([center + np.sqrt(variance) * z, variance], axis=1)
        return x, np.zeros(number, int)

    reach = 8 * scale * math.sqrt(b_after / a_after)
    return Density(
        "regression in dollars, variance unknown 4-d",
        group,
        log_density,
        {"coefficients": (3,), "variance": ()},
        float(log_z),
        support={"variance": "positive"},
        region=(
            {"coefficients": mean - reach, "variance": 0.0},
            {"coefficients": mean + reach, "variance": 5e9},
        ),
        draw=draw,
    )


LOGISTIC_LOG_Z = -20.988132
POISSON_LOG_Z = -26.294192


def _two_coefficients(group):
    """Intercept and slope, by quadrature."""
    rng = np.random.default_rng(95)
    age = rng.uniform(20, 75, 30)
    ill = (rng.uniform(size=30) < scipy.special.expit(0.09 * age - 5.0)).astype(float)
    mean, scale = np.array([-1.0, 0.0]), np.array([6.0, 0.2])

    def logistic(x):
        logits = x[0] + x[1] * age
        return jnp.sum(ill * logits - jax.nn.softplus(logits))

    count = rng.poisson(np.exp(-0.8 + 1.1 * np.linspace(-1, 2.5, 18))).astype(float)
    hour = np.linspace(-1, 2.5, 18)
    constant = scipy.special.gammaln(count + 1).sum()

    def poisson(x):
        log_rates = x[0] + x[1] * hour
        return jnp.sum(count * log_rates - jnp.exp(log_rates)) - constant

    rows = (
        ("logistic regression on ages 2-d", logistic, mean, scale, LOGISTIC_LOG_Z),
        (
            "Poisson regression 2-d",
            poisson,
            np.array([0.5, 0.0]),
            np.array([2.0, 3.0]),
            POISSON_LOG_Z,
        ),
    )
    for name, log_likelihood, mean, scale, log_z in rows:

        def log_density(x, log_likelihood=log_likelihood, mean=mean, scale=scale):
            prior = jax.scipy.stats.norm.logpdf(x, mean, scale)
            return log_likelihood(x) + jnp.sum(prior)

        yield Density(
            name,
            group,
            log_density,
            (2,),
            log_z,
            known_by="quadrature",
            region=(mean - 6 * scale, mean + 6 * scale),
            prior=lambda mean=mean, scale=scale: flowjax.distributions.Normal(
                jnp.asarray(mean), jnp.asarray(scale)
            ),
            log_likelihood=log_likelihood,
        )


CONVERSIONS = (
    np.array([0.5, 2.0, 1.5]),
    np.array([1.0, 9.0, 0.7]),
    np.array([0.0, 41.0, 7.0]),
    np.array([12.0, 900.0, 9.0]),
)
"""Betas of the prior (two), successes and trials of three binomials."""


def _conversions(group):
    a, b, hits, trials = CONVERSIONS
    beta = scipy.special.betaln
    log_z = (beta(a + hits, b + trials - hits) - beta(a, b)).sum()

    def log_likelihood(x):
        return jnp.sum(hits * jnp.log(x) + (trials - hits) * jnp.log1p(-x))

    def log_density(x):
        prior = (a - 1) * jnp.log(x) + (b - 1) * jnp.log1p(-x)
        return log_likelihood(x) + jnp.sum(prior) - beta(a, b).sum()

    return Density(
        "three conversion rates 3-d",
        group,
        log_density,
        (3,),
        float(log_z),
        support="unit",
        region=(np.zeros(3), np.ones(3)),
        prior=lambda: flowjax.distributions.Beta(jnp.asarray(a), jnp.asarray(b)),
        log_likelihood=log_likelihood,
    )


COUNTS = (
    np.array([0.4, 3.0]),
    np.array([50.0, 2.0]),
    np.array([0.0, 640.0]),
    np.array([4.0, 25.0]),
)
"""Gammas of the prior (shape, scale), totals and exposures of two Poisson counts."""


def _counts(group):
    shape, scale, total, exposure = COUNTS
    after, rate = shape + total, 1 / scale + exposure
    log_z = (
        scipy.special.gammaln(after)
        - after * np.log(rate)
        - scipy.special.gammaln(shape)
        - shape * np.log(scale)
    ).sum()
    constant = (scipy.special.gammaln(shape) + shape * np.log(scale)).sum()

    def log_likelihood(x):
        return jnp.sum(total * jnp.log(x) - exposure * x)

    def log_density(x):
        prior = (shape - 1) * jnp.log(x) - x / scale
        return log_likelihood(x) + jnp.sum(prior) - constant

    return Density(
        "two rates of counts 2-d",
        group,
        log_density,
        (2,),
        float(log_z),
        support="positive",
        region=(np.zeros(2), np.array([10.0, 60.0])),
        prior=lambda: flowjax.distributions.Gamma(
            jnp.asarray(shape), jnp.asarray(scale)
        ),
        log_likelihood=log_likelihood,
    )


SCHOOLS = (
    np.array([28.0, 8, -3, 7, -1, 1, 18, 12]),
    np.array([15.0, 10, 16, 11, 9, 11, 10, 18]),
)
"""Effects and their standard errors (Rubin, 1981)."""

SCHOOLS_LOG_Z = -31.311347


def _schools(group):
    """Centred: the scale of the effects makes a funnel of them."""
    effects, errors = SCHOOLS

    def log_density(p):
        mean, log_scale, each = p["mean"], p["log_scale"], p["each"]
        scale = jnp.exp(log_scale)
        return (
            jax.scipy.stats.norm.logpdf(mean, 0.0, 5.0)
            + jnp.log(2 / (5 * math.pi))
            - jnp.log1p((scale / 5) ** 2)
            + log_scale
            + jnp.sum(jax.scipy.stats.norm.logpdf(each, mean, scale))
            + jnp.sum(jax.scipy.stats.norm.logpdf(effects, each, errors))
        )

    return Density(
        "eight schools, centred 10-d",
        group,
        log_density,
        {"mean": (), "log_scale": (), "each": (8,)},
        SCHOOLS_LOG_Z,
        known_by="marginal quadrature",
    )


def schools_marginal(mean, log_scale):
    """Log density of mean and scale, the effects integrated out."""
    effects, errors = SCHOOLS
    scale, normal = np.exp(log_scale), scipy.stats.norm.logpdf
    total = normal(mean, 0, 5) + log_scale
    total = total + math.log(2 / (5 * math.pi)) - np.log1p((scale / 5) ** 2)
    for effect, error in zip(effects, errors, strict=True):
        total = total + normal(effect, mean, np.sqrt(error**2 + scale**2))
    return total


HORSESHOE_LOG_Z = -40.436400


@functools.cache
def _sparse_data():
    """An orthogonal design, three of eight coefficients, noise of one."""
    rng = np.random.default_rng(131)
    X = np.linalg.qr(rng.normal(size=(20, 8)))[0] * math.sqrt(20)
    y = X @ np.array([1.5, 0, 0, -2.3, 0, 0.7, 0, 0]) + rng.normal(size=20)
    return X, y


def _horseshoe(group):
    """Scales for all and for each coefficient, half-Cauchy; not centred."""
    X, y = _sparse_data()

    def log_half_cauchy(log_scale):
        return jnp.log(2 / math.pi) + log_scale - jnp.log1p(jnp.exp(2 * log_scale))

    def log_density(x):
        z, local, overall = x[:8], x[8:16], x[16]
        coefficients = z * jnp.exp(local + overall)
        return (
            jnp.sum(jax.scipy.stats.norm.logpdf(z))
            + jnp.sum(log_half_cauchy(local))
            + log_half_cauchy(overall)
            + jnp.sum(jax.scipy.stats.norm.logpdf(y, X @ coefficients, 1.0))
        )

    return Density(
        "horseshoe regression 17-d",
        group,
        log_density,
        (17,),
        HORSESHOE_LOG_Z,
        known_by="marginal quadrature",
    )


def horseshoe_marginal(local, overall):
    """Log density of the scales, the coefficients integrated out, in three terms.

    Args:
        local: Logarithms of those of the coefficients, in the last axis.
        overall: Logarithm of that of all.

    Returns:
        A constant, a term for each coefficient, and one for the scale of all.
    """
    X, y = _sparse_data()
    count = len(y)
    estimates = X.T @ y / count
    rest = np.sum((y - X @ estimates) ** 2)
    constant = -0.5 * (
        rest + count * math.log(2 * math.pi) + 8 * math.log(count / (2 * math.pi))
    )
    overall = np.asarray(overall)
    deviation = np.sqrt(1 / count + np.exp(2 * (local + overall[..., None])))
    each = scipy.stats.norm.logpdf(estimates, 0, deviation)
    each = each + math.log(2 / math.pi) + local - np.log1p(np.exp(2 * local))
    rest = math.log(2 / math.pi) + overall - np.log1p(np.exp(2 * overall))
    return constant, each, rest


def _correlated():
    rng = np.random.default_rng(101)
    for size, condition in ((10, 1e6), (30, 1e4)):
        factor = _random_factor(rng, size, condition)
        part = normal(4 * rng.normal(size=size), factor)
        name = f"correlated normal {size}-d, condition {condition:.0e}"
        yield _from_part(name, "correlated", part, 0.2 * size)


def _improper():
    group = "improper"

    def density(name, log_density, shape, **rest):
        return Density(
            name, group, log_density, shape, math.inf, known_by="improper", **rest
        )

    yield density("constant 2-d", lambda x: 1.5 + 0.0 * jnp.sum(x), (2,))
    yield density(
        "one direction free 3-d",
        lambda x: (
            -0.5 * (x[0] - 1.0) ** 2 - 2.0 * (x[1] + x[2] - 0.4 * x[0] - 3.0) ** 2
        ),
        (3,),
    )
    yield density(
        "tail of 1/x 1-d", lambda x: -jnp.log(1.0 + jnp.abs(x[0] - 2.0)), (1,)
    )
    yield density(
        "1/x at zero 2-d",
        lambda x: jnp.sum(np.array([-1.0, 0.5]) * jnp.log(x) - x / 3.0),
        (2,),
        support="positive",
    )
    rng = np.random.default_rng(111)
    x = rng.normal(size=(25, 3)) * np.array([1.0, 2.0, 0.6]) + 0.3
    side = np.sign(x @ np.array([1.0, -0.7, 0.4]) - 0.2)

    def separable(p):
        margins = side * (p["intercept"] + x @ p["slopes"])
        return -jnp.sum(jax.nn.softplus(-margins))

    yield density(
        "separable logistic regression 4-d",
        separable,
        {"intercept": (), "slopes": (3,)},
    )


_GROUPS = (
    _mixtures,
    _far,
    _needles,
    _curved,
    _funnels,
    _heavy,
    _bounded,
    _jumps,
    _labels,
    _many_modes,
    _models,
    _improper,
)


@functools.cache
def zoo() -> dict[str, Density]:
    """All densities by name."""
    listed = [density for group in _GROUPS for density in group()]
    named = {density.name: density for density in listed}
    assert len(named) == len(listed), "two densities have the same name"
    return named

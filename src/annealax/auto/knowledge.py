"""What the user knows beside the density: a prior, a region, points.

It says where to look, and may give a start of its own. It never replaces the search:
points may be of one mode among several.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from annealax._device import to_device
from annealax._errors import InvalidInputError
from annealax._jit import quick_jit
from annealax.auto.parameters import Space
from annealax.auto.places import Around, Climbers, Everywhere, Places
from annealax.auto.starts.base import AbstractBase, Candidate, Start
from annealax.auto.starts.gaussian import Linear, normal_start
from annealax.auto.supports import is_numpyro_constraint, words_of_constraint

_PILOT_DRAWS = 2000
"""Draws from a prior or a region by which its centre and scales are measured."""

_BESIDE = 1
"""Folded into the key of a draw, for what parameters do not determine."""

_MAX_POINTS = 256
"""Of more points given, so many are used."""


class Prior(eqx.Module):
    """A distribution that can be drawn from and evaluated, in the user's space.

    Attributes:
        parts: One for each parameter, or only one.
        named: Whether the parameters have names.
    """

    parts: dict[str, Any]
    named: bool = eqx.field(static=True)

    def sample(self, key: PRNGKeyArray) -> Any:
        """One draw."""
        keys = jr.split(key, len(self.parts))
        drawn = {
            name: each.sample(subkey)
            for subkey, (name, each) in zip(keys, self.parts.items(), strict=True)
        }
        return drawn if self.named else drawn[""]

    def log_prob(self, value: Any) -> Float[Array, ""]:
        """Normalised log density."""
        values = value if self.named else {"": value}
        terms = [jnp.sum(each.log_prob(values[name])) for name, each in self._items()]
        return sum(terms, jnp.zeros(()))

    def _items(self):
        return self.parts.items()

    def shapes(self) -> Any:
        """The shape of a draw, or shapes in the structure of a draw."""
        drawn = eqx.filter_eval_shape(self.sample, jr.key(0))
        return jax.tree.map(lambda leaf: leaf.shape, drawn)

    def supports(self) -> Any:
        """What the parts say about where they live, in the words of `support`."""
        found = {name: _support_of(each) for name, each in self._items()}
        if self.named:
            return {name: each for name, each in found.items() if each is not None}
        return found[""]


class _Pair(eqx.Module):
    """A prior of two functions."""

    sample: Callable[[PRNGKeyArray], Any]
    log_prob: Callable[[Any], Array]


def as_prior(prior: Any) -> Prior:
    """A distribution, a dict of them, or a pair of functions.

    Raises:
        InvalidInputError: If it is nothing of the kind.
    """
    if isinstance(prior, tuple) and len(prior) == 2 and all(map(callable, prior)):
        pair = _Pair(*prior)
        return Joint(pair.sample, pair.log_prob)
    named = isinstance(prior, Mapping)
    parts = dict(prior) if named else {"": prior}
    for name, each in parts.items():
        if not (callable(getattr(each, "sample", None)) and hasattr(each, "log_prob")):
            what = f"of {name} " if name else ""
            raise InvalidInputError(
                f"the prior {what}must be a distribution with sample and log_prob, "
                "such as those of flowjax or NumPyro, a dict of them by name, or a "
                f"pair of functions (draw from a key, log density); got {each!r}"
            )
    if not parts:
        raise InvalidInputError("the prior is an empty dict")
    return Prior(parts, named=named)


class Joint(Prior):
    """A prior of all parameters together, whatever their structure.

    Args:
        sample: One draw from a key.
        log_prob: Normalised log density.
    """

    def __init__(
        self,
        sample: Callable[[PRNGKeyArray], Any],
        log_prob: Callable[[Any], Array],
    ):
        self.parts, self.named = {"": _Pair(sample, log_prob)}, True

    def sample(self, key):
        """One draw."""
        return self.parts[""].sample(key)

    def log_prob(self, value):
        """Normalised log density."""
        return self.parts[""].log_prob(value)

    def supports(self):
        """Nothing is known."""
        return None


def _support_of(part: Any) -> Any:
    """What a distribution says about where it lives; None where nothing is said."""
    constraint: Any = getattr(part, "support", None)
    return (
        words_of_constraint(constraint) if is_numpyro_constraint(constraint) else None
    )


class Posterior(eqx.Module):
    """Prior times likelihood."""

    prior: Prior
    log_likelihood: Callable[..., Array]

    def __call__(self, value: Any, *args: Any) -> Float[Array, ""]:
        """Log density of one point."""
        log_prior = self.prior.log_prob(value)
        # Where there is no prior mass the likelihood need not make sense.
        inside = log_prior > -jnp.inf
        return jnp.where(
            inside, log_prior + self.log_likelihood(value, *args), -jnp.inf
        )


class PriorBase(AbstractBase):
    """The prior in standardised unconstrained coordinates."""

    is_prior: ClassVar[bool] = True
    shape: tuple[int, ...] = eqx.field(static=True)
    prior: Prior
    space: Space
    centre: Float[Array, " size"]
    scale: Float[Array, " size"]

    def __init__(self, prior: Prior, space: Space, linear: Linear, scale: np.ndarray):
        self.shape, self.prior, self.space = linear.shape, prior, space
        self.centre, self.scale = linear.mean, to_device(scale)

    def sample(self, key, sample_shape=(), condition=None):
        """Independent draws."""
        count = math.prod(sample_shape)

        def draw(key):
            value = self.prior.sample(key)
            x = self.space.unconstrain(value, jr.fold_in(key, _BESIDE))
            return (x - self.centre) / self.scale

        drawn = jax.vmap(draw)(jr.split(key, count))
        return drawn.reshape(*sample_shape, *self.shape)

    def log_prob(self, x, condition=None):
        """Normalised log density of one point."""
        value, log_det = self.space.constrain(self.centre + self.scale * x)
        return self.prior.log_prob(value) + log_det + jnp.sum(jnp.log(self.scale))


class Drawn(Places):
    """Points from a distribution over the region of interest.

    Args:
        draw: Draws so many unconstrained points.
        scale: How far these reach.
        words: Where that is.
    """

    def __init__(
        self,
        draw: Callable[[PRNGKeyArray, int], np.ndarray],
        scale: np.ndarray,
        words: str,
    ):
        self._draw, self._scale, self._words = draw, float(np.median(scale)), words

    def draw(self, key, count):
        """So many points."""
        return Climbers(self._draw(key, count), np.full(count, self._scale))

    def __str__(self):
        """Where."""
        return self._words


@dataclasses.dataclass(frozen=True)
class Knowledge:
    """What is known beside the density, for the search.

    Attributes:
        places: Where to look.
        start: A start that covers it; None without a prior or a region.
        points: Points to look at, unconstrained; none if none were given.
    """

    places: Places
    start: Candidate | None
    points: np.ndarray

    @property
    def is_limited(self) -> bool:
        """Whether nothing was looked at outside of a region or a prior."""
        return self.start is not None


def gather(
    key: PRNGKeyArray, space: Space, prior: Prior | None, region: Any, initial: Any
) -> Knowledge:
    """Put together what is known."""
    points = np.zeros((0, space.size))
    if initial is not None:
        points = _points(space, initial)
    if prior is not None:
        return Knowledge(*_from_prior(key, space, prior), points)
    if region is not None:
        return Knowledge(*_from_region(key, space, region), points)
    return Knowledge(Everywhere(space.size), None, points)


class _Found(NamedTuple):
    places: Places
    start: Candidate


def _from_prior(key: PRNGKeyArray, space: Space, prior: Prior) -> _Found:
    @quick_jit
    def draw(keys):
        def one(key):
            return space.unconstrain(prior.sample(key), jr.fold_in(key, _BESIDE))

        return jax.vmap(one)(keys)

    def draws(key, count):
        return np.asarray(draw(jr.split(key, count)), np.float64)

    drawn = draws(key, _PILOT_DRAWS)
    if not np.isfinite(drawn).all():
        raise InvalidInputError(
            "draws from the prior are not finite, or lie outside of the support: give "
            "support= so that it holds all of the prior"
        )
    centre, scale = _robust(drawn)
    linear = Linear.scaled(centre, scale)
    base = PriorBase(prior, space, linear, scale)
    places = Drawn(draws, scale, "where the prior has mass")
    return _Found(places, Candidate("prior", Start(base, linear)))


def _from_region(key: PRNGKeyArray, space: Space, region: Any) -> _Found:
    low, high = region_bounds(space, region)

    @quick_jit
    def place(shares):
        def one(share):
            value = jax.tree.map(lambda a, b, u: a + u * (b - a), low, high, share)
            return space.unconstrain(value)

        return jax.vmap(one)(shares)

    def draws(key, count):
        leaves, tree = jax.tree.flatten(low)
        shares = [
            jr.uniform(each, (count, *leaf.shape))
            for each, leaf in zip(jr.split(key, len(leaves)), leaves, strict=True)
        ]
        return np.asarray(place(jax.tree.unflatten(tree, shares)), np.float64)

    drawn = draws(key, _PILOT_DRAWS)
    if not np.isfinite(drawn).all():
        raise InvalidInputError("the region reaches beyond the support")
    centre, scale = drawn.mean(axis=0), drawn.std(axis=0)
    start = normal_start(Linear.scaled(centre, scale))
    return _Found(
        Drawn(draws, scale, "in the region given"),
        Candidate("normal as wide as the region", start),
    )


def region_bounds(space: Space, region: Any) -> tuple[Any, Any]:
    """Lowest and highest values, as the user's parameters are."""
    pairs = {}
    names = [each.name for each in space.parameters]
    if space.named and not isinstance(region, Mapping | tuple | list):
        raise InvalidInputError(
            f"with named shapes, region must be a dict of all names {names}; got "
            f"{region!r}"
        )
    # Names that are missing are noticed below, each by itself.
    regions = region if space.is_flat else space.split(region)
    for each in space.parameters:
        label = each.name or "the density"
        if each.name not in regions:
            raise InvalidInputError(f"region does not say where {label} lies")
        given = regions[each.name]
        try:
            low, high = given if isinstance(given, tuple | list) else (None, given)
            high = np.broadcast_to(np.asarray(high, float), each.shape)
            low = -high if low is None else low
            low = np.broadcast_to(np.asarray(low, float), each.shape)
        except (TypeError, ValueError):
            raise InvalidInputError(
                f"the region of {label} must be a pair (lowest, highest), or a scale "
                f"for minus to plus that; got {given!r}"
            ) from None
        low, high = np.maximum(low, each.bounds[0]), np.minimum(high, each.bounds[1])
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise InvalidInputError(
                f"the region of {label} must have finite bounds, got {given!r}"
            )
        if not (low < high).all():
            raise InvalidInputError(
                f"the region of {label} is empty within its support: {given!r}"
            )
        pairs[each.name] = (to_device(low), to_device(high))
    lows, highs = ({name: pair[i] for name, pair in pairs.items()} for i in (0, 1))
    return space.assemble(lows), space.assemble(highs)


def _points(space: Space, initial: Any) -> np.ndarray:
    """Points in the user's space as unconstrained vectors."""
    shapes = {each.name: each.shape for each in space.parameters}
    try:
        values = space.split(initial)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"initial must be points such as the density takes: {error}"
        ) from None
    stacked = {}
    for name, shape in shapes.items():
        value = np.asarray(values[name], float)
        if value.shape == shape:
            value = value[None]
        if value.shape[1:] != shape or not np.isfinite(value).all():
            raise InvalidInputError(
                f"initial {name or 'points'} must be finite and of the shape {shape}, "
                f"or one more axis for several points; got the shape {value.shape}"
            )
        stacked[name] = value
    counts = {len(value) for value in stacked.values()}
    if len(counts) != 1:
        raise InvalidInputError(
            f"initial has different numbers of points by name: {sorted(counts)}"
        )
    (count,) = counts
    chosen = np.linspace(0, count - 1, min(count, _MAX_POINTS)).astype(int)
    picked = {name: to_device(each[chosen]) for name, each in stacked.items()}
    points = np.asarray(jax.vmap(space.unconstrain)(space.assemble(picked)), float)
    if not np.isfinite(points).all():
        raise InvalidInputError("initial has points outside of the support")
    return points


def around_points(points: np.ndarray) -> Around:
    """Places around points that were given."""
    scale = points.std(axis=0)
    typical = np.maximum(np.abs(points).mean(axis=0), 1.0)
    scale = np.where(scale > 0, scale, 0.1 * typical)
    return Around.one(points.mean(axis=0), scale)


def _robust(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Median and scale by quartiles, which heavy tails do not rule."""
    low, centre, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
    scale = (high - low) / 1.349
    return centre, np.where(scale > 0, scale, 1.0)

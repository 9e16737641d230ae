r"""Parameters with names, shapes and supports, as one unconstrained vector.

A density of constrained parameters :math:`\theta = T(x)` becomes a density of the
vector :math:`x`,

$$\log \gamma(x) = \log p(T(x)) + \log \lvert \det T'(x) \rvert,$$

so that log Z is the same in both spaces.
"""

import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import (
    AbstractBijection,
    Affine,
    Chain,
    Exp,
    Identity,
    Sigmoid,
    Vmap,
)
from jaxtyping import Array, Float

from annealax._errors import InvalidInputError

Shape = tuple[int, ...]
Support = Any
"""None or "real", "positive", "unit", a pair of bounds, "simplex", or a bijection."""

_AT_EDGE = 64
"""So many of the smallest steps from a bound count as the edge."""

_ONLY = ""
"""The name of the one parameter of a density that takes an array."""

_MOST_NUMBERS = 10**7
"""Numbers of a point: a thousand particles of them fill the largest memories."""


class Simplex(eqx.Module):
    r"""Numbers above zero that add up to one, along the last axis, by stick breaking.

    The Jacobian is that of all but the last of the numbers; zero stands for equal
    shares.

    Args:
        shape: Shape of the parameter; its last axis has at least two entries.
    """

    shape: Shape = eqx.field(static=True)

    def __check_init__(self):
        """Validate."""
        if not self.shape or self.shape[-1] < 2:
            raise InvalidInputError(
                "a simplex needs a last axis of at least two entries, got shape "
                f"{self.shape}"
            )

    @property
    def free_shape(self) -> Shape:
        """Shape of the unconstrained numbers."""
        return (*self.shape[:-1], self.shape[-1] - 1)

    def transform_and_log_det(self, x: Array) -> tuple[Array, Array]:
        """The shares, and the logarithm of the Jacobian."""
        count = self.shape[-1] - 1
        logit = x - jnp.log(jnp.arange(count, 0, -1, dtype=x.dtype))
        taken, left = jax.nn.log_sigmoid(logit), jax.nn.log_sigmoid(-logit)
        rest = jnp.cumsum(left, axis=-1)
        before = jnp.concatenate([jnp.zeros_like(rest[..., :1]), rest[..., :-1]], -1)
        log_shares = jnp.concatenate([taken + before, rest[..., -1:]], axis=-1)
        return jnp.exp(log_shares), jnp.sum(taken + left + before)

    def inverse(self, shares: Array) -> Array:
        """The unconstrained numbers."""
        count = self.shape[-1] - 1
        # What is left after each, added up from the end: differences would lose it.
        rest = jnp.flip(jnp.cumsum(jnp.flip(shares, -1), -1), -1)[..., 1:]
        logit = jnp.log(shares[..., :-1]) - jnp.log(rest)
        return logit + jnp.log(jnp.arange(count, 0, -1, dtype=shares.dtype))


class Parameter(NamedTuple):
    """One parameter.

    Attributes:
        name: Its name.
        shape: Its shape in the user's space.
        free_shape: Its shape without constraints.
        bijection: From the latter to the former.
        bounds: It lies between these, and never on them.
    """

    name: str
    shape: Shape
    free_shape: Shape
    bijection: AbstractBijection | Simplex
    bounds: tuple[float, float] = (-math.inf, math.inf)


class Space(eqx.Module):
    """Where a density lives, and how a vector stands for it.

    Args:
        shape: Shape of a configuration, or shapes by name.
        support: Where parameters may lie: see `annealax.sample`.
    """

    parameters: tuple[Parameter, ...]
    named: bool = eqx.field(static=True)

    def __init__(
        self,
        shape: int | Sequence[int] | Mapping[str, int | Sequence[int]],
        support: Support | Mapping[str, Support] = None,
    ):
        self.named = isinstance(shape, Mapping)
        if isinstance(shape, Mapping):
            shapes = {str(name): _shape(each, name) for name, each in shape.items()}
            supports = _supports(support, shapes)
        else:
            shapes = {_ONLY: _shape(shape, "shape")}
            supports = {_ONLY: support}
        total = sum(math.prod(each) for each in shapes.values())
        if total == 0:
            raise InvalidInputError(f"there is nothing to sample: shape is {shape}")
        if total > _MOST_NUMBERS:
            raise InvalidInputError(
                f"a point may have at most {_MOST_NUMBERS:,} numbers; got the shape "
                f"{reprlib.repr(shape)}"
            )
        self.parameters = tuple(
            _parameter(name, each, supports.get(name)) for name, each in shapes.items()
        )

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(math.prod(each.free_shape) for each in self.parameters)

    def constrain(self, vector: Float[Array, " size"]) -> tuple[Any, Array]:
        """The parameters that a vector stands for, and the log Jacobian."""
        values, log_det, start = {}, jnp.zeros((), vector.dtype), 0
        for each in self.parameters:
            stop = start + math.prod(each.free_shape)
            free = vector[start:stop].reshape(each.free_shape)
            if isinstance(each.bijection, Identity):
                values[each.name] = free
            else:
                value, term = each.bijection.transform_and_log_det(free)
                values[each.name] = _strictly_inside(value, each.bounds)
                log_det = log_det + term
            start = stop
        return (values if self.named else values[_ONLY]), log_det

    def unconstrain(self, value: Any) -> Float[Array, " size"]:
        """The vector that stands for parameters."""
        values = value if self.named else {_ONLY: value}
        parts = []
        for each in self.parameters:
            inside = jnp.asarray(values[each.name], jnp.result_type(float))
            if not isinstance(each.bijection, Identity):
                inside = _strictly_inside(inside, each.bounds)
                inside = each.bijection.inverse(inside)
            parts.append(inside.reshape(-1))
        return jnp.concatenate(parts)

    def values(self, vectors: Float[Array, "draws size"]) -> Any:
        """The parameters of many vectors."""
        return jax.vmap(lambda vector: self.constrain(vector)[0])(vectors)

    def share_at_edges(
        self, vectors: Float[Array, "draws size"], weights: np.ndarray
    ) -> dict[str, float]:
        """Share of the draws, by parameter, beyond which a bound cannot be told apart.

        Nearer to a bound than a few of the numbers that the precision can represent,
        all points are one.
        """
        values = self.values(vectors)
        shares = {}
        for each in self.parameters:
            if each.bounds == (-math.inf, math.inf):
                continue
            value = np.asarray(values[each.name] if self.named else values)
            numbers = np.finfo(value.dtype)
            at_edge = np.zeros(value.shape, bool)
            for bound in each.bounds:
                if math.isfinite(bound):
                    gap = np.spacing(np.asarray(abs(bound), value.dtype))
                    reach = _AT_EDGE * max(float(gap), float(numbers.tiny))
                    at_edge |= np.abs(value.astype(np.float64) - bound) <= reach
            flat = at_edge.reshape(len(weights), -1)
            shares[each.name] = float((weights @ flat).max())
        return shares

    def by_name(self, value: Any) -> dict[str, Array]:
        """Parameters by name; `x` if the density takes an array."""
        values = value if self.named else {_ONLY: value}
        return {each.name or "x": values[each.name] for each in self.parameters}

    def coordinate_names(self) -> list[str]:
        """A name for each number of the user's space, in order."""
        names = []
        for each in self.parameters:
            label = each.name or "x"
            for index in np.ndindex(each.shape):
                inside = ",".join(map(str, index))
                names.append(f"{label}[{inside}]" if inside else label)
        return names


def _strictly_inside(value: Array, bounds: tuple[float, float]) -> Array:
    """Off the bounds, on which a map ends far out by rounding.

    There a density such as that of beta(1/2, 1/2) is infinite.
    """
    if bounds == (-math.inf, math.inf):
        return value
    numbers = jnp.finfo(value.dtype)
    low, high = (np.asarray(each, value.dtype) for each in bounds)
    low = np.nextafter(low, np.inf, dtype=value.dtype)
    high = np.nextafter(high, -np.inf, dtype=value.dtype)
    # Below this, numbers are taken for zero.
    low = np.where(np.abs(low) < numbers.tiny, numbers.tiny, low)
    high = np.where(np.abs(high) < numbers.tiny, -numbers.tiny, high)
    return jnp.clip(value, low.astype(value.dtype), high.astype(value.dtype))


def _shape(shape: int | Sequence[int], name: str) -> Shape:
    sizes = (shape,) if isinstance(shape, int | np.integer) else shape
    try:
        result = tuple(int(size) for size in sizes)
        valid = all(int(size) == size and size > 0 for size in sizes)
    except (TypeError, ValueError):
        valid = False
    if not valid or any(isinstance(size, bool) for size in sizes):
        raise InvalidInputError(
            f"the shape of {name} must be positive whole numbers, such as (2,), or () "
            f"for one number; got {reprlib.repr(shape)}"
        )
    return result


def _supports(support: Any, shapes: Mapping[str, Shape]) -> Mapping[str, Support]:
    if support is None:
        return {}
    if not isinstance(support, Mapping):
        raise InvalidInputError(
            "with named shapes, support must be a dict of some of the names "
            f"{list(shapes)}; got {support!r}"
        )
    if unknown := [name for name in support if name not in shapes]:
        raise InvalidInputError(
            f"support names {unknown}, but the shapes have {list(shapes)}"
        )
    return support


def _parameter(name: str, shape: Shape, support: Support) -> Parameter:
    label = name or "the density"
    if support is None or support == "real":
        identity = Identity(shape)  # type: ignore[call-arg]
        return Parameter(name, shape, shape, identity)
    if isinstance(support, str) and support == "simplex":
        simplex = Simplex(shape)
        return Parameter(name, shape, simplex.free_shape, simplex, (0.0, math.inf))
    if isinstance(support, AbstractBijection):
        return _from_bijection(name, shape, support)
    if isinstance(support, str):
        if support == "positive":
            return Parameter(name, shape, shape, _exp(shape), (0.0, math.inf))
        if support == "unit":
            unit = _interval(shape, 0.0, 1.0)
            return Parameter(name, shape, shape, unit, (0.0, 1.0))
        raise InvalidInputError(
            f"unknown support {support!r} of {label}; use 'real', 'positive', 'unit', "
            "'simplex', a pair of bounds such as (0, 10), or a flowjax bijection"
        )
    low, high = _bounds(support, label)
    return Parameter(name, shape, shape, _bounded(shape, low, high), (low, high))


def _bounds(support: Any, label: str) -> tuple[float, float]:
    """Two numbers that rise; None, or infinity on its own side, is no bound."""
    try:
        low, high = (
            end if each is None else float(each)
            for each, end in zip(support, (-math.inf, math.inf), strict=True)
        )
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(
            f"support of {label} must be a name, a pair of bounds or a flowjax "
            f"bijection; got {reprlib.repr(support)}"
        ) from None
    if not low < high:  # so neither is NaN
        raise InvalidInputError(f"the bounds of {label} must rise, got ({low}, {high})")
    largest = float(jnp.finfo(jnp.result_type(float)).max)
    if any(largest < abs(each) < math.inf for each in (low, high)):
        raise InvalidInputError(
            f"the bounds of {label} must lie within {largest:.2g}, or be None where "
            f"there is none; got ({low}, {high})"
        )
    return low, high


def _bounded(shape: Shape, low: float, high: float) -> AbstractBijection:
    """Bounds on both sides, on one, or on none."""
    has_low, has_high = math.isfinite(low), math.isfinite(high)
    if has_low and has_high:
        return _interval(shape, low, high)
    if has_low:
        return Chain([_exp(shape), Affine(jnp.full(shape, low), jnp.ones(shape))])
    if has_high:
        return Chain([_exp(shape), Reflect(shape, high)])
    return Identity(shape)  # type: ignore[call-arg]


class Reflect(AbstractBijection):
    """x -> end - x."""

    shape: Shape = eqx.field(static=True)
    cond_shape: None = eqx.field(static=True)
    end: float = eqx.field(static=True)

    def __init__(self, shape: Shape, end: float):
        self.shape, self.cond_shape, self.end = shape, None, end

    def transform_and_log_det(self, x, condition=None):
        """Reflect."""
        return self.end - x, jnp.zeros((), x.dtype)

    def inverse_and_log_det(self, y, condition=None):
        """Reflect back."""
        return self.end - y, jnp.zeros((), y.dtype)


def _interval(shape: Shape, low: float, high: float) -> AbstractBijection:
    return Chain(
        [
            Sigmoid(shape),  # type: ignore[call-arg]
            Affine(jnp.full(shape, low), jnp.full(shape, high - low)),
        ]
    )


def _from_bijection(name: str, shape: Shape, bijection: AbstractBijection) -> Parameter:
    if bijection.cond_shape is not None:
        raise InvalidInputError(
            f"the bijection for {name or 'the density'} needs a condition; only "
            "unconditional ones can be used"
        )
    if bijection.shape == () and shape != ():
        for size in reversed(shape):
            bijection = Vmap(bijection, axis_size=size)
    if tuple(bijection.shape) != shape:
        raise InvalidInputError(
            f"the bijection for {name or 'the density'} has shape {bijection.shape}, "
            f"but the parameter has shape {shape}"
        )
    return Parameter(name, shape, shape, bijection)


def _exp(shape: Shape) -> AbstractBijection:
    return Exp(shape)  # type: ignore[call-arg]

r"""Parameters with names, shapes and supports, as one unconstrained vector.

A density of constrained parameters :math:`\theta = T(x)` becomes a density of the
vector :math:`x`,

$$\log \gamma(x) = \log p(T(x)) + \log \lvert \det T'(x) \rvert,$$

so that log Z is the same in both spaces.
"""

import functools
import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
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
from jaxtyping import Array, Float, PRNGKeyArray

from annealax._errors import InvalidInputError
from annealax._jit import quick_jit
from annealax.auto.supports import (
    Circular,
    Conditional,
    Constraint,
    CorrelationCholesky,
    Interval,
    Ordered,
    Shape,
    Simplex,
    UnitVector,
    from_numpyro_constraint,
    is_numpyro_constraint,
    words_of_constraint,
)

Support = Any
"""A name, a pair of bounds, a constraint of NumPyro, a bijection or a function."""

_AT_EDGE = 64
"""So many of the smallest steps from a bound count as the edge."""

_ONLY = ""
"""The name of the one parameter of a density that takes an array."""

_MOST_NUMBERS = 10**7
"""Numbers of a point: a thousand particles of them fill the largest memories."""


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
    bijection: AbstractBijection | Constraint
    bounds: tuple[float, float] = (-math.inf, math.inf)


Structure = Any
"""The name of a parameter, or how it is nested: kind, keys, and what is below each."""


class Nested(NamedTuple):
    """A dict, tuple, list or named tuple of parameters.

    Attributes:
        kind: Its type.
        keys: Names of what it holds, in order.
        below: What it holds.
    """

    kind: type
    keys: tuple[Any, ...]
    below: tuple[Structure, ...]


class Space(eqx.Module):
    """Where a density lives, and how a vector stands for it.

    Args:
        shape: Shape of a configuration, or shapes in any structure of dicts, tuples,
            lists and named tuples: a point has the same structure. A plain tuple or
            list of whole numbers is a shape.
        support: Where parameters may lie: see `annealax.sample`. For a structure, a
            structure of the same kind, in which names may be missing.
    """

    parameters: tuple[Parameter, ...]
    structure: Structure = eqx.field(static=True)

    def __init__(self, shape: Any, support: Any = None):
        shapes: dict[str, Shape] = {}
        self.structure = _structure(shape, (), shapes)
        supports = _supports(support, self.structure, shapes)
        total = sum(math.prod(each) for each in shapes.values())
        if total == 0:
            raise InvalidInputError(f"there is nothing to sample: shape is {shape}")
        if total > _MOST_NUMBERS:
            raise InvalidInputError(
                f"a point may have at most {_MOST_NUMBERS:,} numbers; got the shape "
                f"{reprlib.repr(shape)}"
            )
        parameters: list[Parameter] = []
        for name, each in shapes.items():
            parameters.append(_parameter(name, each, supports.get(name), parameters))
        self.parameters = tuple(parameters)

    @property
    def named(self) -> bool:
        """Whether a point is more than one array."""
        return self.structure != _ONLY

    @property
    def is_flat(self) -> bool:
        """Whether a point is one dict of arrays, and nothing deeper."""
        tree = self.structure
        flat = isinstance(tree, Nested) and tree.kind is dict
        return flat and not any(isinstance(each, Nested) for each in tree.below)

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(math.prod(each.free_shape) for each in self.parameters)

    def constrain(self, vector: Float[Array, " size"]) -> tuple[Any, Array]:
        """The parameters that a vector stands for, and the log Jacobian."""
        values: dict[str, Array] = {}
        log_det, start = jnp.zeros((), vector.dtype), 0
        for each in self.parameters:
            stop = start + math.prod(each.free_shape)
            free = vector[start:stop].reshape(each.free_shape)
            if isinstance(each.bijection, Identity):
                values[each.name] = free
            else:
                bijection = _given(each.bijection, values)
                value, term = bijection.transform_and_log_det(free)
                values[each.name] = _strictly_inside(value, each.bounds)
                log_det = log_det + term
            start = stop
        return self.assemble(values), log_det

    def unconstrain(
        self, value: Any, key: PRNGKeyArray | None = None
    ) -> Float[Array, " size"]:
        """The vector that stands for parameters.

        Args:
            value: The parameters.
            key: If given, what they do not determine (the distance of a direction from
                the origin) is drawn at random, else it has a typical value.
        """
        values = self.split(value)
        parts = []
        for index, each in enumerate(self.parameters):
            inside = jnp.asarray(values[each.name], jnp.result_type(float))
            if not isinstance(each.bijection, Identity):
                inside = _strictly_inside(inside, each.bounds)
                bijection = _given(each.bijection, values)
                if key is not None and isinstance(bijection, Constraint):
                    subkey = jr.fold_in(key, index)
                    inside = bijection.draw_inverse(subkey, inside)
                else:
                    inside = bijection.inverse(inside)
            parts.append(inside.reshape(-1))
        return jnp.concatenate(parts)

    def split(self, point: Any) -> dict[str, Any]:
        """What stands in a point, by names; in nested structures such as `a.b`.

        Raises:
            InvalidInputError: If it has not the structure of the parameters.
        """
        found: dict[str, Any] = {}
        _split(point, self.structure, found)
        return found

    def assemble(self, values: Mapping[str, Any]) -> Any:
        """A point of values by name."""
        return _assemble(self.structure, values)

    def ordered(self, point: Any) -> Any:
        """The same, names in the order in which they were given: JAX sorts them."""
        return self.assemble(self.split(point))

    def by_name(self, point: Any) -> dict[str, Any]:
        """The same as `split`, but the one parameter without a name is `x`."""
        return {name or "x": value for name, value in self.split(point).items()}

    def values(self, vectors: Float[Array, "draws size"]) -> Any:
        """The parameters of many vectors."""
        return _values_of(self, vectors)

    def share_at_edges(
        self, vectors: Float[Array, "draws size"], weights: np.ndarray
    ) -> dict[str, float]:
        """Share of the draws, by parameter, beyond which a bound cannot be told apart.

        Nearer to a bound than a few of the numbers that the precision can represent,
        all points are one.
        """
        values = self.split(self.values(vectors))
        shares = {}
        for each in self.parameters:
            if each.bounds == (-math.inf, math.inf):
                continue
            value = np.asarray(values[each.name])
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

    def coordinate_names(self) -> list[str]:
        """A name for each number of the user's space, in order."""
        names = []
        for each in self.parameters:
            label = each.name or "x"
            for index in np.ndindex(each.shape):
                inside = ",".join(map(str, index))
                names.append(f"{label}[{inside}]" if inside else label)
        return names


@quick_jit
def _values_of(space: Space, vectors: Array) -> Any:
    return jax.vmap(lambda vector: space.constrain(vector)[0])(vectors)


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


def _is_shape(shape: Any) -> bool:
    if hasattr(shape, "_fields") or isinstance(shape, Mapping):
        return False
    if isinstance(shape, tuple | list):
        return not any(isinstance(each, tuple | list | Mapping) for each in shape)
    return True


def _structure(shape: Any, path: tuple[Any, ...], shapes: dict[str, Shape]) -> Any:
    """The structure of shapes, and the shapes by name."""
    if hasattr(shape, "shape") and hasattr(shape, "dtype"):  # an array, or its type
        shape = tuple(shape.shape)
    name = ".".join(map(str, path))
    if _is_shape(shape):
        shapes[name] = _shape(shape, name or "shape")
        return name
    if not shape:
        raise InvalidInputError(f"there is nothing to sample: shape is {shape!r}")
    kind: type = dict if isinstance(shape, Mapping) else type(shape)
    keys = _keys(shape)
    below = tuple(
        _structure(each, (*path, key), shapes)
        for key, each in zip(keys, _values(shape), strict=True)
    )
    if len(set(map(str, keys))) < len(keys):
        raise InvalidInputError(f"two names are written alike among {list(keys)}")
    return Nested(kind, keys, below)


def _keys(point: Any) -> tuple[Any, ...]:
    if isinstance(point, Mapping):
        return tuple(point)
    return getattr(point, "_fields", tuple(range(len(point))))


def _values(point: Any) -> list[Any]:
    return list(point.values() if isinstance(point, Mapping) else point)


def _split(point: Any, structure: Structure, found: dict[str, Any]) -> None:
    if not isinstance(structure, Nested):
        found[structure] = point
        return
    wrong = not isinstance(point, Mapping | tuple | list)
    if wrong or set(_keys(point)) != set(structure.keys):
        raise InvalidInputError(
            f"expected a {structure.kind.__name__} with {list(structure.keys)}, got "
            f"{reprlib.repr(point)}"
        )
    inside = dict(zip(_keys(point), _values(point), strict=True))
    for key, below in zip(structure.keys, structure.below, strict=True):
        _split(inside[key], below, found)


def _assemble(structure: Structure, values: Mapping[str, Any]) -> Any:
    if not isinstance(structure, Nested):
        return values[structure]
    inside = [_assemble(below, values) for below in structure.below]
    if structure.kind is dict:
        return dict(zip(structure.keys, inside, strict=True))
    if hasattr(structure.kind, "_fields"):
        return structure.kind(*inside)
    return structure.kind(inside)


def _supports(
    support: Any, structure: Structure, shapes: Mapping[str, Shape]
) -> dict[str, Support]:
    """Supports by name, of a structure in which some are missing."""
    if not isinstance(structure, Nested):
        return {structure: support}
    if support is None:
        return {}
    kinds = Mapping if structure.kind is dict else (Mapping, structure.kind)
    if not isinstance(support, kinds):
        raise InvalidInputError(
            "with named shapes, support must be a dict of some of the names "
            f"{list(structure.keys)}; got {support!r}"
        )
    inside = dict(zip(_keys(support), _values(support), strict=True))
    if unknown := [key for key in inside if key not in structure.keys]:
        raise InvalidInputError(
            f"support names {unknown}, but the shapes have {list(structure.keys)}"
        )
    found: dict[str, Support] = {}
    for key, below in zip(structure.keys, structure.below, strict=True):
        found.update(_supports(inside.get(key), below, shapes))
    return found


_BY_NAME: dict[str, Callable[[Shape], Constraint]] = {
    "ordered": Ordered,
    "positive_ordered": functools.partial(Ordered, positive=True),
    "correlation_cholesky": CorrelationCholesky,
    "unit_vector": UnitVector,
    "circular": Circular,
}
"""Constraints that are called by a word, beside the elementary ones."""


def _given(bijection: Any, values: Mapping[str, Array]) -> Any:
    """What a support is once earlier parameters are known."""
    if isinstance(bijection, Conditional):
        return bijection.given(values)
    return bijection


class _Dependent(eqx.Module):
    """What a user's function of earlier parameters says about a support."""

    name: str = eqx.field(static=True)
    shape: Shape = eqx.field(static=True)
    support: Callable[[Mapping[str, Array]], Support]

    def __call__(self, values: Mapping[str, Array]) -> Any:
        found = self.support(values)
        if is_numpyro_constraint(found):
            found = words_of_constraint(found)
        if isinstance(found, tuple) and len(found) == 2:
            low, high = (
                end if each is None else each
                for each, end in zip(found, (-math.inf, math.inf), strict=True)
            )
            return Interval(self.shape, low, high)
        return _parameter(self.name, self.shape, found, ()).bijection


def _conditional(
    name: str, shape: Shape, support: Callable, before: Sequence[Parameter]
) -> Parameter:
    made = _Dependent(name, shape, support)
    known = {
        each.name: jax.ShapeDtypeStruct(each.shape, jnp.result_type(float))
        for each in before
    }
    try:
        example = eqx.filter_eval_shape(made, known)
    except KeyError as error:
        raise InvalidInputError(
            f"the support of {name} depends on {error}, which must come before it; "
            f"before it come {list(known)}"
        ) from error
    free_shape = getattr(example, "free_shape", shape)
    return Parameter(name, shape, free_shape, Conditional(shape, free_shape, made))


def _parameter(
    name: str, shape: Shape, support: Support, before: Sequence[Parameter]
) -> Parameter:
    label = name or "the density"
    if is_numpyro_constraint(support):
        support = words_of_constraint(support)
    if is_numpyro_constraint(support):
        support = from_numpyro_constraint(support, shape, label)
    elif isinstance(support, str):
        return _by_word(name, shape, support)
    elif _is_periodic(support):
        support = Circular(shape, *_bounds(support[1:], label))
    if isinstance(support, Constraint):
        return Parameter(name, shape, support.free_shape, support)
    if isinstance(support, AbstractBijection):
        return _from_bijection(name, shape, support)
    if callable(support):
        return _conditional(name, shape, support, before)
    return _between(name, shape, support)


def _is_periodic(support: Any) -> bool:
    first = support[0] if isinstance(support, tuple) and support else None
    return isinstance(first, str) and first in ("circular", "periodic")


def _by_word(name: str, shape: Shape, word: str) -> Parameter:
    """A support that has a name."""
    elementary = {
        "real": (None, None),
        "positive": (0, None),
        "unit": (0, 1),
    }
    if word in elementary:
        return _between(name, shape, elementary[word])
    if word == "simplex":
        simplex = Simplex(shape)
        return Parameter(name, shape, simplex.free_shape, simplex, (0.0, math.inf))
    if word not in _BY_NAME:
        raise InvalidInputError(
            f"unknown support {word!r} of {name or 'the density'}; use 'real', "
            f"'positive', 'unit', 'simplex', {', '.join(map(repr, _BY_NAME))}, a pair "
            "of bounds such as (0, 10), ('periodic', 0, 24), a constraint of NumPyro, "
            "a flowjax bijection, or a function of the parameters before it"
        )
    constraint = _BY_NAME[word](shape)
    return Parameter(name, shape, constraint.free_shape, constraint)


def _between(name: str, shape: Shape, support: Any) -> Parameter:
    """A support that is a pair of bounds, or everything."""
    label = name or "the density"
    if support is None:
        support = (None, None)
    if _differ(support):
        ends = zip(support, (-math.inf, math.inf), strict=True)
        interval = Interval(shape, *(e if each is None else each for each, e in ends))
        if not bool(jnp.all(interval.low < interval.high)):
            raise InvalidInputError(f"the bounds of {label} must rise, got {support}")
        return Parameter(name, shape, shape, interval)
    low, high = _bounds(support, label)
    return Parameter(name, shape, shape, _bounded(shape, low, high), (low, high))


def _differ(support: Any) -> bool:
    """Whether it is a pair of bounds that are arrays of different numbers."""
    if not isinstance(support, tuple | list) or len(support) != 2:
        return False
    return any(np.size(each) > 1 and np.ptp(each) > 0 for each in support)


def _bounds(support: Any, label: str) -> tuple[float, float]:
    """Two numbers that rise; None, or infinity on its own side, is no bound."""
    try:
        low, high = (
            end if each is None else float(np.ravel(each)[0])
            for each, end in zip(support, (-math.inf, math.inf), strict=True)
        )
    except (TypeError, ValueError, OverflowError, IndexError):
        raise InvalidInputError(
            f"support of {label} must be a name, a pair of bounds, a constraint of "
            "NumPyro, a flowjax bijection or a function of earlier parameters; got "
            f"{reprlib.repr(support)}"
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
    if has_low and low == 0:
        return _exp(shape)
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

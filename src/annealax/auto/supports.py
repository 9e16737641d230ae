r"""Where one parameter may lie, as maps from unconstrained numbers.

Each map :math:`T` knows the logarithm of its Jacobian, so that a density :math:`p` in
the user's space and :math:`p(T(x)) \lvert \det T'(x) \rvert` have the same integral.
What is measured is said with each: all but the last of the numbers of a simplex, the
entries below the diagonal of a Cholesky factor, the angle of a circle, the surface of a
sphere. These are the measures for which the distributions of NumPyro, PyMC and Stan are
normalised.

A direction has no map from the line that is smooth and one to one. It gets a point of
the plane, or of space, instead: its angle is the parameter, and its distance from the
origin has a known normalised density, so the integral stays the same.
"""

import math
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, PRNGKeyArray

from annealax._errors import InvalidInputError

Shape = tuple[int, ...]

_SHARPNESS = 8
"""Added to the freedom of a chi distribution: how narrow the shell of directions is.

Without it points come near the origin, where directions turn within one short step;
with much more the way around the shell gets long compared with its width.
"""


class Constraint(eqx.Module):
    """A map from unconstrained numbers onto a support.

    Attributes:
        shape: Shape of the parameter.
    """

    shape: eqx.AbstractVar[Shape]

    @property
    @abstractmethod
    def free_shape(self) -> Shape:
        """Shape of the unconstrained numbers."""

    @abstractmethod
    def transform_and_log_det(self, x: Array) -> tuple[Array, Array]:
        """The parameter, and the logarithm of the Jacobian."""

    @abstractmethod
    def inverse(self, y: Array) -> Array:
        """Unconstrained numbers that stand for a parameter."""

    def draw_inverse(self, key: PRNGKeyArray, y: Array) -> Array:
        """The same, with what the parameter does not determine drawn at random."""
        return self.inverse(y)


class Simplex(Constraint):
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
    def free_shape(self):
        """Shape of the unconstrained numbers."""
        return (*self.shape[:-1], self.shape[-1] - 1)

    def transform_and_log_det(self, x):
        """The shares, and the logarithm of the Jacobian."""
        count = self.shape[-1] - 1
        logit = x - jnp.log(jnp.arange(count, 0, -1, dtype=x.dtype))
        taken, left = jax.nn.log_sigmoid(logit), jax.nn.log_sigmoid(-logit)
        rest = jnp.cumsum(left, axis=-1)
        before = jnp.concatenate([jnp.zeros_like(rest[..., :1]), rest[..., :-1]], -1)
        log_shares = jnp.concatenate([taken + before, rest[..., -1:]], axis=-1)
        return jnp.exp(log_shares), jnp.sum(taken + left + before)

    def inverse(self, y):
        """The unconstrained numbers."""
        count = self.shape[-1] - 1
        # What is left after each, added up from the end: differences would lose it.
        rest = jnp.flip(jnp.cumsum(jnp.flip(y, -1), -1), -1)[..., 1:]
        logit = jnp.log(y[..., :-1]) - jnp.log(rest)
        return logit + jnp.log(jnp.arange(count, 0, -1, dtype=y.dtype))


class Ordered(Constraint):
    """Numbers that rise along the last axis.

    Args:
        shape: Shape of the parameter.
        positive: Whether the first is above zero, too.
    """

    shape: Shape = eqx.field(static=True)
    positive: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        """Validate."""
        if not self.shape:
            raise InvalidInputError("what is ordered needs an axis, got shape ()")

    @property
    def free_shape(self):
        """As the parameter."""
        return self.shape

    def transform_and_log_det(self, x):
        """Sums of positive steps."""
        first = jnp.exp(x[..., :1]) if self.positive else x[..., :1]
        steps = jnp.concatenate([first, jnp.exp(x[..., 1:])], axis=-1)
        log_det = jnp.sum(x if self.positive else x[..., 1:])
        return jnp.cumsum(steps, axis=-1), log_det

    def inverse(self, y):
        """Logarithms of the steps."""
        first = jnp.log(y[..., :1]) if self.positive else y[..., :1]
        return jnp.concatenate([first, jnp.log(jnp.diff(y, axis=-1))], axis=-1)


class CorrelationCholesky(Constraint):
    """The lower Cholesky factor of a correlation matrix, in the last two axes.

    Rows are unit vectors. The Jacobian is that of the entries below the diagonal, for
    which the LKJ distribution of a factor is normalised.

    Args:
        shape: Shape of the parameter; its last two axes are equal.
    """

    shape: Shape = eqx.field(static=True)

    def __check_init__(self):
        """Validate."""
        last = self.shape[-2:]
        if len(last) < 2 or last[0] != last[1] or last[0] < 2:
            raise InvalidInputError(
                "the Cholesky factor of a correlation matrix needs two last axes of "
                f"the same size, two or more; got shape {self.shape}"
            )

    @property
    def free_shape(self):
        """One number for each entry below the diagonal."""
        size = self.shape[-1]
        return (*self.shape[:-2], size * (size - 1) // 2)

    def transform_and_log_det(self, x):
        """Row by row, each entry a share of what is left of the unit length."""
        below = jnp.tril_indices(self.shape[-1], -1)
        free = jnp.zeros(self.shape, x.dtype).at[..., *below].set(x)
        # log(1 - tanh(x)^2), which is nothing where x is zero
        log_left = 2 * (math.log(2) - free - jax.nn.softplus(-2 * free))
        before = jnp.cumsum(log_left, axis=-1) - log_left
        size = self.shape[-1]
        share = jnp.tanh(free) + jnp.eye(size, dtype=x.dtype)
        factor = jnp.tril(share * jnp.exp(0.5 * before))
        log_det = jnp.tril(log_left + 0.5 * before, -1)
        return factor, jnp.sum(log_det)

    def inverse(self, y):
        """The shares, as numbers of the line."""
        squares = jnp.flip(jnp.cumsum(jnp.flip(jnp.tril(y) ** 2, -1), -1), -1)
        below = jnp.tril_indices(self.shape[-1], -1)
        entry, left = y[..., *below], squares[..., *below]
        return jnp.arctanh(entry / jnp.sqrt(left))


class UnitVector(Constraint):
    """Vectors of length one along the last axis; measured by the surface.

    Args:
        shape: Shape of the parameter; its last axis has at least two entries.
    """

    shape: Shape = eqx.field(static=True)

    def __check_init__(self):
        """Validate."""
        if not self.shape or self.shape[-1] < 2:
            raise InvalidInputError(
                "unit vectors need a last axis of at least two entries, got shape "
                f"{self.shape}"
            )

    @property
    def free_shape(self):
        """As the parameter."""
        return self.shape

    def transform_and_log_det(self, x):
        """The direction, and the density of the length beside the Jacobian."""
        square = jnp.maximum(jnp.sum(x**2, -1), jnp.finfo(x.dtype).tiny)
        log_det = _log_shell(square, self.shape[-1])
        return x / jnp.sqrt(square)[..., None], jnp.sum(log_det)

    def inverse(self, y):
        """The vector itself."""
        return y / jnp.linalg.norm(y, axis=-1, keepdims=True)

    def draw_inverse(self, key, y):
        """The vector with a length drawn at random."""
        length = _draw_length(key, self.shape[:-1], self.shape[-1], y.dtype)
        return self.inverse(y) * length[..., None]


class Circular(Constraint):
    """Numbers on a circle: both ends of an interval are the same point.

    Args:
        shape: Shape of the parameter.
        low: Where the interval begins.
        high: Where it ends.
    """

    shape: Shape = eqx.field(static=True)
    low: float = eqx.field(static=True, default=-math.pi)
    high: float = eqx.field(static=True, default=math.pi)

    def __check_init__(self):
        """Validate."""
        if not -math.inf < self.low < self.high < math.inf:
            raise InvalidInputError(
                f"a circle needs two bounds that rise, got ({self.low}, {self.high})"
            )

    @property
    def free_shape(self):
        """A point of the plane for each angle."""
        return (*self.shape, 2)

    def transform_and_log_det(self, x):
        """The angle of a point, and the density of its distance."""
        square = jnp.maximum(jnp.sum(x**2, -1), jnp.finfo(x.dtype).tiny)
        turn = jnp.arctan2(x[..., 1], x[..., 0]) / (2 * math.pi)
        value = self.low + (self.high - self.low) * (turn + 0.5)
        log_det = _log_shell(square, 2) + math.log((self.high - self.low) / 2 / math.pi)
        return value, jnp.sum(log_det)

    def inverse(self, y):
        """A point at distance one."""
        angle = 2 * math.pi * ((y - self.low) / (self.high - self.low) - 0.5)
        return jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)

    def draw_inverse(self, key, y):
        """A point at a random distance."""
        length = _draw_length(key, self.shape, 2, y.dtype)
        return self.inverse(y) * length[..., None]


class Interval(Constraint):
    """Bounds on both sides that are arrays, or depend on other parameters.

    Args:
        shape: Shape of the parameter.
        low: Lowest values, or minus infinity.
        high: Highest values, or infinity.
    """

    shape: Shape = eqx.field(static=True)
    low: Array
    high: Array

    def __init__(self, shape: Shape, low: Any, high: Any):
        self.shape = shape
        try:
            self.low = jnp.broadcast_to(jnp.asarray(low, float), shape)
            self.high = jnp.broadcast_to(jnp.asarray(high, float), shape)
        except ValueError:
            raise InvalidInputError(
                f"bounds of the shapes {jnp.shape(low)} and {jnp.shape(high)} do not "
                f"fit a parameter of the shape {shape}"
            ) from None

    @property
    def free_shape(self):
        """As the parameter."""
        return self.shape

    def transform_and_log_det(self, x):
        """The logistic function, the exponential function or nothing."""
        lower, upper, both = self._kinds()
        low, width = jnp.where(lower, self.low, 0), jnp.where(both, self._width(), 1)
        high = jnp.where(upper, self.high, 0)
        inside = low + width * jax.nn.sigmoid(x)
        # Rounding must not lead onto a bound.
        inside = jnp.clip(inside, _above(low), _below(low + width))
        one_side = jnp.where(lower, low + jnp.exp(x), high - jnp.exp(x))
        value = jnp.where(both, inside, jnp.where(lower | upper, one_side, x))
        log_both = jnp.log(width) + jax.nn.log_sigmoid(x) + jax.nn.log_sigmoid(-x)
        log_det = jnp.where(both, log_both, jnp.where(lower | upper, x, 0))
        return value, jnp.sum(log_det)

    def inverse(self, y):
        """Back to the line."""
        lower, upper, both = self._kinds()
        over = jnp.where(lower, y - self.low, 1)
        under = jnp.where(upper, self.high - y, 1)
        one_side = jnp.where(lower, jnp.log(over), jnp.log(under))
        inside = jnp.log(over) - jnp.log(under)
        return jnp.where(both, inside, jnp.where(lower | upper, one_side, y))

    def _kinds(self):
        lower, upper = jnp.isfinite(self.low), jnp.isfinite(self.high)
        return lower, upper, lower & upper

    def _width(self):
        return jnp.where(self._kinds()[2], self.high - self.low, 1)


class Foreign(Constraint):
    """A bijection of another library, such as those of NumPyro.

    Args:
        shape: Shape of the parameter.
        free_shape: Shape of the unconstrained numbers.
        forward: From unconstrained numbers to the parameter and the log Jacobian.
        backward: Back to unconstrained numbers.
    """

    shape: Shape = eqx.field(static=True)
    _free_shape: Shape = eqx.field(static=True)
    forward: Callable[[Array], tuple[Array, Array]]
    backward: Callable[[Array], Array]

    @property
    def free_shape(self):
        """Shape of the unconstrained numbers."""
        return self._free_shape

    def transform_and_log_det(self, x):
        """As the other library has it."""
        return self.forward(x)

    def inverse(self, y):
        """As the other library has it."""
        return self.backward(y)


class Conditional(Constraint):
    """A support that depends on parameters before it.

    Args:
        shape: Shape of the parameter.
        free_shape: Shape of the unconstrained numbers.
        given: From parameters by name to what holds then.
    """

    shape: Shape = eqx.field(static=True)
    _free_shape: Shape = eqx.field(static=True)
    given: Callable[[Mapping[str, Array]], Any]

    @property
    def free_shape(self):
        """Shape of the unconstrained numbers."""
        return self._free_shape

    def transform_and_log_det(self, x):
        """Not without the other parameters."""
        raise NotImplementedError("use what `given` returns")

    def inverse(self, y):
        """Not without the other parameters."""
        raise NotImplementedError("use what `given` returns")


class _Bijection(eqx.Module):
    """A bijection of NumPyro as pair of functions that can be compiled."""

    transform: Any

    def forward(self, x: Array) -> tuple[Array, Array]:
        y = self.transform(x)
        log_det = self.transform.log_abs_det_jacobian(x, y)
        return y, jnp.sum(log_det)

    def backward(self, y: Array) -> Array:
        return self.transform.inv(y)


_BOUNDS = ("lower_bound", "upper_bound")
"""What NumPyro's constraints call their bounds."""

_WORDS = {
    "real": None,
    "realvector": None,
    "realmatrix": None,
    "simplex": "simplex",
    "orderedvector": "ordered",
    "positiveorderedvector": "positive_ordered",
    "corrcholesky": "correlation_cholesky",
    "circular": "circular",
    "sphere": "unit_vector",
    "unitinterval": "unit",
    "positive": "positive",
    "nonnegative": "positive",
}
"""NumPyro's constraints that have a word here, by their class."""

_WITH_BOUNDS = (
    *("interval", "openinterval", "greaterthan", "greaterthaneq"),
    *("lessthan", "lessthaneq"),
)
"""Those that are a pair of bounds."""


def is_numpyro_constraint(support: Any) -> bool:
    """Whether it is one of NumPyro's; NumPyro need not be installed."""
    module = sys.modules.get("numpyro.distributions.constraints")
    return module is not None and isinstance(support, module.Constraint)


def words_of_constraint(constraint: Any) -> Any:
    """A constraint of NumPyro in the words of `support`, or itself."""
    while hasattr(constraint, "base_constraint"):
        constraint = constraint.base_constraint
    name = type(constraint).__name__.strip("_").lower()
    if name in _WORDS:
        return _WORDS[name]
    low, high = (getattr(constraint, each, None) for each in _BOUNDS)
    return (low, high) if name in _WITH_BOUNDS else constraint


def from_numpyro_constraint(constraint: Any, shape: Shape, label: str) -> Constraint:
    """Its bijection, as NumPyro has it.

    Raises:
        InvalidInputError: If NumPyro has none, or not for this shape.
    """
    from numpyro.distributions import biject_to  # noqa: PLC0415

    try:
        transform = biject_to(constraint)
        free_shape = transform.inverse_shape(shape)
    except (NotImplementedError, KeyError, ValueError, TypeError) as error:
        raise InvalidInputError(
            f"the support {constraint} of {label} with the shape {shape} is not "
            f"understood: {type(error).__name__}: {error}"
        ) from error
    bijection = _Bijection(transform)
    return Foreign(shape, tuple(free_shape), bijection.forward, bijection.backward)


def _freedom(size: int) -> int:
    return size + _SHARPNESS


def _log_shell(square: Array, size: int) -> Array:
    """Log density of the length of a vector, over the surface of the sphere."""
    freedom = _freedom(size)
    constant = (
        0.5 * freedom * math.log(2 / freedom) + math.lgamma(freedom / 2) - math.log(2)
    )
    return 0.5 * (freedom - size) * jnp.log(square) - 0.5 * freedom * square - constant


def _draw_length(key: PRNGKeyArray, shape: Shape, size: int, dtype: Any) -> Array:
    freedom = _freedom(size)
    return jnp.sqrt(2 * jr.gamma(key, freedom / 2, shape, dtype) / freedom)


def _above(value: Array) -> Array:
    value = jax.lax.stop_gradient(value)  # the step up has no derivative in JAX
    return jnp.nextafter(value, jnp.full_like(value, jnp.inf))


def _below(value: Array) -> Array:
    value = jax.lax.stop_gradient(value)
    return jnp.nextafter(value, jnp.full_like(value, -jnp.inf))

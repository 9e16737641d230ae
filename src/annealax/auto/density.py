"""The user's density as a function of one unconstrained vector."""

import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from annealax._errors import InvalidInputError
from annealax.auto.parameters import Space
from annealax.auto.program import trace

_NEEDS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
)
"""What JAX says of functions that cannot be traced."""


class FreeDensity(eqx.Module):
    """The user's density as a function of the unconstrained vector.

    Args:
        log_density: The user's function, traced; or another form of it.
        space: Where it lives.
    """

    log_density: Callable[[Any], Array]
    space: Space

    @classmethod
    def of(
        cls, log_density: Callable[..., Array], space: Space, args: tuple = ()
    ) -> "FreeDensity":
        """Of a function of one point and further arguments.

        Raises:
            InvalidInputError: Unless it gives one real number.
        """
        point = jax.ShapeDtypeStruct((space.size,), jnp.result_type(float))
        try:
            value, _ = eqx.filter_eval_shape(space.constrain, point)
            traced, out = trace(log_density, value, args)
        except InvalidInputError:
            raise
        except (jax.errors.TracerArrayConversionError, *_NEEDS_VALUES) as error:
            raise InvalidInputError(
                "log_density needs the numbers of its point, as NumPy and SciPy do, "
                "but gets a JAX array under a trace. Either write it with jax.numpy, "
                "which gives gradients, or wrap it as it is: "
                f"annealax.black_box(log_density, {_shape_in_words(value)})"
            ) from error
        except Exception as error:
            raise InvalidInputError(
                "log_density cannot be evaluated at one point of this shape: "
                f"{type(error).__name__}: {_said(error, space)}"
            ) from error
        if getattr(out, "shape", None) != ():
            got = getattr(out, "shape", type(out).__name__)
            raise InvalidInputError(
                f"log_density must return one number for one point, but it returns "
                f"{got}; write it for a single point and reduce with .sum()"
            )
        if not jnp.issubdtype(out.dtype, jnp.floating):
            raise InvalidInputError(
                f"log_density must return a real floating point number, got {out.dtype}"
            )
        return cls(traced, space)

    def __call__(self, vector: Float[Array, " size"]) -> Float[Array, ""]:
        """Log density with the Jacobian."""
        value, log_det = self.space.constrain(vector)
        return self.log_density(value) + log_det


def _shape_in_words(value: Any) -> str:
    shapes = jax.tree.map(lambda leaf: leaf.shape, value)
    return f"shape={shapes}"


def _said(error: Exception, space: Space) -> str:
    """What an error of the user's function says, and what may help."""
    names = [each.name for each in space.parameters]
    if isinstance(error, KeyError) and space.named and error.args[0] not in names:
        return (
            f"it asks for the parameter {error}, but the shapes are those of "
            f"{', '.join(names)}; give it a shape, too"
        )
    return str(error) or "no message; look for an assert that fails there"


class CountedDensity:
    """A density of vectors, and how often it was evaluated.

    The evaluations are made by compiled programs, so whoever runs one says how many it
    makes. This is the one place where they are counted.

    Args:
        log_density: A function of one vector.
        size: Length of the vector.
    """

    def __init__(self, log_density: Callable[[Array], Array], size: int):
        self.log_density = log_density
        self.size = size
        self._count = [0]

    @property
    def num_evaluations(self) -> int:
        """How many were made so far."""
        return self._count[0]

    def spend(self, count: float | int) -> None:
        """Note that a program makes so many evaluations."""
        self._count[0] += int(count)

    def counting(self, log_density: Callable[[Array], Array]) -> "CountedDensity":
        """Another density of such vectors, whose evaluations count as this one's."""
        other = CountedDensity(log_density, self.size)
        other._count = self._count
        return other

    @functools.cached_property
    def has_gradient(self) -> bool:
        """Whether JAX can differentiate it: not through callbacks, for instance."""
        point = jax.ShapeDtypeStruct((self.size,), jnp.result_type(float))
        try:
            jax.eval_shape(jax.grad(self.log_density), point)
        except (ValueError, NotImplementedError):
            return False
        return True

    @functools.cached_property
    def work(self) -> int:
        """About how many numbers one evaluation computes.

        By the program, not by the clock: what is decided by it is the same next time.
        """
        point: Any = jax.ShapeDtypeStruct((self.size,), jnp.result_type(float))
        return _work(eqx.filter_make_jaxpr(self.log_density)(point)[0].jaxpr)


def _work(program: Any) -> int:
    """Numbers that a program computes, loops counted as often as is known."""
    total = 0
    for step in program.eqns:
        inner = [
            getattr(each, "jaxpr", each)
            for value in step.params.values()
            for each in (value if isinstance(value, tuple | list) else (value,))
            if hasattr(each, "eqns") or hasattr(each, "jaxpr")
        ]
        if inner:
            total += step.params.get("length", 1) * max(map(_work, inner))
            continue
        count = sum(math.prod(getattr(out.aval, "shape", ())) for out in step.outvars)
        if step.primitive.name == "dot_general":
            (summed, _), _ = step.params["dimension_numbers"]
            shape = step.invars[0].aval.shape
            count *= math.prod(shape[axis] for axis in summed)
        total += count
    return total

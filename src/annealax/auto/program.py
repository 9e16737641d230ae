"""The user's function as a program: traced once, with its data as arguments.

A compiled program that has data baked in serves these data alone. So the function is
traced to a program of its own, in which data, whether passed as `args` or closed over,
are inputs. Two functions that do the same with other data of the same shapes have equal
programs, and what was compiled for one serves the other.
"""

import functools
import os
import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import Array, PyTree

from annealax._device import to_device

_JAX = os.path.dirname(jax.__file__) + os.sep
_MADE_THERE = "custom_derivatives.py"
"""Rules of derivatives that this file of JAX makes hold functions of others."""


class Program:
    """A function without its data. Equal programs are one object.

    Attributes:
        closed: The program, with placeholders for constants.
        again: Traces it anew: what it is rebuilt from in another process.
    """

    __slots__ = ("__weakref__", "again", "closed")

    def __init__(self, closed: ClosedJaxpr, again: Callable[[], "Tracing"]):
        self.closed, self.again = closed, again

    def __reduce__(self) -> tuple[Any, ...]:
        """By tracing again: programs themselves cannot be pickled."""
        return _program_of, (self.again,)


_PROGRAMS: weakref.WeakValueDictionary[Hashable, Program] = (
    weakref.WeakValueDictionary()
)


class Traced(eqx.Module):
    """A function of one point as a program, and its data.

    Attributes:
        program: The program.
        constants: What the function closed over.
        arguments: Arrays among its further arguments.
    """

    program: Program = eqx.field(static=True)
    constants: tuple[Array, ...]
    arguments: tuple[Array, ...]

    def __call__(self, value: Any) -> Any:
        """The function at one point."""
        leaves = (*jax.tree.leaves(value), *self.arguments)
        types = [each.aval.dtype for each in self.program.closed.jaxpr.invars]
        given = [
            jnp.asarray(leaf, dtype) if jnp.issubdtype(dtype, jnp.floating) else leaf
            for leaf, dtype in zip(leaves, types, strict=True)
        ]
        closed = ClosedJaxpr(self.program.closed.jaxpr, list(self.constants))
        (result,) = jaxpr_as_fun(closed)(*given)
        return result


class Tracing(NamedTuple):
    """A traced function, and the shape and type of what it returns, or that itself."""

    traced: Traced
    out: Any


def trace(function: Callable[..., Any], point: PyTree, args: tuple = ()) -> Tracing:
    """Trace a function.

    Args:
        function: A function of one point and of `args`.
        point: Shapes and types of the point.
        args: Arrays and floats become inputs; all else stays as it is.
    """
    arrays, rest = eqx.partition(jax.tree.map(_as_array, args), eqx.is_array)

    def call(value: Any, arrays: Any) -> Any:
        return function(value, *eqx.combine(arrays, rest))

    closed, out, static = eqx.filter_make_jaxpr(call)(point, arrays)
    constants = tuple(map(_on_device, closed.consts))
    key = _key_of(closed)
    program = _PROGRAMS.get(key)
    if program is None:
        shapes = jax.tree.map(_shape_of, (point, arrays))
        again = functools.partial(_trace_again, function, shapes, rest)
        # JAX keeps an array of NumPy in the precision in which it was seen first, for
        # as long as somebody holds it in that: it must not be us.
        kept = ClosedJaxpr(closed.jaxpr, list(constants))
        program = _PROGRAMS.setdefault(key, Program(kept, again))
    arguments = tuple(jax.tree.leaves(arrays))
    return Tracing(Traced(program, constants, arguments), eqx.combine(out, static))


def _trace_again(function: Callable, shapes: tuple[Any, Any], rest: Any) -> Tracing:
    point, arrays = shapes
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), arrays)
    return trace(function, point, eqx.combine(zeros, rest))


def _program_of(again: Callable[[], Tracing]) -> Program:
    return again().traced.program


def _shape_of(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _as_array(leaf: Any) -> Any:
    """Arrays and floats as arrays in the precision in use."""
    if isinstance(leaf, float | np.ndarray | np.generic | jax.Array):
        if jnp.issubdtype(
            leaf.dtype if hasattr(leaf, "dtype") else float, jnp.floating
        ):
            return to_device(leaf)
        return _on_device(leaf)
    return leaf


def _on_device(array: Any) -> Array:
    return jax.device_put(array)


def _key_of(closed: ClosedJaxpr) -> Hashable:
    """What tells programs apart: all but the values of constants.

    What cannot be compared counts by identity. Such programs are shared by nothing,
    which costs a compilation, not the answer.
    """
    return _program_key(closed.jaxpr)


def _program_key(jaxpr: Any) -> Hashable:
    numbers: dict[Any, int] = {}

    def name(variable: Any) -> Hashable:
        if hasattr(variable, "val"):
            return "literal", _type_key(variable.aval), _value_key(variable.val)
        return numbers.setdefault(variable, len(numbers))

    def defined(variables: Any) -> Hashable:
        return tuple((name(each), _type_key(each.aval)) for each in variables)

    steps = tuple(
        (
            step.primitive,
            tuple(map(name, step.invars)),
            defined(step.outvars),
            tuple(
                (each, _value_key(step.params[each])) for each in sorted(step.params)
            ),
        )
        for step in jaxpr.eqns
    )
    inputs = defined((*jaxpr.constvars, *jaxpr.invars))
    return inputs, len(jaxpr.constvars), steps, tuple(map(name, jaxpr.outvars))


def _type_key(aval: Any) -> Hashable:
    return str(aval), getattr(aval, "weak_type", False)


def _value_key(value: Any) -> Hashable:  # noqa: PLR0911 (a kind a line)
    if hasattr(value, "eqns"):
        return _program_key(value)
    if hasattr(value, "jaxpr") and hasattr(value, "consts"):
        return _program_key(value.jaxpr), _value_key(tuple(value.consts))
    if isinstance(value, tuple | list):
        return type(value), tuple(map(_value_key, value))
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        return array.shape, str(array.dtype), array.tobytes()
    if isinstance(value, float):
        return "float", value.hex()
    rule = getattr(getattr(value, "debug_info", None), "func_src_info", None) or ""
    where = rule.rpartition(" at ")[2]
    if where.startswith(_JAX) and _MADE_THERE not in where:
        return rule
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return type(value), value


class _Same:
    """Equal only to what stands for the very same object."""

    def __init__(self, value: Any):
        self._value = value

    def __hash__(self) -> int:
        return id(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._value is other._value

"""One call in double precision, without touching what the rest of the program uses."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

from annealax._checks import unknown_name

_Arguments = ParamSpec("_Arguments")
_Returned = TypeVar("_Returned")

PRECISIONS = ("float32", "float64")


def in_precision(dtype: Any) -> contextlib.AbstractContextManager:
    """Within it, numbers are of this type; None for whatever JAX is set to.

    Raises:
        InvalidInputError: If it is not one of the two.
    """
    if dtype is None:
        return contextlib.nullcontext()
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    if name not in PRECISIONS:
        raise unknown_name("dtype", name, PRECISIONS)
    return jax.enable_x64(name == "float64")


def with_precision(
    function: Callable[_Arguments, _Returned],
) -> Callable[_Arguments, _Returned]:
    """Run a function in the precision of its argument `dtype`."""

    @functools.wraps(function)
    def wrapped(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Returned:
        with in_precision(kwargs.get("dtype")):
            return function(*args, **kwargs)

    return wrapped


def in_own_precision(
    function: Callable[_Arguments, _Returned],
) -> Callable[_Arguments, _Returned]:
    """Run a method in the precision of its object's `dtype`."""

    @functools.wraps(function)
    def wrapped(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Returned:
        itself: Any = args[0]
        with in_precision(itself.dtype):
            return function(*args, **kwargs)

    return wrapped

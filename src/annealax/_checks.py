"""Checks of arguments that many functions share, each with one wording."""

import contextlib
import difflib
import math
import operator
import reprlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from annealax._errors import InvalidInputError

MAX_SEED = 2**32 - 1
_MAX_NAME_LENGTH = 80


def whole_number(name: str, value: Any, *, at_least: int = 1) -> int:
    """A whole number, as an `int`; an error that names it otherwise."""
    if not _is_whole(value, at_least):
        kind = {0: "whole number, not negative", 1: "positive whole number"}.get(
            at_least, f"whole number of at least {at_least}"
        )
        raise InvalidInputError(f"{name} must be a {kind}, got {_shown(value)}")
    return int(value)


def whole_numbers(name: str, values: Any, *, at_least: int = 1) -> tuple[int, ...]:
    """Whole numbers, as a tuple of `int`; one number stands for itself."""
    try:
        numbers = tuple(values)
    except TypeError:
        return (whole_number(name, values, at_least=at_least),)
    if not all(_is_whole(each, at_least) for each in numbers):
        raise InvalidInputError(
            f"{name} must be whole numbers of at least {at_least}, got {_shown(values)}"
        )
    return tuple(map(int, numbers))


def _is_whole(value: Any, at_least: int) -> bool:
    try:
        return not isinstance(value, bool) and int(value) == value and value >= at_least
    except (TypeError, ValueError, OverflowError):
        return False


def finite_number(name: str, value: Any) -> float:
    """A finite number; an error that names it otherwise."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidInputError(f"{name} must be a finite number, got {_shown(value)}")
    return number


def positive_number(name: str, value: Any) -> float:
    """A finite number above zero; an error that names it otherwise."""
    with contextlib.suppress(InvalidInputError):
        if (number := finite_number(name, value)) > 0:
            return number
    raise InvalidInputError(
        f"{name} must be a finite number above zero, got {_shown(value)}"
    )


def finite_array(name: str, value: Any) -> np.ndarray:
    """The value as a float64 NumPy array, refused unless every entry is finite."""
    array = np.asarray(value, dtype=np.float64)
    if array.size == 0:
        raise InvalidInputError(
            f"{name} of shape {array.shape} is empty; give at least one."
        )
    if not np.all(np.isfinite(array)):
        raise InvalidInputError(
            f"{name} must be finite, got {array}; remove NaN and inf."
        )
    return array


def seed_number(seed: Any) -> int:
    """A seed that every random key can be made from."""
    try:
        number = -1 if isinstance(seed, bool) else operator.index(seed)
    except TypeError:
        number = -1
    if not 0 <= number <= MAX_SEED:
        raise InvalidInputError(
            f"seed must be a whole number from 0 to {MAX_SEED}, got {_shown(seed)}"
        )
    return number


def unknown_name(kind: str, name: Any, valid: Iterable[str]) -> InvalidInputError:
    """The error for `name`, which is none of the `valid` ones: with the nearest."""
    name, names = str(name), list(valid)
    nearest = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    cut = len(name) > _MAX_NAME_LENGTH
    shown = f"{name[:_MAX_NAME_LENGTH]}..." if cut else name
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return InvalidInputError(
        f"unknown {kind} {shown!r}.{hint} Valid: {', '.join(names)}."
    )


def _shown(value: Any) -> str:
    """A value of any length on a line."""
    return reprlib.repr(value)

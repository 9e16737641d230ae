"""Checks of arguments that many functions share, each with one wording."""

import difflib
import math
import operator
import reprlib
from collections.abc import Iterable
from typing import Any

from annealax._errors import InvalidInputError

MAX_SEED = 2**32 - 1
_MAX_NAME_LENGTH = 80


def whole_number(name: str, value: Any, *, at_least: int = 1) -> int:
    """A whole number, as an `int`; an error that names it otherwise."""
    kind = {0: "whole number, not negative", 1: "positive whole number"}.get(
        at_least, f"whole number of at least {at_least}"
    )
    try:
        valid = not isinstance(value, bool) and int(value) == value
    except (TypeError, ValueError, OverflowError):
        valid = False
    if not valid or value < at_least:
        raise InvalidInputError(f"{name} must be a {kind}, got {_shown(value)}")
    return int(value)


def positive_number(name: str, value: Any) -> float:
    """A finite number above zero; an error that names it otherwise."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number > 0) or isinstance(value, bool):
        raise InvalidInputError(
            f"{name} must be a finite number above zero, got {_shown(value)}"
        )
    return number


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


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> InvalidInputError:
    """The error for `name`, which is none of the `valid` ones: with the nearest."""
    names = list(valid)
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

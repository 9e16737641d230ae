"""Errors for names that do not exist: the valid ones, and the nearest match."""

import difflib
from collections.abc import Iterable

from annealax._errors import InvalidInputError

_MAX_LENGTH = 80


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> InvalidInputError:
    """The error for `name`, which is none of the `valid` ones."""
    names = list(valid)
    nearest = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    shown = name if len(name) <= _MAX_LENGTH else f"{name[:_MAX_LENGTH]}..."
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return InvalidInputError(
        f"unknown {kind} {shown!r}.{hint} Valid: {', '.join(names)}."
    )

"""Fields of a settings class: their type, meaning and bounds, and text to value.

Text is read by the type of the field, never evaluated. `format_value` writes what
`parse_value` reads.
"""

import dataclasses
import functools
import math
import reprlib
import types
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from annealax._errors import InvalidInputError
from annealax.experiments._names import unknown_name


@dataclasses.dataclass(frozen=True)
class Doc:
    """What a field means, and which numbers it takes.

    Attributes:
        text: The meaning, in a few words.
        at_least: Smallest number allowed.
        above: Numbers must be larger than this.
        at_most: Largest number allowed.
    """

    text: str
    at_least: int | float | None = None
    above: int | float | None = None
    at_most: int | float | None = None


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a settings class.

    Attributes:
        name: Its name.
        kind: Its type: int, float, bool, str, a Literal, or a tuple of one of these.
        doc: Its meaning and bounds.
    """

    name: str
    kind: Any
    doc: Doc

    @property
    def expected(self) -> str:
        """The values that it takes, in words."""
        return self.takes + _describe_bounds(self.doc)

    @property
    def takes(self) -> str:
        """Its type, in words."""
        return _describe(self.kind)


@functools.cache
def fields_of(cls: type) -> Mapping[str, Field]:
    """All fields of a settings class, in order.

    A subclass that only changes a default repeats the plain type; type and meaning are
    those of the class that introduced the field.
    """
    found = {}
    for field in dataclasses.fields(cls):
        annotations = [
            get_type_hints(base, include_extras=True)[field.name]
            for base in cls.__mro__
            if field.name in vars(base).get("__annotations__", {})
        ]
        documented = [
            Field(field.name, get_args(annotation)[0], entry)
            for annotation in annotations
            for entry in get_args(annotation)[1:]
            if isinstance(entry, Doc)
        ]
        if not documented:
            raise TypeError(f"{cls.__name__}.{field.name} says nowhere what it means")
        found[field.name] = documented[0]
    return types.MappingProxyType(found)


def parse_overrides(cls: type, assignments: Iterable[str]) -> dict[str, Any]:
    """Values from `key=value` texts.

    Raises:
        InvalidInputError: If a key is unknown, given twice or without a value, or if
            a value is not of the type of its field.
    """
    fields = fields_of(cls)
    values: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InvalidInputError(
                f"a setting is given as key=value, such as num_particles=500; got "
                f"{reprlib.repr(assignment)}."
            )
        if key not in fields:
            raise unknown_name("setting", key, fields)
        if key in values:
            raise InvalidInputError(f"the setting {key!r} is given twice.")
        values[key] = parse_value(fields[key], text.strip())
    return values


def parse_value(field: Field, text: str) -> Any:
    """The value of a field from text."""
    try:
        value = _parse(field.kind, text)
    except ValueError:
        raise _wrong(field, text) from None
    check_value(field, value)
    return value


def check_value(field: Field, value: Any) -> None:
    """Raise an error that names the field unless the value has its type and bounds."""
    entries = value if isinstance(value, tuple) else (value,)
    if not _matches(field.kind, value) or not all(
        _within(field.doc, entry) for entry in entries
    ):
        raise _wrong(field, value)


def format_value(value: Any) -> str:
    """The text of a value."""
    if isinstance(value, tuple):
        return ",".join(map(format_value, value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return str(value)


def _wrong(field: Field, value: Any) -> InvalidInputError:
    got = reprlib.repr(value)  # of bounded length
    return InvalidInputError(f"{field.name} must be {field.expected}; got {got}.")


_SWITCH = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


def _parse(kind: Any, text: str) -> Any:
    if get_origin(kind) is tuple:
        inside = text.removeprefix("(").removesuffix(")").strip().removesuffix(",")
        return tuple(
            _parse(get_args(kind)[0], entry.strip())
            for entry in (inside.split(",") if inside else ())
        )
    if kind is bool:
        if text.lower() not in _SWITCH:
            raise ValueError
        return _SWITCH[text.lower()]
    if kind is int:
        return _parse_whole(text)
    return float(text) if kind is float else text


def _parse_whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        number = float(text)  # so that 2e3 is a whole number
        if not number.is_integer():
            raise
        return int(number)


def _matches(kind: Any, value: Any) -> bool:
    if get_origin(kind) is tuple:
        entry = get_args(kind)[0]
        return isinstance(value, tuple) and all(_matches(entry, v) for v in value)
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, int | float)
    return isinstance(value, kind)


def _within(doc: Doc, value: Any) -> bool:
    if isinstance(value, str | bool):
        return True
    return (
        (isinstance(value, int) or math.isfinite(value))
        and (doc.at_least is None or value >= doc.at_least)
        and (doc.above is None or value > doc.above)
        and (doc.at_most is None or value <= doc.at_most)
    )


def _describe(kind: Any) -> str:
    if get_origin(kind) is tuple:
        plain = {int: "whole numbers", float: "numbers"}
        return f"{plain[get_args(kind)[0]]} with commas between"
    if get_origin(kind) is Literal:
        *most, last = get_args(kind)
        return f"{', '.join(most)} or {last}" if most else last
    words = {int: "a whole number", float: "a number", bool: "true or false"}
    return words.get(kind, "text")


def _describe_bounds(doc: Doc) -> str:
    parts = []
    if doc.at_least is not None:
        parts.append(f"at least {doc.at_least:g}")
    if doc.above is not None:
        parts.append(f"above {doc.above:g}")
    if doc.at_most is not None:
        parts.append(f"at most {doc.at_most:g}")
    return (", " + " and ".join(parts)) if parts else ""

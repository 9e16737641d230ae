"""Settings: fields with a type, a default, a meaning and bounds, checked by pydantic.

A field is `count: int = Field(3, ge=1, description="a count")`; `annealax show` prints
it and `--set count=5` changes it. A subclass that only changes a default says
`count = 7`: type, meaning and bounds are those of the class that introduced the field.

Text is read by the type of its field, never evaluated: numbers with commas between for
a tuple, `2e3` for a whole number. `format_value` writes what is read back.
"""

import contextlib
import reprlib
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from annotated_types import Ge, Gt, Le
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)
from pydantic.fields import FieldInfo

from annealax._checks import unknown_name
from annealax._errors import AnnealaxError, InvalidInputError

_S = TypeVar("_S", bound="Settings")
_BOUNDS = {Ge: ("at least", "ge"), Gt: ("above", "gt"), Le: ("at most", "le")}
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_PLURAL = {int: "whole numbers", float: "numbers", str: "texts"}


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)  # the same, by a public way


class _KeepsFields(ModelMetaclass):
    """Lets a subclass change a default without saying the whole field again."""

    def __new__(mcs, name, bases, namespace, **options):
        """A class whose plain attributes are new defaults of the fields they name."""
        known: dict[str, FieldInfo] = {}
        for base in reversed(bases):
            known |= getattr(base, "model_fields", {})
        annotations = namespace.setdefault("__annotations__", {})
        for key, field in known.items():
            if key in namespace and not isinstance(namespace[key], FieldInfo):
                meaning = Field(description=field.description)
                annotations[key] = Annotated[
                    (field.annotation, meaning, *field.metadata)
                ]
        return super().__new__(mcs, name, bases, namespace, **options)


class Settings(BaseModel, metaclass=_KeepsFields):
    """Numbers, switches and names that can be set from Python, JSON or text."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True
    )

    def __init__(self, **values: Any):
        """Check all values; an error is one line that names the field."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            text = explain(error, type(self).model_fields)
            raise InvalidInputError(text) from None

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Refuse a field that says nowhere what it means."""
        for name, field in cls.model_fields.items():
            if not field.description:
                raise TypeError(
                    f"{cls.__name__}.{name} does not say what it means: give it a "
                    "Field(..., description=...)"
                )

    @field_validator("*", mode="before")
    @classmethod
    def _read(cls, value: Any, info: Any) -> Any:
        kind = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and kind in (int, float):
            raise ValueError  # pydantic would take it for 0 or 1
        return _from_text(kind, value.strip()) if isinstance(value, str) else value

    def values(self) -> dict[str, Any]:
        """All settings by name."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    def replace(self: _S, **changes: Any) -> _S:
        """The same with some values changed."""
        return type(self)(**{**self.values(), **changes})


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """Texts by name, from `key=value`.

    Raises:
        InvalidInputError: If a key is given twice, or without a value.
    """
    texts: dict[str, str] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InvalidInputError(
                "a setting is given as key=value, such as num_particles=500; got "
                f"{reprlib.repr(assignment)}."
            )
        if key in texts:
            raise InvalidInputError(f"the setting {key!r} is given twice.")
        texts[key] = text
    return texts


def format_value(value: Any) -> str:
    """The text of a value; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={format_value(each)}" for key, each in value.items())
    if isinstance(value, tuple | list):
        return ",".join(map(format_value, value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return str(value)


def takes(field: FieldInfo) -> str:
    """The type of a field, in words."""
    return _describe(field.annotation)


def explain(  # noqa: PLR0911 (each case has its words)
    error: ValidationError, fields: Mapping[str, FieldInfo]
) -> str:
    """The first thing that is wrong, in one line that names field and value."""
    first = error.errors(include_url=False)[0]
    place, got = first["loc"], reprlib.repr(first["input"])
    cause = first.get("ctx", {}).get("error", "")
    if not place:  # of the whole: it names what does not fit together
        return f"{cause or first['msg']}"
    name = str(place[0])
    if first["type"] == "extra_forbidden" and len(place) == 1:
        return str(unknown_name("setting", name, fields))
    if first["type"] == "missing":
        return f"{'.'.join(map(str, place))} is missing."
    where = ".".join(map(str, place))
    if isinstance(cause, AnnealaxError):
        return f"{where}: {cause}"
    field = fields.get(name)
    if field is not None and get_origin(field.annotation) in (Union, UnionType):
        return f"{name} has a type that it cannot have; got {got}."
    if field is not None and not str(cause) and (expected := takes(field)):
        return f"{name} must be {expected}{_bounds(field)}; got {got}."
    return f"{where}: {str(cause or first['msg']).rstrip('.')}; got {got}."


def _from_text(kind: Any, text: str) -> Any:
    if get_origin(kind) is tuple:
        inside = text.removeprefix("(").removesuffix(")").strip().removesuffix(",")
        parts = inside.split(",") if inside else []
        return [_from_text(_plain(get_args(kind)[0]), part.strip()) for part in parts]
    if kind is int and "e" in text.lower():
        with contextlib.suppress(ValueError):
            if (number := float(text)).is_integer():
                return int(number)
    return text


def _plain(kind: Any) -> Any:
    """A type without what is annotated to it."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _describe(kind: Any) -> str:
    if get_origin(kind) is tuple:
        entry = _PLURAL.get(_plain(get_args(kind)[0]))
        return f"{entry} with commas between" if entry else ""
    if get_origin(kind) is Literal:
        *most, last = map(str, get_args(kind))
        return f"{', '.join(most)} or {last}" if most else last
    return _WORDS.get(kind, "")


def _bounds(field: FieldInfo) -> str:
    metadata = list(field.metadata)
    if get_origin(field.annotation) is tuple:
        entry = get_args(field.annotation)[0]
        for each in get_args(entry)[1:] if get_origin(entry) is Annotated else ():
            metadata += each.metadata if isinstance(each, FieldInfo) else [each]
    parts = []
    for each in metadata:
        if type(each) in _BOUNDS:
            words, attribute = _BOUNDS[type(each)]
            parts.append(f"{words} {format_value(getattr(each, attribute))}")
    return (", " + " and ".join(parts)) if parts else ""

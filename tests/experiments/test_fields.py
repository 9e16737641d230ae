"""Settings from text: every kind of value, right and wrong."""

import dataclasses
import math
from typing import Annotated, Literal

import pytest
from annealax.experiments._fields import (
    Doc,
    fields_of,
    format_value,
    parse_overrides,
)
from annealax.experiments._names import unknown_name

from annealax import AnnealaxError, InvalidInputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    count: Annotated[int, Doc("a count", at_least=1, at_most=10**7)] = 3
    rate: Annotated[float, Doc("a rate", above=0)] = 0.5
    switch: Annotated[bool, Doc("on or off")] = False
    note: Annotated[str, Doc("any text")] = ""
    colour: Annotated[Literal["red", "green", "blue"], Doc("a colour")] = "red"
    points: Annotated[tuple[float, ...], Doc("points", at_least=0, at_most=1)] = (0.0,)
    sizes: Annotated[tuple[int, ...], Doc("sizes", at_least=1)] = (2, 3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Child(Example):
    count: int = 7
    colour: str = "blue"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("count=12", 12),
        ("count = 12 ", 12),
        ("count=2e3", 2000),
        ("count=1_000", 1000),
        ("rate=1e-3", 1e-3),
        ("rate=2", 2.0),
        ("switch=true", True),
        ("switch=On", True),
        ("switch=0", False),
        ("note=a=b", "a=b"),
        ("note=", ""),
        ("colour=green", "green"),
        ("points=0.1,0.2", (0.1, 0.2)),
        ("points=(0.1, 1)", (0.1, 1.0)),
        ("points=0.5,", (0.5,)),
        ("points=", ()),
        ("sizes=4", (4,)),
    ],
)
def test_text_is_read_by_the_type_of_its_field(text, value):
    (parsed,) = parse_overrides(Example, [text]).values()
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("count=many", ["count", "'many'", "a whole number"]),
        ("count=1.5", ["count", "'1.5'", "a whole number"]),
        ("count=", ["count", "''"]),
        ("count=0", ["count", "0", "at least 1"]),
        ("count=-3", ["count", "-3", "at least 1"]),
        ("count=" + "9" * 400, ["count", "at most"]),
        ("count=" + "9" * 5000, ["count", "at most"]),
        ("count=inf", ["count", "'inf'"]),
        ("count=nan", ["count", "'nan'"]),
        ("count=true", ["count", "'true'"]),
        ("rate=fast", ["rate", "'fast'", "a number"]),
        ("rate=0", ["rate", "above 0"]),
        ("rate=nan", ["rate", "nan"]),
        ("rate=inf", ["rate", "inf"]),
        ("rate=__import__('os')", ["rate", "a number"]),
        ("switch=perhaps", ["switch", "'perhaps'", "true or false"]),
        ("colour=purple", ["colour", "'purple'", "red, green or blue"]),
        ("points=0.1;0.2", ["points", "numbers with commas between"]),
        ("points=0.1,,0.2", ["points", "numbers with commas between"]),
        ("points=0.1,2", ["points", "at most 1"]),
        ("sizes=2.5", ["sizes", "whole numbers with commas between"]),
        ("sizes=0", ["sizes", "at least 1"]),
        ("count", ["key=value", "'count'"]),
        ("=3", ["key=value"]),
        ("", ["key=value"]),
    ],
)
def test_wrong_text_names_the_field_the_value_and_what_is_expected(text, words):
    with pytest.raises(InvalidInputError) as error:
        parse_overrides(Example, [text])
    assert all(word in str(error.value) for word in words), str(error.value)
    assert len(str(error.value)) < 300


def test_an_unknown_key_shows_the_valid_ones_and_the_nearest():
    with pytest.raises(AnnealaxError) as error:
        parse_overrides(Example, ["cout=3"])
    assert "Did you mean 'count'?" in str(error.value)
    assert all(name in str(error.value) for name in fields_of(Example))


def test_a_key_given_twice_is_an_error():
    with pytest.raises(InvalidInputError, match="twice"):
        parse_overrides(Example, ["count=1", "count=2"])


def test_no_nearest_match_when_nothing_is_near():
    message = str(unknown_name("setting", "zzzzzz", ["count", "rate"]))
    assert "Did you mean" not in message
    assert "count, rate" in message


@pytest.mark.parametrize(
    "value", [3, 0.1, 1e-7, 2.0, True, False, "text", (0.0, 0.25, 1.0), (3, 4), ()]
)
def test_formatted_values_can_be_read_back(value):
    kinds = {bool: "switch", int: "count", float: "rate", str: "note"}
    if isinstance(value, tuple):
        key = "sizes" if value and isinstance(value[0], int) else "points"
    else:
        key = kinds[type(value)]
    assert parse_overrides(Example, [f"{key}={format_value(value)}"]) == {key: value}


def test_a_changed_default_keeps_type_and_meaning():
    parent, child = fields_of(Example), fields_of(Child)
    assert list(child) == list(parent)
    assert child["count"] == parent["count"]
    assert child["colour"].kind == Literal["red", "green", "blue"]
    assert math.isclose(Child().count, 7)


def test_a_field_without_meaning_is_refused():
    @dataclasses.dataclass(frozen=True)
    class Silent:
        count: int = 1

    with pytest.raises(TypeError, match="count"):
        fields_of(Silent)

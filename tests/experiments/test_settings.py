"""Settings from text: every kind of value, right and wrong."""

from typing import Annotated, Literal

import pytest
from pydantic import Field

from annealax import AnnealaxError, InvalidInputError
from annealax.experiments.settings import (
    Settings,
    format_value,
    parse_assignments,
    takes,
)


class Example(Settings):
    count: int = Field(3, ge=1, le=10**7, description="a count")
    rate: float = Field(0.5, gt=0, description="a rate")
    switch: bool = Field(False, description="on or off")
    note: str = Field("", description="any text")
    colour: Literal["red", "green", "blue"] = Field("red", description="a colour")
    points: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(
        (0.0,), description="points"
    )
    sizes: tuple[Annotated[int, Field(ge=1)], ...] = Field((2, 3), description="sizes")


class Child(Example):
    count = 7
    colour = "blue"


def parse(*texts):
    return Example(**parse_assignments(texts))


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
    parsed = getattr(parse(text), text.partition("=")[0].strip())
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
        parse(text)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert len(str(error.value)) < 300


def test_an_unknown_key_shows_the_valid_ones_and_the_nearest():
    with pytest.raises(AnnealaxError) as error:
        parse("cout=3")
    assert "Did you mean 'count'?" in str(error.value)
    assert all(name in str(error.value) for name in Example.model_fields)


def test_a_key_given_twice_is_an_error():
    with pytest.raises(InvalidInputError, match="twice"):
        parse("count=1", "count=2")


def test_no_nearest_match_when_nothing_is_near():
    with pytest.raises(AnnealaxError) as error:
        parse("zzzzzz=3")
    assert "Did you mean" not in str(error.value)


@pytest.mark.parametrize(
    "value", [3, 0.1, 1e-7, 2.0, True, False, "text", (0.0, 0.25, 1.0), (3, 4), ()]
)
def test_formatted_values_can_be_read_back(value):
    kinds = {bool: "switch", int: "count", float: "rate", str: "note"}
    if isinstance(value, tuple):
        key = "sizes" if value and isinstance(value[0], int) else "points"
    else:
        key = kinds[type(value)]
    assert getattr(parse(f"{key}={format_value(value)}"), key) == value


def test_a_changed_default_keeps_type_meaning_and_bounds():
    parent, child = Example.model_fields, Child.model_fields
    assert list(child) == list(parent)
    assert [takes(child[key]) for key in child] == [takes(parent[key]) for key in child]
    assert child["count"].description == "a count"
    assert (Child().count, Child().colour, Example().count) == (7, "blue", 3)
    for wrong in ({"count": 0}, {"colour": "purple"}, {"count": True}):
        with pytest.raises(InvalidInputError, match=next(iter(wrong))):
            Child(**wrong)


def test_a_default_out_of_bounds_is_refused():
    class Wrong(Example):
        count = 0

    with pytest.raises(InvalidInputError, match="at least 1"):
        Wrong()


def test_a_field_without_meaning_is_refused():
    with pytest.raises(TypeError, match="count"):

        class _Silent(Settings):
            count: int = 1


def test_values_of_the_wrong_type_are_refused():
    for wrong in ({"count": 1.5}, {"count": "x"}, {"rate": None}, {"points": 5}):
        with pytest.raises(InvalidInputError, match=next(iter(wrong))):
            Example(**wrong)


def test_replace_checks_too():
    assert Example(rate=2.0).replace(count=4).values()["rate"] == 2.0
    with pytest.raises(InvalidInputError, match="at least 1"):
        Example().replace(count=0)

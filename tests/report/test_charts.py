"""Charts: ticks, limits, and marks where they belong."""

import re

import numpy as np
import pytest

from annealax.experiments._svg import Chart, limits, thin_out, tick_text, ticks


@pytest.mark.parametrize(
    ("low", "high", "count"),
    [(0, 1, 4), (-3.3, 4.1, 4), (1e-9, 3e-9, 5), (-1e6, 1e7, 6), (99.9, 100.1, 4)],
)
def test_ticks_are_round_inside_and_not_too_many(low, high, count):
    found = ticks(low, high, count)
    assert 2 <= len(found) <= count
    assert all(low - 1e-12 <= value <= high * (1 + 1e-9) for value in found)
    steps = np.diff(found)
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6)
    assert float(f"{steps[0]:.2g}") == pytest.approx(steps[0])


@pytest.mark.parametrize("ends", [(1, 1), (2, 1), (0, np.inf), (np.nan, 1)])
def test_no_ticks_on_an_impossible_axis(ends):
    assert ticks(*ends, 4) == []


def test_tick_text():
    assert [tick_text(value) for value in (0.30000000000000004, -2.0, 1e7)] == [
        "0.3",
        "−2",
        "1e+07",
    ]


@pytest.mark.parametrize("values", [[], [np.nan], [3.0], [0.0, 0.0], [-1, 5, np.inf]])
def test_limits_are_never_empty(values):
    low, high = limits(np.array(values))
    assert low < high
    finite = [value for value in values if np.isfinite(value)]
    assert all(low < value < high for value in finite)


def test_points_land_where_they_should():
    chart = Chart((0.0, 10.0), (0.0, 1.0), "x", size=(340, 210))
    chart.dots([0, 10, np.nan], [0, 1, 0.5], "first")
    path = re.search(r'd="([^"]*)"', chart.marks[0])[1]
    assert path == "M0.0 168.0h0M284.0 0.0h0"


def test_a_gap_where_a_value_is_missing():
    chart = Chart((0.0, 4.0), (0.0, 1.0))
    chart.line([0, 1, 2, 3, 4], [0, 1, np.nan, 1, 0], "first")
    assert re.sub(r"[^ML]", "", re.search(r'd="([^"]*)"', chart.marks[0])[1]) == "MLML"


def test_words_are_escaped():
    chart = Chart((0.0, 1.0), (0.0, 1.0), "<b>")
    chart.text(0, 0, "a & b")
    picture = chart.draw('"<i>"')
    assert "<b>" not in picture
    assert "<i>" not in picture
    assert "a &amp; b" in picture


def test_long_series_are_thinned_out():
    x, y = thin_out(np.arange(10_000.0), np.ones(10_000))
    assert len(x) == len(y) <= 600
    assert x[0] < 20
    assert x[-1] > 9900

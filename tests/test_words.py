"""Numbers and verdicts as text."""

import numpy as np
import pytest

from annealax import _words


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (3.7021, 0.004, "3.702(4)"),
        (3.7021, 0.0123, "3.702(12)"),
        (-12.0, 3.0, "-12.0(30)"),
        (1234.0, 56.0, "1230(60)"),
        (1234.0, 560.0, "1200(600)"),
        (0.00012345, 0.0000012, "0.0001234(12)"),
        (5.0, 0.0, "5"),
        (np.nan, 1.0, "?"),
        (5.25, None, "5.25"),
        (-0.0001, 0.004, "0.000(4)"),
    ],
)
def test_a_number_with_the_error_of_its_last_digits(value, error, shown):
    assert _words.brief_text(value, error) == shown


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (3.70213, 0.0041, "3.702 ± 0.004"),
        (3.70213, 0.0123, "3.702 ± 0.012"),
        (-31.3972, 0.0962, "-31.40 ± 0.10"),
        (501.76, 12.3, "502 ± 12"),
        (1.0, None, "1.0000"),
        (1.0, 0.0, "1.0000"),
        (None, 0.1, "?"),
        (np.nan, 0.1, "?"),
    ],
)
def test_estimates_have_the_digits_that_are_known(value, error, shown):
    assert _words.estimate_text(value, error) == shown


def test_zero_has_no_sign():
    assert _words.estimate_text(-0.0001, 0.004) == "0.000 ± 0.004"
    assert _words.estimate_text(-0.00001, None) == "0.0000"
    values = np.array([-1.0, -1e-6, 1.0])
    cells = _words.parameter_cells(values, np.full(3, 1 / 3))
    assert cells[0] == cells[3] == "0.000"


def test_cells_of_a_parameter():
    """The error of the mean is that over replicates of equal weight."""
    rng = np.random.default_rng(0)
    values = (10 + rng.normal(size=(25, 400))).ravel()
    weights = np.full(10_000, 1e-4)
    mean, spread, low, middle, high = _words.parameter_cells(values, weights, 25)
    assert mean.startswith(("10.0", "9.9"))
    digits = int(mean.partition("(")[2].rstrip(")"))
    assert 6 <= digits <= 14  # 0.01, known to 14 %
    assert float(spread) == pytest.approx(1, abs=0.03)
    np.testing.assert_allclose(
        [float(low), float(middle), float(high)], [8.355, 10, 11.645], atol=0.06
    )
    assert "(" not in _words.parameter_cells(values, weights)[0]


def test_a_headline_says_what_there_is_to_doubt():
    assert _words.headline(3.702, 0.004, 0) == "log Z = 3.702 ± 0.004; nothing to doubt"
    assert "2 reasons to doubt it" in _words.headline(3.702, 0.004, 2)
    assert _words.headline(None, None, 0).startswith("log Z = ?")

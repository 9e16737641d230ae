"""What was asked for, and how many runs it takes."""

import numpy as np
import pytest

from annealax import InvalidInputError
from annealax.auto.aim import FEWEST, MOST, Aim


def test_the_harder_of_two_wishes_decides():
    aim = Aim(precision=0.01, draws=1000)
    # Four errors of one run, aimed at 0.8 of the precision: 16 / 0.64 runs.
    assert aim.runs(0.04, 1000.0) == 25
    assert aim.runs(1e-6, 50.0) == 20
    assert aim.runs(0.04, 5.0) == MOST
    assert aim.runs(1e-6, 1000.0) == FEWEST
    assert aim.runs(np.nan, 1000.0) == MOST


def test_what_is_missing_after_some_runs():
    aim = Aim(precision=0.01, draws=1000)
    assert aim.runs(0.012, 2000.0, count=16) == 36
    assert aim.is_reached(0.01, 1000.0)
    assert not aim.is_reached(0.011, 1000.0)
    assert not aim.is_reached(0.01, 999.0)


@pytest.mark.parametrize(
    "wrong", [{"precision": 0.0}, {"precision": np.nan}, {"draws": 0}]
)
def test_wishes_that_mean_nothing(wrong):
    (name,) = wrong
    with pytest.raises(InvalidInputError, match=name):
        Aim(**wrong)

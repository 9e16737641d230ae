"""How hard temperatures are."""

import numpy as np

from annealax._ladder import lengths


def test_lengths_bear_what_was_not_measured():
    assert np.isfinite(lengths(np.array([0.0, np.nan, np.inf, 1e9]))).all()

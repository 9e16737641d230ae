"""Repeats on workers: the numbers of one process, and nothing made twice."""

from concurrent.futures import ThreadPoolExecutor

import jax.random as jr
import numpy as np
import pytest

import annealax as ax
from annealax._work.executors import Workers
from annealax.experiments import comparison
from annealax.experiments.evaluation import evaluate
from annealax.experiments.registry import find_experiment

PROBLEM = (
    find_experiment("bimodal")
    .experiment(num_particles=20, num_transitions=2, num_repeats=4)
    .problem()
)


@pytest.fixture
def workers():
    with ThreadPoolExecutor(2) as pool:
        yield Workers(pool)


def passes(workers=None, store=None):
    sampler, options = PROBLEM.sampler(), {"workers": workers, "checkpoint": store}
    return evaluate(jr.key(1), sampler, label="", num_repeats=4, **options)


def test_passes(workers, tmp_path):
    store = ax.Checkpoint(tmp_path, every_seconds=0)
    alone, there = passes(), passes(workers, store)
    np.testing.assert_array_equal(alone.log_normalizers, there.log_normalizers)
    np.testing.assert_array_equal(alone.stderrs, there.stderrs)
    np.testing.assert_array_equal(alone.result.x, there.result.x)
    # All of them are kept.
    again = passes(None, store)
    np.testing.assert_array_equal(again.log_normalizers, there.log_normalizers)
    assert again.seconds == there.seconds


def compare(workers=None, store=None):
    """Log Z of two repeats."""
    options = {"workers": workers, "checkpoint": store, "num_repeats": 2, "seed": 0}
    (row,) = comparison.compare(PROBLEM, ["smc"], 2e3, **options)
    return row.log_normalizers.tolist()


def test_attempts_of_a_comparison(workers, tmp_path):
    store = ax.Checkpoint(tmp_path)
    alone = compare()
    assert alone[0] != alone[1]
    assert compare(workers, store) == alone
    first, second = (tmp_path / f"smc-{n}" / "checkpoint-00000001.npz" for n in (1, 2))
    second.unlink()
    before = first.stat().st_mtime_ns
    assert compare(workers, store) == alone
    assert first.stat().st_mtime_ns == before
    assert second.exists()

"""What a run compares with: plain SMC of the same cost, all passes pooled."""

import dataclasses

import numpy as np
import pytest

from annealax.experiments import EXPERIMENTS
from annealax.experiments.evaluation import run_experiment

SMALL = {
    "num_particles": 50,
    "num_transitions": 2,
    "num_leapfrog": 2,
    "num_train_steps": 2,
    "num_repeats": 4,
    "flow_family": "diagonal_affine",
}


@pytest.fixture(scope="module")
def outcome():
    return run_experiment(EXPERIMENTS["gaussian"](dim=2, **SMALL), seed=1)


def test_the_answer_pools_all_passes(outcome):
    for each in outcome.evaluations:
        z = np.exp(each.log_normalizers)
        assert each.log_normalizer == pytest.approx(np.log(z.mean()))
        between = z.std(ddof=1) / z.mean() / 2
        assert each.log_normalizer_stderr >= between * (1 - 1e-6)


def test_plain_smc_gets_a_whole_number_of_ladders(outcome):
    ours, same, *longer = (each.num_transitions for each in outcome.evaluations)
    assert ours == same == 2
    assert all(count > 2 and count % 2 == 0 for count in longer)


def test_a_given_number_of_transitions_leaves_nothing_to_the_clock(outcome):
    settings = dataclasses.replace(
        outcome.problem, settings=outcome.settings.replace(smc_transitions=3)
    )
    again = run_experiment(settings, seed=1)
    assert [each.num_transitions for each in again.evaluations] == [2, 2, 3]
    np.testing.assert_array_equal(
        again.main.log_normalizers, outcome.main.log_normalizers
    )


def test_the_default_example_is_fixed():
    assert EXPERIMENTS["bimodal"]().smc_transitions > 0

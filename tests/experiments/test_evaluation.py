"""What a run compares with: plain SMC of the same cost, all passes pooled."""

import dataclasses

import jax.random as jr
import numpy as np
import pytest

import annealax as ax
from annealax.experiments import EXPERIMENTS, evaluation
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
def outcome(tmp_path_factory):
    """A run with checkpoints; passes with flows seem to cost 2.5 times as much."""
    stages = evaluation.Stages(checkpoint=ax.Checkpoint(tmp_path_factory.mktemp("run")))
    settings = EXPERIMENTS["gaussian"](dim=2, **SMALL)
    with pytest.MonkeyPatch.context() as patch:
        times = lambda key, found: [2.5, 1.0, 2.0][: len(found)]  # noqa: E731
        patch.setattr(evaluation, "times_in_turn", times)
        return run_experiment(settings, seed=1, stages=stages)


def test_the_answer_pools_all_passes(outcome):
    for each in outcome.evaluations:
        z = np.exp(each.log_normalizers)
        assert each.log_normalizer == pytest.approx(np.log(z.mean()))
        between = z.std(ddof=1) / z.mean() / 2
        assert each.log_normalizer_stderr >= between * (1 - 1e-6)


def test_plain_smc_gets_a_whole_number_of_ladders(outcome):
    """Rounded up: it has no less than the pass with flows."""
    assert [each.num_transitions for each in outcome.evaluations] == [2, 2, 6]
    assert [each.seconds for each in outcome.evaluations] == [2.5, 1.0, 2.0]
    assert outcome.evaluations[2].label == "SMC, same cost"


def test_samplers_are_timed_in_turn(outcome):
    times = evaluation.times_in_turn(jr.key(0), outcome.evaluations[:2])
    assert len(times) == 2
    assert all(0 < each < 10 for each in times)


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

"""Comparison of methods: the same budget for each, honestly counted."""

import json
import os
import signal

import numpy as np
import pytest
from typer.testing import CliRunner

import annealax as ax
from annealax.cli.main import app
from annealax.experiments import EXPERIMENTS, comparison

TINY = {
    "dim": 2,
    "num_particles": 100,
    "num_transitions": 3,
    "num_leapfrog": 3,
    "flow_family": "diagonal_affine",
    "condition_number": 4.0,
}
PROBLEM = EXPERIMENTS["gaussian"](**TINY).problem()


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


# AIS and simple AFT count as SMC and AFT do.
@pytest.mark.parametrize("name", ["craft", "aft", "snf", "vi", "smc", "hmc", "nuts"])
def test_every_method_keeps_to_its_evaluations(name):
    """Counted by the method itself; SMC's ten passes and a last pass round it."""
    budget = 2e5
    (row,) = comparison.compare(PROBLEM, [name], budget, num_repeats=1, seed=0)
    (attempt,) = row.attempts
    low, high = (0.5, 2.0) if name == "nuts" else (0.85, 1.1)
    assert low * budget < attempt.evaluations < high * budget
    if name in comparison.DIRECT:
        assert attempt.log_normalizer is None
        assert attempt.rhat < 1.05
        return
    # Every method is good at a Gaussian in 2-d, even without resampling.
    assert attempt.log_normalizer == pytest.approx(1.0, abs=0.2)
    assert 0 < attempt.ess <= 1
    assert attempt.memory > 0
    # The curve ends where the attempt does.
    np.testing.assert_allclose(
        attempt.curve[-1],
        [attempt.seconds, attempt.evaluations, attempt.log_normalizer],
    )
    assert np.all(np.diff(attempt.curve[:, 1]) > 0)


def test_a_budget_in_time(tmp_path):
    settings = [f"--set={key}={value}" for key, value in TINY.items()]
    folder = tmp_path / "out"
    methods = "craft,smc,hmc"
    options = ["--budget", "0.4s", "--repeats", 2, "--methods", methods]
    result = invoke("compare", "gaussian", *options, "--out", folder, *settings)
    assert result.exit_code == 0, result.output
    for text in ("CRAFT", "SMC", "HMC", "exact", "R-hat", "0.4 s"):
        assert text in result.output
    assert (folder / "compare.png").read_bytes().startswith(b"\x89PNG")
    with np.load(folder / "compare.npz", allow_pickle=False) as curves:
        assert curves["craft_1"].shape[1] == 3
        assert curves["hmc_0"].shape == (0, 3)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert {json.loads(line)["stage"] for line in lines} == {
        "craft-1-training", "craft-1-passes", "craft-2-training", "craft-2-passes",
        "smc-1-passes", "smc-2-passes",
    }  # fmt: skip
    content = json.loads((folder / "compare.json").read_text())
    assert content["log_normalizer_true"] == pytest.approx(1.0)
    assert [row["method"] for row in content["rows"]] == methods.split(",")
    for row in content["rows"]:
        assert len(row["attempts"]) == 2
        values = {attempt["log_normalizer"] for attempt in row["attempts"]}
        assert len(values) == (1 if row["method"] == "hmc" else 2)  # fresh each time


@pytest.mark.parametrize(
    ("budget", "unit", "amount"),
    [("0.3s", "seconds", 0.3), (2e5, "evaluations", 2e5)],
)
def test_training_stops_when_its_share_is_spent(budget, unit, amount, monkeypatch):
    """Though it was planned for a thousand times the budget."""
    monkeypatch.setattr(comparison, "_plan_training", lambda *_: 100_000)
    monkeypatch.setattr(comparison, "_TRAINING_CALLS", 10_000)
    (row,) = comparison.compare(PROBLEM, ["craft"], budget, num_repeats=1, seed=0)
    (attempt,) = row.attempts
    assert 0.5 * amount < getattr(attempt, unit) < 2 * amount


def test_a_comparison_that_was_stopped_goes_on(tmp_path, monkeypatch):
    """Finished repeats and plans are kept; the rest comes out as it would have."""
    settings = [f"--set={key}={value}" for key, value in TINY.items()]
    options = ["--evaluations", 2e4, "--repeats", 3, "--methods", "smc"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    command = ("compare", "gaussian", *options, *settings)
    assert invoke(*command, "--out", whole).exit_code == 0
    made, original = [], comparison.train_and_deploy

    def stop_in_the_second(*arguments):
        made.append(arguments)
        if len(made) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(*arguments)

    monkeypatch.setattr(comparison, "train_and_deploy", stop_in_the_second)
    result = invoke(*command, "--out", parts)
    assert result.exit_code == 128 + signal.SIGTERM
    assert f"annealax resume {parts}" in result.output
    result = invoke("resume", parts)
    assert result.exit_code == 0, result.output
    assert len(made) == 4  # the second once more, the first not
    with np.load(whole / "compare.npz") as one, np.load(parts / "compare.npz") as two:
        assert {**one}.keys() == {**two}.keys()
        for name, value in one.items():
            np.testing.assert_array_equal(value[:, 1:], two[name][:, 1:])  # but times
    assert json.loads((parts / "status.json").read_text()) == {"compare": "finished"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budget", "soon"], "60s"),
        (["--budget", "-3s"], "positive"),
        (["--budget", "nans"], "positive"),
        (["--budget", "3s", "--evaluations", "1e5"], "not both"),
        (["--evaluations", "0"], "positive"),
        (["--methods", "crafty"], "craft"),
        (["--methods", ","], "at least one"),
        (["--set", "num_particles=x"], "num_particles"),
        (["--seed", str(2**64 + 1)], "seed must be a whole number"),
        (["--seed", str(10**30)], "seed must be a whole number"),
        (["--repeats", "0"], "num_repeats"),
    ],
)
def test_bad_options(options, message):
    result = invoke("compare", "gaussian", *options)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_an_unknown_problem():
    result = invoke("compare", "gausian")
    assert result.exit_code == 2
    assert "gaussian" in result.output


def test_a_budget_must_make_sense():
    with pytest.raises(ax.InvalidInputError, match="positive"):
        comparison.compare(PROBLEM, ["smc"], float("inf"), num_repeats=1, seed=0)


def test_a_setting_of_one_problem_only(tmp_path):
    """`gaussian:dim` is no setting of bimodal, and bimodal's own is not the other's."""
    given = ["num_particles=50", "gaussian:dim=2", "bimodal:num_transitions=3"]
    settings = [f"--set={text}" for text in given]
    options = ["--evaluations", 1e4, "--repeats", 1, "--methods", "smc", "--quiet"]
    names = ("bimodal", "gaussian")
    result = invoke("compare", *names, *options, *settings, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    jobs = [json.loads((tmp_path / n / "settings.json").read_text()) for n in names]
    assert jobs[0]["overrides"] == {"num_particles": 50, "num_transitions": 3}
    assert jobs[1]["overrides"] == {"num_particles": 50, "dim": 2}
    result = invoke("compare", *names, *options, "--set=funnel:dim=2")
    assert result.exit_code == 2
    assert "funnel:dim" in result.output

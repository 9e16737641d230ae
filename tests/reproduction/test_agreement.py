"""The words of a reproduction follow from its numbers."""

import dataclasses

import numpy as np
import pytest

from annealax.reproduction import agreement, paper
from annealax.reproduction.agreement import Estimate, View
from annealax.reproduction.figures import FIGURES

SWEEP = FIGURES[1].panels[0]
CHAINS = FIGURES[3].panels[0]
TRAINING = FIGURES[2].panels[1]


def passes(*values):
    return {"log_normalizer": np.array(values), "ess": np.ones(len(values))}


def sweep(panel=SWEEP, repeats=3, **log_z):
    """Measurements of a sweep: every line at the same distance from 500 everywhere."""
    results = {panel.gold_task("cpu").name: passes(500.0, 500.001, 499.999)}
    for line in panel.lines:
        for at in panel.places(line, "cpu"):
            for repeat in range(1, repeats + 1):
                name = panel.task(line, "cpu", repeat, at).name
                centre = 500 + log_z[line.name]
                results[name] = passes(centre - 9, centre + 0.1 * repeat, centre + 0.5)
    return View(panel, "cpu", repeats, results)


def words(rows, beginning):
    return next(row for row in rows if row.what.startswith(beginning)).words


def ours(rows, beginning):
    return next(row for row in rows if row.what.startswith(beginning)).ours


def test_gaps_are_compared_as_distances_from_gold():
    # The paper: CRAFT at 10 particles is 444.6, with gold 508.8 +- 1.6.
    view = sweep(craft=-64.2 - 0.2, aft=-200.0)
    rows = view.rows()
    assert ours(rows, "CRAFT, 10:").startswith("-64.200 ±")
    assert words(rows, "CRAFT, 10:") == "agrees"
    assert words(rows, "CRAFT, 200:").startswith("further from gold by 61.1")
    assert words(rows, "AFT, 10:").startswith("nearer to gold by 97.5")
    assert words(rows, "gold").startswith("another target")
    assert view.claims()[0].words == "holds at every place"


def test_what_does_not_hold_is_said():
    assert sweep(craft=-30.0, aft=-20.0).claims()[0].words == (
        "does not hold at 10, 20, 40, 200"
    )
    assert sweep(craft=-20.0, aft=-20.01).claims()[0].words == (
        "not decided: error bars overlap at 10, 20, 40, 200"
    )


def test_one_repeat_is_no_verdict():
    view = sweep(repeats=1, craft=-30.0, aft=-20.0)
    assert view.claims()[0].words.startswith("one repeat: no verdict")
    assert words(view.rows(), "CRAFT, 10:").startswith("one repeat: no verdict")


def test_a_tiny_problem_is_not_compared():
    view = View(SWEEP, "smoke", 2, {})
    assert {row.words for row in view.claims()} == {agreement.NO_VERDICT}


def test_what_was_not_measured_is_missing():
    view = sweep(craft=-30.0, aft=-20.0)
    gone = SWEEP.task(SWEEP.line("aft"), "cpu", 2, 20).name
    whole = dict(view.results)
    del whole[gone]
    view = View(SWEEP, "cpu", 3, whole)
    assert view.missing == [gone]
    assert len(view.log_normalizer(SWEEP.line("aft"), 20).values) == 2
    empty = View(SWEEP, "cpu", 3, {})
    assert {row.words for row in [*empty.rows(), *empty.claims()]} == {"missing"}


def test_training_ends_where_its_last_tenth_is():
    log_z = np.concatenate([np.full(135, -1000.0), np.full(15, 495.0)])
    results = {TRAINING.gold_task("cpu").name: passes(500.0, 500.001)}
    for line in TRAINING.lines:
        drop = 12.0 if line.name == "snf" else 0.0
        for repeat in (1, 2, 3):
            results[TRAINING.task(line, "cpu", repeat).name] = {
                "log_normalizer": log_z - drop - 0.01 * repeat,
                "evaluations": np.arange(150.0),
            }
        results[TRAINING.timing_task(line, "cpu").name] = {
            "seconds": 1.0,
            "processor_seconds": 2.0,
            "memory": 2**20 * (3 if line.name == "snf" else 1),
            "load": 0.5,
            "num_processors": 2,
        }
    view = View(TRAINING, "cpu", 3, results)
    rows = view.rows()
    # The paper: -8.46 to -3.46 for CRAFT, and -15.76 for SNF.
    assert words(rows, "CRAFT: log Z") == "agrees"
    assert ours(rows, "SNF: log Z").startswith("-17.0")
    assert words(rows, "SNF: log Z").startswith("further from gold by 1.26")
    assert [claim.words for claim in view.claims()] == ["holds", "holds"]
    assert view.claims()[1].ours == "SNF takes 3 times that of CRAFT"


def chains(spread, repeats=12, bias=0.0):
    """Chains whose means are off by normal numbers of a given size."""
    rng = np.random.default_rng(0)
    trace = 39.455 + np.tile([-1e-3, 1e-3], 5000)
    name = "two_point_susceptibility"
    results = {CHAINS.gold_task("cpu").name: {name: trace}}
    for line in CHAINS.lines:
        count = line.counts["cpu"]
        for repeat in range(1, repeats + 1):
            off = bias + spread[line.name] * rng.normal()
            task = CHAINS.task(line, "cpu", repeat)
            results[task.name] = {name: np.full(count, 39.455 + off)}
        results[CHAINS.timing_task(line, "cpu").name] = {
            "seconds": 1000.0 / count,
            "processor_seconds": 2000.0 / count,
            "memory": 0,
            "load": 0.5,
            "num_processors": 2,
        }
    return View(CHAINS, "cpu", repeats, results)


def test_errors_of_chains_are_compared_as_variances():
    view = chains({"craft": 0.01, "smc": 0.1, "vi": 0.1, "hmc": 0.005})
    verdicts = [row.words for row in view.claims()]
    assert verdicts == [
        "holds",
        "not decided with 12 repeats",
        "does not hold: the other way round",
    ]
    text = ours(view.rows(), "CRAFT: error")
    assert "over 12 repeats of 400 iterations (1e+03 s, 2e+03 processor" in text
    finals = np.array([error[-1] for error in view.errors(CHAINS.line("craft"))])
    share = agreement.rms(finals) / 0.045
    assert words(view.rows(), "CRAFT: error").startswith(f"{share:.2g} times")


def test_errors_scale_with_the_square_root_of_time():
    view = chains({"craft": 0.01, "smc": 0.1, "vi": 0.1, "hmc": 0.1})
    results = dict(view.results)
    name = CHAINS.timing_task(CHAINS.line("craft"), "cpu").name
    quick = {**results[name], "seconds": results[name]["seconds"] / 100}
    faster = View(CHAINS, "cpu", 12, {**results, name: quick})

    def projected(view):
        return float(ours(view.rows(), "CRAFT: error").rpartition(" ")[2])

    assert projected(faster) == pytest.approx(projected(view) / 10, rel=0.05)


def test_intervals_hold_what_they_should():
    """Of 4000 means of three normal numbers 95 % (alarms below 93.9 or above 96.1)."""
    rng = np.random.default_rng(1)
    found = [Estimate(rng.normal(size=3)) for _ in range(4000)]
    share = np.mean([abs(each.value) <= each.reach for each in found])
    assert 0.939 < share < 0.961


def test_readings_are_those_of_the_paper():
    values = {(r.line, r.at): r.low for r in paper.PARTICLES.readings}
    assert values["craft", 40] == 495.4
    assert values["aft", 200] == 492.2
    assert dataclasses.astuple(paper.TRANSITIONS.gold) == (511.9, 2.8)


@pytest.mark.parametrize(
    ("away", "error", "text"),
    [
        (0.5, 0.5, "agrees"),
        (2.0, 0.5, "above by 2.00 ± 0.50"),
        (-2.0, 0.5, "below by 2.00 ± 0.50"),
        (-2.0, float("nan"), "one repeat: no verdict (below by 2)"),
    ],
)
def test_words_for_a_difference(away, error, text):
    assert agreement.agreement(away, error, 1.96 * error) == text


def test_ranges():
    assert agreement.outside(3.0, 1.0, 2.0) == 1
    assert agreement.outside(1.5, 1.0, 2.0) == 0
    assert agreement.outside(0.0, 1.0, 2.0) == -1
    assert agreement.range_text(1.0, 2.0) == "1 to 2"
    assert agreement.range_text(1.5, 1.5) == "1.5"

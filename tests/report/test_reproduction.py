"""Pictures, tables and pages of a reproduction, from numbers made up here."""

import csv
import io
import json

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from annealax.report import reproduction
from annealax.reproduction.figures import FIGURES
from annealax.reproduction.runner import Plan

NAME = "two_point_susceptibility"
CENTRES = {NAME: 39.455, "ising_energy_density": 0.2412}


def measured(task, rng):
    """Numbers of the right form for a task."""
    if task.stage == "timing":
        return {
            "seconds": 2.0 / max(task.line.counts["cpu"], 1),
            "processor_seconds": 4.0 / max(task.line.counts["cpu"], 1),
            "memory": 2**20,
            "load": 5.0,
            "num_processors": 2,
        }
    if task.line.method == "sample":
        found = {"log_normalizer": 503.3, "log_normalizer_stderr": 0.02}
        found |= {"evaluations": 1e6, "processor_seconds": 60.0, "warnings": []}
        for name, centre in CENTRES.items():
            found |= {name: centre, f"{name}_stderr": 0.01}
        return found
    count = max(task.count, 2)
    if task.stage == "flows":
        return {"log_normalizer": np.zeros(3), "evaluations": np.arange(3.0)}
    if task.kind == "sweep":
        place = task.settings.get("num_transitions", 10)
        log_z = 500 - 1000 / place - rng.exponential(2.0, count)
        return {"log_normalizer": log_z, "ess": np.full(count, 0.5)}
    if task.kind == "training":
        rise = 60 * np.exp(-np.arange(100) / 10)
        log_z = 503 - rise + rng.normal(size=100)
        return {"log_normalizer": log_z, "evaluations": np.arange(100.0)}
    spread = {"vi": 3.0, "hmc": 2.0}.get(task.line.method, 0.6)
    return {
        name: centre * (1 + 0.02 * spread * rng.normal(size=count))
        for name, centre in CENTRES.items()
    }


@pytest.fixture(scope="module")
def results():
    plan = Plan(tuple(FIGURES), "cpu", 0)
    rng = np.random.default_rng(0)
    return {task.name: measured(task, rng) for task in plan.tasks}


@pytest.mark.parametrize("number", FIGURES)
def test_every_figure_has_a_picture_numbers_and_a_page(tmp_path, results, number):
    plan = Plan((number,), "cpu", 0)
    files = reproduction.write(tmp_path, plan, results, {"versions": {"jax": "1"}})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)
    figure = FIGURES[number]
    page = (tmp_path / f"figure-{number}.md").read_text()
    assert f"annealax reproduce {number} --scale cpu --seed 0 --out DIR" in page
    assert "Not finished" not in page
    assert "missing" not in page
    assert " nan" not in page
    for text in figure.departures["cpu"]:
        assert f"- {text}" in page
    for panel in figure.panels:
        assert f"## {panel.title}" in page
        for claim in panel.claims:
            assert f"| {claim.text} |" in page
    if figure.panels[0].kind == "chain":
        assert "The machine was shared while times were measured (load 5.0" in page
    with Image.open(tmp_path / f"figure-{number}.png") as picture:
        assert min(picture.size) > 250
        assert np.asarray(picture.convert("L")).std() > 5
    content = json.loads((tmp_path / f"figure-{number}.json").read_text())
    assert content["environment"] == {"versions": {"jax": "1"}}
    assert content["missing"] == []
    for panel in content["panels"]:
        assert panel["gold"]["settings"]
        assert all(line["count"] >= 0 for line in panel["lines"])


def test_csv_holds_every_pass(tmp_path, results):
    reproduction.write(tmp_path, Plan((1,), "cpu", 0), results, {})
    with (tmp_path / "figure-1.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    # Two lines, four places, three repeats, five passes.
    assert len(rows) == 2 * 4 * 3 * 5
    found = [
        float(row["log_normalizer"])
        for row in rows
        if (row["line"], row["at"], row["repeat"]) == ("aft", "40", "2")
    ]
    expected = results["lgcp-sweep-aft-40-2"]["log_normalizer"]
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_csv_of_chains_holds_the_error_of_the_running_mean(tmp_path, results):
    reproduction.write(tmp_path, Plan((3,), "cpu", 0), results, {})
    with (tmp_path / "figure-3.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["line"] == "smc"]
    assert len(rows) == 5 * 50
    gold = np.mean(results["phi4-tuned-chain-gold-0"][NAME])
    last = [row for row in rows if row["repeat"] == "5"][-1]
    trace = results["phi4-chain-smc-5"][NAME]
    assert float(last["error_of_running_mean"]) == pytest.approx(
        trace.mean() - gold, rel=1e-4
    )
    assert float(last["processor_seconds"]) == pytest.approx(4.0)


def test_what_is_missing_is_named(tmp_path, results):
    gone = "phi4-chain-smc-3"
    some = {name: found for name, found in results.items() if name != gone}
    reproduction.write(tmp_path, Plan((3,), "cpu", 0), some, {})
    page = (tmp_path / "figure-3.md").read_text()
    total = len(FIGURES[3].tasks("cpu"))
    assert f"**Not finished**: 1 of {total} pieces are missing: {gone}." in page
    assert "over 4 repeats of 50 iterations" in page


def test_nothing_measured_is_no_error(tmp_path):
    reproduction.write(tmp_path, Plan(tuple(FIGURES), "paper", 0), {}, {})
    page = (tmp_path / "figure-4.md").read_text()
    assert "not measured | missing |" in page


def test_tables_on_a_terminal(tmp_path, results):
    reproduction.write(tmp_path, Plan((1,), "cpu", 0), results, {})
    console = Console(width=160, record=True, file=io.StringIO())
    reproduction.show(console, tmp_path)
    text = console.export_text()
    assert "CRAFT, 200: log Z less gold" in text
    assert "CRAFT outperforms AFT" in text

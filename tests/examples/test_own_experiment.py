"""An experiment from outside: every command takes it, and nothing of ours is edited."""

import shutil
import sys
from pathlib import Path

import jax.random as jr
import numpy as np
import pytest
from typer.testing import CliRunner

import annealax as ax
from annealax.cli.main import app

FILE = Path(__file__).parents[2] / "examples" / "own_experiment.py"
TINY = ("num_particles=200", "num_train_steps=60", "num_repeats=3", "smc_transitions=5")


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "run"
    settings = [f"--set={text}" for text in TINY]
    output = invoke("run", FILE, "--out", folder, "--quiet", *settings)
    assert "averaged CRAFT" in output
    return folder


def test_run_and_load_run(finished):
    run = ax.load_run(finished)
    assert (run.name, run.method) == ("own_experiment", "averaged")
    assert run.settings.bend == 0.5
    error = run.result.log_normalizer - np.log(4 * np.pi)
    assert abs(error) < 6 * run.result.log_normalizer_stderr
    # The flow can bend as the target is bent, and does.
    assert 0.25 < run.flows.b[-1] + np.sum(run.flows.b[:-1]) < 0.75
    again = run.sampler.run(jr.fold_in(jr.split(jr.key(0), 4)[2], 0), run.flows)
    assert again.log_normalizer == run.result.log_normalizer
    np.testing.assert_array_equal(again.x, run.result.x)
    assert again.warnings() == run.result.warnings()
    assert run.history.loss.shape == (60,)
    assert run.chain is None or run.chain.observables


def test_pimh_resume_and_report(finished):
    output = invoke("pimh", finished, "--num-steps", 20, "--quiet")
    assert "radius" in output
    assert ax.load_run(finished).chain.mean["radius"] > 1
    assert "finished" in invoke("resume", finished)
    page = finished / "report.html"
    page.unlink()
    assert str(page) in invoke("report", finished).replace("\n", "")
    assert "own_experiment" in page.read_text()


def test_list_show_and_compare(tmp_path):
    assert "A banana in the plane" in invoke("list", FILE)
    shown = invoke("show", FILE)
    assert "how far the target is bent" in shown
    assert "averaged" in shown
    folder = tmp_path / "compare"
    options = ["--evaluations", 2e5, "--repeats", 1, "--quiet", "--out", folder]
    output = invoke("compare", FILE, "--methods", "averaged,smc", *options)
    assert "averaged CRAFT" in output


def test_numbers_can_be_read_where_the_class_is_not(finished, tmp_path, monkeypatch):
    folder = tmp_path / "elsewhere"
    shutil.copytree(finished, folder)
    job = folder / "settings.json"
    job.write_text(job.read_text().replace(str(FILE), "/none/own_experiment.py"))
    monkeypatch.delitem(sys.modules, "own_experiment")
    run = ax.load_run(folder)
    assert run.result.log_normalizer == ax.load_run(finished).result.log_normalizer
    assert run.table["rows"][0]["label"] == "averaged CRAFT"
    assert run.history.loss.shape == (60,)
    with pytest.raises(ax.InvalidInputError, match="there is no file /none/"):
        _ = run.settings


def test_what_is_not_there_says_why(finished, tmp_path):
    with pytest.raises(ax.FileError, match="not a run folder"):
        ax.load_run(tmp_path)
    folder = tmp_path / "half"
    shutil.copytree(finished, folder)
    (folder / "result.npz").unlink()
    (folder / "flows.npz").unlink()
    run = ax.load_run(folder)
    for name in ("result", "flows", "arrays"):
        with pytest.raises(ax.FileError, match="annealax resume"):
            getattr(run, name)
    (folder / "result.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(ax.FileError, match=r"result\.npz is damaged"):
        _ = run.result

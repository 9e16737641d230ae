"""Runs that are killed or interrupted end as if nothing had happened."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from annealax.cli.main import app
from annealax.loggers import JSONLines

TINY = {
    "num_particles": 50,
    "num_transitions": 2,
    "num_leapfrog": 1,
    "num_hmc_steps": 1,
    "num_train_steps": 40,
    "num_repeats": 4,
    "flow_family": "diagonal_affine",
    "smc_transitions": 3,
}


@pytest.fixture(autouse=True)
def _default_signals():
    """A job in the background of a shell is started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def arguments(folder, *more, **changes):
    settings = [f"--set={key}={value}" for key, value in (TINY | changes).items()]
    options = ["--out", folder, "--quiet", "--checkpoint-seconds", 0]
    return ["run", "bimodal", *options, *settings, *more]


def load(path):
    with np.load(path, allow_pickle=False) as arrays:
        return {k: (v.dtype, v.tobytes()) for k, v in arrays.items()}


def metrics(folder):
    try:
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]
    except (FileNotFoundError, ValueError):  # not yet, or being written
        return []


def kill_at(command, folder, stage):
    """Start the command, and kill it once this stage has made a step."""
    process = subprocess.Popen(
        [sys.executable, "-m", "annealax", *map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None:
        if any(row["stage"] == stage for row in metrics(folder)):
            process.kill()
        time.sleep(0.005)
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    result = invoke(*arguments(folder))
    assert result.exit_code == 0, result.output
    return folder


@pytest.mark.slow
def test_kill_9_while_training_and_while_sampling(whole, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "compiled"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    folder = tmp_path / "run"
    kill_at(arguments(folder), folder, "training")
    kill_at(["resume", folder], folder, "smc-same-ladder")
    assert not (folder / "result.npz").exists()
    result = invoke("resume", folder)
    assert result.exit_code == 0, result.output
    assert load(folder / "result.npz") == load(whole / "result.npz")
    steps = [(row["stage"], row["step"]) for row in metrics(folder)]
    assert len(steps) == len(set(steps)) == len(metrics(whole)) == 40 + 3 * 4


def interrupt(monkeypatch, stage, step, signum=signal.SIGINT):
    """Send a signal to this process when a stage has made so many steps."""
    log = JSONLines.__call__

    def call(self, snapshot):
        log(self, snapshot)
        if self.stage == stage and snapshot.step >= step:
            os.kill(os.getpid(), signum)

    monkeypatch.setattr(JSONLines, "__call__", call)


def test_a_signal_says_how_to_go_on(tmp_path, monkeypatch):
    """SMC, which trains nothing, in the midst of its passes."""
    more = ("--method", "smc")
    invoke(*arguments(tmp_path / "whole", *more))
    folder = tmp_path / "run"
    interrupt(monkeypatch, "deployment", 2, signal.SIGTERM)
    result = invoke(*arguments(folder, *more))
    assert result.exit_code == 143
    assert f"annealax resume {folder}" in result.output.replace("\n", "")
    assert json.loads((folder / "status.json").read_text()) == {"run": "interrupted"}
    monkeypatch.undo()
    result = invoke("resume", folder, "--quiet")
    assert result.exit_code == 0, result.output
    assert load(folder / "result.npz") == load(tmp_path / "whole" / "result.npz")
    assert [row["step"] for row in metrics(folder)] == [1, 2, 3, 4]


def test_pimh_resumes(whole, monkeypatch):
    command = ("pimh", whole, "--num-steps", 30, "--quiet", "--checkpoint-seconds", 0)
    assert invoke(*command).exit_code == 0
    expected = load(whole / "pimh.npz")
    (whole / "pimh.npz").unlink()
    interrupt(monkeypatch, "pimh", 1)
    result = invoke(*command)
    assert result.exit_code == 130
    assert not (whole / "pimh.npz").exists()
    monkeypatch.undo()
    result = invoke("resume", whole, "--json")
    assert result.exit_code == 0, result.output
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert events[-1]["event"] == "result"
    assert events[-1]["expectations"]
    assert load(whole / "pimh.npz") == expected
    assert "finished" in invoke("resume", whole).output


def test_json_is_all_there_is_on_standard_output(whole, tmp_path):
    result = invoke(*[a for a in arguments(tmp_path) if a != "--quiet"], "--json")
    assert result.exit_code == 0, result.output
    events = [json.loads(line) for line in result.stdout.splitlines()]
    kinds = [event["event"] for event in events]
    assert set(kinds) == {"stage", "progress", "result"}
    training = [e for e in events if e.get("stage") == "training"]
    assert training[-1]["step"] == 40
    assert {"loss", "log_normalizer", "lowest_ess", "acceptance_rate"} <= set(
        training[-1]
    )
    assert events[-1]["rows"][0]["label"] == "CRAFT"
    assert load(tmp_path / "result.npz") == load(whole / "result.npz")


def test_the_environment_names_no_machine(whole):
    text = (whole / "environment.json").read_text()
    content = json.loads(text)
    assert content["versions"]["jax"]
    assert {"annealax", "working_folder"} == set(content["git"])
    assert os.path.expanduser("~") not in text
    assert os.uname().nodename not in text
    assert str(whole) not in text

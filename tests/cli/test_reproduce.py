"""`annealax reproduce`: killed and resumed with the same numbers, and clear errors."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import annealax as ax
from annealax.cli.main import app
from annealax.report import reproduction
from annealax.reproduction import runner
from annealax.reproduction.figures import FIGURES, all_tasks

_SECONDS = 1500


def invoke(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def start(*arguments):
    command = [sys.executable, "-m", "annealax", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(process):
    output, _ = process.communicate(timeout=_SECONDS)
    assert process.returncode == 0, output.decode()
    return output.decode()


def kill_when(process, there, signum=signal.SIGKILL):
    """Send a signal once something is there; the process must not end before."""
    deadline = time.monotonic() + _SECONDS
    while not there():
        assert process.poll() is None, process.stdout.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signum)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output.decode()


def numbers(folder):
    """All that was measured, but for the clock."""
    found = {}
    for file in sorted(folder.glob("*.csv")):
        with file.open(newline="") as stream:
            for index, row in enumerate(csv.DictReader(stream)):
                row.pop("seconds", None)
                row.pop("processor_seconds", None)
                found[file.name, index] = row
    return found


def wait_until_nobody_works_in(folder):
    """Processes at the side end by themselves, without their parent."""
    deadline, before = time.monotonic() + 60, None
    while before != (before := set(folder.glob("checkpoints/**/*"))):
        assert time.monotonic() < deadline
        time.sleep(2)


def finished(folder):
    return {path.parent.parent.name for path in folder.glob("checkpoints/*/answer/c*")}


ON_TWO_DEVICES = """
import sys, threading, jax, annealax
from annealax.reproduction import runner
measure, used = runner.measure, set()
def watched(bench):
    used.add((threading.current_thread().name, jax.config.jax_default_device))
    return measure(bench)
runner.measure = watched
store = annealax.Checkpoint(sys.argv[1])
runner.run(runner.Plan((3,), "smoke", 0), store, devices=jax.devices())
assert {device for _, device in used} >= set(jax.devices()), used
"""


@pytest.mark.slow
def test_all_figures_killed_and_resumed(tmp_path):
    """Killed within trainings side by side, stopped within a chain; then as one piece.

    The piece in one is figure 3: trainings, chains, and all methods, in a process with
    two devices, which measure side by side.
    """
    folder = tmp_path / "killed"
    common = ("reproduce", "all", "--scale", "smoke", "--checkpoint-seconds", 0)
    arguments = (*common, "--out", folder)
    training = folder / "checkpoints" / "phi4-chain-vi-flows" / "training"
    process = start(*arguments, "--workers", 2)
    assert kill_when(process, lambda: any(training.glob("*.npz")))[0] == -signal.SIGKILL
    wait_until_nobody_works_in(folder)
    # A signal that can be noted ends it in order, with pages of what is there.
    chain = folder / "checkpoints" / "phi4-chain-smc-1" / "chain"
    process = start(*arguments)
    code, output = kill_when(process, lambda: any(chain.glob("*.npz")), signal.SIGTERM)
    assert code == 128 + signal.SIGTERM, output
    assert "To go on: annealax resume" in output
    everything = {task.name for task in all_tasks(tuple(FIGURES), "smoke")}
    assert 3 < len(finished(folder)) < len(everything)
    assert "**Not finished**" in (folder / "figure-1.md").read_text()
    output = finish(start("resume", folder))
    assert "pieces are there already" in output
    assert finished(folder) == everything
    for number, figure in FIGURES.items():
        page = (folder / f"figure-{number}.md").read_text()
        assert figure.title in page
        assert "Not finished" not in page
        assert "not measured" not in page
        with Image.open(folder / f"figure-{number}.png") as picture:
            assert min(picture.size) > 250
            assert np.asarray(picture.convert("L")).std() > 5
    other = tmp_path / "whole"
    plan, store = runner.Plan((3,), "smoke", 0), ax.Checkpoint(other / "checkpoints")
    flags = os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=2"
    subprocess.run(
        [sys.executable, "-c", ON_TWO_DEVICES, str(store.folder)],
        env={**os.environ, "XLA_FLAGS": flags},
        check=True,
        timeout=_SECONDS,
    )
    results = runner.collect(plan, store)
    assert len(results) == len(plan.tasks)
    reproduction.write(other, plan, results, {})
    assert len(numbers(other)) > 100
    assert numbers(other).items() <= numbers(folder).items()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("9",), "there is no figure '9'"),
        (("1", "--scale", "huge"), "scale"),
        (("1", "--repeats", 0), "repeats"),
        (("1", "--workers", 0), "workers"),
    ],
)
def test_wrong_arguments_are_one_line(tmp_path, arguments, text):
    result = invoke("reproduce", *arguments, "--out", tmp_path / "out")
    assert result.exit_code == 2
    (line,) = result.stderr.strip().splitlines()
    assert text in line
    assert not (tmp_path / "out").exists()


def test_a_folder_with_another_scale_is_left_alone(tmp_path):
    settings = {
        "command": "reproduce",
        "seed": 0,
        "name": "reproduction",
        "method": "reproduce",
        "figures": [1],
        "scale": "cpu",
    }
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    result = invoke("reproduce", "1", "--scale", "smoke", "--out", tmp_path)
    assert result.exit_code == 2
    assert "holds a reproduction with scale cpu, not smoke" in result.stderr
    assert os.listdir(tmp_path) == ["settings.json"]
    assert Path(tmp_path / "settings.json").read_text() == json.dumps(settings)


def test_report_says_where_the_pages_are(tmp_path):
    (tmp_path / "reproduction.json").write_text("{}")
    result = invoke("report", tmp_path)
    assert result.exit_code == 2
    assert "figure-*.md" in result.stderr

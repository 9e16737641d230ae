"""Terminals without characters, and signals at bad moments."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from annealax.cli.main import app

TINY = ("num_particles=64", "num_transitions=2", "num_leapfrog=2", "num_repeats=2")
COMMAND = ["run", "bimodal", "--method", "smc", *(f"--set={text}" for text in TINY)]
# As a shell starts a command: a background job of a script ignores SIGINT.
START = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, "-m", "annealax", *sys.argv[1:]])
"""


def test_a_terminal_that_knows_ascii_only(tmp_path):
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    result = subprocess.run(
        [sys.executable, "-m", "annealax", *COMMAND, "--out", str(tmp_path / "run")],
        env=os.environ | plain, capture_output=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    output = result.stdout.decode("ascii")
    assert "+-" in output
    assert "SMC" in output


@pytest.mark.parametrize("delay", [0.3, 1.0])
def test_ctrl_c_while_the_package_is_imported(tmp_path, delay):
    process = subprocess.Popen(
        [sys.executable, "-c", START, *COMMAND, "--out", str(tmp_path / "run")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    output = process.communicate()
    assert process.returncode in (130, -signal.SIGINT)  # the latter: before Python is
    assert output == ("", "")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_first_file_is_written(tmp_path, monkeypatch, signum):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    replacing, sent = os.fsync, []

    def send(descriptor):
        if not sent:
            sent.append(os.kill(os.getpid(), signum))
        replacing(descriptor)

    monkeypatch.setattr(os, "fsync", send)
    folder = tmp_path / "run"
    result = CliRunner().invoke(app, [*COMMAND, "--out", str(folder), "--quiet"])
    monkeypatch.undo()
    assert result.exit_code == 128 + signum
    assert f"annealax resume {folder}" in result.output.replace("\n", "")
    assert "Traceback" not in result.output
    assert not list(folder.rglob("*.part"))
    assert json.loads((folder / "status.json").read_text()) == {"run": "interrupted"}
    result = CliRunner().invoke(app, ["resume", str(folder), "--quiet"])
    assert result.exit_code == 0, result.output
    signal.signal(signal.SIGINT, before)


def test_the_library_brings_no_tools_of_the_command():
    """Libraries that draw or parse arguments take a second to import."""
    code = "import sys, annealax; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    found = set(result.stdout.split())
    assert not found & {"typer", "jinja2", "matplotlib", "arviz", "annealax.cli"}

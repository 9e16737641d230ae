"""Terminals without characters, and signals at bad moments."""

import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from annealax.cli.main import app

TINY = ("num_particles=64", "num_transitions=2", "num_leapfrog=2", "num_repeats=2")
COMMAND = ["run", "bimodal", "--method", "smc", *(f"--set={text}" for text in TINY)]
# As a shell starts a command: a background job of a script ignores SIGINT.
START = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
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


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-c", START, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.parametrize("signum", SIGNALS)
@pytest.mark.parametrize(
    "module", ["annealax._command_start", "numpy", "annealax.experiments.jobs"]
)
def test_a_signal_while_the_package_is_imported(tmp_path, module, signum):
    """Sent as soon as Python says that it has this module."""
    command = ["-X", "importtime", "-m", "annealax", *COMMAND]
    process = start(*command, "--out", tmp_path / "run")
    for line in process.stderr:
        if line.split("|")[-1].strip() == module:
            process.send_signal(signum)
            break
    output, errors = process.communicate()
    assert process.returncode == 128 + signum
    said = [line for line in errors.splitlines() if "import time:" not in line]
    assert said == [f"Stopped by {signum.name}."]
    assert output == ""
    assert not (tmp_path / "run").exists()


OWN = """
import os, signal
from annealax.experiments.problems.synthetic import Bimodal

class Mine(Bimodal):
    pass

def send():
    os.kill(os.getpid(), signal.{})

def write_and_send(descriptor):
    os.fsync = fsync
    send()
    fsync(descriptor)

fsync = os.fsync
{}
"""


@pytest.mark.parametrize("signum", SIGNALS)
@pytest.mark.parametrize("moment", ["before", "during"])
def test_a_signal_before_and_during_the_first_file(tmp_path, signum, moment):
    action = {"before": "send()", "during": "os.fsync = write_and_send"}[moment]
    own, folder = tmp_path / "own.py", tmp_path / "run"
    own.write_text(OWN.format(signum.name, action))
    process = start("-m", "annealax", "run", own, *COMMAND[2:], "--out", folder)
    _, errors = process.communicate()
    assert process.returncode == 128 + signum
    *_, last = errors.splitlines()
    if moment == "before":
        assert errors == f"Stopped by {signum.name}.\n"
        assert not folder.exists()
    else:
        assert last == f"Stopped. To go on: annealax resume {folder}"
        assert not list(folder.rglob("*.part"))


@pytest.mark.parametrize("signum", SIGNALS)
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

"""Run folders: nothing is overwritten, files are whole, one process at a time."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import annealax as ax
from annealax.cli.folder import RunFolder, alone_in, working
from annealax.cli.main import app
from annealax.cli.output import Output
from annealax.experiments.files import writing

HOLD = """
import sys, pathlib
from annealax.cli.folder import alone_in
with alone_in(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
SMC = {"command": "run", "name": "bimodal", "method": "smc", "seed": 0}


def occupy(path):
    folder = RunFolder(path)
    folder.write_json("settings.json", {})
    return folder.path


def test_a_folder_with_a_run_is_left_alone(tmp_path):
    wanted = tmp_path / "run"
    assert [occupy(wanted).name for _ in range(3)] == ["run", "run-2", "run-3"]


def test_an_empty_folder_or_one_with_other_files_is_used(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert occupy(tmp_path) == tmp_path
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_the_current_folder(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert occupy(Path()).resolve() == here
    assert occupy(Path()) == tmp_path / "here-2"


def test_a_file_appears_only_when_complete(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_json("a.json", {"old": 1})
    with contextlib.suppress(KeyError), writing(tmp_path / "a.json") as file:
        file.write(b"half")
        raise KeyError
    assert json.loads((tmp_path / "a.json").read_text()) == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_disk_error_is_ours(tmp_path):
    full = OSError(28, "No space left on device")
    error = pytest.raises(ax.InvalidInputError, match=r"a\.json: No space")
    with error, writing(tmp_path / "a.json"):
        raise full


def test_arrays_hold_no_pickles(tmp_path):
    folder = RunFolder(tmp_path)
    path = folder.write_arrays("a.npz", {"x": np.arange(3), "y": 1.5, "z": True})
    with np.load(path, allow_pickle=False) as arrays:
        assert arrays["x"].tolist() == [0, 1, 2]
        assert arrays["y"] == 1.5
        assert arrays["z"]


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_folder_is_for_one_process(tmp_path, holder):
    error = pytest.raises(ax.InvalidInputError, match=f"process {holder.pid} is at")
    with error, alone_in(tmp_path):
        pass
    (tmp_path / "settings.json").write_text(json.dumps(SMC))
    result = CliRunner().invoke(app, ["resume", str(tmp_path)])
    assert result.exit_code == 2
    assert f"process {holder.pid} is at work" in result.output
    assert not (tmp_path / "status.json").exists()


def test_a_killed_process_leaves_no_lock(tmp_path, holder):
    holder.kill()  # -9: it cannot tidy up
    holder.wait()
    with alone_in(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
    with alone_in(tmp_path):  # and again: it was given back
        pass


def test_a_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    error = pytest.raises(ax.InvalidInputError, match="cannot write in")
    with error, alone_in(tmp_path / "file"):
        pass


def test_the_status_follows_the_work(tmp_path):
    folder, output = RunFolder(tmp_path / "run"), Output(quiet=True)
    with working(output, folder, "run", fresh=True):
        assert folder.status() == {"run": "running"}
    assert folder.status() == {"run": "finished"}
    with pytest.raises(ZeroDivisionError), working(output, folder, "pimh", fresh=True):
        _ = 1 / 0
    assert folder.status() == {"run": "finished", "pimh": "running"}


TINY = ("num_particles=64", "num_transitions=2", "num_leapfrog=2", "num_repeats=2")


SMALL_DISK = """
import os, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
size = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
os.execv(sys.executable, [sys.executable, "-m", "annealax", *sys.argv[2:]])
"""


def start_on_a_small_disk(size, *arguments):
    """No file may grow beyond so many bytes; the error is as that of a full disk."""
    return subprocess.run(
        [sys.executable, "-c", SMALL_DISK, str(size), *map(str, arguments)],
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": ""},  # no half file there
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_no_room_for_the_first_file_of_a_sample(tmp_path):
    folder = tmp_path / "run"
    command = ("sample", "jax.numpy:sum", "--shape", "2", "--out", folder)
    result = start_on_a_small_disk(100, *command)
    assert result.returncode == 2
    assert result.stderr.startswith("Error: cannot write")
    assert result.stderr.count("\n") == 1
    assert {file.name for file in folder.iterdir()} <= {".lock", "status.json"}


@pytest.mark.parametrize("size", [0, 600, 30_000])
def test_a_disk_that_fills_up(tmp_path, size):
    """One line, exit code 2, no half file; with space again, `resume` ends the work."""
    settings = [f"--set={text}" for text in TINY]
    command = ["run", "bimodal", "--method", "smc", "--quiet", *settings]
    folder = tmp_path / "run"
    result = start_on_a_small_disk(size, *command, "--out", folder)
    assert result.returncode == 2, result.stderr
    *warnings, error = result.stderr.splitlines()
    assert all(line.startswith("Warning: cannot write") for line in warnings)
    assert error.startswith("Error: cannot write")
    assert "free some space" in error
    assert not list(folder.rglob("*.part"))
    for file in folder.rglob("*.json"):
        json.loads(file.read_text())
    assert (folder / "settings.json").exists() == (size > 2000)
    if size > 2000:
        assert (folder / "result.npz").exists()
        resumed = CliRunner().invoke(app, ["resume", str(folder), "--quiet"])
        assert resumed.exit_code == 0, resumed.output
        assert (folder / "report.html").exists()

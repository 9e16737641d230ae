"""One process at a time in a run folder."""

import os
import subprocess
import sys

import pytest
from annealax.experiments._folder import RunFolder, read_status
from annealax.experiments._output import Output
from annealax.experiments._working import alone_in, working
from annealax.experiments.cli import app
from typer.testing import CliRunner

import annealax as ax

HOLD = """
import sys, pathlib
from annealax.experiments._working import alone_in
with alone_in(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


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
    error = pytest.raises(ax.InvalidInputError, match=str(holder.pid))
    with error, alone_in(tmp_path):
        pass
    (tmp_path / "settings.json").write_text(
        '{"name": "bimodal", "method": "smc", "seed": 0, "settings": {}}'
    )
    result = CliRunner().invoke(app, ["resume", str(tmp_path)])
    assert result.exit_code == 2
    assert f"process {holder.pid} is at work" in result.output
    assert not (tmp_path / "status.json").exists()


def test_a_killed_process_leaves_no_lock(tmp_path, holder):
    holder.kill()  # -9: it cannot tidy up
    holder.wait()
    with alone_in(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
    assert not (tmp_path / ".lock").exists()


def test_a_folder_that_cannot_be_written_to(tmp_path):
    error = pytest.raises(ax.InvalidInputError, match="cannot write in")
    with error, alone_in(tmp_path / "none"):
        pass


def test_the_status_follows_the_work(tmp_path):
    folder, output = RunFolder(tmp_path / "run"), Output(quiet=True)
    with working(output, folder, "run"):
        assert read_status(folder.path) == {"run": "running"}
    assert read_status(folder.path) == {"run": "finished"}
    with pytest.raises(ZeroDivisionError), working(output, folder, "pimh"):
        _ = 1 / 0
    assert read_status(folder.path) == {"run": "finished", "pimh": "running"}

"""`--devices` and `--distributed`: two real processes, one run, the same bits."""

import json
import socket
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from annealax.cli.main import app

RUN = [
    *("run", "bimodal", "--method", "smc", "--quiet", "--set", "num_particles=64"),
    *("--set", "block_size=16", "--set", "num_repeats=2"),
]


def bits(folder):
    with np.load(folder / "result.npz") as arrays:
        return {name: arrays[name].tobytes() for name in arrays}


def test_two_processes_give_the_bits_of_one(tmp_path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    folders = {"two": tmp_path / "two", "one": tmp_path / "one"}
    ways = {"one": [[]], "two": []}
    for rank in "01":
        where = ["--coordinator", f"127.0.0.1:{port}", "--processes", "2"]
        ways["two"].append(["--distributed", *where, "--rank", rank])
    for name in ("two", "one"):
        command = [sys.executable, "-m", "annealax", *RUN, "--out", str(folders[name])]
        started = [
            subprocess.Popen(
                [*command, *way],
                cwd=tmp_path,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for way in ways[name]
        ]
        said = [process.communicate(timeout=500)[0] for process in started]
        assert [process.returncode for process in started] == [0] * len(started), said
    assert bits(folders["two"]) == bits(folders["one"])
    rows = json.loads((folders["two"] / "table.json").read_text())["rows"]
    assert rows[0]["num_devices"] == 2
    facts = json.loads((folders["two"] / "environment.json").read_text())
    assert facts["num_processes"] == 2
    assert len(facts["devices_for_particles"]) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rank", "0"], "go with --distributed"),
        (["--distributed", "--rank", "0"], "go together"),
        (["--devices", "0"], "--devices"),
    ],
)
def test_what_does_not_fit_is_an_error(options, message, tmp_path):
    result = CliRunner().invoke(app, [*RUN, "--out", str(tmp_path / "a"), *options])
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "a").exists()

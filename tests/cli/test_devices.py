"""`--devices` and `--distributed`: two real processes, one run, the same bits."""

import json
import socket
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from annealax._work.executors import num_processors
from annealax.cli.main import app

SETTINGS = {
    "num_particles": 64,
    "block_size": 16,
    "num_transitions": 2,
    "smc_transitions": 2,
    "num_repeats": 2,
    "num_train_steps": 50,
    "flow_family": "diagonal_affine",
}
RUN = ["run", "bimodal", "--method", "craft", "--quiet"]
RUN += [text for name in SETTINGS for text in ("--set", f"{name}={SETTINGS[name]}")]


def bits(folder):
    found = {}
    for file in ("result.npz", "flows.npz"):
        with np.load(folder / file) as arrays:
            found |= {f"{file} {name}": arrays[name].tobytes() for name in arrays}
    return found


def test_two_processes_give_the_bits_of_one(tmp_path):
    """50 iterations of CRAFT, and passes with and without what they trained."""
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
    two, one = bits(folders["two"]), bits(folders["one"])
    assert "result.npz history_loss" in one
    assert [name for name in one if one[name] != two.get(name)] == []
    table = json.loads((folders["two"] / "table.json").read_text())
    assert [row["num_devices"] for row in table["rows"]] == [2, 2, 2]
    assert table["training_num_devices"] == 2
    facts = json.loads((folders["two"] / "environment.json").read_text())
    assert facts["num_processes"] == 2
    assert len(facts["devices_for_particles"]) == 2
    check_proposals(folders["one"])


def check_proposals(folder):
    """A processor is split for them, unless it is said otherwise; the same bits."""
    command = [sys.executable, "-m", "annealax", "pimh", str(folder)]
    found = []
    for devices in ([], ["--devices", "1"]):
        options = ["--num-steps", "5", "--quiet", *devices]
        subprocess.run([*command, *options], check=True, capture_output=True)
        answer = json.loads((folder / "pimh_answer.json").read_text())
        with np.load(folder / "pimh.npz") as arrays:
            bits = {name: arrays[name].tobytes() for name in arrays}
        found.append((answer["num_devices"], bits))
    (split, one), (single, other) = found
    assert (split, single) == (min(5, num_processors()), 1)
    assert one == other


def test_repeats_on_two_devices_have_the_bits_of_one(tmp_path):
    """Training included; and metrics of both are in the file, line by line."""
    command = [sys.executable, "-m", "annealax", "compare", "bimodal", "--quiet"]
    command += ["--methods", "craft", "--evaluations", "2e4", "--repeats", "2"]
    for name in ("num_particles", "num_transitions", "flow_family"):
        command += ["--set", f"{name}={SETTINGS[name]}"]
    devices, found, lines = [], [], []
    for count in ("1", "2"):
        folder = tmp_path / count
        way = ["--devices", count, "--out", str(folder)]
        subprocess.run([*command, *way], check=True, capture_output=True)
        content = json.loads((folder / "compare.json").read_text())
        attempts = content["rows"][0]["attempts"]
        devices.append([each["num_devices"] for each in attempts])
        numbers = [(each["log_normalizer"], each["ess"]) for each in attempts]
        with np.load(folder / "compare.npz") as arrays:  # the first column is time
            found.append((numbers, [arrays[n][:, 1:].tobytes() for n in arrays]))
        rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        lines.append(sorted((row["stage"], row["step"]) for row in rows))
    assert found[0] == found[1]
    assert found[0][0][0] != found[0][0][1]
    # Particles in one block are on one device: it is repeats that are on two.
    assert devices == [[1, 1], [2, 2]]
    assert len(lines[0]) > 10
    assert lines[0] == lines[1]


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

"""Run folders: nothing is overwritten, files are whole or absent."""

import contextlib
import json

import numpy as np
import pytest
from annealax.experiments._folder import RunFolder, write_settings

from annealax import InvalidInputError


def occupy(path):
    folder = RunFolder(path)
    write_settings(folder, name="x", method="smc", seed=0, overrides={}, values={})
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
    assert occupy(type(here)(".")).resolve() == here
    assert occupy(type(here)(".")) == tmp_path / "here-2"


def test_a_file_appears_only_when_complete(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_json("a.json", {"old": 1})
    with contextlib.suppress(KeyError), folder.writing("a.json") as file:
        file.write(b"half")
        raise KeyError
    assert json.loads((tmp_path / "a.json").read_text()) == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_disk_error_is_ours(tmp_path):
    folder = RunFolder(tmp_path)
    full = OSError(28, "No space left on device")
    with pytest.raises(InvalidInputError, match="No space"), folder.writing("a.json"):
        raise full


def test_arrays_hold_no_pickles(tmp_path):
    folder = RunFolder(tmp_path)
    path = folder.write_arrays("a.npz", {"x": np.arange(3), "y": 1.5, "z": True})
    with np.load(path, allow_pickle=False) as arrays:
        assert arrays["x"].tolist() == [0, 1, 2]
        assert arrays["y"] == 1.5
        assert arrays["z"]

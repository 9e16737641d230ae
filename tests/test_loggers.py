"""Loggers: one line for each step, also after a crash."""

import csv
import json
import struct
import sys

import numpy as np
import pytest

import annealax as ax


def snapshot(step, values):
    values = np.asarray(values, np.float32)
    return ax.ChainSnapshot(
        step, 10, values, {"m": 2 * values, "big": values[:, None]}, 1.5
    )


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_csv(tmp_path):
    log = ax.loggers.CSV(tmp_path / "deep" / "log.csv")
    log(snapshot(2, [0.5, 1.5]))
    log(snapshot(3, [2.5]))
    found = rows(log.path)
    assert [row["step"] for row in found] == ["1", "2", "3"]
    assert [float(row["m"]) for row in found] == [1, 3, 5]
    assert "big" not in found[0]


def test_steps_made_again_replace_their_lines(tmp_path):
    path = tmp_path / "log.csv"
    ax.loggers.CSV(path)(snapshot(4, [1, 2, 3, 4]))
    with path.open("a") as file:
        file.write("5,1.")  # a line that a crash cut short
    ax.loggers.CSV(path)(snapshot(3, [30]))  # resumed after step 2
    assert [(r["step"], float(r["log_normalizer"])) for r in rows(path)] == [
        ("1", 1),
        ("2", 2),
        ("3", 30),
    ]


def test_stages_share_a_json_file_and_nan_is_null(tmp_path):
    path = tmp_path / "metrics.jsonl"
    ax.loggers.JSONLines(path, stage="a")(snapshot(2, [1, np.nan]))
    ax.loggers.JSONLines(path, stage="b")(snapshot(1, [np.inf]))
    ax.loggers.JSONLines(path, stage="a")(snapshot(2, [7]))
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(r["stage"], r["step"], r["log_normalizer"]) for r in found] == [
        ("a", 1, 1.0),
        ("b", 1, None),
        ("a", 2, 7.0),
    ]


@pytest.mark.parametrize("kind", [ax.loggers.CSV, ax.loggers.JSONLines])
@pytest.mark.parametrize("content", [b"dear diary\n", b"\xff\xfe\n"])
def test_files_of_others_are_left_alone(tmp_path, kind, content):
    path = tmp_path / "notes"
    path.write_bytes(content)
    with pytest.raises(ax.FileError, match="notes"):
        kind(path)(snapshot(1, [1]))
    assert path.read_bytes() == content


def test_a_full_disk_does_not_end_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    log = ax.loggers.CSV(tmp_path / "file" / "log.csv")
    with pytest.warns(ax.CheckpointWarning, match="lines are lost"):
        log(snapshot(1, [1]))
    log(snapshot(2, [1]))  # told once


def events(folder):
    from tensorboardX.proto.event_pb2 import Event

    (path,) = folder.iterdir()
    content = path.read_bytes()
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        yield Event.FromString(content[12 : 12 + length])
        content = content[16 + length :]


def test_tensorboard(tmp_path):
    log = ax.loggers.TensorBoard(tmp_path / "deep", prefix="chain/")
    log(snapshot(299, [0.25]))
    log(snapshot(300, [0.5]))
    version, first, second = events(tmp_path / "deep")
    assert version.file_version == "brain.Event:2"
    for event, step, number in ((first, 299, 0.25), (second, 300, 0.5)):
        assert event.step == step
        assert {value.tag: value.simple_value for value in event.summary.value} == {
            "chain/log_normalizer": number,
            "chain/m": 2 * number,
        }


def test_tensorboard_on_a_disk_that_is_gone(tmp_path):
    (tmp_path / "file").write_text("")
    log = ax.loggers.TensorBoard(tmp_path / "file" / "logs")
    with pytest.warns(ax.CheckpointWarning, match="some steps are lost"):
        log(snapshot(1, [1]))


def test_tensorboard_without_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ax.MissingExtraError, match=r"annealax\[tensorboard\]"):
        ax.loggers.TensorBoard(tmp_path)

"""Checkpoints: numbered, whole or absent, and the one before if one is damaged."""

import dataclasses
import errno
import os

import jax.numpy as jnp
import numpy as np
import pytest

import annealax as ax
from annealax._work.checkpoint import as_checkpoint, once

WORK = {"work": "test", "num_steps": 3}


def tree(value):
    return {"x": jnp.full(3, value, jnp.float32), "n": np.arange(4)}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def store(tmp_path):
    return ax.Checkpoint(tmp_path / "deep" / "folder")


def test_what_was_saved_comes_back(store):
    assert store.latest(WORK) is None
    store.save(tree(1.0), identity=WORK, meta={"stage": "fit", "step": 7})
    saved = store.latest(WORK)
    assert saved.meta == {"stage": "fit", "step": 7}
    back = saved.restore(tree(0.0))
    assert isinstance(back["n"], np.ndarray)
    np.testing.assert_array_equal(back["x"], np.ones(3))


def test_the_last_two_are_kept(store):
    for value in range(5):
        store.save(tree(value), identity=WORK)
    assert names(store.folder) == ["checkpoint-00000004.npz", "checkpoint-00000005.npz"]
    assert store.latest(WORK).restore(tree(0.0))["x"][0] == 4


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == "cut short":
        content = content[: len(content) // 2]
    elif how == "empty":
        content = bytearray()
    elif how == "foreign":
        content = bytearray(b"text")
    else:
        content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["cut short", "empty", "foreign", "flipped"])
def test_a_damaged_file_is_passed_over_and_the_user_told(store, how):
    store.save(tree(1.0), identity=WORK)
    damage(store.save(tree(2.0), identity=WORK), how)
    with pytest.warns(ax.CheckpointWarning, match="0002.npz.*0001.npz"):
        saved = store.latest(WORK)
    assert saved.restore(tree(0.0))["x"][0] == 1
    # The good one stays until there are two good ones again.
    store.save(tree(3.0), identity=WORK)
    assert names(store.folder)[:1] == ["checkpoint-00000001.npz"]
    assert store.latest(WORK).restore(tree(0.0))["x"][0] == 3


def test_nothing_left_to_read_is_an_error(store):
    for value in (1.0, 2.0):
        damage(store.save(tree(value), identity=WORK), "cut short")
    with (
        pytest.warns(ax.CheckpointWarning),
        pytest.raises(ax.FileError, match="remove the folder"),
    ):
        store.latest(WORK)


def test_a_newer_format_is_not_passed_over(store, monkeypatch):
    store.save(tree(1.0), identity=WORK)
    monkeypatch.setattr("annealax._work.serialise.VERSION", 99)
    store.save(tree(2.0), identity=WORK)
    monkeypatch.undo()
    with pytest.raises(ax.FileError, match="upgrade"):
        store.latest(WORK)


def test_other_work_and_other_shapes_are_named(store):
    store.save(tree(1.0), identity=WORK)
    with pytest.raises(ax.InvalidInputError, match=r"num_steps \(3 there, 4 here\)"):
        store.latest(WORK | {"num_steps": 4})
    with pytest.raises(ax.FileError, match=r"\['x'\].*\[3\].*\[5\]"):
        store.latest(WORK).restore({"x": jnp.zeros(5), "n": np.arange(4)})


def test_when_it_is_due(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("annealax._work.checkpoint.time.monotonic", lambda: now[0])
    store = ax.Checkpoint(tmp_path, every_seconds=10, every_steps=100)
    assert not store.due(99)
    assert store.due(100)
    now[0] = 10.0
    assert store.due(1)
    store.save({}, identity=WORK, step=1)
    assert not store.due(100)
    assert store.due(101)


class Full:
    """A disk on which so many bytes fit."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data):
        size = len(memoryview(data).cast("B"))
        if size > self.room:
            self.file.write(bytes(memoryview(data).cast("B")[: self.room]))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= size
        return self.file.write(data)


@pytest.mark.parametrize("room", [0, 1, 300, 700])
def test_a_full_disk_loses_nothing_and_says_so(store, monkeypatch, room):
    store.save(tree(1.0), identity=WORK)
    store.save(tree(2.0), identity=WORK)
    before = {path: path.read_bytes() for path in store.folder.iterdir()}
    savez = np.savez
    monkeypatch.setattr(
        "annealax._work.serialise.np.savez",
        lambda file, **arrays: savez(Full(file, room), **arrays),
    )
    with pytest.warns(ax.CheckpointWarning, match="No space left"):
        assert store.save(tree(3.0), identity=WORK) is None
    assert {path: path.read_bytes() for path in store.folder.iterdir()} == before
    monkeypatch.undo()
    assert store.latest(WORK).restore(tree(0.0))["x"][0] == 2


def test_leftovers_of_a_killed_process_go(store):
    store.save(tree(1.0), identity=WORK)
    (store.folder / ".checkpoint-00000002.npz.123.part").write_bytes(b"half")
    store.save(tree(2.0), identity=WORK)
    assert names(store.folder) == ["checkpoint-00000001.npz", "checkpoint-00000002.npz"]


def test_stages_do_not_mix(store):
    store.child("a").save(tree(1.0), identity=WORK)
    assert store.latest() is None
    assert store.child("b").latest() is None
    assert store.child("a").latest() is not None


@dataclasses.dataclass(frozen=True)
class Attempt:
    name: str
    number: float | None
    curve: np.ndarray


@pytest.mark.parametrize(
    "tree",
    [
        17,
        (3, 4),
        {"x": np.arange(3.0), "y": jnp.ones(2)},
        Attempt("craft", None, np.eye(2)),
        ax.flows.diagonal_affine(None, 2),
    ],
    ids=lambda tree: type(tree).__name__,
)
def test_once(store, tree):
    calls = []

    def compute():
        calls.append(1)
        return tree

    first, again = (store.once("stage", compute, identity=WORK) for _ in range(2))
    assert first is tree
    assert repr(again) == repr(tree)
    assert len(calls) == 1
    with pytest.raises(ax.InvalidInputError, match="num_steps"):
        store.once("stage", compute, identity=WORK | {"num_steps": 1})


def test_once_with_what_a_file_cannot_describe(store):
    def compute():
        return [lambda x: x, np.ones(2)]

    tree = store.once("stage", compute, identity=WORK)
    assert store.once("stage", compute, identity=WORK, like=tree)[0] is tree[0]
    with pytest.warns(ax.CheckpointWarning, match=r"lambda.*computed again"):
        assert store.once("stage", compute, identity=WORK)[0] is not tree[0]


def test_once_without_a_store():
    assert once(None, "stage", lambda: 3, identity=WORK) == 3


@pytest.mark.parametrize(
    "arguments", [{"every_seconds": -1}, {"every_steps": 0}, {"keep": 0}]
)
def test_bad_arguments(tmp_path, arguments):
    with pytest.raises(ax.InvalidInputError, match=next(iter(arguments))):
        ax.Checkpoint(tmp_path, **arguments)


def test_a_file_in_its_place(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ax.InvalidInputError, match="not a folder"):
        ax.Checkpoint(tmp_path / "file").latest()


def test_neither_a_folder_nor_a_checkpoint(untyped):
    with pytest.raises(ax.InvalidInputError, match="checkpoint.*7"):
        as_checkpoint(7)

"""Checkpoints: the state of long work on disk, so that it can go on after a crash.

A checkpoint folder holds numbered files, each with a pytree of arrays, a fingerprint of
the work and what else is needed to go on. A file is complete when it appears, the older
ones go only after that, and a damaged one is passed over for the one before it.
"""

import contextlib
import json
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxtyping import PyTree

from annealax._checks import whole_number
from annealax._errors import InvalidInputError
from annealax._work.serialise import (
    FileError,
    NeedsLikeError,
    OtherFormatError,
    Saved,
    read,
    write,
)
from annealax._work.together import agreed_bytes, is_first, together

_NAME = re.compile(r"checkpoint-(\d{8})\.npz")


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written, or was damaged."""


class Checkpoint:
    """Where, and how often, long work saves its state.

    `fit` and `pimh` take one as `checkpoint=`. Work of several stages gives each stage
    a folder of its own: `child` for a stage that saves while it goes on, `once` for one
    that is short enough to be repeated as a whole.

        store = Checkpoint("run")
        ladder = store.once("ladder", find_ladder, identity=work)
        trained = fit(..., checkpoint=store.child("training"))

    Args:
        folder: Folder of the checkpoints; it is made if need be.
        every_seconds: Save when so many seconds have passed; None not to go by time.
        every_steps: Save when so many steps have been made; None not to go by steps.
        keep: How many files to keep.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        *,
        every_seconds: float | int | None = 60.0,
        every_steps: int | None = None,
        keep: int = 2,
    ):
        if every_seconds is not None and not every_seconds >= 0:
            raise InvalidInputError(
                f"every_seconds must not be negative, got {every_seconds}"
            )
        if every_steps is not None:
            every_steps = whole_number("every_steps", every_steps)
        self.folder = Path(folder)
        self.every_seconds = every_seconds
        self.every_steps = every_steps
        self.keep = whole_number("keep", keep)
        self._last_time = time.monotonic()
        self._last_step = 0

    def child(self, name: str) -> "Checkpoint":
        """Checkpoints of one stage, in a folder below this one."""
        return Checkpoint(
            self.folder / name,
            every_seconds=self.every_seconds,
            every_steps=self.every_steps,
            keep=self.keep,
        )

    def once(
        self,
        name: str,
        compute: Callable[[], PyTree],
        *,
        identity: Mapping[str, Any],
        like: PyTree | None = None,
    ) -> PyTree:
        """The tree that `compute()` gives, computed only if it was not saved before.

        Args:
            name: Name of the stage, which gets a folder of its own.
            compute: Makes the tree: whatever `annealax.save` can describe, such as
                arrays, numbers, text, modules and dataclasses. A tree that it cannot
                describe is computed again, with a `CheckpointWarning`.
            identity: What the work is, as in `save`.
            like: A tree of the same structure, as in `annealax.load`; None to go by
                the file alone.
        """
        store = self.child(name)
        if (saved := store.latest(identity)) is not None:
            try:
                return saved.restore(like)
            except NeedsLikeError as error:
                warnings.warn(
                    f"{error}; it is computed again", CheckpointWarning, stacklevel=2
                )
        tree = compute()
        store.save(tree, identity=identity)
        # What depends on a clock is not the same in every process.
        again = store.latest(identity) if together() else None
        return tree if again is None else again.restore(like)

    def due(self, step: int) -> bool:
        """Whether it is time to save, `step` steps having been made."""
        steps, seconds = self.every_steps, self.every_seconds
        return (steps is not None and step - self._last_step >= steps) or (
            seconds is not None and time.monotonic() - self._last_time >= seconds
        )

    def save(
        self,
        tree: PyTree,
        *,
        identity: Mapping[str, Any],
        meta: Mapping[str, Any] | None = None,
        step: int = 0,
    ) -> Path | None:
        """Write a checkpoint.

        A disk that is full or gone is a `CheckpointWarning`: what was there before
        stays, and the work can go on.

        Args:
            tree: The state: whatever `annealax.save` takes.
            identity: What the work is, as JSON holds it: `latest` compares it.
            meta: Anything else, as JSON holds it.
            step: Steps made so far, for `due`.

        Returns:
            The file, or None if it could not be written.
        """
        self._last_time, self._last_step = time.monotonic(), step
        if not is_first():
            return None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._remove(self.folder.glob(".checkpoint-*.part"))  # of a killed process
            numbers = [number for number, _ in self._files()]
            path = self.folder / f"checkpoint-{max(numbers, default=0) + 1:08d}.npz"
            write(path, tree, {"identity": identity, "meta": meta or {}})
        except OSError as error:
            warnings.warn(
                f"cannot write a checkpoint in {self.folder}: {error.strerror}; "
                "earlier ones are as they were; free some space",
                CheckpointWarning,
                stacklevel=2,
            )
            return None
        self._remove(path for _, path in self._files()[self.keep :])
        return path

    def latest(self, identity: Mapping[str, Any] | None = None) -> Saved | None:
        """The newest checkpoint that is whole; None if there is none at all.

        Its `restore(like)` gives the tree, its `meta` what was saved with it.

        Args:
            identity: What the work is; None to take any.

        Raises:
            FileError: If all files are damaged, or one is of a newer format.
            InvalidInputError: If the checkpoint is of other work.
        """
        if together():
            return self._latest_of_first(identity)
        return self._latest_here(identity)

    def _latest_of_first(self, identity: Mapping[str, Any] | None) -> Saved | None:
        """That of the first process: the others need not see its folder."""
        saved, content = None, None
        if is_first() and (saved := self._latest_here(identity)) is not None:
            content = saved.path.read_bytes()
        content = agreed_bytes(content)
        if content is None or is_first():
            return saved
        with tempfile.NamedTemporaryFile(suffix=".npz") as file:
            file.write(content)
            file.flush()
            saved = read(Path(file.name))
            # While the file is there.
            saved = saved._replace(meta=saved.meta["meta"])
        return saved

    def _latest_here(self, identity: Mapping[str, Any] | None) -> Saved | None:
        if self.folder.exists() and not self.folder.is_dir():
            raise InvalidInputError(f"{self.folder} is a file, not a folder")
        files = self._files()
        for index, (_, path) in enumerate(files):
            try:
                saved = read(path)
                found, meta = saved.meta["identity"], saved.meta["meta"]
            except OtherFormatError:
                raise
            except (FileError, KeyError, TypeError, OSError) as error:
                if index + 1 == len(files):
                    raise FileError(
                        f"{error}; no checkpoint in {self.folder} can be read: remove "
                        "the folder to start from the beginning"
                    ) from error
                warnings.warn(
                    f"{error}; going on from the checkpoint before it, "
                    f"{files[index + 1][1].name}",
                    CheckpointWarning,
                    stacklevel=2,
                )
                with contextlib.suppress(OSError):  # out of the way of new ones
                    path.replace(path.with_suffix(".damaged"))
                continue
            if identity is not None:
                self._compare(found, identity)
            return saved._replace(meta=meta)
        return None

    def clear(self) -> None:
        """Remove all checkpoints of this folder, not those of its children."""
        self._remove(path for _, path in self._files())

    def _compare(self, found: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
        identity = json.loads(json.dumps(identity))
        names = [k for k in {**found, **identity} if found.get(k) != identity.get(k)]
        if names:
            what = ", ".join(
                f"{name} ({found.get(name)} there, {identity.get(name)} here)"
                for name in names
            )
            raise InvalidInputError(
                f"the checkpoint in {self.folder} is of other work; these differ: "
                f"{what}. Give the same arguments to go on with it, or another folder "
                "to start from the beginning."
            )

    def _files(self) -> list[tuple[int, Path]]:
        """Numbers and files, the newest first."""
        if not self.folder.is_dir():
            return []
        found = [(_NAME.fullmatch(path.name), path) for path in self.folder.iterdir()]
        numbered = [(int(match[1]), path) for match, path in found if match]
        return sorted(numbered, reverse=True)

    @staticmethod
    def _remove(paths: Any) -> None:
        for path in list(paths):
            with contextlib.suppress(OSError):
                path.unlink()


def as_checkpoint(
    checkpoint: str | os.PathLike | Checkpoint | None,
) -> Checkpoint | None:
    """A `Checkpoint` from a folder."""
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        return checkpoint
    if not isinstance(checkpoint, str | os.PathLike):
        raise InvalidInputError(
            f"checkpoint must be a folder or a Checkpoint, got {checkpoint!r}"
        )
    return Checkpoint(checkpoint)


def once(
    store: Checkpoint | None,
    name: str,
    compute: Callable[[], PyTree],
    *,
    identity: Mapping[str, Any],
    like: PyTree | None = None,
) -> PyTree:
    """`store.once`, or just `compute()` where nothing is kept."""
    if store is None:
        return compute()
    return store.once(name, compute, identity=identity, like=like)

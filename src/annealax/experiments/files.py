"""Files of a folder: written whole or not at all, read and checked.

Whatever is missing or damaged is a `FileError` of one line.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
import pydantic

from annealax._errors import InvalidInputError
from annealax._work.serialise import FileError, replacing
from annealax.experiments.settings import explain

_Model = TypeVar("_Model", bound=pydantic.BaseModel)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which appears under its name once it is complete."""
    with disk_errors(path.parent, path), replacing(path) as file:
        yield file


@contextlib.contextmanager
def disk_errors(folder: Path, file: Path | None = None) -> Iterator[None]:
    """A disk that is full or gone: one line that says what to do."""
    try:
        yield
    except OSError as error:
        where = file or error.filename or folder
        raise InvalidInputError(
            f"cannot write {where}: {error.strerror or error}; what was there before "
            f"is as it was; free some space and go on with `annealax resume {folder}`."
        ) from error


def finished_file(file: Path) -> Path:
    """The file, which is there once the work is done.

    Raises:
        FileError: If it is not.
    """
    if not file.exists():
        raise FileError(
            f"there is no {file}: the work did not finish; `annealax resume "
            f"{file.parent}` goes on with it."
        )
    return file


def read_json(file: Path, model: type[_Model]) -> _Model:
    """What a JSON file holds."""
    try:
        return model.model_validate_json(finished_file(file).read_bytes())
    except pydantic.ValidationError as error:
        raise damaged(file, explain(error, model.model_fields)) from None
    except (OSError, RecursionError) as error:
        raise damaged(file, error) from error


def read_arrays(file: Path) -> dict[str, np.ndarray]:
    """All arrays of an npz file."""
    finished_file(file)
    try:
        # Opened here because np.load forgets to close a file it cannot read.
        with file.open("rb") as raw, np.load(raw, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except Exception as error:  # a foreign file can fail in any way
        raise damaged(file, error) from error


def damaged(file: Path, what: object) -> FileError:
    """The error for a file that cannot be used."""
    text = " ".join(str(what).split()).rstrip(".") or type(what).__name__
    return FileError(f"{file} is damaged: {text}; run it again.")

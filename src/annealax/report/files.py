"""Files of a report, written whole or not at all."""

from pathlib import Path

from annealax._errors import InvalidInputError
from annealax._work.serialise import replacing


def write_file(path: Path, data: bytes) -> None:
    """Write a file, which appears under its name once it is complete."""
    try:
        with replacing(path) as file:
            file.write(data)
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {path}: {error.strerror or error}; free some space and go "
            f"on with `annealax resume {path.parent}`."
        ) from error

"""Files of a run folder, one by one: JSON, npz and PNG.

Whatever is missing or damaged is a `FileError` of one line.
"""

import dataclasses
import json
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from annealax._work.serialise import FileError

_AGAIN = "run it again"
_PNG = b"\x89PNG\r\n\x1a\n"


@dataclasses.dataclass(frozen=True)
class Picture:
    """A PNG file: its bytes and size."""

    name: str
    data: bytes
    width: int
    height: int


def read_json(file: Path, missing: str) -> dict[str, Any]:
    """An object from a JSON file; `missing` says why it may not be there."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileError(f"there is no {file}: {missing}; {_AGAIN}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(file, error) from error
    if not isinstance(content, dict):
        raise damaged(file, f"an object is expected, not {type(content).__name__}")
    return content


def read_arrays(file: Path) -> dict[str, np.ndarray]:
    """All arrays of an npz file."""
    try:
        # Opened here because np.load forgets to close a file it cannot read.
        with file.open("rb") as raw, np.load(raw, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except FileNotFoundError:
        raise FileError(
            f"there is no {file}: the run did not finish; {_AGAIN}"
        ) from None
    except (
        OSError,
        ValueError,
        EOFError,
        KeyError,
        AttributeError,  # a single array has no files
        TypeError,
        SyntaxError,  # a header that numpy cannot read
        NotImplementedError,  # a compression that zipfile does not know
        RuntimeError,  # a file that says it is encrypted
        struct.error,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise damaged(file, error) from error


def read_pictures(path: Path) -> dict[str, Picture]:
    """All PNG files of a folder, by name."""
    return {file.name: _picture(file) for file in sorted(path.glob("*.png"))}


def damaged(file: Path, what: object) -> FileError:
    """The error for a file that cannot be used."""
    text = " ".join(str(what).split()) or type(what).__name__
    return FileError(f"{file} is damaged: {text}; {_AGAIN}")


def entries(
    file: Path, content: Mapping[str, Any], key: str
) -> list[Mapping[str, Any]]:
    """A list of at least one object from a JSON object."""
    found = typed(file, content, key, list)
    if not found or not all(isinstance(entry, dict) for entry in found):
        raise damaged(file, f"{key!r} must hold at least one object")
    return found


def number(file: Path, content: Mapping[str, Any], key: str) -> float:
    """A number from a JSON object."""
    return float(typed(file, content, key, (int, float)))


def _picture(file: Path) -> Picture:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise damaged(file, error) from error
    if not _is_whole(data):
        raise damaged(file, "it is not a whole PNG picture")
    width, height = struct.unpack(">II", data[16:24])
    return Picture(file.name, data, width, height)


def _is_whole(data: bytes) -> bool:
    """Whether these are the bytes of a PNG picture, every chunk with its checksum."""
    place, kinds = len(_PNG), []
    while data.startswith(_PNG) and place + 12 <= len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        end = place + 8 + length
        body, checksum = data[place + 4 : end], data[end : end + 4]
        if checksum != struct.pack(">I", zlib.crc32(body)):
            return False
        kinds.append(body[:4])
        place = end + 4
    return bool(kinds) and (kinds[0], kinds[-1]) == (b"IHDR", b"IEND")


def typed(file: Path, content: Mapping[str, Any], key: str, kind: Any) -> Any:
    """A value of this type from a JSON object."""
    value = content.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise damaged(file, f"{key!r} is missing or of the wrong type")
    return value


def optional_number(file: Path, content: Mapping[str, Any], key: str) -> float | None:
    """A number from a JSON object, or None."""
    return None if content.get(key) is None else number(file, content, key)

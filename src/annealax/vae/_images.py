"""Binarised images from IDX files (gzipped or not) or an npz; wrong files say why.

A pixel of the result is 1 where the stored intensity is above half of the range.
"""

import gzip
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from annealax._errors import InvalidInputError

_IDX_IMAGES = 0x00000803  # unsigned bytes, three dimensions
_HELD_OUT = 6  # one image in six, where the file has no test images
_NAMES = {"train": "train-images", "test": "t10k-images"}


class Images(NamedTuple):
    """Binarised images, as uint8 zeros and ones.

    Attributes:
        train: Images to train on, (images, height, width).
        test: Images to test on.
    """

    train: np.ndarray
    test: np.ndarray


def read_images(path: str | os.PathLike[str]) -> Images:
    """Read images and binarise them.

    Args:
        path: A folder with `train-images...` and `t10k-images...` IDX files, one IDX
            file (the last sixth of its images becomes the test set), or an npz with
            `x_train` and, if it has one, `x_test`. IDX files may end in `.gz`.
    """
    source = Path(path)
    if not source.exists():
        raise InvalidInputError(
            f"{source} does not exist; give a folder of IDX files, an IDX file or an "
            "npz with x_train and x_test"
        )
    if source.is_dir():
        return Images(*(_read_idx(_find(source, part)) for part in ("train", "test")))
    if source.suffix == ".npz":
        return _read_npz(source)
    return _split(_read_idx(source))


def _find(folder: Path, part: str) -> Path:
    found = sorted(folder.glob(f"{_NAMES[part]}*"))
    if not found:
        present = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "nothing"
        raise InvalidInputError(
            f"{folder} holds no file {_NAMES[part]}-idx3-ubyte (or .gz); it holds "
            f"{present}"
        )
    return found[0]


def _read_idx(path: Path) -> np.ndarray:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInputError(f"{path} cannot be read: {error}") from error
    if len(content) < 16:
        raise InvalidInputError(
            f"{path} is no IDX file of images: it has only {len(content)} bytes"
        )
    magic, count, height, width = struct.unpack(">4I", content[:16])
    if magic != _IDX_IMAGES:
        hint = " (a file of labels?)" if magic == 0x00000801 else ""
        raise InvalidInputError(
            f"{path} is no IDX file of images: it starts with {magic:#010x}{hint}, "
            f"not {_IDX_IMAGES:#010x}"
        )
    expected = 16 + count * height * width
    if len(content) != expected:
        raise InvalidInputError(
            f"{path} announces {count} images of {height}x{width}, {expected} bytes, "
            f"but has {len(content)}; it is cut short or damaged"
        )
    pixels = np.frombuffer(content, np.uint8, offset=16)
    return _binarise(pixels.reshape(count, height, width), str(path))


def _read_npz(path: Path) -> Images:
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            if "x_train" not in file:
                raise InvalidInputError(
                    f"{path} has no array x_train; it holds {', '.join(file) or '-'}"
                )
            parts = [
                _binarise(file[name], f"{path}, {name}")
                for name in ("x_train", "x_test")
                if name in file
            ]
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, AttributeError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{path} is no npz file: {error}") from error
    return Images(*parts) if len(parts) == 2 else _split(parts[0])


def _binarise(pixels: np.ndarray, where: str) -> np.ndarray:
    if pixels.ndim != 3 or not pixels.size or pixels.dtype.kind not in "buif":
        raise InvalidInputError(
            f"{where}: images must be numbers of shape (images, height, width), got "
            f"{pixels.dtype} of shape {pixels.shape}"
        )
    top = 255 if pixels.dtype == np.uint8 and pixels.max() > 1 else 1
    if not (pixels.min() >= 0 and pixels.max() <= top):
        raise InvalidInputError(
            f"{where}: intensities must be bytes, or numbers from 0 to 1; they run "
            f"from {pixels.min()} to {pixels.max()}"
        )
    return (pixels > top / 2).astype(np.uint8)


def _split(images: np.ndarray) -> Images:
    test = len(images) // _HELD_OUT
    if test == 0:
        raise InvalidInputError(
            f"{len(images)} images are too few to train on and to test; at least "
            f"{_HELD_OUT} are needed"
        )
    return Images(images[:-test], images[-test:])

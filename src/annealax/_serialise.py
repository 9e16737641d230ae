"""Flows and states on disk: arrays in an npz file with a header, no pickle.

The header holds a format version and, for every array, its place in the tree, shape and
dtype; loading compares all of it with what is expected. Files are written beside their
final place and moved there, so an interrupted save leaves the old file as it was.
"""

import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from annealax._errors import AnnealaxError

FORMAT = "annealax"
VERSION = 1


class FileError(AnnealaxError, ValueError):
    """A file is damaged, is not ours, or does not hold what is expected."""


def save(path: str | os.PathLike, tree: PyTree) -> None:
    """Write the arrays of a pytree (flows, a trainer's state) to a file.

    Args:
        path: Where to write; an existing file is replaced only when all is written.
        tree: Any pytree; leaves that are not arrays are not stored.
    """
    arrays = {name: _to_numpy(leaf) for name, leaf in _named_arrays(tree)}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "arrays": {name: _describe(array) for name, array in arrays.items()},
    }
    target = Path(path)
    descriptor, temporary = tempfile.mkstemp(
        dir=target.parent, prefix=f".{target.name}."
    )
    try:
        with os.fdopen(descriptor, "wb") as file:
            numbered = {f"{i}": array for i, array in enumerate(arrays.values())}
            text = np.frombuffer(json.dumps(header).encode(), np.uint8)
            np.savez(file, allow_pickle=False, header=text, **numbered)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(path: str | os.PathLike, like: PyTree) -> PyTree:
    """Read a file written by `save`.

    Args:
        path: The file.
        like: A pytree of the same structure, shapes and dtypes, such as
            `flows.replicate(flow, num_transitions)`; everything in it that is not an
            array is kept.

    Raises:
        FileError: If the file is damaged, foreign, of a newer format, or holds other
            arrays than `like`.
    """
    header, arrays = _read(Path(path))
    expected = _named_arrays(like)
    wanted = {name: _describe(_to_numpy(leaf)) for name, leaf in expected}
    if list(header["arrays"]) != list(wanted):
        missing = sorted(set(wanted) - set(header["arrays"]))
        extra = sorted(set(header["arrays"]) - set(wanted))
        raise FileError(
            f"{path} holds another structure than expected: missing {missing}, not "
            f"expected {extra}; build `like` with the settings the file was saved with"
        )
    for name, description in wanted.items():
        if header["arrays"][name] != description:
            raise FileError(
                f"{path}: {name} is {header['arrays'][name]} in the file, but "
                f"{description} is expected"
            )
    leaves = [
        _from_numpy(array, leaf)
        for array, (_, leaf) in zip(arrays, expected, strict=True)
    ]
    dynamic, static = eqx.partition(like, eqx.is_array)
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(dynamic), leaves), static)


def _read(path: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    try:
        # Opened here because np.load forgets to close a file it cannot read.
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            header = json.loads(bytes(file["header"]).decode())
            if header["format"] != FORMAT:
                raise KeyError("format")
            if header["version"] > VERSION:
                raise FileError(
                    f"{path} has format version {header['version']}, this annealax "
                    f"reads up to {VERSION}; upgrade annealax"
                )
            arrays = [file[f"{i}"] for i in range(len(header["arrays"]))]
            for name, array in zip(header["arrays"], arrays, strict=True):
                if _describe(array) != header["arrays"][name]:
                    raise FileError(f"{path} is damaged: {name} contradicts the header")
            return header, arrays
    except FileNotFoundError:
        raise
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise FileError(f"{path} is damaged or cut short: {error}") from error
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FileError(f"{path} was not written by annealax.save") from error
    except ValueError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} was not written by annealax.save: {error}") from error


def _named_arrays(tree: PyTree) -> list[tuple[str, Any]]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_array))
    return [(jax.tree_util.keystr(place), leaf) for place, leaf in leaves]


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_numpy(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _from_numpy(array: np.ndarray, like: Any) -> Any:
    if _is_key(like):
        return jax.random.wrap_key_data(jnp.asarray(array))
    return jnp.asarray(array)


def _describe(array: np.ndarray) -> dict[str, Any]:
    return {"shape": list(array.shape), "dtype": str(array.dtype)}

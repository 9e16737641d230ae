"""Flows and states on disk: arrays in an npz file with a header, no pickle.

The header holds a format version, a checksum and, for every array, its place in the
tree, shape and dtype; loading compares all of it with what is expected. Files are
written beside their final place and moved there, so an interrupted save leaves the old
file as it was.
"""

import contextlib
import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from annealax._errors import AnnealaxError

FORMAT = "annealax"
VERSION = 2
"""Version 1 had no checksum, no `meta` and no NumPy arrays."""


class FileError(AnnealaxError, ValueError):
    """A file is damaged, is not ours, or does not hold what is expected."""


class NewerFormatError(FileError):
    """A file is whole, but a later annealax wrote it."""


class Saved(NamedTuple):
    """What a file holds.

    Attributes:
        path: The file.
        meta: Facts beside the arrays, as JSON keeps them.
        arrays: The arrays, by their place in the tree.
        version: Version of the format.
    """

    path: Path
    meta: dict[str, Any]
    arrays: dict[str, np.ndarray]
    version: int = VERSION

    def restore(self, like: PyTree) -> PyTree:
        """The pytree that was saved.

        Args:
            like: A pytree of the same structure, shapes and dtypes; its arrays may be
                `jax.ShapeDtypeStruct`. Arrays come back as NumPy arrays where it has
                them; everything in it that is not an array is kept.

        Raises:
            FileError: If the file holds other arrays than `like`.
        """
        # Version 1 did not store NumPy arrays.
        counts = _is_array if self.version > 1 else eqx.is_array
        expected = _named_arrays(like, counts)
        wanted = {name: _describe(leaf) for name, leaf in expected}
        if list(self.arrays) != list(wanted):
            missing = sorted(set(wanted) - set(self.arrays))
            extra = sorted(set(self.arrays) - set(wanted))
            raise FileError(
                f"{self.path} holds another structure than expected: missing "
                f"{missing}, not expected {extra}; build `like` with the settings the "
                "file was saved with"
            )
        for name, description in wanted.items():
            found = _describe(self.arrays[name])
            if found != description:
                raise FileError(
                    f"{self.path}: {name} is {found} in the file, but {description} "
                    "is expected"
                )
        leaves = [_from_numpy(self.arrays[name], leaf) for name, leaf in expected]
        dynamic, static = eqx.partition(like, counts)
        structure = jax.tree.structure(dynamic)
        return eqx.combine(jax.tree.unflatten(structure, leaves), static)


def save(path: str | os.PathLike, tree: PyTree) -> None:
    """Write the arrays of a pytree (flows, a trainer's state) to a file.

    Args:
        path: Where to write; an existing file is replaced only when all is written.
        tree: Any pytree; leaves that are not arrays are not stored.
    """
    write(path, tree, {})


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
    return read(path).restore(like)


def write(path: str | os.PathLike, tree: PyTree, meta: Mapping[str, Any]) -> None:
    """`save`, with facts that JSON can hold."""
    arrays = {name: _to_numpy(leaf) for name, leaf in _named_arrays(tree)}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "arrays": {name: _describe(array) for name, array in arrays.items()},
        "checksum": _checksum(arrays),
        "meta": meta,
    }
    numbered = {f"{i}": _plain(array) for i, array in enumerate(arrays.values())}
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with replacing(Path(path)) as file:
        np.savez(file, allow_pickle=False, header=text, **numbered)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which appears at its place once it is safely on disk."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    # The new name must survive a power cut too; not every system can promise it.
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read(path: str | os.PathLike) -> Saved:
    """Read a file whole, and check it against its header and checksum."""
    path = Path(path)
    try:
        # Opened here because np.load forgets to close a file it cannot read.
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            return _read(path, file)
    except (FileNotFoundError, FileError):
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, MemoryError) as error:
        raise FileError(f"{path} is damaged or cut short: {error}") from error
    except Exception as error:  # a foreign file can fail in any way
        raise FileError(
            f"{path} was not written by annealax.save, or is damaged: {error!r}"
        ) from error


def _read(path: Path, file: Mapping[str, np.ndarray]) -> Saved:
    header = json.loads(bytes(file["header"]).decode())
    if header["format"] != FORMAT:
        raise KeyError("format")
    version = int(header["version"])
    if version > VERSION:
        raise NewerFormatError(
            f"{path} has format version {version}, this annealax reads up to "
            f"{VERSION}; upgrade annealax"
        )
    arrays = {}
    for i, (name, description) in enumerate(header["arrays"].items()):
        array = file[f"{i}"]
        if description["dtype"] != str(array.dtype):  # see `_plain`
            array = array.view(np.dtype(description["dtype"]))
        if _describe(array) != description:
            raise FileError(f"{path} is damaged: {name} contradicts the header")
        arrays[name] = array
    if version > 1 and header["checksum"] != _checksum(arrays):
        raise FileError(f"{path} is damaged: its arrays do not have its checksum")
    return Saved(path, dict(header.get("meta", {})), arrays, version)


def _checksum(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for array in arrays.values():
        digest.update(np.ascontiguousarray(_plain(array)).data)
    return digest.hexdigest()


def _named_arrays(
    tree: PyTree, counts: Callable[[Any], bool] | None = None
) -> list[tuple[str, Any]]:
    arrays = eqx.filter(tree, counts or _is_array)
    leaves, _ = jax.tree_util.tree_flatten_with_path(arrays)
    return [(jax.tree_util.keystr(place), leaf) for place, leaf in leaves]


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, np.ndarray | jax.ShapeDtypeStruct)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _to_numpy(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _from_numpy(array: np.ndarray, like: Any) -> Any:
    if isinstance(like, np.ndarray):
        return array
    if _is_key(like):
        data = jnp.asarray(array)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(like))
    return jnp.asarray(array)


def _plain(array: np.ndarray) -> np.ndarray:
    """Types that NumPy itself does not have (bfloat16) as bytes of the same size."""
    if array.dtype.kind != "V":
        return array
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def _describe(leaf: Any) -> dict[str, Any]:
    if _is_key(leaf):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}

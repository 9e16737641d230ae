"""Trees on disk: arrays in an npz file with a header, no pickle.

The header holds a format version, a checksum, for every array its place in the tree,
its shape and dtype, and what the tree is made of (`annealax._work.structure`); loading
checks all of it. Files are written beside their final place and moved there, so an
interrupted save leaves the old file as it was.
"""

import contextlib
import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from annealax._errors import AnnealaxError
from annealax._work.structure import OpaqueError, build, describe

FORMAT = "annealax"
VERSION = 3

_UNNAMED = "~"
"""Begins the names of arrays that are no leaves of the tree, as in a static field."""


class FileError(AnnealaxError, ValueError):
    """A file is damaged, is not ours, or does not hold what is expected."""


class OtherFormatError(FileError):
    """A file is whole, but another version of annealax wrote it."""


class NeedsLikeError(FileError):
    """A file holds something that only its `like` can tell."""


class Saved(NamedTuple):
    """What a file holds.

    Attributes:
        path: The file.
        meta: Facts beside the tree, as JSON keeps them.
        arrays: The arrays, by their place in the tree.
        structure: What the tree is made of.
    """

    path: Path
    meta: dict[str, Any]
    arrays: dict[str, np.ndarray]
    structure: Any

    def restore(self, like: PyTree | None = None) -> PyTree:
        """The tree that was saved.

        Args:
            like: None to build the tree as the file describes it; or a pytree of the
                same structure, shapes and dtypes, whose arrays may be
                `jax.ShapeDtypeStruct`. Arrays come back as NumPy arrays where it has
                them; everything in it that is not an array is kept.

        Raises:
            FileError: If the file holds other arrays than `like`, or describes
                something that cannot be built without it.
        """
        return self._described() if like is None else self._matching(like)

    def _described(self) -> PyTree:
        arrays = list(self.arrays.values())
        try:
            return build(self.structure, lambda number: arrays[number])
        except OpaqueError as error:
            raise NeedsLikeError(
                f"{self.path} holds something that has no name to find it by: {error}; "
                "give `like`, a tree of the same structure, to load it"
            ) from error
        except Exception as error:  # a damaged description can fail in any way
            raise FileError(
                f"{self.path} cannot be loaded by itself: {error}; give `like`, a tree "
                "of the same structure"
            ) from error

    def _matching(self, like: PyTree) -> PyTree:
        expected = _named_arrays(like)
        wanted = {name: _describe(leaf) for name, leaf in expected}
        names = [name for name in self.arrays if not name.startswith(_UNNAMED)]
        if names != list(wanted):
            missing = sorted(set(wanted) - set(names))
            extra = sorted(set(names) - set(wanted))
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
        dynamic, static = eqx.partition(like, _is_array)
        structure = jax.tree.structure(dynamic)
        return eqx.combine(jax.tree.unflatten(structure, leaves), static)


def save(path: str | os.PathLike, tree: PyTree) -> None:
    """Write a tree (flows, a trainer's state, a result) to a file.

    Args:
        path: Where to write; an existing file is replaced only when all is written.
        tree: Arrays, numbers, text, None and functions that have a name, in
            containers, modules, dataclasses and named tuples. What else it holds, such
            as a lambda, is left out, and `load` needs `like` then.
    """
    write(path, tree, {})


def load(path: str | os.PathLike, like: PyTree | None = None) -> PyTree:
    """Read a file written by `save`.

    Args:
        path: The file.
        like: None to load what the file describes: classes of annealax and of the
            packages it is built on, and of your own modules that use annealax, once
            they are imported. Or a pytree of the same structure, shapes and dtypes,
            such as `flows.replicate(flow, num_transitions)`: the arrays are checked
            against it, and everything in it that is not an array is kept.

    Raises:
        FileError: If the file is damaged, foreign, of another format, holds other
            arrays than `like`, or something that cannot be loaded without it.
    """
    return read(path).restore(like)


def write(path: str | os.PathLike, tree: PyTree, meta: Mapping[str, Any]) -> None:
    """`save`, with facts that JSON can hold."""
    leaves = dict(_named_arrays(tree))
    numbers = {id(leaf): number for number, leaf in enumerate(leaves.values())}

    def number_of(array: Any) -> int:
        if id(array) not in numbers:
            numbers[id(array)] = len(leaves)
            leaves[f"{_UNNAMED}{len(leaves)}"] = array
        return numbers[id(array)]

    structure = describe(tree, number_of)
    arrays = {name: _to_numpy(leaf) for name, leaf in leaves.items()}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "arrays": {name: _describe(array) for name, array in arrays.items()},
        "checksum": _checksum(arrays),
        "structure": structure,
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
    if version != VERSION:
        remedy = "upgrade annealax" if version > VERSION else "save it again"
        raise OtherFormatError(
            f"{path} has format version {version}, this annealax reads {VERSION}; "
            f"{remedy}"
        )
    arrays = {}
    for i, (name, description) in enumerate(header["arrays"].items()):
        array = file[f"{i}"]
        if description["dtype"] != str(array.dtype):  # see `_plain`
            array = array.view(np.dtype(description["dtype"]))
        if _describe(array) != description:
            raise FileError(f"{path} is damaged: {name} contradicts the header")
        arrays[name] = array
    if header["checksum"] != _checksum(arrays):
        raise FileError(f"{path} is damaged: its arrays do not have its checksum")
    return Saved(path, dict(header["meta"]), arrays, header["structure"])


def _checksum(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for array in arrays.values():
        digest.update(np.ascontiguousarray(_plain(array)).data)
    return digest.hexdigest()


def _named_arrays(tree: PyTree) -> list[tuple[str, Any]]:
    arrays = eqx.filter(tree, _is_array)
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

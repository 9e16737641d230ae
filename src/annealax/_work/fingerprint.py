"""A digest of what an object would compute: the same in every process.

Arrays count by their bytes, containers and modules by their parts, functions by their
code, defaults, what they close over and the plain numbers among their globals. Objects
of other kinds count by their type and their plain attributes.
"""

import dataclasses
import functools
import hashlib
import types
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def fingerprint(value: Any) -> str:
    """A short text that differs whenever the value would compute something else."""
    digest = hashlib.sha256()
    for piece in _pieces(value, ()):
        digest.update(piece)
        digest.update(b"\0")
    return digest.hexdigest()[:16]


def _pieces(value: Any, above: tuple[int, ...]) -> Iterator[bytes]:
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}".encode()
        return
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        yield from _array(value)
        return
    if isinstance(value, jax.sharding.Mesh):  # devices do not change a bit
        value = None
        yield from _pieces(value, above)
        return
    if id(value) in above:  # a function that refers to itself, for instance
        yield f"loop {above[::-1].index(id(value))}".encode()
        return
    above = (*above, id(value))
    name, parts = _parts(value)
    yield name.encode()
    for part in parts:
        yield from _pieces(part, above)
    yield b"end"


def _array(value: Any) -> Iterator[bytes]:
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        yield str(jax.random.key_impl(value)).encode()
        value = jax.random.key_data(value)
    array = np.asarray(value)
    yield f"array {array.shape} {array.dtype}".encode()
    yield np.ascontiguousarray(array).tobytes()


def _parts(value: Any) -> tuple[str, list[Any]]:
    """The name of a value's kind, and what it is made of."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    parts: list[Any] = []
    if isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
        owner = getattr(value, "__module__", "")
        kind = f"{owner}.{getattr(value, '__qualname__', value.__name__)}"
    elif isinstance(value, types.FunctionType):
        kind = f"{value.__module__}.{value.__qualname__}"
        parts = _function_parts(value)
    elif isinstance(value, types.CodeType):
        parts = [value.co_code, value.co_names, *value.co_consts]
    elif isinstance(value, types.MethodType):
        parts = [value.__func__, value.__self__]
    elif isinstance(value, functools.partial):
        parts = [value.func, value.args, value.keywords]
    elif isinstance(value, Mapping):
        parts = [part for item in value.items() for part in item]
    elif isinstance(value, set | frozenset):
        parts = sorted(value, key=repr)
    elif isinstance(value, tuple | list):
        parts = list(value)
    elif dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        parts = [part for n in names for part in (n, getattr(value, n, None))]
    elif hasattr(value, "__wrapped__"):  # jax.jit, functools.lru_cache
        parts = [value.__wrapped__]
    else:
        found = getattr(value, "__dict__", {})
        parts = [part for n in sorted(found) for part in _plain(n, found[n])]
    return kind, parts


def _function_parts(function: types.FunctionType) -> list[Any]:
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # not filled yet
            cells.append("empty")
    names = function.__code__.co_names
    found = function.__globals__
    data = [part for n in names if n in found for part in _plain(n, found[n])]
    return [
        function.__code__,
        function.__defaults__,
        function.__kwdefaults__,
        cells,
        data,
    ]


def _plain(name: str, value: Any) -> list[Any]:
    """A number, text or array with its name; nothing for anything else."""
    if isinstance(value, (*_PLAIN, np.ndarray, np.generic, jax.Array)):
        return [name, value]
    return []

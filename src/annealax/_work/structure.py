"""What a pytree is made of, as JSON: so that a file can be loaded by itself.

Containers, numbers and text are written as they are; modules, dataclasses and named
tuples by the name of their class and their fields; functions such as `jax.nn.relu` by
name. Arrays are numbered: their content is stored elsewhere.

A file may come from anybody, so building is stricter than describing. Nothing is called
that a file names: objects are made field by field, without their `__init__`. Classes
come from packages that annealax is built on, or from modules that use annealax and are
imported already; no module is imported because a file says so. Functions are arguments
of what is called later, so they come from fewer places: from those modules, and from
where there is only mathematics.

What has no name, such as a lambda or a function inside a function, is described as
opaque, and building it is an error.
"""

import dataclasses
import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_PACKAGES = (
    "annealax",
    "blackjax",
    "equinox",
    "flowjax",
    "jax",
    "numpy",
    "optax",
    "paramax",
)
"""Their classes may be named by a file, and they may be imported for that."""

_MATHEMATICS = (
    "annealax.flows",
    "equinox.nn",
    "flowjax",
    "jax.lax",
    "jax.nn",
    "jax.numpy",
    "jax.scipy",
    "paramax",
)
"""Their functions may be named by a file."""

_NOT_MATHEMATICS = frozenset({"fromfile", "frompyfunc", "load", "save", "savez"})
"""Functions of `jax.numpy` that read or write files, or make functions of Python's."""

_PLAIN = (type(None), bool, int, float, str)


class OpaqueError(ValueError):
    """Something in a tree could not be described."""


class UnknownNameError(ValueError):
    """A description names something that must not, or cannot, be taken."""


def describe(tree: Any, number_of: Callable[[Any], int]) -> Any:  # noqa: PLR0911
    """What a tree is made of, for JSON.

    Args:
        tree: Anything.
        number_of: From an array of the tree to the number that it is stored under.
    """
    if type(tree) in _PLAIN:
        return tree
    if isinstance(tree, jax.Array | np.ndarray | np.generic):
        return {"is": "array", "number": number_of(tree), "as": _array_kind(tree)}
    inner = functools.partial(describe, number_of=number_of)
    kind = type(tree)
    if kind in (list, tuple):
        return {"is": kind.__name__, "of": [inner(each) for each in tree]}
    if kind is dict:
        return {"is": "dict", "of": [[inner(k), inner(v)] for k, v in tree.items()]}
    if kind is complex:
        return {"is": "complex", "of": [tree.real, tree.imag]}
    if kind is functools.partial:
        parts = (tree.func, tree.args, tree.keywords)
        return {"is": "partial", "of": [inner(part) for part in parts]}
    if isinstance(tree, np.dtype):
        return {"is": "dtype", "name": str(tree)}
    if _is_record(kind) and (name := _name_of(kind)) is not None:
        names = [field for field in _field_names(kind) if hasattr(tree, field)]
        fields = {field: inner(getattr(tree, field)) for field in names}
        return {"is": "object", "class": name, "fields": fields}
    if callable(tree) and (name := _name_of(tree)) is not None:
        return {"is": "name", "name": name}
    what = getattr(tree, "__qualname__", None) or f"an object of {kind.__qualname__}"
    return {"is": "opaque", "what": what}


def build(  # noqa: PLR0911
    description: Any, array: Callable[[int], np.ndarray]
) -> Any:
    """The tree that was described.

    Args:
        description: What `describe` gave.
        array: From a number to the array stored under it.

    Raises:
        OpaqueError: If a part of it was opaque.
        UnknownNameError: If it names what it must not name, or what is not there.
        ValueError: If it makes no sense.
    """
    if type(description) in _PLAIN:
        return description
    match description:
        case {"is": "array", "number": int(number), "as": str(kind)}:
            return _as_kind(array(number), kind)
        case {"is": "list", "of": list(parts)}:
            return [build(part, array) for part in parts]
        case {"is": "tuple", "of": list(parts)}:
            return tuple(build(part, array) for part in parts)
        case {"is": "dict", "of": list(items)}:
            return {build(key, array): build(value, array) for key, value in items}
        case {"is": "complex", "of": [float(real), float(imaginary)]}:
            return complex(real, imaginary)
        case {"is": "partial", "of": [{"is": "name"} as function, arguments, keywords]}:
            arguments, keywords = build(arguments, array), build(keywords, array)
            return functools.partial(build(function, array), *arguments, **keywords)
        case {"is": "dtype", "name": str(name)}:
            return np.dtype(name)
        case {"is": "object", "class": str(name), "fields": dict(fields)}:
            values = {key: build(value, array) for key, value in fields.items()}
            return _make(name, values)
        case {"is": "name", "name": str(name)}:
            return _find(name, as_class=False)
        case {"is": "opaque", "what": str(what)}:
            raise OpaqueError(what)
    raise ValueError(f"{description!r:.60} describes nothing")


def _array_kind(value: Any) -> str:
    """How an array comes back: of NumPy, a number of NumPy, of JAX, or random keys."""
    if isinstance(value, np.ndarray):
        return "numpy"
    if isinstance(value, np.generic):
        return "number"
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return f"key {jax.random.key_impl(value)}"
    return "jax"


def _as_kind(array: np.ndarray, kind: str) -> Any:
    if kind == "numpy":
        return array
    if kind == "number":
        return array[()]
    if kind == "jax":
        return jnp.asarray(array)
    word, _, name = kind.partition(" ")
    if word != "key":
        raise ValueError(f"an array cannot come back as {kind!r}")
    return jax.random.wrap_key_data(jnp.asarray(array), impl=name)


def _is_record(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or (
        issubclass(kind, tuple) and hasattr(kind, "_fields")
    )


def _field_names(kind: Any) -> list[str]:
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return list(kind._fields)


def _make(name: str, values: Mapping[str, Any]) -> Any:
    """An object of a class, from its fields."""
    kind: Any = _find(name, as_class=True)
    if not _is_record(kind) or not set(values) <= set(_field_names(kind)):
        raise ValueError(f"{name} does not have the fields {sorted(values)}")
    if not dataclasses.is_dataclass(kind):
        return kind._make(values[field] for field in kind._fields)
    made = object.__new__(kind)  # type: ignore[arg-type]
    for field, value in values.items():  # frozen dataclasses included
        object.__setattr__(made, field, value)
    return made


def _name_of(thing: Any) -> str | None:
    """A name by which a class or function can be found again; None if there is none.

    The shortest public one, which changes less between versions than where it is
    written.
    """
    home = getattr(thing, "__module__", None)
    written = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None)
    if isinstance(thing, np.ufunc):
        home = "numpy"
    if not isinstance(home, str) or not isinstance(written, str):
        return None
    parts = home.split(".")
    modules = [".".join(parts[: end + 1]) for end in range(len(parts))]
    if parts[0] == "jax":
        modules = ["jax.nn", "jax.numpy", "jax.lax", "jax.scipy.special", *modules]
    for module in modules:
        if _attribute(sys.modules.get(module), written) is thing:
            return f"{module}:{written}"
    for name, value in vars(sys.modules.get(home, object)).items():
        if value is thing:  # a lambda that was given a name, for instance
            return f"{home}:{name}"
    return None


def _find(name: str, *, as_class: bool) -> Any:
    """What stands under a name, if a file may name it."""
    module_name, _, path = name.partition(":")
    found = _attribute(_module(module_name), path)
    if found is None:
        raise UnknownNameError(
            f"{name} is not there; import the module that defines it first, or use the "
            "versions of packages that the file was saved with"
        )
    suits = isinstance(found, type) if as_class else _may_be_called(found, module_name)
    if not suits or path in _NOT_MATHEMATICS or _is_foreign(found):
        raise UnknownNameError(f"a file must not name {name}")
    return found


def _module(name: str) -> ModuleType | None:
    if _is_within(name, _PACKAGES):
        try:
            return importlib.import_module(name)
        except ImportError:
            return None
    module = sys.modules.get(name)
    if module is not None and not _uses_annealax(module):
        raise UnknownNameError(f"a file must not name anything of the module {name}")
    return module


def _uses_annealax(module: ModuleType) -> bool:
    """Whether it is written for annealax: it holds the package, or parts of it."""
    for value in list(vars(module).values()):
        home = value.__name__ if isinstance(value, ModuleType) else None
        home = home or getattr(value, "__module__", None)
        if isinstance(home, str) and _is_within(home, ("annealax",)):
            return True
    return False


def _is_foreign(found: Any) -> bool:
    """Whether a module holds it only because it imported it from elsewhere."""
    home = getattr(found, "__module__", None) or type(found).__module__
    if _is_within(home, _PACKAGES):
        return False
    module = sys.modules.get(home)
    return module is None or not _uses_annealax(module)


def _may_be_called(found: Any, module: str) -> bool:
    if _is_within(module, ("numpy",)):
        is_number = isinstance(found, type) and issubclass(found, np.generic)
        return is_number or isinstance(found, np.ufunc)
    return callable(found) and (
        _is_within(module, _MATHEMATICS) or not _is_within(module, _PACKAGES)
    )


def _is_within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in packages)


def _attribute(module: ModuleType | None, path: str) -> Any:
    """What stands under a name, within classes at most; None if nothing does."""
    found: Any = module
    for index, part in enumerate(path.split(".")):
        if index > 0 and not isinstance(found, type):
            return None
        found = vars(found).get(part) if found is not None else None
    return found

"""Models of Stan, compiled by Stan and called through BridgeStan.

Stan's unconstrained numbers are ours, with Stan's Jacobians; what comes out has the
names and shapes of the `parameters` block. Stan says the density and its gradient, many
points in one call; second derivatives are differences of gradients. A point at which
Stan rejects has no density. Stan does not say which part of a model is its prior, so
there is no path from it.
"""

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import Identity
from jaxtyping import Array

from annealax._errors import InvalidInputError, MissingExtraError
from annealax.auto.density import FreeDensity
from annealax.auto.knowledge import Prior
from annealax.auto.parameters import Nested, Parameter, Space
from annealax.models.base import Model

_STEP = 1e-5
"""Of differences of gradients, against the size of a point: about the cube root of the
precision of Stan's numbers."""

_WHAT_IS_NEEDED = (
    "BridgeStan compiles models with make, a C++ compiler (g++ or clang++) and the "
    "source of Stan, which it fetches into ~/.bridgestan when it is first used, or "
    "which lies where the environment variable BRIDGESTAN says. A model that is "
    "compiled already can be given as its library: from_stan('model_model.so', data)"
)

_LIBRARIES = (".so", ".dll", ".dylib")


class Library:
    """A compiled model with its data: functions of arrays of points.

    Args:
        path: Where it is.
        data: What the model calls data, or a file of it.
    """

    def __init__(self, path: str, data: Any = None):
        import bridgestan  # noqa: PLC0415

        self.path, self.data = path, data
        self.model = bridgestan.StanModel(path, data, warn=False)
        self._lock = threading.Lock()

    def __reduce__(self):
        """In another process it is loaded there."""
        return Library, (self.path, self.data)

    @property
    def size(self) -> int:
        """Unconstrained numbers of a point."""
        return self.model.param_unc_num()

    def names(self, **which: bool) -> list[str]:
        """Names of constrained numbers."""
        return list(self.model.param_names(**which))

    def density(self, points: np.ndarray, jacobian: bool) -> tuple[Any, Any]:
        """Log density and gradient of points of any leading shape."""
        flat = np.asarray(points, np.float64).reshape(-1, self.size)
        values, slopes = np.full(len(flat), -np.inf), np.zeros_like(flat)
        with self._lock:
            for index, point in enumerate(flat):
                try:
                    value, slope = self.model.log_density_gradient(
                        point, propto=False, jacobian=jacobian
                    )
                except RuntimeError:  # Stan rejects the point
                    continue
                if np.isfinite(value):
                    values[index], slopes[index] = value, slope
        return values.reshape(points.shape[:-1]), slopes.reshape(points.shape)

    def curvature(self, points: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """How gradients change along directions."""
        points = np.asarray(points, np.float64)
        directions = np.asarray(directions, np.float64)
        length = np.linalg.norm(directions, axis=-1, keepdims=True)
        size = 1 + np.linalg.norm(points, axis=-1, keepdims=True)
        step = _STEP * size / np.where(length > 0, length, 1)
        ahead = self.density(points + step * directions, True)[1]
        behind = self.density(points - step * directions, True)[1]
        return (ahead - behind) / (2 * step)

    def constrain(
        self, points: np.ndarray, seeds: np.ndarray | None = None, **which: bool
    ) -> np.ndarray:
        """Constrained numbers of points; with seeds, generated ones are random."""
        flat = np.asarray(points, np.float64).reshape(-1, self.size)
        rows = []
        with self._lock:
            for index, point in enumerate(flat):
                given: dict[str, Any] = dict(which)
                if which.get("include_gq"):
                    seed = 0 if seeds is None else int(np.ravel(seeds)[index])
                    given["rng"] = self.model.new_rng(seed)
                rows.append(self.model.param_constrain(point, **given))
        return np.asarray(rows).reshape(*points.shape[:-1], -1)

    def unconstrain(self, values: np.ndarray) -> np.ndarray:
        """Unconstrained numbers of constrained ones."""
        flat = np.asarray(values, np.float64).reshape(-1, values.shape[-1])
        with self._lock:
            rows = [self.model.param_unconstrain(each) for each in flat]
        return np.asarray(rows).reshape(*values.shape[:-1], self.size)


class StanFunctions:
    """The functions of a library as functions of JAX, for one point."""

    def __init__(self, library: Library):
        self.library = library
        # What tells this model and its data from others, for checkpoints.
        parts = (Path(library.path).read_bytes(), library.model.data.encode())
        self.digest = hashlib.sha256(b"\0".join(parts)).hexdigest()
        self._both = self._density(jacobian=True)
        self._plain = self._density(jacobian=False)

    def log_density(self, vector: Array) -> Array:
        """Log density of unconstrained numbers, with the Jacobian."""
        return self._both(vector)

    def log_density_of_values(self, vector: Array) -> Array:
        """The same without the Jacobian."""
        return self._plain(vector)

    def _density(self, *, jacobian: bool) -> Callable[[Array], Array]:
        library = self.library

        def host(x):
            return _as_type(library.density(np.asarray(x), jacobian), x)

        def host_curvature(x, v):
            return _as_type(library.curvature(np.asarray(x), np.asarray(v)), x)

        @jax.custom_jvp
        def both(x):
            number = jax.ShapeDtypeStruct((), x.dtype)
            slope = jax.ShapeDtypeStruct(x.shape, x.dtype)
            return jax.pure_callback(
                host, (number, slope), x, vmap_method="broadcast_all"
            )

        @both.defjvp
        def _(primals, tangents):
            (x,), (v,) = primals, tangents
            value, slope = both(x)
            along = jax.pure_callback(
                host_curvature,
                jax.ShapeDtypeStruct(x.shape, x.dtype),
                x,
                v,
                vmap_method="broadcast_all",
            )
            return (value, slope), (jnp.dot(slope, v), along)

        @jax.custom_jvp
        def value(x):
            return both(x)[0]

        @value.defjvp
        def _(primals, tangents):
            (x,), (v,) = primals, tangents
            found, slope = both(x)
            return found, jnp.dot(slope, v)

        return value

    def constrain(self, vector: Array) -> Array:
        """All constrained numbers of the `parameters` block."""
        return self._constrained(vector, jnp.zeros((), jnp.uint32))

    def everything(self, vector: Array, seed: Array) -> Array:
        """The same, transformed parameters and generated quantities."""
        return self._constrained(vector, seed, include_tp=True, include_gq=True)

    def _constrained(self, vector: Array, seed: Array, **which: bool) -> Array:
        library = self.library
        count = len(library.names(**which))

        def host(x, seeds):
            found = library.constrain(np.asarray(x), np.asarray(seeds), **which)
            return _as_type(found, x)

        return jax.pure_callback(
            host,
            jax.ShapeDtypeStruct((count,), vector.dtype),
            vector,
            seed,
            vmap_method="broadcast_all",
        )

    def unconstrain(self, values: Array) -> Array:
        """Unconstrained numbers of those of the `parameters` block."""
        library = self.library

        def host(y):
            return _as_type(library.unconstrain(np.asarray(y)), y)

        return jax.pure_callback(
            host,
            jax.ShapeDtypeStruct((library.size,), values.dtype),
            values,
            vmap_method="broadcast_all",
        )


class StanSpace(Space):
    """The parameters of a model of Stan, constrained by Stan itself."""

    functions: StanFunctions = eqx.field(static=True)
    layout: "Layout" = eqx.field(static=True)

    def __init__(self, functions: StanFunctions):
        self.functions = functions
        self.layout = Layout(functions.library.names())
        shapes = self.layout.shapes
        self.structure = Nested(dict, tuple(shapes), tuple(shapes))
        self.parameters = tuple(
            Parameter(name, shape, shape, Identity(shape))  # type: ignore[call-arg]
            for name, shape in shapes.items()
        )

    @property
    def size(self):
        """Unconstrained numbers."""
        return self.functions.library.size

    def constrain(self, vector):
        """Parameters by name. The density has the Jacobian already."""
        values = self.layout.split(self.functions.constrain(vector))
        return values, jnp.zeros((), vector.dtype)

    def unconstrain(self, value, key=None):
        """Stan's unconstrained numbers."""
        values = self.split(value)
        return self.functions.unconstrain(self.layout.join(values))


class Layout:
    """Where the numbers of named arrays stand, as Stan writes `name.row.column`."""

    def __init__(self, names: list[str]):
        places: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
        for position, each in enumerate(names):
            name, *index = each.split(".")
            place = tuple(int(number) - 1 for number in index)
            places.setdefault(name, []).append((position, place))
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._positions: dict[str, np.ndarray] = {}
        for name, found in places.items():
            axes = zip(*(place for _, place in found), strict=True)
            shape = tuple(max(axis) + 1 for axis in axes)
            positions = np.zeros(shape, int)
            for position, place in found:
                positions[place] = position
            self.shapes[name], self._positions[name] = shape, positions

    def split(self, numbers: Array) -> dict[str, Array]:
        """Arrays by name."""
        return {name: numbers[where] for name, where in self._positions.items()}

    def join(self, values: Mapping[str, Any]) -> Array:
        """All numbers in Stan's order."""
        dtype = jnp.result_type(float)
        count = sum(where.size for where in self._positions.values())
        numbers = jnp.zeros(count, dtype)
        for name, where in self._positions.items():
            value = jnp.asarray(values[name], dtype)
            numbers = numbers.at[where.ravel()].set(value.ravel())
        return numbers


class StanDensity(FreeDensity):
    """Stan's density of its own unconstrained numbers."""

    def __init__(self, functions: StanFunctions, space: StanSpace):
        vectors = Space((space.size,))
        self.log_density = FreeDensity.of(functions.log_density, vectors).log_density
        self.space = space

    def __call__(self, vector):
        """Log density with the Jacobian, both by Stan."""
        return self.log_density(vector)


class StanModel(Model):
    """A model of Stan with its data: see `annealax.from_stan`."""

    functions: StanFunctions
    space: StanSpace
    prior: Prior | None
    why_no_prior: str
    observed: Mapping[str, Any]
    dims: Mapping[str, tuple[str, ...]]
    coords: Mapping[str, np.ndarray]

    def __init__(self, library: Library):
        self.functions = StanFunctions(library)
        self.space = StanSpace(self.functions)
        self.prior = None
        self.why_no_prior = "Stan does not say which part of a model is its prior"
        self.observed, self.dims, self.coords = {}, {}, {}

    def log_likelihood(self, parameters):
        """The whole density, in the space of the parameters."""
        vector = self.space.unconstrain(parameters)
        return self.functions.log_density_of_values(vector)

    def transform(self, parameters):
        """Parameters, transformed parameters and generated quantities by name."""
        return self._everything(parameters, jnp.zeros((), jnp.uint32))

    def pointwise_log_likelihood(self, parameters):
        """The generated quantity `log_lik`, if there is one: Stan's convention."""
        found = self.transform(parameters)
        return {"log_lik": found["log_lik"]} if "log_lik" in found else {}

    @property
    def can_predict(self):
        """Whether there are generated quantities."""
        return bool(self._generated())

    def predict(self, key, parameters):
        """The generated quantities, drawn anew."""
        if not self.can_predict:
            return super().predict(key, parameters)
        found = self._everything(parameters, jr.bits(key, dtype=jnp.uint32))
        return {name: found[name] for name in self._generated()}

    def free(self):
        """Stan's density of its own unconstrained numbers."""
        return StanDensity(self.functions, self.space)

    def _generated(self) -> list[str]:
        library = self.functions.library
        all_names = Layout(library.names(include_tp=True, include_gq=True)).shapes
        known = Layout(library.names(include_tp=True)).shapes
        return [name for name in all_names if name not in known]

    def _everything(self, parameters: Any, seed: Array) -> dict[str, Array]:
        library = self.functions.library
        layout = Layout(library.names(include_tp=True, include_gq=True))
        vector = self.space.unconstrain(parameters)
        return layout.split(self.functions.everything(vector, seed))


def from_stan(file_or_code: str | os.PathLike, data: Any = None) -> StanModel:
    """A model of Stan, for `annealax.sample`, compiled through BridgeStan.

    Args:
        file_or_code: A file `.stan`, the code of a model, or a library that BridgeStan
            compiled (`.so`, `.dll`, `.dylib`).
        data: A dict of the data by name, a file `.json`, or such text.

    Raises:
        MissingExtraError: If BridgeStan, or what it compiles with, is missing.
        InvalidInputError: If the model does not compile, or not take these data.
    """
    try:
        import bridgestan  # noqa: F401, PLC0415
    except ImportError as error:
        raise MissingExtraError(
            "from_stan needs BridgeStan: pip install 'annealax[stan]'. "
            f"{_WHAT_IS_NEEDED}"
        ) from error
    path = _library(file_or_code)
    try:
        library = Library(path, data)
    except (OSError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        raise InvalidInputError(
            f"the model {Path(path).name} does not take these data: {error}"
        ) from error
    if not library.size:
        raise InvalidInputError("the model has no parameter to sample")
    return StanModel(library)


def _library(file_or_code: str | os.PathLike) -> str:
    """The path of a compiled model."""
    import bridgestan  # noqa: PLC0415

    text = os.fspath(file_or_code)
    if "{" in text or "\n" in text:
        folder = tempfile.mkdtemp(prefix="annealax-stan-")
        text = str(Path(folder) / "model.stan")
        Path(text).write_text(os.fspath(file_or_code), encoding="utf-8")
    path = Path(text)
    if path.suffix not in (".stan", *_LIBRARIES):
        raise InvalidInputError(
            f"from_stan needs the code of a model, a file .stan or a compiled library; "
            f"got {text!r}"
        )
    if not path.is_file():
        raise InvalidInputError(f"there is no file {text}")
    if path.suffix in _LIBRARIES:
        return str(path)
    try:
        return str(bridgestan.compile_model(str(path)))
    except RuntimeError as error:
        # What make and Stan say of the model itself.
        raise InvalidInputError(
            f"the model {path.name} does not compile: {error}. {_WHAT_IS_NEEDED}"
        ) from error
    except Exception as error:
        raise MissingExtraError(
            f"the model {path.name} cannot be compiled: {type(error).__name__}: "
            f"{error}. {_WHAT_IS_NEEDED}"
        ) from error


def _as_type(found: Any, like: Any) -> Any:
    return jax.tree.map(lambda each: np.asarray(each, like.dtype), found)

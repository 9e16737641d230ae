"""Models of PyMC, compiled by PyMC's own translation to JAX.

The log density is that of the random variables themselves: PyMC's transforms are taken
out of it, and serve as maps to unconstrained numbers, so their names never show. Free
variables are the prior, drawn by JAX where PyTensor can, else by calling PyMC; observed
ones and potentials are the likelihood.
"""

import contextlib
import functools
import hashlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from annealax._errors import InvalidInputError, MissingExtraError
from annealax.auto.knowledge import Joint, Prior
from annealax.auto.parameters import Space
from annealax.auto.supports import Conditional, Foreign
from annealax.models.base import Model, default_coords, zero

Values = Mapping[str, Array]

_SUPPORTS = {
    "LogTransform": "positive",
    "LogOddsTransform": "unit",
    "CircularTransform": "circular",
}
"""Transforms of PyMC that have a word here. Its circular one repeats without end."""


class PyMCModel(Model):
    """A model of PyMC: see `annealax.from_pymc`."""

    graphs: "Graphs"
    space: Space
    prior: Prior | None
    why_no_prior: str
    observed: Mapping[str, Any]
    dims: Mapping[str, tuple[str, ...]]
    coords: Mapping[str, np.ndarray]

    def log_likelihood(self, parameters):
        """Observed variables and potentials."""
        if self.prior is None:
            return self.graphs.log_density(parameters)
        return self.graphs.log_likelihood(parameters)

    def log_density(self, parameters):
        """The whole model."""
        return self.graphs.log_density(parameters)

    def transform(self, parameters):
        """Free variables and deterministics by name."""
        return {**parameters, **self.graphs.deterministics(parameters)}

    def pointwise_log_likelihood(self, parameters):
        """Log likelihood of each observed number, by variable."""
        return self.graphs.pointwise(parameters)

    @property
    def can_predict(self):
        """Whether there are observed variables to draw anew."""
        return bool(self.observed)

    def predict(self, key, parameters):
        """New values of the observed variables."""
        if not self.can_predict:
            return super().predict(key, parameters)
        return self.graphs.predict(key, parameters)

    def prepared(self):
        """Compiled anew if JAX is set to another precision than it was made in."""
        if self.graphs.double == _is_double():
            return self
        return from_pymc(self.graphs.model)


def from_pymc(model: Any) -> PyMCModel:
    """A model of PyMC, for `annealax.sample`.

    Its data are those of this moment: after `pymc.set_data`, call it again.

    Args:
        model: A `pymc.Model`.

    Raises:
        MissingExtraError: If PyMC is not installed.
        InvalidInputError: If the model cannot be sampled, such as one with discrete
            free variables.
    """
    try:
        import pymc  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError(
            "from_pymc needs PyMC: pip install 'annealax[pymc]'"
        ) from error
    if not isinstance(model, pymc.Model):
        raise InvalidInputError(f"from_pymc needs a pymc.Model; got {model!r}")
    if not model.free_RVs:
        raise InvalidInputError("the model has no free variable to sample")
    if discrete := [each.name for each in model.free_RVs if "int" in each.dtype]:
        raise InvalidInputError(
            f"the free variables {discrete} are discrete: sum them out first, for "
            "example with pymc_extras.marginalize or a mixture distribution"
        )
    graphs = Graphs(model)
    why = graphs.why_no_prior()
    shapes = graphs.shapes
    dims = {
        name: tuple(
            axis or f"{name}_dim_{index}" for index, axis in enumerate(axes or ())
        )
        for name, axes in model.named_vars_to_dims.items()
    }
    known = {
        name: np.asarray(labels)
        for name, labels in model.coords.items()
        if labels is not None
    }
    observed = {each.name: _observed(model, each) for each in model.observed_RVs}
    sizes = {**shapes, **{name: each.shape for name, each in observed.items()}}
    return PyMCModel(
        graphs=graphs,
        space=Space(shapes, graphs.supports()),
        prior=None if why else Joint(graphs.sample, graphs.log_prior),
        why_no_prior=why,
        observed=observed,
        dims=dims,
        coords={**default_coords(sizes, dims), **known},
    )


class Graphs:
    """The graphs of a model as functions of JAX, each compiled when it is needed."""

    def __init__(self, model: Any):
        from pymc.model.transform.conditioning import (  # noqa: PLC0415
            remove_value_transforms,
        )

        self.model = model
        self.double = _is_double()
        with _without_initial_values(model):
            self._plain = remove_value_transforms(model)
        point = self._plain.initial_point()
        self.names = tuple(each.name for each in model.free_RVs)
        self.shapes = {name: np.shape(point[name]) for name in self.names}
        self.digest = self._digest()

    def _digest(self) -> str:
        """What tells this model and its data from others, for checkpoints."""
        dtype = jnp.result_type(float)
        point = {n: jax.ShapeDtypeStruct(s, dtype) for n, s in self.shapes.items()}
        program = jax.make_jaxpr(self.log_density)(point)
        constants = [np.asarray(each).tobytes() for each in program.consts]
        whole = [str(program.jaxpr).encode(), *constants]
        return hashlib.sha256(b"\0".join(whole)).hexdigest()

    # log densities, of the variables themselves

    def log_prior(self, values: Values) -> Array:
        """Log density of the free variables."""
        return self._total("prior", values)

    def log_likelihood(self, values: Values) -> Array:
        """Log density of observed variables, and potentials."""
        return self._total("likelihood", values)

    def log_density(self, values: Values) -> Array:
        """Both, in one graph."""
        return self._total("density", values)

    def pointwise(self, values: Values) -> dict[str, Array]:
        """Log likelihood of each observed number."""
        names = [each.name for each in self._plain.observed_RVs]
        found = self._pointwise(*self._in_order(values)) if names else []
        return dict(zip(names, found, strict=True))

    def _total(self, which: str, values: Values) -> Array:
        (found,) = self._log_densities(which)(*self._in_order(values))
        return jnp.sum(found) + zero()

    @functools.cache  # noqa: B019 (it lives as long as the model)
    def _log_densities(self, which: str) -> Callable[..., Any]:
        plain = self._plain
        some = {
            "prior": list(plain.free_RVs),
            "likelihood": [*plain.observed_RVs, *plain.potentials],
            "density": None,
        }[which]
        if some == []:
            return lambda *_: [zero()]
        graph = plain.logp(vars=some, jacobian=False)
        return jaxified(self._value_variables(), [graph])

    @functools.cached_property
    def _pointwise(self) -> Callable[..., Any]:
        graphs = self._plain.logp(vars=self._plain.observed_RVs, sum=False)
        return jaxified(self._value_variables(), graphs)

    def _value_variables(self) -> list[Any]:
        named = {each.name: self._plain.rvs_to_values[each] for each in self._free()}
        return [named[name] for name in self.names]

    def _free(self) -> Sequence[Any]:
        return self._plain.free_RVs

    # what is computed from the variables

    def deterministics(self, values: Values) -> dict[str, Array]:
        """Deterministics of the model, by name."""
        names = [each.name for each in self.model.deterministics]
        if not names:
            return {}
        found = self._deterministics(*self._in_order(values))
        dtype = jnp.result_type(float)
        return {
            name: jnp.asarray(each, dtype if _is_float(each) else None)
            for name, each in zip(names, found, strict=True)
        }

    @functools.cached_property
    def _deterministics(self) -> Callable[..., Any]:
        inputs, graphs = self._of_values(self.model.deterministics)
        return jaxified(inputs, graphs)

    def _of_values(self, graphs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Graphs of the free variables as graphs of inputs in their place."""
        inputs = [each.type(each.name) for each in self.model.free_RVs]
        return inputs, _replaced(
            graphs, dict(zip(self.model.free_RVs, inputs, strict=True))
        )

    # draws

    def why_no_prior(self) -> str:
        """What cannot be drawn from; else nothing."""
        for each in self.model.free_RVs:
            kind = type(each.owner.op).__name__
            if "Flat" in kind:
                return f"{each.name} has the improper prior {kind.removesuffix('RV')}"
            if not self._has_own_transform(each):
                return (
                    f"{each.name} has a transform of yours, which may cut off a part "
                    "of its prior"
                )
        try:
            drawn = self._drawer(())(jr.key(0))
        except Exception as error:
            return f"it cannot be drawn from: {type(error).__name__}: {error}"
        if not all(np.isfinite(np.asarray(each)).all() for each in drawn):
            return "its draws are not finite"
        return ""

    def _has_own_transform(self, variable: Any) -> bool:
        """Whether what it is transformed by is what PyMC chooses for it."""
        from pymc.distributions.transforms import (  # noqa: PLC0415
            _default_transform,
        )

        usual = _default_transform(variable.owner.op, variable)
        return type(self.model.rvs_to_transforms[variable]) in (type(usual), type(None))

    def sample(self, key: PRNGKeyArray) -> dict[str, Array]:
        """One draw of the free variables."""
        dtype = jnp.result_type(float)
        found = self._drawer(())(key)
        return {
            name: jnp.asarray(each, dtype).reshape(self.shapes[name])
            for name, each in zip(self.names, found, strict=True)
        }

    def predict(self, key: PRNGKeyArray, values: Values) -> dict[str, Array]:
        """New values of the observed variables."""
        names = [each.name for each in self.model.observed_RVs]
        found = self._drawer(self.names)(key, *self._in_order(values))
        return dict(zip(names, found, strict=True))

    @functools.cache  # noqa: B019
    def _drawer(self, given: tuple[str, ...]) -> Callable[..., Any]:
        """Draws free variables, or observed ones given these."""
        inputs: list[Any] = []
        graphs = list(self.model.free_RVs)
        if given:
            inputs, graphs = self._of_values(self.model.observed_RVs)
        example = [
            jax.ShapeDtypeStruct(self.shapes[n], jnp.result_type(float)) for n in given
        ]
        try:
            drawer = _drawn_by_jax(inputs, graphs)
            jax.eval_shape(drawer, jr.key(0), *example)
        except Exception:
            return _drawn_by_pymc(inputs, graphs)
        return drawer

    # unconstrained numbers

    def supports(self) -> dict[str, Any]:
        """What `annealax.sample` calls the support of each variable."""
        free = self.model.initial_point()
        found: dict[str, Any] = {}
        for variable in self.model.free_RVs:
            transform = self.model.rvs_to_transforms[variable]
            if transform is None:
                continue
            name = variable.name
            word = _SUPPORTS.get(type(transform).__name__)
            shape = np.shape(free[self.model.rvs_to_values[variable].name])
            found[name] = word or self._map(variable, transform, shape)
        return found

    def _map(self, variable: Any, transform: Any, free_shape: tuple[int, ...]) -> Any:
        """PyMC's own transform, given the variables that it depends on."""
        shape = self.shapes[variable.name]
        below = variable.owner.inputs
        free = self.model.rvs_to_values[variable].type()
        back = transform.backward(free, *below)
        log_det = transform.log_jac_det(free, *below).sum()
        inputs, (back, log_det) = self._of_values([back, log_det])
        forward = _Pair(jaxified([free, *inputs], [back, log_det]))
        inputs, (forth,) = self._of_values([transform.forward(variable, *below)])
        backward = jaxified(inputs, [forth])
        place = self.names.index(variable.name)

        def given(values: Values) -> Foreign:
            others = [
                values.get(n, jnp.ones(self.shapes[n], jnp.result_type(float)))
                for n in self.names
            ]

            def inverse(y: Array) -> Array:
                return backward(*others[:place], y, *others[place + 1 :])[0]

            return Foreign(shape, free_shape, lambda x: forward(x, *others), inverse)

        if self._depends(below):
            return Conditional(shape, free_shape, given)
        return given({})

    def _depends(self, graphs: Sequence[Any]) -> bool:
        return not _above(graphs).keys().isdisjoint(self.model.free_RVs)

    def _in_order(self, values: Values) -> list[Array]:
        return [values[name] for name in self.names]


class _Pair:
    """A value and a log Jacobian, the latter as one number."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __call__(self, *inputs: Array) -> tuple[Array, Array]:
        value, log_det = self._function(*inputs)
        return value, jnp.sum(log_det)


def jaxified(inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[..., Any]:
    """Graphs of PyTensor as a function of JAX, in the precision that JAX is set to."""
    _import_translation()
    with _same_devices():
        from pymc.sampling.jax import get_jaxified_graph  # noqa: PLC0415

    jaxify = _quiet(get_jaxified_graph)
    # Constants are arrays, not tracers, even where a graph is first needed in a trace.
    with jax.ensure_compile_time_eval():
        return _quiet(jaxify(inputs=list(inputs), outputs=list(outputs)))


def _drawn_by_jax(inputs: Sequence[Any], graphs: Sequence[Any]) -> Callable[..., Any]:
    """Random graphs of PyTensor as a function of a key and inputs."""
    _import_translation()
    from pytensor.compile import mode  # noqa: PLC0415
    from pytensor.graph import FunctionGraph  # noqa: PLC0415
    from pytensor.link.jax.dispatch import jax_funcify  # noqa: PLC0415

    generators, places = _generators(graphs)
    fresh = [each.type() for each in generators]
    places.update(zip(generators, fresh, strict=True))
    program = FunctionGraph([*inputs, *fresh], _replaced(graphs, places), clone=True)
    mode.JAX.optimizer.rewrite(program)
    with jax.ensure_compile_time_eval():
        function = _quiet(_quiet(jax_funcify)(program))

    def draw(key: PRNGKeyArray, *values: Array) -> list[Array]:
        states = [
            {"jax_state": jr.key_data(jr.fold_in(key, index))}
            for index in range(len(generators))
        ]
        return list(function(*values, *states))

    return draw


def _drawn_by_pymc(inputs: Sequence[Any], graphs: Sequence[Any]) -> Callable[..., Any]:
    """The same by calling PyTensor, where it cannot be translated."""
    import pytensor  # noqa: PLC0415
    from pymc.pytensorf import reseed_rngs  # noqa: PLC0415

    generators, _ = _generators(graphs)
    function = pytensor.function(
        list(inputs), list(graphs), mode="FAST_COMPILE", on_unused_input="ignore"
    )

    def host(data: Any, *values: Any) -> list[np.ndarray]:
        reseed_rngs(generators, np.asarray(data).astype(np.uint32).tolist())
        given = [
            np.asarray(value, each.dtype)
            for value, each in zip(values, inputs, strict=True)
        ]
        drawn = function(*given)
        return [
            np.asarray(each, kind.dtype)
            for each, kind in zip(drawn, types, strict=True)
        ]

    reseed_rngs(generators, 0)
    example = function(*(np.ones(_ones(each), each.dtype) for each in inputs))
    types = [
        jax.ShapeDtypeStruct(np.shape(each), _dtype(np.asarray(each).dtype))
        for each in example
    ]

    def draw(key: PRNGKeyArray, *values: Array) -> list[Array]:
        data = jr.key_data(key)
        return jax.pure_callback(host, types, data, *values, vmap_method="sequential")

    return draw


def _generators(graphs: Sequence[Any]) -> tuple[list[Any], dict[Any, Any]]:
    """Random generators of graphs, and values in place of other shared variables."""
    import pytensor.tensor as pt  # noqa: PLC0415
    from pytensor.tensor.random.type import RandomGeneratorType  # noqa: PLC0415

    generators: list[Any] = []
    places: dict[Any, Any] = {}
    for each in _above(graphs):
        if isinstance(each.type, RandomGeneratorType):
            if each.owner is None:
                generators.append(each)
        elif hasattr(each, "get_value"):
            places[each] = pt.constant(each.get_value(borrow=True), dtype=each.dtype)
    return generators, places


def _above(graphs: Sequence[Any]) -> dict[Any, None]:
    """All variables that graphs depend on, and they themselves, in a fixed order."""
    found: dict[Any, None] = {}
    todo = list(graphs)
    while todo:
        each = todo.pop()
        if each not in found:
            found[each] = None
            todo.extend(each.owner.inputs if each.owner is not None else ())
    return found


def _replaced(graphs: Sequence[Any], places: Mapping[Any, Any]) -> list[Any]:
    """Graphs with other variables in some places, as far as these are in them."""
    from pytensor.graph.replace import clone_replace  # noqa: PLC0415

    above = _above(graphs)
    some = {each: place for each, place in places.items() if each in above}
    return list(clone_replace(list(graphs), replace=some))


def _observed(model: Any, variable: Any) -> np.ndarray:
    """The data of an observed variable."""
    value = model.rvs_to_values[variable]
    if hasattr(value, "get_value"):
        return np.asarray(value.get_value())
    return np.asarray(value.data if hasattr(value, "data") else value.eval())


def _ones(variable: Any) -> tuple[int, ...]:
    return tuple(size or 1 for size in variable.type.shape)


def _dtype(dtype: np.dtype) -> Any:
    kind = jnp.result_type(float) if np.issubdtype(dtype, np.floating) else dtype
    return jax.dtypes.canonicalize_dtype(kind)


def _is_float(array: Any) -> bool:
    return jnp.issubdtype(jnp.asarray(array).dtype, jnp.floating)


def _is_double() -> bool:
    return jnp.result_type(float) == jnp.float64


@contextlib.contextmanager
def _same_devices() -> Iterator[None]:
    """PyMC tells JAX, and processes that are started, to have a hundred devices."""
    before = os.environ.get("XLA_FLAGS")
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("XLA_FLAGS", None)
        else:
            os.environ["XLA_FLAGS"] = before


def _import_translation() -> None:
    """Import PyTensor's translation, which sets JAX to double precision, and undo that.

    In a thread of its own, since what `jax.enable_x64` says is of this one.
    """

    def importing() -> None:
        before = jnp.result_type(float) == jnp.float64
        with warnings.catch_warnings(), _same_devices():
            warnings.simplefilter("ignore")
            import pymc.sampling.jax  # noqa: F401, PLC0415
        jax.config.update("jax_enable_x64", before)

    if "pytensor.link.jax.dispatch" not in sys.modules:
        thread = threading.Thread(target=importing)
        thread.start()
        thread.join()


@contextlib.contextmanager
def _without_initial_values(model: Any) -> Iterator[None]:
    """PyMC copies no model that has some."""
    given = dict(model.rvs_to_initial_values)
    try:
        model.rvs_to_initial_values.update(dict.fromkeys(given))
        yield
    finally:
        model.rvs_to_initial_values.update(given)


def _quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """Without warnings that float64 becomes float32, where JAX is set to that."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*dtype.*")
            return function(*args, **kwargs)

    return wrapped

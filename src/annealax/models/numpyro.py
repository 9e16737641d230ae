"""Models of NumPyro.

Observed sites, factors and potentials are the likelihood; the other sites are the
prior, drawn by running the model. Each site has a bijection onto its support, so log Z
is the evidence in the space of the sites. Arrays among the model's arguments are inputs
of the compiled program: new values of the same shapes do not compile again. Where a
model needs to look at values while it is built (`len(np.unique(group))`), integers, or
else all arrays, stay as they are.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from annealax._errors import InvalidInputError, MissingExtraError
from annealax.auto.knowledge import Joint, Prior
from annealax.auto.parameters import Space
from annealax.models.base import Model, default_coords, zero

Trace = Mapping[str, Any]


class _Fixed:
    """A value that is no input of a program: equal to what has the same content."""

    def __init__(self, value: Any):
        self.value = value

    def _content(self) -> Any:
        if isinstance(self.value, np.ndarray):
            return self.value.shape, str(self.value.dtype), self.value.tobytes()
        return id(self.value)

    def __hash__(self) -> int:
        return hash(self._content())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Fixed) and self._content() == other._content()


class NumPyroProgram(eqx.Module):
    """What is computed of a model: a function, its data, and the names of its sites."""

    function: Callable[..., Any] = eqx.field(static=True)
    data: tuple[tuple[Any, ...], dict[str, Any]]
    latent: tuple[str, ...] = eqx.field(static=True, default=())
    observed: tuple[str, ...] = eqx.field(static=True, default=())
    deterministic: tuple[str, ...] = eqx.field(static=True, default=())
    nesting: int | None = eqx.field(static=True, default=None)

    def trace(
        self,
        values: Mapping[str, Any],
        key: PRNGKeyArray | None = None,
        around: Callable[[Any], Any] = lambda function: function,
    ) -> Trace:
        """Run the model with values of some sites; the others are drawn."""
        from numpyro import handlers  # noqa: PLC0415

        function = handlers.substitute(around(self.function), data=dict(values))
        seeded = handlers.seed(function, jr.key(0) if key is None else key)
        filled = handlers.substitute(seeded, substitute_fn=_instead_of_improper)
        args, kwargs = self.arguments()
        return handlers.trace(filled).get_trace(*args, **kwargs)

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the model is called with."""
        return jax.tree.map(
            lambda leaf: leaf.value if isinstance(leaf, _Fixed) else leaf, self.data
        )

    def sample(self, key: PRNGKeyArray) -> dict[str, Array]:
        """One draw of the latent sites."""
        trace = self.trace({}, key)
        dtype = jnp.result_type(float)
        return {name: jnp.asarray(trace[name]["value"], dtype) for name in self.latent}

    def log_prior(self, values: Mapping[str, Array]) -> Array:
        """Log density of the latent sites."""
        if self.nesting is not None:
            return self._enumerated(values, with_data=False)
        trace = self.trace(values)
        return sum((_log_prob(trace[name]).sum() for name in self.latent), zero())

    def log_likelihood(self, values: Mapping[str, Array]) -> Array:
        """Log density of all else."""
        if self.nesting is not None:
            joint = self._enumerated(values, with_data=True)
            return joint - self._enumerated(values, with_data=False)
        return self._log_observed(self.trace(values))

    def log_density(self, values: Mapping[str, Array]) -> Array:
        """Both."""
        if self.nesting is not None:
            return self._enumerated(values, with_data=True)
        trace = self.trace(values)
        prior = sum((_log_prob(trace[name]).sum() for name in self.latent), zero())
        return prior + self._log_observed(trace)

    def _log_observed(self, trace: Trace) -> Array:
        terms = [
            _log_prob(site).sum()
            for site in trace.values()
            if site["type"] == "sample" and site["is_observed"]
        ]
        return sum(terms, zero())

    def _enumerated(self, values: Mapping[str, Array], *, with_data: bool) -> Array:
        """Summed over all values of discrete sites, by NumPyro."""
        from numpyro.contrib.funsor import config_enumerate, enum  # noqa: PLC0415
        from numpyro.contrib.funsor.infer_util import log_density  # noqa: PLC0415

        assert self.nesting is not None
        function = self.function if with_data else _without_data(self.function)
        model = enum(config_enumerate(function), -self.nesting - 1)
        args, kwargs = self.arguments()
        return log_density(model, args, kwargs, dict(values))[0] + zero()

    def transform(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Latent and deterministic sites."""
        result = dict(values)
        if self.deterministic:
            trace = self.trace(values)
            result.update({n: trace[n]["value"] for n in self.deterministic})
        return result

    def pointwise(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Log likelihood of each observation."""
        if self.nesting is not None:
            return {}
        trace = self.trace(values)
        return {name: _log_prob(trace[name]) for name in self.observed}

    def predict(
        self, key: PRNGKeyArray, values: Mapping[str, Array]
    ) -> dict[str, Array]:
        """New data."""
        from numpyro import handlers  # noqa: PLC0415

        trace = self.trace(values, key, handlers.uncondition)
        return {name: trace[name]["value"] for name in self.observed}


class _SupportOf(eqx.Module):
    """The support of a site, given sites before it."""

    program: NumPyroProgram
    name: str = eqx.field(static=True)

    def __call__(self, values: Mapping[str, Array]) -> Any:
        return self.program.trace(values)[self.name]["fn"].support


class NumPyroModel(Model):
    """A model of NumPyro with its data: see `annealax.from_numpyro`."""

    program: NumPyroProgram
    space: Space
    prior: Prior | None
    why_no_prior: str
    observed: Mapping[str, Any]
    dims: Mapping[str, tuple[str, ...]]
    coords: Mapping[str, np.ndarray]
    given: Any

    def log_likelihood(self, parameters):
        """Observed sites, factors and potentials."""
        if self.prior is None:
            return self.program.log_density(parameters)
        return self.program.log_likelihood(parameters)

    def log_density(self, parameters):
        """The whole model."""
        return self.program.log_density(parameters)

    def transform(self, parameters):
        """Latent and deterministic sites by name."""
        return self.program.transform(parameters)

    def pointwise_log_likelihood(self, parameters):
        """Log likelihood of each observed number, by site."""
        return self.program.pointwise(parameters)

    @property
    def can_predict(self):
        """Whether there are observed sites to draw anew."""
        return bool(self.program.observed) and self.program.nesting is None

    def predict(self, key, parameters):
        """New values of the observed sites."""
        if not self.can_predict:
            return super().predict(key, parameters)
        return self.program.predict(key, parameters)

    def with_data(self, *args: Any, **kwargs: Any) -> "NumPyroModel":
        """The same model of other data: what is compiled serves these, too."""
        return from_numpyro(self.program.function, *args, **kwargs)

    def prepared(self):
        """Its data in the precision that JAX is set to now."""
        args, kwargs = self.given.value
        return from_numpyro(self.program.function, *args, **kwargs)


def from_numpyro(model: Any, /, *args: Any, **kwargs: Any) -> NumPyroModel:
    """A model of NumPyro, for `annealax.sample`.

    Args:
        model: A function with NumPyro's primitives.
        args: What it is called with, data included.
        kwargs: The same, by name.

    Raises:
        MissingExtraError: If NumPyro is not installed, or what it enumerates discrete
            sites with.
        InvalidInputError: If the model cannot be sampled, such as one with discrete
            latent sites that cannot be enumerated.
    """
    try:
        import numpyro  # noqa: F401, PLC0415
    except ImportError as error:
        raise MissingExtraError(
            "from_numpyro needs NumPyro: pip install 'annealax[numpyro]'"
        ) from error
    if not callable(model):
        raise InvalidInputError(
            f"from_numpyro needs a function with NumPyro's primitives; got {model!r}"
        )
    given = (args, kwargs)
    bare = NumPyroProgram(model, _leaves(given, fixed="all"))
    try:
        first, second = (bare.trace({}, jr.key(seed)) for seed in (0, 1))
    except Exception as error:
        raise InvalidInputError(
            f"the model cannot be run with these arguments: {type(error).__name__}: "
            f"{error}"
        ) from error
    sites = _Sites(first, second)
    sites.check()
    names = {
        "latent": tuple(sites.latent),
        "observed": tuple(sites.observed),
        "deterministic": () if sites.discrete else tuple(sites.deterministic),
        "nesting": sites.nesting if sites.discrete else None,
    }
    program = _with_inputs(model, given, names, sites)
    why = sites.why_no_prior
    shapes = {name: np.shape(site["value"]) for name, site in first.items()}
    dims = {
        name: axes
        for name in (*sites.latent, *sites.observed, *sites.deterministic)
        if (axes := _dims(name, first[name]))
    }
    return NumPyroModel(
        program=program,
        space=Space(
            {name: shapes[name] for name in sites.latent}, sites.supports(program)
        ),
        prior=None if why else Joint(program.sample, program.log_prior),
        why_no_prior=why,
        observed={name: np.asarray(first[name]["value"]) for name in sites.observed},
        dims=dims,
        coords=default_coords(shapes, dims),
        given=_Fixed(given),
    )


class _Sites:
    """What two runs of a model show of its sites."""

    def __init__(self, first: Trace, second: Trace):
        self.trace, self._second = first, second
        sample = {n: s for n, s in first.items() if s["type"] == "sample"}
        hidden = {n: s for n, s in sample.items() if not s["is_observed"]}
        self.discrete = [n for n, s in hidden.items() if s["fn"].support.is_discrete]
        self.latent = [name for name in hidden if name not in self.discrete]
        self.observed = [
            name
            for name, site in sample.items()
            if site["is_observed"] and type(_base(site["fn"])).__name__ != "Unit"
        ]
        self.deterministic = [
            name for name, site in first.items() if site["type"] == "deterministic"
        ]

    @property
    def nesting(self) -> int:
        """How deep plates are nested."""
        frames = [
            frame
            for site in self.trace.values()
            if site["type"] == "sample"
            for frame in site["cond_indep_stack"]
        ]
        return max((-frame.dim for frame in frames), default=0)

    @property
    def why_no_prior(self) -> str:
        """What cannot be drawn from, or is not normalised; else nothing."""
        for name in self.latent:
            site = self.trace[name]
            kinds = {type(each).__name__ for each in _layers(site["fn"])}
            if "ImproperUniform" in kinds:
                return f"{name} has the improper prior ImproperUniform"
            if "MaskedDistribution" in kinds:
                return f"the prior of {name} is masked"
            if site["scale"] is not None:
                return f"the prior of {name} is scaled"
        return ""

    def check(self) -> None:
        """Raise an error for what cannot be sampled."""
        for name, site in self.trace.items():
            kind = site["type"]
            if kind == "param":
                raise InvalidInputError(
                    f"{name} is a numpyro.param, which has no prior: make it a "
                    "numpyro.sample"
                )
            if kind == "plate" and len(site["value"]) < site["args"][0]:
                raise InvalidInputError(
                    f"the plate {name} takes a subsample: an evidence needs all data; "
                    "leave subsample_size out"
                )
        if self.discrete:
            _check_discrete(self.discrete, self.trace)
        if not self.latent:
            raise InvalidInputError("the model has no latent site to sample")

    def supports(self, program: NumPyroProgram) -> dict[str, Any]:
        """Supports by site: as a function where one depends on other sites."""
        found: dict[str, Any] = {}
        for name in self.latent:
            pair = [each[name]["fn"].support for each in (self.trace, self._second)]
            leaves = [jax.tree.leaves(each) for each in pair]
            fixed = len(leaves[0]) == len(leaves[1]) and all(
                np.array_equal(a, b) for a, b in zip(*leaves, strict=True)
            )
            found[name] = pair[0] if fixed else _SupportOf(program, name)
        return found


def _check_discrete(names: Sequence[str], trace: Trace) -> None:
    endless = [name for name in names if not trace[name]["fn"].has_enumerate_support]
    if endless:
        raise InvalidInputError(
            f"the latent sites {endless} are discrete and have no finite list of "
            "values, so NumPyro cannot enumerate them: sum them out by hand, or use a "
            "continuous site"
        )
    try:
        import funsor  # noqa: F401, PLC0415
    except ImportError as error:
        raise MissingExtraError(
            f"the latent sites {list(names)} are discrete: NumPyro enumerates them "
            "with funsor: pip install funsor"
        ) from error


def _with_inputs(
    model: Callable, given: Any, names: dict[str, Any], sites: _Sites
) -> NumPyroProgram:
    """With as many arrays as inputs as the model allows."""
    dtype = jnp.result_type(float)
    values = {
        name: jax.ShapeDtypeStruct(np.shape(sites.trace[name]["value"]), dtype)
        for name in names["latent"]
    }
    for fixed in ("nothing", "integers"):
        program = NumPyroProgram(model, _leaves(given, fixed=fixed), **names)
        try:
            eqx.filter_eval_shape(lambda p, v: p.log_density(v), program, values)
        except (jax.errors.JAXTypeError, jax.errors.JAXIndexError, TypeError):
            continue
        return program
    return NumPyroProgram(model, _leaves(given, fixed="all"), **names)


def _leaves(given: Any, *, fixed: str) -> Any:
    """Arrays as inputs in the precision in use, and what has to stay as it is."""

    def leaf(value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic | jax.Array):
            if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
                return value
            is_float = jnp.issubdtype(value.dtype, jnp.floating)
            if fixed == "all" or (fixed == "integers" and not is_float):
                return _Fixed(np.asarray(value))
            return jnp.asarray(value, jnp.result_type(float) if is_float else None)
        try:
            hash(value)
        except TypeError:
            return _Fixed(value)
        return value

    return jax.tree.map(leaf, given)


def _log_prob(site: Mapping[str, Any]) -> Array:
    """As NumPyro counts it."""
    found = site["fn"].log_prob(site["value"])
    return found if site["scale"] is None else site["scale"] * found


def _layers(distribution: Any) -> Iterator[Any]:
    """A distribution, and what is below masks, expansions and event axes."""
    while True:
        yield distribution
        if not hasattr(distribution, "base_dist"):
            return
        distribution = distribution.base_dist


def _base(distribution: Any) -> Any:
    *_, last = _layers(distribution)
    return last


def _instead_of_improper(site: Mapping[str, Any]) -> Any:
    """Some value of a site that cannot be drawn: only to look at the model."""
    from numpyro.infer.initialization import init_to_uniform  # noqa: PLC0415

    given = site["type"] != "sample" or site["value"] is not None
    if given or site["is_observed"]:
        return None
    improper = type(_base(site["fn"])).__name__ == "ImproperUniform"
    return init_to_uniform(site=site) if improper else None


def _without_data(function: Callable[..., Any]) -> Callable[..., Any]:
    """A model whose observations count for nothing."""
    from numpyro.primitives import Messenger  # noqa: PLC0415

    class WithoutData(Messenger):
        def process_message(self, msg):
            if msg["type"] == "sample" and msg["is_observed"]:
                msg["fn"] = msg["fn"].mask(False)

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        with WithoutData():
            return function(*args, **kwargs)

    return wrapped


def _dims(name: str, site: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of axes: of plates, of `infer={"event_dims": [...]}`, else numbers."""
    shape = np.shape(site["value"])
    axes = [f"{name}_dim_{axis}" for axis in range(len(shape))]
    infer = site.get("infer") or {}
    event = list(infer.get("event_dims", ()))
    num_event = site["fn"].event_dim if site["type"] == "sample" else 0
    for frame in site.get("cond_indep_stack") or ():
        axis = len(shape) - num_event + frame.dim
        if 0 <= axis < len(shape) and shape[axis] == frame.size:
            axes[axis] = frame.name
    for offset, label in enumerate(event):
        axes[len(shape) - len(event) + offset] = label
    return tuple(axes)

r"""Annealing paths: the unnormalised densities between initial and target.

The geometric path is

$$\log \gamma_\beta(x) = (1 - \beta) \log \pi_0(x) + \beta \log \gamma(x),$$

with $0 = \beta_0 < \beta_1 < \dots < \beta_K = 1$.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.distributions import StandardNormal
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from annealax._checks import whole_numbers
from annealax._errors import InvalidInputError


class Edge(NamedTuple):
    """One transition of the ladder, from `start` to `end` (inverse temperatures)."""

    start: Float[Array, "*transitions"]
    end: Float[Array, "*transitions"]


@runtime_checkable
class InitialDistribution(Protocol):
    """What a path needs of its start; flowjax distributions have it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one configuration."""
        ...

    def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of shape `sample_shape + shape`."""
        ...

    def log_prob(self, x: Array) -> Array:
        """Normalised log density of one configuration."""
        ...


class AbstractPath(eqx.Module):
    """A family of unnormalised densities indexed by `beta` in [0, 1].

    At `beta = 0` it is a normalised density that can be sampled, at `beta = 1` the
    target.
    """

    betas: eqx.AbstractVar[Float[Array, " levels"]]

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one configuration."""

    @abstractmethod
    def sample(
        self, key: PRNGKeyArray, num_samples: int
    ) -> tuple[Float[Array, "particles *shape"], Float[Array, " particles"]]:
        """Draws from the initial distribution with their log densities."""

    @abstractmethod
    def log_density(self, beta: ArrayLike, x: Float[Array, "*shape"]) -> Array:
        """Log density of one configuration at `beta`, as the functions return it."""

    @property
    def num_transitions(self) -> int:
        """Number of annealing transitions, K in the paper."""
        return self.betas.shape[0] - 1

    @property
    def edges(self) -> Edge:
        """All transitions, stacked: this is what the samplers scan over."""
        return Edge(self.betas[:-1], self.betas[1:])

    def at(self, beta: ArrayLike) -> Callable[[Array], Array]:
        """The log density at `beta` as a function that is never NaN or +inf.

        Kernels use this: where the user's density is not a number or infinite the
        density counts as zero, so a proposal there is rejected.
        """
        return lambda x: sanitise(self.log_density(beta, x))


class GeometricPath(AbstractPath):
    """The geometric path from `initial` to `target`.

    Args:
        initial: A distribution that can `sample` and evaluate `log_prob` (every
            flowjax distribution), or a shape such as `(2,)` or None for the shape of
            the target: these mean a standard normal.
        target: Any function from one configuration to its log density.
        betas: Inverse temperatures, strictly rising from 0 to 1; or the number of
            transitions of an evenly spaced ladder.
    """

    initial: InitialDistribution
    target: Callable[[Array], Array]
    betas: Float[Array, " levels"]

    def __init__(
        self,
        initial: InitialDistribution | Sequence[int] | None,
        target: Callable[[Array], Array],
        betas: ArrayLike | Sequence[float] = 10,
    ):
        if not callable(target):
            raise InvalidInputError(
                f"target must be a function of one configuration; got {target!r}"
            )
        self.initial = _initial_distribution(initial, target)
        self.target = target
        self.betas = _ladder(betas)
        _check_density("target", target, self.initial.shape)
        _check_density("initial.log_prob", self.initial.log_prob, self.initial.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one configuration."""
        return tuple(self.initial.shape)

    def sample(self, key, num_samples):
        """Draws from the initial distribution with their log densities."""
        x = self.initial.sample(key, (num_samples,))
        return x, jax.vmap(self.initial.log_prob)(x)

    def log_density(self, beta, x):
        """Log density of one configuration at `beta`, as the functions return it."""
        beta = jnp.asarray(beta)
        return _scale(1 - beta, self.initial.log_prob(x)) + _scale(beta, self.target(x))


@jax.custom_jvp
def sanitise(log_density: Array) -> Array:
    """Zero density (-inf) where a log density is NaN or +inf.

    The derivative passes through, so that a gradient does not need the value: for
    cheap densities that would be most of its cost.
    """
    return jnp.where(log_density < jnp.inf, log_density, -jnp.inf)


@sanitise.defjvp
def _sanitise_jvp(primals, tangents):
    return sanitise(*primals), tangents[0]


def _scale(weight: Array, log_density: Array) -> Array:
    # 0 * (-inf) is 0 here: at the end of the path the other density has no say.
    return jnp.where(weight == 0, 0, weight * log_density)


def _initial_distribution(initial, target) -> InitialDistribution:
    if initial is None:
        shape = getattr(target, "shape", None)
        if shape is None:
            raise InvalidInputError(
                "initial=None needs a target with a `shape`; give the shape of one "
                "configuration instead, such as GeometricPath((2,), target)"
            )
        initial = shape
    if isinstance(initial, tuple | list):
        sizes = whole_numbers("the shape of a configuration", initial)
        return StandardNormal(sizes)  # type: ignore[call-arg]
    if not isinstance(initial, InitialDistribution):
        raise InvalidInputError(
            f"initial must have shape, sample and log_prob, as flowjax distributions "
            f"do; got {type(initial).__name__}"
        )
    return initial


def _ladder(betas: ArrayLike | Sequence[float]) -> Array:
    if isinstance(betas, int | np.integer) and not isinstance(betas, bool):
        if betas < 1:
            raise InvalidInputError(
                f"a ladder needs at least one transition, got betas={betas}"
            )
        return jnp.linspace(0.0, 1.0, int(betas) + 1)
    ladder = jnp.asarray(betas, dtype=jnp.result_type(float))
    if ladder.ndim != 1 or ladder.shape[0] < 2:
        raise InvalidInputError(
            "betas must be a vector of at least two inverse temperatures, got shape "
            f"{ladder.shape}"
        )
    if not isinstance(ladder, jax.core.Tracer):
        values = np.asarray(ladder)
        if not (values[0] == 0 and values[-1] == 1 and np.all(np.diff(values) > 0)):
            raise InvalidInputError(
                "betas must rise strictly from 0 to 1 (in float32 if that is the "
                f"precision in use), got {values}"
            )
    return ladder


def _check_density(name: str, function: Callable, shape: tuple[int, ...]) -> None:
    point = jax.ShapeDtypeStruct(tuple(shape), jnp.result_type(float))
    try:
        value = eqx.filter_eval_shape(function, point)
    except InvalidInputError:
        raise
    except Exception as error:
        raise InvalidInputError(
            f"{name} cannot be evaluated at one configuration of shape {tuple(shape)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not hasattr(value, "shape") or value.shape != ():
        got = getattr(value, "shape", type(value).__name__)
        raise InvalidInputError(
            f"{name} must return one number for one configuration of shape "
            f"{tuple(shape)}, but it returns shape {got}; write it for a single point "
            "and reduce with .sum(): batches are handled by annealax"
        )
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise InvalidInputError(
            f"{name} must return a real floating point number, got {value.dtype}"
        )

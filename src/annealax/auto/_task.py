"""What `sample` is asked to do, checked before any work begins."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.random as jr
from jaxtyping import Array, PRNGKeyArray

from annealax._errors import InvalidInputError
from annealax._work.budget import Budget, as_budget
from annealax._work.fingerprint import fingerprint
from annealax.auto._flow_choice import FAMILIES
from annealax.auto._space import FreeDensity, Space, Support


@dataclasses.dataclass(frozen=True)
class Task:
    """The arguments of `sample` in the form in which its stages use them.

    Attributes:
        space: Names, shapes and supports of the parameters.
        density: The density of one free vector.
        key: Where all random numbers come from.
        budget: What may be spent; None to choose.
        flow: "auto", "none", or a family.
        num_particles: Particles of a replicate; None to choose.
        num_replicates: Independent runs; None to choose.
        fingerprint: Tells tasks apart whose answers may differ.
    """

    space: Space
    density: FreeDensity
    key: PRNGKeyArray
    budget: Budget | None
    flow: str
    num_particles: int | None
    num_replicates: int | None
    fingerprint: str


def task_of(
    log_density: Callable[[Any], Array],
    shape: int | Sequence[int] | Mapping[str, int | Sequence[int]] | None = None,
    support: Support | Mapping[str, Support] = None,
    *,
    seed: int = 0,
    budget: Budget | str | float | None = None,
    flow: str = "auto",
    num_particles: int | None = None,
    num_replicates: int | None = None,
) -> Task:
    """The task that these arguments of `sample` describe.

    Raises:
        InvalidInputError: If they do not fit together.
    """
    if not callable(log_density):
        raise InvalidInputError(
            f"log_density must be a function of one point; got {log_density!r}"
        )
    if shape is None:
        shape = getattr(log_density, "shape", None)
    if shape is None:
        raise InvalidInputError(
            "shape is needed: the shape of one point such as (2,), or a dict of "
            "shapes by name"
        )
    if flow not in ("auto", "none", *FAMILIES):
        raise InvalidInputError(
            f"unknown flow {flow!r}; use 'auto', 'none', or one of {list(FAMILIES)}"
        )
    _check_count("num_particles", num_particles)
    _check_count("num_replicates", num_replicates)
    space = Space(shape, support)
    density = FreeDensity(log_density, space)
    density.check()
    key = _key(seed)
    allowed = as_budget(budget)
    numbers = (int(seed), flow, num_particles, num_replicates)
    spending = allowed and dataclasses.astuple(allowed)
    return Task(
        space=space,
        density=density,
        key=key,
        budget=allowed,
        flow=flow,
        num_particles=num_particles,
        num_replicates=num_replicates,
        fingerprint=fingerprint((log_density, shape, support, *numbers, spending)),
    )


def _check_count(name: str, value: int | None) -> None:
    if value is not None and (int(value) != value or value < 2):
        raise InvalidInputError(
            f"{name} must be a whole number of at least 2, got {value}"
        )


def _key(seed: int) -> PRNGKeyArray:
    if isinstance(seed, bool) or int(seed) != seed or not 0 <= seed < 2**32:
        raise InvalidInputError(
            f"seed must be a whole number from 0 to {2**32 - 1}, got {seed!r}"
        )
    return jr.key(int(seed))

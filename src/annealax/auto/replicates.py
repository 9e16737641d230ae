"""Replicates on workers: runs that know nothing of each other, in other processes.

A run is the same program with the same key wherever it is made, so the answer is the
same to the bit. What travels is the sampler, with the density in it, and back the
result.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import cloudpickle
import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.bijections import AbstractBijection
from jaxtyping import PRNGKeyArray

from annealax._keys import key_message, named_key, read_key
from annealax._result import Result
from annealax._sampler import Sampler
from annealax._work.executors import Workers, as_message, settings_as, settings_here
from annealax.auto.tuning import run_pass

Keep = Callable[[str, Callable[[], Result]], Result]


def on_workers(
    workers: Workers,
    sampler: Sampler,
    flows: AbstractBijection | None,
    key: PRNGKeyArray,
    indices: range,
    keep: Keep,
) -> dict[int, Result]:
    """Replicates by their index; those that are kept already are not made again.

    Args:
        workers: Where.
        sampler: The sampler.
        flows: Its flows, if any.
        key: Random key of all replicates.
        indices: Which.
        keep: Computes a replicate unless it was kept, and keeps it as it comes.

    Raises:
        InvalidInputError: If the density cannot be sent.
    """
    found = {index: each for index in indices if (each := _kept(keep, index))}
    missing = [index for index in indices if index not in found]
    message = as_message((sampler, flows), "the density")
    tasks = [
        (message, key_message(named_key(key, index)), settings_here())
        for index in missing
    ]
    for position, leaves in workers.each(_run, tasks):
        index = missing[position]
        result = jax.tree.map(jnp.asarray, leaves)
        found[index] = keep(_name(index), functools.partial(_itself, result))
    return found


def _itself(result: Result) -> Result:
    return result


def _name(index: int) -> str:
    return f"replicate-{index + 1}"


class _NotKeptError(Exception):
    """There is no such replicate yet."""


def _kept(keep: Keep, index: int) -> Result | None:
    def missing() -> Any:
        raise _NotKeptError

    with contextlib.suppress(_NotKeptError):
        return keep(_name(index), missing)
    return None


def _run(message: bytes, key: tuple[Any, ...], settings: dict[str, Any]) -> Result:
    """What a worker is asked."""
    with settings_as(settings):
        # Read here: a density that is traced takes its precision from the settings.
        sampler, flows = cloudpickle.loads(message)
        result = run_pass(sampler, read_key(key), flows)
        arrays, rest = eqx.partition(result, eqx.is_array)
        return eqx.combine(jax.device_get(arrays), rest)

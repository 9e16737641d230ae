"""Replicates elsewhere: runs that know nothing of each other, on devices or workers.

A run is the same program with the same key wherever it is made, so the answer is the
same to the bit. To workers, which are other processes, the sampler travels, with the
density in it, and back the result; to the other devices of this process, the program.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
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
from annealax._work.copies import devices_for_tasks, num_devices_of, side_by_side
from annealax._work.drive import Program
from annealax._work.executors import Workers, as_message, settings_as, settings_here
from annealax.auto.tuning import compile_runs, run_pass

Keep = Callable[[str, Callable[[], Result]], Result]

Elsewhere = Callable[[PRNGKeyArray, range, Keep], dict[int, Result]]


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
    message = as_message((sampler, flows), "the density")

    def made(missing: list[int]) -> Iterator[tuple[int, Result]]:
        tasks = [
            (message, key_message(named_key(key, index)), settings_here())
            for index in missing
        ]
        return workers.each(_run, tasks)

    return _all_of(indices, keep, made)


class OnDevices:
    """Replicates on the devices of this process, which take turns.

    Args:
        sampler: The sampler.
        flows: Its flows, if any.

    Attributes:
        num_used: Devices that made some.
    """

    def __init__(self, sampler: Sampler, flows: AbstractBijection | None):
        self._sampler, self._flows, self.num_used = sampler, flows, 1

    def __call__(
        self, key: PRNGKeyArray, indices: range, keep: Keep
    ) -> dict[int, Result]:
        """As `on_workers`."""

        def made(missing: list[int]) -> Iterator[tuple[int, Result]]:
            programs = self._programs[: len(missing)]
            self.num_used = max(self.num_used, num_devices_of(programs))
            calls = [functools.partial(_on_host, each.run) for each in programs]
            return side_by_side(calls, [(named_key(key, each),) for each in missing])

        return _all_of(indices, keep, made)

    @functools.cached_property
    def _programs(self) -> list[Program]:
        return compile_runs(self._sampler, self._flows, len(devices_for_tasks()))


def elsewhere(
    workers: Workers | None, sampler: Sampler, flows: AbstractBijection | None
) -> "Elsewhere | OnDevices | None":
    """What makes several replicates at once; None where one is made after the other.

    Args:
        workers: Workers, if there are any.
        sampler: The sampler.
        flows: Its flows, if any.
    """
    if workers is not None:
        return functools.partial(on_workers, workers, sampler, flows)
    # A density without gradient is not JAX; its calls are spread, not its particles.
    if len(devices_for_tasks()) < 2 or not sampler.kernel.needs_gradient:
        return None
    return OnDevices(sampler, flows)


def num_devices_used(
    makes: "Elsewhere | OnDevices | None", results: list[Result]
) -> int:
    """Devices of this process, or of each worker, that made the replicates."""
    used = max(each.num_devices for each in results)
    return max(used, makes.num_used) if isinstance(makes, OnDevices) else used


def _all_of(
    indices: range,
    keep: Keep,
    made: Callable[[list[int]], Iterator[tuple[int, Result]]],
) -> dict[int, Result]:
    """Replicates by their index: those that are kept, and what is made of the rest."""
    found = {index: each for index in indices if (each := _kept(keep, index))}
    missing = [index for index in indices if index not in found]
    for position, leaves in made(missing) if missing else ():
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
        return _on_host(lambda key: run_pass(sampler, key, flows), read_key(key))


def _on_host(run: Callable[[PRNGKeyArray], Result], key: PRNGKeyArray) -> Result:
    arrays, rest = eqx.partition(run(key), eqx.is_array)
    return eqx.combine(jax.device_get(arrays), rest)

"""Several processes that do the same work, each with some of the particles.

Every process runs the same program on the same numbers, so nothing has to be told but
what may differ: what a clock or a signal says, and what is in a folder. There the
first process decides. Only the commands switch this on (`annealax run --distributed`):
whoever calls `jax.distributed.initialize` by himself may want processes that work
apart.
"""

from typing import Any, TypeVar

import jax
import numpy as np
from jax._src import distributed  # its barrier has no public name
from jax.experimental import multihost_utils

_T = TypeVar("_T", int, float, bool)

_WAIT_SECONDS = 1800.0
"""For the slowest process to compile."""

_state = {"together": False, "first": True, "meetings": 0}


def work_together() -> None:
    """From now on processes agree; `jax.distributed` is initialised."""
    _state["together"] = jax.process_count() > 1
    _state["first"] = jax.process_index() == 0


def part() -> None:
    """From now on every process is alone: none waits for one that is lost."""
    if together():
        _state["together"] = False
        jax.distributed.shutdown()


def together() -> bool:
    """Whether several processes do this work."""
    return bool(_state["together"])


def is_first() -> bool:
    """Whether this is the process that writes and speaks."""
    return bool(_state["first"])


def agreed(number: _T) -> _T:
    """What the first process says."""
    if not together():
        return number
    told = multihost_utils.broadcast_one_to_all(np.asarray(number, np.float32))
    return type(number)(np.asarray(told).item())


def agreed_bytes(content: bytes | None) -> bytes | None:
    """What the first process has; None if it has nothing."""
    if not together():
        return content
    length = -1 if content is None else len(content)
    length = int(multihost_utils.broadcast_one_to_all(np.asarray(length, np.int32)))
    if length < 0:
        return None
    sent = np.zeros(length, np.uint8)
    if is_first() and content is not None:
        sent = np.frombuffer(content, np.uint8)
    told: Any = multihost_utils.broadcast_one_to_all(sent)
    return np.asarray(told).tobytes()


def meet(what: str) -> None:
    """Wait for all processes, for as long as the slowest needs to compile.

    The wires between them give up much earlier.
    """
    if not together():
        return
    _state["meetings"] += 1
    name = f"annealax-{_state['meetings']}-{what}"
    client = distributed.global_state.client
    assert client is not None
    client.wait_at_barrier(name, int(1000 * _WAIT_SECONDS))

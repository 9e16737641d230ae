"""Timing on a machine that may be busy: best of n, interleaved, in gemm units.

Everything that is compared runs in one process and in turns, so that a disturbance hits
all of it, and the best of the rounds is what counts. The unit is one gemm: a float32
product of 2000x1024 by 1024x1024.
"""

import math
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from rich.console import Console
from rich.table import Table

_SHORT = 0.02  # seconds; shorter calls are repeated within a round


class Compiled(NamedTuple):
    """A compiled function with the time it took to get there.

    Attributes:
        call: The function.
        trace_seconds: From Python to what the compiler takes.
        compile_seconds: From there to the executable.
        cpu_seconds: Processor time of both, which a busy machine does not change much.
    """

    call: Callable
    trace_seconds: float
    compile_seconds: float
    cpu_seconds: float

    @property
    def seconds(self) -> float:
        """From Python to executable."""
        return self.trace_seconds + self.compile_seconds


def compile_ahead(function: Callable, *args: Any) -> Compiled:
    """Trace and compile a function for these arguments, timing both."""
    began, cpu_began = time.perf_counter(), time.process_time()
    lowered = eqx.filter_jit(function).lower(*args)
    traced = time.perf_counter()
    compiled = lowered.compile()
    done = time.perf_counter()
    cpu = time.process_time() - cpu_began
    return Compiled(compiled, traced - began, done - traced, cpu)


class Timing(NamedTuple):
    """Best times of a call, in seconds.

    Attributes:
        wall: Time that passed; what counts, on a quiet machine.
        cpu: Processor time, over all threads; what can be trusted on a busy one.
    """

    wall: float
    cpu: float


def measure(
    calls: Mapping[str, Callable[[], Any]], *, rounds: int = 5
) -> dict[str, Timing]:
    """Best times of each call over rounds that take them in turns.

    Every call runs before, to warm up. Calls that take under 20 ms are repeated up to
    ten times in each round.
    """
    repeats = {name: _repeats(_time(call, 2).wall) for name, call in calls.items()}
    best = dict.fromkeys(calls, Timing(math.inf, math.inf))
    for _ in range(rounds):
        for name, call in calls.items():
            new = _time(call, repeats[name])
            best[name] = Timing(*map(min, best[name], new))
    return best


def _repeats(seconds: float) -> int:
    return max(1, min(10, int(_SHORT / max(seconds, 1e-6))))


def _time(call: Callable[[], Any], repeats: int) -> Timing:
    """Best wall time of one repeat; mean processor time, whose clock is coarse."""
    wall, cpu_began = math.inf, time.process_time()
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call())
        wall = min(wall, time.perf_counter() - began)
    return Timing(wall, (time.process_time() - cpu_began) / repeats)


def gemm_call() -> Callable[[], Any]:
    """The unit as a call, to be measured in turns with what it is compared with."""
    key_a, key_b = jr.split(jr.key(0))
    a = jr.normal(key_a, (2000, 1024), jnp.float32)
    b = jr.normal(key_b, (1024, 1024), jnp.float32)
    product = jax.jit(jnp.matmul).lower(a, b).compile()
    return lambda: product(a, b)


def gemm() -> Timing:
    """The unit: best of 20."""
    return measure({"gemm": gemm_call()}, rounds=20)["gemm"]


def peak_memory() -> float:
    """Largest resident memory of this process so far, in GB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e9 if sys.platform == "darwin" else 1e6)


def load() -> float:
    """Processes that wait for a processor, over the last minute, per processor."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """A small table; the first column is text, the others are numbers."""
    table = Table(title=title, title_justify="left")
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 120).print(table)

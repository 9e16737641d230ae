"""One process with two threads, one with two devices, two with one core each: PIMH.

    python benchmarks/processes.py                     phi^4 and the Cox process
    python benchmarks/processes.py --workloads lgcp --rounds 20

The same proposals are made by one process that uses all cores for one pass, by one
whose two devices make passes of their own, and by two processes of one thread each.
They take turns in short rounds, which are compared one by one, so that what else the
machine does meets all three alike; medians of these ratios are shown, by the clock and
by processor time. On a quiet machine two processes that take less processor time are
also faster by the clock, since they keep both cores busy; with other work on the cores
the clock says little. Compilation is left out.
"""

import argparse
import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np

_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
_TWO_DEVICES = "--xla_force_host_platform_device_count=2"

_WAYS = {
    "threads": (1, ""),
    "devices": (1, f"{_ONE_THREAD} {_TWO_DEVICES}"),
    "processes": (2, _ONE_THREAD),
}
"""Processes of each way, and what XLA is told there."""

_made: dict[tuple[str, int], Callable[[range], None]] = {}


class Spent(NamedTuple):
    """What some passes took.

    Attributes:
        seconds: By the clock.
        processor: Of all cores.
    """

    seconds: float
    processor: float


def _passes(name: str, particles: int, indices: range) -> Spent:
    """In a process of its own: these passes, side by side on all devices."""
    if (name, particles) not in _made:
        _made[name, particles] = _prepare(name, particles)
        _made[name, particles](range(2))
    began, before = time.perf_counter(), time.process_time()
    _made[name, particles](indices)
    return Spent(time.perf_counter() - began, time.process_time() - before)


def _prepare(name: str, particles: int) -> Callable[[range], None]:
    # Here: in the process that starts the others JAX is not needed.
    import jax.random as jr  # noqa: PLC0415

    import annealax as ax  # noqa: PLC0415
    from _workloads import WORKLOADS  # noqa: PLC0415
    from annealax._work.copies import side_by_side  # noqa: PLC0415
    from annealax.experiments.evaluation import compile_passes  # noqa: PLC0415

    workload = WORKLOADS[name](particles)
    sampler = workload.sampler
    flows = ax.flows.replicate(workload.flow, sampler.path.num_transitions)
    programs = compile_passes(sampler, flows, 2)
    calls = [each.run for each in programs]

    def make(indices: range) -> None:
        tasks = [(jr.fold_in(jr.key(0), index),) for index in indices]
        for _ in side_by_side(calls, tasks):
            pass

    return make


@contextlib.contextmanager
def _pool(count: int, flags: str) -> Iterator[list[ProcessPoolExecutor]]:
    """Processes, each of them a pool, so that one can be asked for."""
    spawn = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        os.environ["XLA_FLAGS"] = flags
        pools = [
            stack.enter_context(ProcessPoolExecutor(1, spawn)) for _ in range(count)
        ]
        for pool in pools:
            pool.submit(os.getpid).result()  # starts it, with these flags
        yield pools


def _round(pools: list[ProcessPoolExecutor], *what: Any, passes: int) -> Spent:
    share = passes // len(pools)
    began = time.perf_counter()
    futures: list[Future[Spent]] = [
        pool.submit(_passes, *what, range(i * share, (i + 1) * share))
        for i, pool in enumerate(pools)
    ]
    spent = [each.result() for each in futures]
    seconds = time.perf_counter() - began
    return Spent(seconds / passes, sum(each.processor for each in spent) / passes)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", nargs="*", default=["phi4", "lgcp"])
    parser.add_argument("--particles", type=int, default=500)
    parser.add_argument("--passes", type=int, default=2, help="in each round")
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        pools = {way: stack.enter_context(_pool(*_WAYS[way])) for way in _WAYS}
        for name in args.workloads:
            what, loads = (name, args.particles), []
            for way in _WAYS:  # compiles
                _round(pools[way], *what, passes=args.passes)
            found: dict[str, list[Spent]] = {way: [] for way in _WAYS}
            for turn in range(args.rounds):
                loads.append(os.getloadavg()[0])
                for way in sorted(_WAYS, reverse=turn % 2 == 1):
                    found[way].append(_round(pools[way], *what, passes=args.passes))
            print(
                f"{name}, {args.particles} particles, {args.rounds} rounds, load "
                f"{min(loads):.1f} to {max(loads):.1f}"
            )
            base = np.asarray(found["threads"])
            for way, spent in found.items():
                times = np.asarray(spent)
                clock, processor = np.median(base / times, axis=0)
                low, high = np.quantile(base[:, 0] / times[:, 0], [0.25, 0.75])
                print(
                    f"  {way:<10} {np.median(times[:, 0]):.3f} s a proposal, "
                    f"{np.median(times[:, 1]):.3f} of the processor; {clock:.2f} times "
                    f"as fast as threads (quartiles {low:.2f}, {high:.2f}), with "
                    f"{1 / processor:.2f} times the processor time"
                )


if __name__ == "__main__":
    main()

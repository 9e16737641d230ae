"""Two processes of one core each against one process with two threads: PIMH.

    python benchmarks/processes.py                     phi^4 and the Cox process
    python benchmarks/processes.py --workloads lgcp --steps 20

The same chain, whose proposals are made by one process that uses all cores for one
pass, or by two that use one each for passes of their own (`executor=`). They take
turns, and the best round counts; compilation is left out.
"""

import argparse
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import jax.random as jr
import numpy as np

import annealax as ax
from _timing import print_table
from _workloads import WORKLOADS


def _chain(sampler: ax.Sampler, flows: Any, steps: int, executor: Any) -> ax.Chain:
    return ax.pimh(
        jr.key(0),
        lambda key: sampler.run(key, flows),
        num_steps=steps,
        executor=executor,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", nargs="*", default=["phi4", "lgcp"])
    parser.add_argument("--particles", type=int, default=500)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    # For the processes that are spawned below: JAX is running here already.
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    spawn = multiprocessing.get_context("spawn")
    rows = []
    with ProcessPoolExecutor(2, spawn) as pool:
        for name in args.workloads:
            workload = WORKLOADS[name](args.particles)
            sampler = workload.sampler
            flows = ax.flows.replicate(workload.flow, sampler.path.num_transitions)
            best = {}
            for _ in range(args.rounds):
                for what, executor in (("threads", None), ("processes", pool)):
                    chain = _chain(sampler, flows, args.steps, executor)
                    seconds = chain.seconds / args.steps
                    best[what] = min(seconds, best.get(what, np.inf))
                    print(f"{name}, {what}: {seconds:.3f} s a proposal", flush=True)
            one, two = best["threads"], best["processes"]
            rows.append([name, f"{one:.3f}", f"{two:.3f}", f"{one / two:.2f}"])
    columns = ["", "one process, threads (s)", "two processes (s)", "times as fast"]
    load = os.getloadavg()[0]
    title = f"A proposal of PIMH, {args.particles} particles; load {load:.1f}"
    print_table(title, columns, rows)


if __name__ == "__main__":
    main()

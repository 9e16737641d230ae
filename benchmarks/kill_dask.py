"""Kill -9 of one of three workers of Dask at random moments: the work just goes on.

    python benchmarks/kill_dask.py             ten times
    python benchmarks/kill_dask.py --trials 2

Chains of particle MCMC whose proposals are made on three workers; in each, one worker
is killed at a random moment of the first half, and a fourth joins. What is checked: the
chain is that of one process, to the bit, and the one that joined got work. (Dask starts
a killed worker again by itself.)
"""

import argparse
import logging
import os
import random
import signal
import threading
import time
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np

import annealax as ax


def _log_density(x):
    return -0.5 * jnp.sum(((x - 1.0) / 0.5) ** 2)


def _chain(steps: int, executor: Any = None) -> ax.Chain:
    path = ax.GeometricPath((2,), _log_density, 4)
    sampler = ax.Sampler(path, ax.kernels.HMC(0.3), num_particles=2000)
    return ax.pimh(jr.key(0), sampler.run, num_steps=steps, executor=executor)


def _same(one: ax.Chain, other: ax.Chain) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("log_normalizer", "proposed_log_normalizer", "accepted")
    )


class _Trouble(threading.Thread):
    """Kills a worker after some seconds, has another one join, and watches it."""

    def __init__(self, cluster: Any, client: Any, seconds: float, chance: Any):
        super().__init__()
        self._cluster, self._client, self._seconds = cluster, client, seconds
        self._chance = chance
        self._over = threading.Event()
        self.killed, self.joined, self.was_used = "", "", False

    def run(self) -> None:
        if self._over.wait(self._seconds):
            return
        workers = self._client.run(os.getpid)
        self.killed = self._chance.choice(sorted(workers))
        os.kill(workers[self.killed], signal.SIGKILL)
        self._cluster.scale(4)
        while not self._over.wait(0.02):
            for name, tasks in self._client.processing().items():
                if name not in workers:
                    self.joined = name
                    self.was_used |= bool(tasks)

    def end(self) -> None:
        self._over.set()
        self.join()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--steps", type=int, default=20_000, help="of each chain")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    from dask.distributed import Client, LocalCluster  # noqa: PLC0415

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    chance, good = random.Random(args.seed), 0
    alone = _chain(args.steps)
    print(f"one process: {alone.seconds:.0f} s", flush=True)
    for trial in range(args.trials):
        options = {"threads_per_worker": 1, "dashboard_address": None}
        with LocalCluster(n_workers=3, **options) as cluster, Client(cluster) as client:
            seconds = chance.uniform(0.0, 0.5) * (15 + alone.seconds)
            trouble = _Trouble(cluster, client, seconds, chance)
            began = time.monotonic()
            trouble.start()
            try:
                found = _chain(args.steps, client)
            finally:
                trouble.end()
        same = _same(alone, found)
        good += bool(same and trouble.killed and trouble.was_used)
        took = time.monotonic() - began
        print(
            f"{trial}: killed a worker after {seconds:.1f} of {took:.0f} s: "
            f"{bool(trouble.killed)}, one that joined got work: {trouble.was_used}, "
            f"the same bits: {same}",
            flush=True,
        )
    print(f"{good} of {args.trials} as they should be")


if __name__ == "__main__":
    main()

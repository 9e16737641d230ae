"""What two processes exchange, and how long it takes, against docs/scale.md.

    python benchmarks/exchange.py
    python benchmarks/exchange.py --particles 400000 --dim 10

Two processes on this machine measure the latency and the bandwidth of an exchange, and
passes of one transition that resamples and one that does not, in rounds in which all
take turns. The difference should be the latencies and bytes that the model counts for
global resampling, and what choosing and picking particles takes.
"""

import argparse
import os
import socket
import subprocess
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import PartitionSpec as P

import annealax as ax

_ROUNDS = 40


def _in_turn(calls) -> np.ndarray:
    """Seconds of each call, a row for each round, in which all of them take turns."""
    for call in calls:
        jax.block_until_ready(call())
    rounds = []
    for _ in range(_ROUNDS):
        times = []
        for call in calls:
            began = time.perf_counter()
            jax.block_until_ready(call())
            times.append(time.perf_counter() - began)
        rounds.append(times)
    return np.asarray(rounds)


def _exchange(mesh, numbers: int, times: int):
    """Exchanges so many numbers so many times in a row."""

    def here(start):
        x = jnp.full(numbers, start)
        swap = [(0, 1), (1, 0)]
        turn = lambda _, x: jax.lax.ppermute(x, "particles", swap) + 1  # noqa: E731
        return jnp.sum(jax.lax.fori_loop(0, times, turn, x))

    run = jax.jit(
        jax.shard_map(here, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    )
    return lambda: run(1.0)


def _pass(mesh, particles: int, dim: int, resampler):
    path = ax.GeometricPath((dim,), lambda x: -jnp.sum((x - 1) ** 2), 1)
    sampler = ax.Sampler(path, None, resampler, num_particles=particles, mesh=mesh)
    run = eqx.filter_jit(lambda key: sampler.run(key).log_normalizer)
    return lambda: run(jr.key(0))


def _measure(args: argparse.Namespace) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    address = f"127.0.0.1:{args.port}"
    jax.distributed.initialize(address, 2, args.rank)
    mesh = jax.make_mesh((2,), ("particles",))
    count, dim = args.particles, args.dim
    large = count // 2 * (dim + 3)  # no gradients, which only kernels need
    calls = [
        _exchange(mesh, 1, 100),
        _exchange(mesh, large, 5),
        _pass(mesh, count, dim, ax.ESSResampling(1.0)),
        _pass(mesh, count, dim, ax.NoResampling()),
    ]
    seconds = _in_turn(calls)
    quick, slow = np.median(seconds[:, 0]) / 100, np.median(seconds[:, 1]) / 5
    bandwidth = 4 * large / (slow - quick)
    # Log weights of the half that is elsewhere, the particles once around, one turn.
    expected = 4 * (count // 2 + large) / bandwidth + 2 * quick
    more = seconds[:, 2] - seconds[:, 3]
    middle_without = 1e3 * np.median(seconds[:, 3])
    low, middle, high = 1e3 * np.quantile(more, [0.25, 0.5, 0.75])
    if args.rank == 0:
        print(
            f"an exchange takes {1e6 * quick:.0f} us and brings "
            f"{bandwidth / 1e6:.0f} MB/s; a pass that resamples {count} particles of "
            f"{dim} coordinates takes {middle:.1f} ms (quartiles {low:.1f}, "
            f"{high:.1f}) longer than one that does not ({middle_without:.0f} ms); "
            f"exchange is {1e3 * expected:.1f} ms of it by the model; load "
            f"{os.getloadavg()[0]:.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--particles", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=10)
    parser.add_argument("--rank", type=int, help="used by the script itself")
    parser.add_argument("--port", type=int, help="used by the script itself")
    args = parser.parse_args()
    if args.rank is not None:
        _measure(args)
        return
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [sys.executable, *sys.argv, "--port", str(port), "--rank"]
    both = [subprocess.Popen([*command, str(rank)]) for rank in range(2)]
    sys.exit(max(abs(process.wait()) for process in both))


if __name__ == "__main__":
    main()

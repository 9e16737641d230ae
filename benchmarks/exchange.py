"""What two processes exchange, and how long it takes, against docs/scale.md.

    python benchmarks/exchange.py
    python benchmarks/exchange.py --particles 400000 --dim 10

Two processes on this machine measure the latency and the bandwidth of an exchange, and
then passes of one transition that resamples and one that does not. The difference
should be the latencies and bytes that the model counts for global resampling.
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


def _best(call) -> float:
    jax.block_until_ready(call())
    best = np.inf
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        jax.block_until_ready(call())
        best = min(best, time.perf_counter() - began)
    return best


def _exchange_seconds(mesh, numbers: int, times: int) -> float:
    """One exchange of so many numbers, of so many in a row."""

    def here(start):
        x = jnp.full(numbers, start)
        swap = [(0, 1), (1, 0)]
        turn = lambda _, x: jax.lax.ppermute(x, "particles", swap) + 1  # noqa: E731
        return jnp.sum(jax.lax.fori_loop(0, times, turn, x))

    run = jax.jit(
        jax.shard_map(here, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    )
    return _best(lambda: run(1.0)) / times


def _pass_seconds(mesh, particles: int, dim: int, resampler) -> float:
    path = ax.GeometricPath((dim,), lambda x: -jnp.sum((x - 1) ** 2), 1)
    sampler = ax.Sampler(path, None, resampler, num_particles=particles, mesh=mesh)
    run = eqx.filter_jit(lambda key: sampler.run(key).log_normalizer)
    return _best(lambda: run(jr.key(0)))


def _measure(args: argparse.Namespace) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    address = f"127.0.0.1:{args.port}"
    jax.distributed.initialize(address, 2, args.rank)
    mesh = jax.make_mesh((2,), ("particles",))
    count, dim = args.particles, args.dim
    latency = _exchange_seconds(mesh, 1, 100)
    large = count // 2 * (dim + 3)  # no gradients, which only kernels need
    bandwidth = 4 * large / (_exchange_seconds(mesh, large, 5) - latency)
    with_it = _pass_seconds(mesh, count, dim, ax.ESSResampling(1.0))
    without = _pass_seconds(mesh, count, dim, ax.NoResampling())
    # Log weights of the half that is elsewhere, the particles once around, one turn.
    expected = 4 * (count // 2 + large) / bandwidth + 2 * latency
    more = with_it - without
    if args.rank == 0:
        print(
            f"an exchange takes {1e6 * latency:.0f} us and brings "
            f"{bandwidth / 1e6:.0f} MB/s; a pass that resamples {count} particles of "
            f"{dim} coordinates takes {1e3 * more:.0f} ms longer than one that does "
            f"not ({1e3 * without:.0f} ms); exchange is {1e3 * expected:.0f} ms of it "
            f"by the model; load {os.getloadavg()[0]:.1f}"
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

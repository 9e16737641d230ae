"""CRAFT as a pipeline: speed-up over one device, and how long devices are idle.

    python benchmarks/pipeline.py              two devices, many well
    python benchmarks/pipeline.py --devices 4  virtual ones of a processor

One device makes S passes of K temperatures; D devices make them in S + D - 1 ticks of
K / D temperatures, rounded up. The model has no cost but that. A device that waits
takes no processor time: the idle share is what processor time leaves of D times the
time that passed. Other work on the machine lowers the one and raises the other;
processor time of all devices over that of one says what the pipeline itself costs.
"""

import argparse
import functools
import os

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax

import annealax as ax
from _timing import measure, print_table
from _workloads import many_well_affine


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--particles", type=int, default=2000)
    parser.add_argument("--temperatures", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3, help="best of how many rounds")
    parser.add_argument(
        "--passes", type=int, nargs="*", default=[1, 2, 5, 20, 100], help="in a call"
    )
    args = parser.parse_args()
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"  # a core for each
    jax.config.update("jax_num_cpu_devices", args.devices)

    size = args.devices
    workload = many_well_affine(args.particles)
    path = ax.GeometricPath((32,), workload.sampler.path.target, args.temperatures)
    kernel = workload.sampler.kernel
    sampler = ax.Sampler(path, kernel, num_particles=args.particles)
    alone = ax.Sampler(
        path,
        kernel,
        num_particles=args.particles,
        mesh=jax.sharding.Mesh(jax.devices()[:1], ("particles",)),
    )
    mesh = jax.make_mesh((size,), ("temperatures",))
    optimizer = optax.adam(1e-3)
    trainers = {
        "one device": ax.CRAFT(alone, optimizer),
        "particles travel": ax.Pipeline(
            ax.CRAFT(sampler, optimizer), mesh, "particles"
        ),
        "flows travel": ax.Pipeline(ax.CRAFT(sampler, optimizer), mesh, "flows"),
    }
    share = -(-args.temperatures // size)
    capacity, programs = max(args.passes), {}
    for name, trainer in trainers.items():
        state = trainer.init(jr.key(0), workload.flow)

        def steps(key, state, count, trainer=trainer):
            return trainer.steps(key, state, jnp.asarray(0), count, capacity)[1].loss

        arguments = (jr.key(1), state)
        lowered = eqx.filter_jit(steps).lower(*arguments, jnp.asarray(1))
        programs[name] = (lowered.compile(), arguments)
    rows = []
    for count in args.passes:
        calls = {
            name: functools.partial(program, *arguments, jnp.asarray(count))
            for name, (program, arguments) in programs.items()
        }
        found = measure(calls, rounds=args.rounds)
        one = found.pop("one device")
        ticks = count + size - 1
        for name, each in found.items():
            rows.append(
                [
                    f"{count} passes, {name}",
                    f"{one.wall / each.wall:.2f}",
                    f"{count * args.temperatures / (ticks * share):.2f}",
                    f"{1 - each.cpu / (size * each.wall):.0%}",
                    f"{1 - count * args.temperatures / (size * ticks * share):.0%}",
                    f"{each.cpu / one.cpu:.2f}",
                ]
            )
    columns = ["", "speed-up", "model", "idle", "model", "CPU / one device"]
    print_table(
        f"{args.temperatures} temperatures on {size} devices, "
        f"{args.particles} particles; load {os.getloadavg()[0]:.1f}",
        columns,
        rows,
    )


if __name__ == "__main__":
    main()

"""Memory of a training step against the number of temperatures: SNF and CRAFT.

    python benchmarks/memory.py            500 particles in 32 dimensions
    python benchmarks/memory.py --quick    50 particles, 2 and 4 temperatures

SNF differentiates through the whole pass and must keep what it went through, at every
temperature; CRAFT needs one temperature at a time. The numbers are what the compiler
sets aside for intermediate results, so nothing is run, and the machine does not matter.
"""

import argparse

import equinox as eqx
import jax.random as jr
import optax

import annealax as ax
from _timing import print_table


def trainers(num_transitions: int, num_particles: int) -> dict[str, ax.AbstractTrainer]:
    path = ax.GeometricPath((32,), ax.targets.ManyWell(32), num_transitions)
    sampler = ax.Sampler(path, ax.kernels.HMC(0.1, 10), num_particles=num_particles)
    adam = optax.adam(1e-3)
    return {
        "CRAFT": ax.CRAFT(sampler, adam),
        "SNF": ax.SNF(sampler, adam, rematerialise=False),
        "SNF, rematerialised": ax.SNF(sampler, adam),
    }


def temporary_megabytes(trainer: ax.AbstractTrainer) -> float:
    state = trainer.init(jr.key(0), ax.flows.diagonal_affine(None, 32))
    # eqx.filter_jit wraps the compiled program; the analysis is that of jax's own.
    compiled = eqx.filter_jit(trainer.step).lower(jr.key(0), state).compile()
    return compiled.compiled.memory_analysis().temp_size_in_bytes / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="smaller, for a smoke test"
    )
    args = parser.parse_args()
    ladders, num_particles = ((2, 4), 50) if args.quick else ((5, 10, 20, 40), 500)
    columns = {k: trainers(k, num_particles) for k in ladders}
    rows = [
        [name, *(f"{temporary_megabytes(columns[k][name]):.2f}" for k in ladders)]
        for name in columns[ladders[0]]
    ]
    print_table(
        f"Temporary memory of a training step, MB, {num_particles} particles in 32-d",
        ["method", *(f"{k} temperatures" for k in ladders)],
        rows,
    )


if __name__ == "__main__":
    main()

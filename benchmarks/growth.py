"""How the cost of a particle and coordinate grows with their number: it should not.

    python benchmarks/growth.py            10^3 to 10^6 particles, lattices to 128 x 128
    python benchmarks/growth.py --quick    small ones, for a smoke test
    python benchmarks/growth.py --plain    all particles in one block, as before

Processor time of a deployment pass over particles, coordinates and transitions, divided
by that of the first row of its table. Peak memory is that of the whole process so far.
"""

import argparse
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax.random as jr
from flowjax.bijections import AbstractBijection

import annealax as ax
from _timing import measure, peak_memory, print_table


class Case(NamedTuple):
    """A pass.

    Attributes:
        name: What it is.
        path: The annealing path.
        flow: The flow of each transition.
        num_particles: Number of particles.
    """

    name: str
    path: ax.GeometricPath
    flow: AbstractBijection
    num_particles: int

    @property
    def sites(self) -> int:
        """Coordinates, over particles and transitions."""
        size = self.path.betas.size - 1
        for length in self.path.shape:
            size *= length
        return size * self.num_particles


def many_well(dim: int, num_particles: int, num_transitions: int = 4) -> Case:
    path = ax.GeometricPath((dim,), ax.targets.ManyWell(dim), num_transitions)
    flow = ax.flows.diagonal_affine(None, (dim,))
    name = f"{num_particles} particles, {dim}-d, {num_transitions} temperatures"
    return Case(name, path, flow, num_particles)


def phi4(length: int, num_particles: int) -> Case:
    shape = (length, length)
    target = ax.targets.Phi4(shape, mass_squared=-4.75, coupling=5.1)
    path = ax.GeometricPath(shape, target, 2)
    flow = ax.flows.diagonal_affine(None, shape)
    return Case(
        f"{num_particles} particles, {length} x {length}", path, flow, num_particles
    )


def tables(quick: bool) -> Iterator[tuple[str, list[Case]]]:
    counts = (100, 200) if quick else (1000, 10_000, 100_000, 1_000_000)
    yield "particles, 10-d", [many_well(10, count) for count in counts]
    lengths = (4, 8) if quick else (14, 32, 64, 128)
    yield "sites of phi^4", [phi4(each, 100 if quick else 500) for each in lengths]
    sizes = (10, 20) if quick else (100, 1000, 10_000)
    yield "coordinates", [many_well(each, 100 if quick else 1000) for each in sizes]
    ladders = (2, 4) if quick else (5, 20, 80)
    yield "temperatures", [many_well(10, 1000 if quick else 10_000, k) for k in ladders]


def measured(case: Case, plain: bool, rounds: int) -> float:
    """Processor seconds of a pass."""
    sampler = ax.Sampler(
        case.path,
        ax.kernels.HMC(0.05, 10),
        num_particles=case.num_particles,
        block_size=case.num_particles if plain else None,
    )
    flows = ax.flows.replicate(case.flow, case.path.num_transitions)
    run = eqx.filter_jit(lambda key: sampler.run(key, flows))
    call = {"pass": lambda: run(jr.key(0))}
    return measure(call, rounds=rounds)["pass"].cpu


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--plain", action="store_true", help="no blocks")
    parser.add_argument("--rounds", type=int, default=3, help="best of how many rounds")
    parser.add_argument("--table", type=int, help="one of them, from 0")
    args = parser.parse_args()
    chosen = slice(args.table, None if args.table is None else args.table + 1)
    for title, cases in itertools.islice(tables(args.quick), chosen.start, chosen.stop):
        rows, first = [], None
        for case in cases:
            cost = measured(case, args.plain, args.rounds) / case.sites
            first = cost if first is None else first
            rows.append(
                [
                    case.name,
                    f"{1e9 * cost:.1f}",
                    f"{cost / first:.2f}",
                    f"{peak_memory():.2f}",
                ]
            )
        columns = ["", "ns, CPU", "over the first", "peak GB"]
        print_table(
            f"Cost per particle, coordinate and transition: {title}", columns, rows
        )


if __name__ == "__main__":
    main()

"""How fast a training iteration and a deployment pass are, against their bare pieces.

    python benchmarks/speed.py                     every workload
    python benchmarks/speed.py lgcp phi4           some of them
    python benchmarks/speed.py --quick             few particles, few rounds

Each workload runs in a process of its own, so that its peak memory is its own.
"""

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import jax
import jax.random as jr
import optax

import _pieces
import annealax as ax
from _timing import (
    Compiled,
    Timing,
    compile_ahead,
    gemm_call,
    load,
    measure,
    peak_memory,
    print_table,
)
from _workloads import WORKLOADS


class Report(NamedTuple):
    """Times of a workload, all from one process.

    Attributes:
        times: Best times, by what was timed.
        compile_seconds: Time to trace and compile, by what was compiled.
        peak: Peak memory of the process in GB.
        load: Load of the machine at the end, per processor.
        goals: Upper bounds, by the name of a line of `ratios`.
    """

    times: dict[str, Timing]
    compile_seconds: dict[str, float]
    peak: float
    load: float
    goals: dict[str, float]

    def ratios(self) -> dict[str, Timing]:
        """What the goals are about, by wall time and by processor time."""
        gemm, gradients = self.times["gemm"], self.times["gradients"]
        bare = {
            kind: _add(
                self.times[f"leapfrogs{suffix}"], self.times[f"random numbers{suffix}"]
            )
            for kind, suffix in (("pieces", ", plain"), ("fastest pieces", ""))
        }
        ratios = {}
        for name, flow in (
            ("training", self.times["flow gradients"]),
            ("deployment", self.times["flow values"]),
        ):
            time = self.times[name]
            ratios[f"{name} (gemm)"] = _divide(time, gemm)
            ratios[f"{name} / gradients"] = _divide(time, gradients)
            for kind, pieces in bare.items():
                ratios[f"{name} / {kind}"] = _divide(time, _add(pieces, flow))
        return ratios


def _add(a: Timing, b: Timing) -> Timing:
    return Timing(a.wall + b.wall, a.cpu + b.cpu)


def _divide(a: Timing, b: Timing) -> Timing:
    return Timing(a.wall / b.wall, a.cpu / b.cpu)


def run_workload(name: str, num_particles: int, rounds: int) -> Report:
    """Compile and time one workload."""
    workload = WORKLOADS[name](num_particles)
    sampler = workload.sampler
    trainer = ax.CRAFT(sampler, optax.adam(1e-3))
    state = jax.block_until_ready(trainer.init(jr.key(0), workload.flow))
    step: Compiled = compile_ahead(trainer.step, jr.key(0), state)
    for index in range(3):  # so that the flows are no longer the identity
        state, _ = step.call(jr.key(index), state)
    flows = state.flows
    run: Compiled = compile_ahead(sampler.run, jr.key(0), flows)
    x = run.call(jr.key(0), flows).x

    times = measure(
        {
            "gemm": gemm_call(),
            "training": lambda: step.call(jr.key(1), state),
            "deployment": lambda: run.call(jr.key(1), flows),
            "gradients": _pieces.gradients(sampler, x),
            "leapfrogs": _pieces.leapfrogs(sampler, x),
            "random numbers": _pieces.random_numbers(sampler),
            "leapfrogs, plain": _pieces.leapfrogs(sampler, x, axis=0),
            "random numbers, plain": _pieces.random_numbers(sampler, plain=True),
            "flow gradients": _pieces.flow_gradients(flows, x),
            "flow values": _pieces.flow_values(flows, x),
        },
        rounds=rounds,
    )
    compiled = {"training": step.seconds, "deployment": run.seconds}
    return Report(times, compiled, peak_memory(), load(), dict(workload.goals))


def print_report(name: str, report: Report) -> None:
    gemm = report.times["gemm"]
    rows = []
    for what, time in report.times.items():
        unit = _divide(time, gemm)
        seconds = report.compile_seconds.get(what)
        rows.append(
            [
                what,
                f"{1e3 * time.wall:.2f}",
                f"{1e3 * time.cpu:.2f}",
                f"{unit.wall:.2f}",
                f"{unit.cpu:.2f}",
                "" if seconds is None else f"{seconds:.1f}",
            ]
        )
    columns = ["", "ms", "ms, CPU", "gemm", "gemm, CPU", "compile (s)"]
    print_table(f"{name}: {WORKLOADS[name].__doc__}", columns, rows)
    rows = []
    for what, ratio in report.ratios().items():
        goal = report.goals.get(what)
        verdict = "" if goal is None else "yes" if ratio.wall <= goal else "no"
        target = "" if goal is None else f"{goal:g}"
        rows.append([what, f"{ratio.wall:.2f}", f"{ratio.cpu:.2f}", target, verdict])
    print_table(
        f"{name}: peak memory {report.peak:.2f} GB, load {report.load:.1f}",
        ["", "wall", "CPU", "goal", "reached"],
        rows,
    )
    if report.load > 1:
        print("The machine is busy: wall times mean little, look at CPU.\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "workload", nargs="*", help=f"any of {', '.join(WORKLOADS)}; all by default"
    )
    parser.add_argument(
        "--quick", action="store_true", help="200 particles and 2 rounds: a smoke test"
    )
    parser.add_argument(
        "--rounds", type=int, default=20, help="best of how many rounds"
    )
    args = parser.parse_args()
    unknown = sorted(set(args.workload) - set(WORKLOADS))
    if unknown:
        parser.error(f"unknown {unknown}; the workloads are {list(WORKLOADS)}")

    num_particles, rounds = (200, 2) if args.quick else (2000, args.rounds)
    with ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        for name in args.workload or WORKLOADS:
            report = pool.submit(run_workload, name, num_particles, rounds).result()
            print_report(name, report)


if __name__ == "__main__":
    main()

"""The ladder matters as much as the flow: phi^4 on 14 x 14 sites, 2000 particles.

    annealax run phi4 --out runs/phi4
    annealax run phi4-tuned --out runs/phi4-tuned
    python benchmarks/phi4_ladders.py --run runs/phi4 --run runs/phi4-tuned --out t.json

prints, for plain SMC on several ladders and for CRAFT with the flows of finished runs,
the mean and the spread over passes of log Z and of the two-point susceptibility, the
time of a pass, and spread^2 x seconds of the susceptibility: smaller is better. Rows
that the output file already has are not computed again.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.random as jr
import numpy as np

import annealax as ax
from annealax.experiments.problems.phi4 import Phi4, Phi4Tuned
from annealax.observables import ising_energy_density, two_point_susceptibility

TUNED = Phi4Tuned()
SMC = {
    "SMC, 10 linear": Phi4(),
    "SMC, 10 quadratic": Phi4(ladder_power=2.0),
    "SMC, 30 quadratic": Phi4(ladder_power=2.0, num_transitions=30),
    "SMC, 90 linear": Phi4(num_transitions=90),
    "SMC, 10 tuned": TUNED,
    "SMC, 20 tuned": TUNED.replace(num_transitions=20),
    "SMC, 30 tuned": TUNED.replace(num_transitions=30),
    "SMC, 45 tuned": TUNED.replace(num_transitions=45),
}


def measure(sampler, flows, num_passes):
    def one(key):
        result = sampler.run(key, flows)
        return jax.block_until_ready(
            (
                result.log_normalizer,
                result.expectation(two_point_susceptibility),
                result.expectation(ising_energy_density),
            )
        )

    one(jr.key(0))
    rows, wall, processor = [], [], []
    for i in range(num_passes):
        began, cpu = time.perf_counter(), time.process_time()
        rows.append([float(value) for value in one(jr.key(1000 + i))])
        wall.append(time.perf_counter() - began)
        processor.append(time.process_time() - cpu)
    return {
        "passes": rows,
        "seconds": float(np.median(wall)),
        "processor_seconds": float(np.median(processor)),
    }


def line(name, row):
    values = np.array(row["passes"])
    mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1)
    cost = spread[1] ** 2 * row["seconds"]
    cpu = spread[1] ** 2 * row["processor_seconds"]
    return (
        f"| {name} | {mean[0]:.2f} +- {spread[0]:.2f} | {mean[1]:.2f} +- "
        f"{spread[1]:.2f} | {row['seconds']:.2f} ({row['processor_seconds']:.2f}) | "
        f"{cost:.3f} ({cpu:.3f}) |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, action="append", default=[])
    parser.add_argument("--passes", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("phi4_ladders.json"))
    arguments = parser.parse_args()
    done = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    print("| sampler | log Z | susceptibility | s a pass (processor) | spread^2 x s |")
    print("|---|---|---|---|---|")
    jobs = {
        name: (settings.problem().sampler(), None) for name, settings in SMC.items()
    }
    for folder in arguments.run:
        run = ax.load_run(folder)
        label = f"CRAFT, {run.name}, {run.settings.num_transitions}"
        jobs[label] = (run.sampler, run.flows)
    for name, (sampler, flows) in jobs.items():
        if name not in done:
            done[name] = measure(sampler, flows, arguments.passes)
            arguments.out.write_text(json.dumps(done))
        print(line(name, done[name]), flush=True)


if __name__ == "__main__":
    main()

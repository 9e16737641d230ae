"""How far estimates of Z are from the truth, over many runs of a trained sampler.

    python benchmarks/accuracy.py many-well --particles 1000 --runs 50 --flows mw.npz

trains the flows of an experiment (or reads them, if the file exists), then prints the
mean of |Z-hat / Z - 1|, the bias and spread of log Z, and the same for plain SMC.
"""

import argparse
from pathlib import Path

import jax.random as jr
import numpy as np

import annealax as ax
from annealax.experiments import EXPERIMENTS, METHODS


def errors(sampler, flows, truth, num_runs):
    log_z = np.array(
        [
            float(sampler.run(jr.key(1000 + i), flows).log_normalizer)
            for i in range(num_runs)
        ]
    )
    ratio = np.exp(log_z - truth)
    return (
        f"mean |Z/Z - 1| {np.abs(ratio - 1).mean():.4f}  "
        f"log Z - truth {log_z.mean() - truth:+.4f}  spread {log_z.std(ddof=1):.4f}  "
        f"mean Z/Z {ratio.mean():.4f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=list(EXPERIMENTS))
    parser.add_argument("--particles", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flows", type=Path, help="file to read or write flows")
    arguments = parser.parse_args()

    problem = EXPERIMENTS[arguments.name]().problem()
    truth = problem.target.log_normalizer
    if truth is None:
        parser.error(f"the exact log Z of {arguments.name} is not known")
    key_flow, key_fit = jr.split(jr.key(arguments.seed))
    if arguments.flows and arguments.flows.exists():
        flows = ax.load(arguments.flows)
    else:
        fit = ax.fit(
            key_fit,
            METHODS["craft"].trainer(problem),
            problem.flow(key_flow),
            num_steps=problem.settings.num_train_steps,
            progress=True,
        )
        flows = fit.flows
        print(
            f"trained in {fit.seconds:.0f} s and {fit.compile_seconds:.0f} s to compile"
        )
        if arguments.flows:
            ax.save(arguments.flows, flows)
    deployed = problem.replace(num_particles=arguments.particles).sampler()
    count = f"{arguments.particles} particles, {arguments.runs} runs"
    print("CRAFT", count, errors(deployed, flows, truth, arguments.runs))
    print("SMC  ", count, errors(deployed, None, truth, arguments.runs))


if __name__ == "__main__":
    main()

"""Log Z over passes: the flows of a finished run beside plain SMC on longer ladders.

    annealax run lgcp --set grid=40 --out runs/lgcp40
    python benchmarks/passes.py runs/lgcp40 --smc 10,30,100 --passes 10 --out t.json
    python benchmarks/passes.py runs/lgcp40 --smc "" --hmc 10 --out t10.json

Rows that the output file already has are not computed again.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.random as jr
import numpy as np

import annealax as ax
from annealax.experiments import METHODS


def measure(sampler, flows, num_passes):
    jax.block_until_ready(sampler.run(jr.key(0), flows))
    rows = []
    for i in range(num_passes):
        began = time.perf_counter()
        result = jax.block_until_ready(sampler.run(jr.key(1000 + i), flows))
        seconds = time.perf_counter() - began
        rows.append(
            [
                float(result.log_normalizer),
                float(result.log_normalizer_stderr),
                float(result.ess) / sampler.num_particles,
                seconds,
            ]
        )
    return rows


def line(name, rows):
    log_z, stderr, ess, seconds = np.array(rows).T
    return (
        f"| {name} | {log_z.mean():.3f} | {log_z.std(ddof=1):.3f} | "
        f"{np.sqrt(np.mean(stderr**2)):.3f} | {ess.mean():.0%} | "
        f"{np.median(seconds):.2f} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("--smc", default="10,30,100", help="numbers of transitions")
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--particles", type=int, help="if not as many as in training")
    parser.add_argument("--hmc", type=int, help="HMC steps, if not as in training")
    parser.add_argument("--out", type=Path, default=Path("passes.json"))
    arguments = parser.parse_args()
    done = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    run = ax.load_run(arguments.run)
    changes = {"num_particles": arguments.particles, "num_hmc_steps": arguments.hmc}
    changes = {key: value for key, value in changes.items() if value is not None}
    method, problem = METHODS[run.method], run.problem.replace(**changes)
    settings = problem.settings
    # The name of a row says how it was made: rows of one file may differ in that.
    how = f"{settings.num_particles} particles, {settings.num_hmc_steps} HMC steps"
    label = f"{method.label}, {settings.num_transitions}, {how}"
    jobs = {label: lambda: (method.sampler(problem), run.flows)}
    for text in filter(None, arguments.smc.split(",")):
        count = int(text)
        jobs[f"SMC, {count}, {how}"] = lambda count=count: (
            problem.sampler(num_transitions=count),
            None,
        )
    print("| sampler | log Z | spread | error bar of a pass | ESS | s a pass |")
    print("|---|---|---|---|---|---|")
    for name, make in jobs.items():
        if name not in done:
            done[name] = measure(*make(), arguments.passes)
            arguments.out.write_text(json.dumps(done))
        print(line(name, done[name]), flush=True)


if __name__ == "__main__":
    main()

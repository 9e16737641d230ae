"""`annealax.sample` with its defaults, beside two other automatic samplers.

    python benchmarks/automatic.py --out automatic.json
    python benchmarks/automatic.py --out automatic.json --rows funnel,lgcp --seeds 3

For every target and seed, three methods:

- `annealax.sample` as it is;
- plain adaptive SMC: temperatures by bisection, step sizes adapted, from a normal of
  the scale that suits the target, with as many gradient evaluations;
- blackjax's adaptive tempered SMC with HMC (2000 particles, ESS 0.9, step size tuned
  at each temperature) from the same normal, repeated for as long as `sample` took
  without compilation, the repeats pooled.

Both others are given the scale of the start by hand (25 and 8 for the two mixtures, 1
elsewhere), which `sample` has to find. Rows that the output file has are not computed
again. The table is printed in Markdown.
"""

import argparse
import json
import math
import time
from pathlib import Path

import blackjax
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from blackjax.smc import adaptive_tempered, extend_params, resampling, tempered

import annealax as ax
from annealax.auto._answer import log_mean
from annealax.auto._pilot import run_pilot
from annealax.auto._placement import Placement, placed_path

compiling = 0.0


def _listen(event: str, seconds: float, **_: object) -> None:
    global compiling  # noqa: PLW0603
    if event.startswith("/jax/core/compile"):
        compiling += seconds


def bad_gaussian():
    """Condition number 10^4, rotated, then scales over three orders of magnitude."""
    rng = np.random.default_rng(1)
    rotation, _ = np.linalg.qr(rng.normal(size=(50, 50)))
    covariance = (rotation * np.logspace(-2, 2, 50)) @ rotation.T
    scale = rng.permutation(np.logspace(-1.5, 1.5, 50))
    covariance = covariance * np.outer(scale, scale)
    return ax.targets.Normal(
        3 * scale * rng.normal(size=50),
        0.5 * (covariance + covariance.T),
        log_normalizer=2.0,
    )


ROWS = {
    "Gaussian 50-d": (bad_gaussian, 2.0, 1.0),
    "funnel 10-d": (lambda: ax.targets.Funnel(10), 0.0, 1.0),
    "many well 32-d": (lambda: ax.targets.ManyWell(32), 164.6957, 1.0),
    "40 modes 2-d": (lambda: ax.targets.GaussianMixture.forty_modes(2), 0.0, 25.0),
    "40 modes 50-d": (lambda: ax.targets.GaussianMixture.forty_modes(50), 0.0, 25.0),
    "Student-t 2-d": (lambda: ax.targets.StudentTMixture.ten_modes(2), 0.0, 8.0),
    "Student-t 10-d": (lambda: ax.targets.StudentTMixture.ten_modes(10), 0.0, 8.0),
    "seeds": (ax.targets.Seeds, -73.406, 1.0),
    "Brownian": (ax.targets.BrownianMotion, 1.1877, 1.0),
    "eight schools": (ax.targets.EightSchools, -31.3113, 1.0),
    "phi^4 8x8": (
        lambda: ax.targets.Phi4(shape=(8, 8), mass_squared=-4.75, coupling=5.1),
        None,
        1.0,
    ),
    "LGCP 40x40": (lambda: ax.targets.LogGaussianCoxPines(grid=40), 501.81, 1.0),
}


def automatic(target, seed):
    global compiling
    compiling, began = 0.0, time.perf_counter()
    result = ax.sample(target, seed=seed)
    total = time.perf_counter() - began
    return result, {
        "log_z": result.log_normalizer,
        "stderr": result.log_normalizer_stderr,
        "seconds": total,
        "compiling": compiling,
        "evaluations": result.num_evaluations,
        "start": result.choices["start"],
        "flows": result.choices["flows"],
        "transitions": len(result.betas) - 1,
        "pareto_k": result.pareto_k,
        "warnings": result.warnings(),
        "extra": _extra(target, result),
    }


def _extra(target, result):
    """What the answer says beyond log Z, where the truth is known."""
    x, weights = np.asarray(result.vectors), np.asarray(result.weights)
    if isinstance(target, ax.targets.ManyWell):
        shares = weights @ (x[:, ::2] > 0)
        return {"worst_mode_share_error": float(np.abs(shares - 0.8443).max())}
    if isinstance(target, ax.targets.Phi4):
        return {"positive": float(weights @ (x.sum(axis=1) > 0))}
    if isinstance(target, ax.targets.GaussianMixture) and x.shape[1] == 2:
        means = np.asarray(target.means)
        nearest = ((x[:, None] - means) ** 2).sum(-1).argmin(axis=1)
        shares = 40 * np.bincount(nearest, weights, 40)
        return {"fewest": float(shares.min()), "most": float(shares.max())}
    return {}


def plain(target, scale, seed, evaluations):
    """Adaptive SMC with so many evaluations: the particles follow from a trial."""
    size = math.prod(target.shape)
    path = placed_path(
        lambda vector: target(vector.reshape(target.shape)),
        Placement.scaled(np.zeros(size), scale),
        1,
    )

    def run(key, count):
        return run_pilot(key, path, num_particles=count, conditional_ess=0.9)

    trial = run(jr.key(1000 + seed), 500)
    count = int(np.clip(500 * evaluations / trial.num_evaluations, 500, 50_000))
    if size > 500:
        count = min(count, 3000)
    began = time.perf_counter()
    pilot = run(jr.key(2000 + seed), count)
    return {
        "log_z": pilot.log_normalizer,
        "particles": count,
        "temperatures": len(pilot.betas) - 1,
        "evaluations": pilot.num_evaluations,
        "seconds": time.perf_counter() - began,
    }


def blackjax_runner(target, scale, num_particles=2000, num_leapfrog=10):
    """A function of a key that makes one run: log Z and the temperatures."""
    size = math.prod(target.shape)

    def log_start(x):
        return jnp.sum(jax.scipy.stats.norm.logpdf(x, 0.0, scale))

    def log_ratio(x):
        return target(x.reshape(target.shape)) - log_start(x)

    kernel = adaptive_tempered.build_kernel(
        log_start,
        log_ratio,
        blackjax.hmc.build_kernel(),
        blackjax.hmc.init,
        resampling.systematic,
        0.9,
    )

    @jax.jit
    def step(key, state, step_size):
        parameters = extend_params(
            {
                "step_size": step_size,
                "inverse_mass_matrix": jnp.ones(size),
                "num_integration_steps": num_leapfrog,
            }
        )
        state, info = kernel(key, state, 1, parameters)
        return state, info.log_likelihood_increment, info.update_info.acceptance_rate

    def run(key, limit=1000):
        key, subkey = jr.split(key)
        state = tempered.init(scale * jr.normal(subkey, (num_particles, size)))
        state = state._replace(tempering_param=jnp.asarray(0.0))
        total, count, step_size = 0.0, 0, 0.5 * scale / size**0.25
        while float(state.tempering_param) < 1 and count < limit:
            key, subkey = jr.split(key)
            state, increment, rate = step(subkey, state, jnp.asarray(step_size))
            step_size *= math.exp(1.5 * (float(jnp.mean(rate)) - 0.8))
            total, count = total + float(increment), count + 1
        reached = float(state.tempering_param) >= 1
        return (total if reached else -math.inf), count

    return run


def blackjax_for(run, seed, seconds):
    """As many runs as fit, at least one, pooled."""
    values, began = [], time.perf_counter()
    while not values or time.perf_counter() - began < 0.9 * seconds:
        values.append(run(jr.key(10_000 * (seed + 1) + len(values)))[0])
    return {
        "log_z": float(log_mean(np.asarray(values))),
        "runs": len(values),
        "seconds": time.perf_counter() - began,
    }


def table(done):
    lines = [
        "| target | log Z | `sample`: median error | covered | rms error | plain SMC: "
        "rms | blackjax: rms | s (and compiling) | warnings |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, (_, truth, _) in ROWS.items():
        rows = [each for each in done.get(name, {}).values() if "blackjax" in each]
        if not rows:
            continue
        values = np.array([each["sample"]["log_z"] for each in rows])
        exact = done.get("_truth", {}).get(name, truth)
        errors = values - exact
        stderr = np.array([each["sample"]["stderr"] for each in rows])

        def rms(method, rows=rows, exact=exact):
            found = np.array([each[method]["log_z"] for each in rows]) - exact
            return f"{np.sqrt(np.mean(found**2)):.3f}"

        warm = np.median(
            [each["sample"]["seconds"] - each["sample"]["compiling"] for each in rows]
        )
        compile_time = np.max([each["sample"]["compiling"] for each in rows])
        lines.append(
            f"| {name} | {exact:.3f} | {np.median(np.abs(errors)):.4f} | "
            f"{np.mean(np.abs(errors) < 1.96 * stderr):.0%} of {len(rows)} | "
            f"{np.sqrt(np.mean(errors**2)):.4f} | {rms('plain')} | {rms('blackjax')} | "
            f"{warm:.1f} (+{compile_time:.0f}) | "
            f"{sum(bool(each['sample']['warnings']) for each in rows)} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("automatic.json"))
    parser.add_argument("--rows", default=",".join(ROWS), help="parts of names")
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    jax.monitoring.register_event_duration_secs_listener(_listen)
    out = arguments.out
    done = json.loads(out.read_text()) if out.exists() else {}
    wanted = arguments.rows.split(",")
    for name, (make, _, scale) in ROWS.items():
        if not any(part.strip() in name for part in wanted):
            continue
        target, run = make(), None
        rows = done.setdefault(name, {})
        for seed in range(arguments.seeds):
            if str(seed) in rows:
                continue
            _, row = automatic(target, seed)
            if run is None:
                run = blackjax_runner(target, scale)
                run(jr.key(99), 3)
            warm = max(row["seconds"] - row["compiling"], 0.5)
            rows[str(seed)] = {
                "sample": row,
                "plain": plain(target, scale, seed, row["evaluations"]),
                "blackjax": blackjax_for(run, seed, warm),
            }
            out.write_text(json.dumps(done, indent=1))
            print(name, seed, json.dumps(rows[str(seed)]), flush=True)
    print(table(done))


if __name__ == "__main__":
    main()

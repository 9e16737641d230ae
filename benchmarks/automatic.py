"""`annealax.sample` with its defaults, beside two other automatic samplers.

    python benchmarks/automatic.py --out automatic.json
    python benchmarks/automatic.py --out automatic.json --rows funnel,LGCP --seeds 3
    python benchmarks/automatic.py --out automatic.json --methods sample,blackjax
    python benchmarks/automatic.py --out automatic.json --more 10

The last adds seeds to `sample` alone: ten tell little of how often intervals cover.

For every target and seed, three methods:

- `annealax.sample` as it is;
- plain adaptive SMC: temperatures by bisection, step sizes adapted, from a normal of
  the scale that suits the target, with as many gradient evaluations;
- blackjax's adaptive tempered SMC with HMC (2000 particles, ESS 0.9, step size tuned
  at each temperature) from the same normal, repeated for as long as `sample` took
  without compilation, the repeats pooled.

Both others are given the scale of the start by hand (25 and 8 for the two mixtures, 1
elsewhere), which `sample` has to find. What the output file has is not computed again.
The table is printed in Markdown.

Log Z of phi^4 and of the Cox process is from `reference.py`: 33.6545 +- 0.0037 and
501.780 +- 0.005 (published: 501.81). For phi^4 there is also plain SMC ten times as
long as `sample`, pooled over passes (`--methods longer`). Moments of eight schools are
compared with a long run of NUTS.
"""

import argparse
import functools
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
from annealax._estimates import log_mean
from annealax.auto.adaptive_smc import adaptive_pass
from annealax.auto.density import CountedDensity
from annealax.auto.starts.gaussian import Linear, normal_start
from annealax.auto.tuning import first_plan

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
    "seeds": (ax.targets.Seeds, -73.40618, 1.0),
    "Brownian": (ax.targets.BrownianMotion, 1.1877, 1.0),
    "eight schools": (ax.targets.EightSchools, -31.3113, 1.0),
    "phi^4 8x8": (
        lambda: ax.targets.Phi4(shape=(8, 8), mass_squared=-4.75, coupling=5.1),
        33.6545,
        1.0,
    ),
    "LGCP 40x40": (lambda: ax.targets.LogGaussianCoxPines(grid=40), 501.780, 1.0),
}


def automatic(target, seed):
    global compiling
    compiling, began = 0.0, time.perf_counter()
    result = ax.sample(target, seed=seed)
    total = time.perf_counter() - began
    return result, {
        "log_z": result.log_normalizer,
        "stderr": result.log_normalizer_stderr,
        "interval": result.log_normalizer_interval(),
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
    if isinstance(target, ax.targets.EightSchools):
        return {"worst_moment_error": _worst_moment(target, result)}
    if isinstance(target, ax.targets.Phi4):
        return {"positive": float(weights @ (x.sum(axis=1) > 0))}
    if isinstance(target, ax.targets.GaussianMixture) and x.shape[1] == 2:
        means = np.asarray(target.means)
        nearest = ((x[:, None] - means) ** 2).sum(-1).argmin(axis=1)
        shares = 40 * np.bincount(nearest, weights, 40)
        return {"fewest": float(shares.min()), "most": float(shares.max())}
    return {}


@functools.cache
def _schools_by_nuts(target):
    """Mean and standard deviation of all parameters, from a long run."""
    chains = ax.mcmc(
        jr.key(7),
        target,
        method="nuts",
        num_chains=64,
        num_warmup=1000,
        num_samples=2000,
        target_acceptance_rate=0.95,
        keep_draws=True,
    )
    draws = chains.draws.reshape(-1, *target.shape)
    values = _parameters(target, draws)
    return values.mean(axis=0), values.std(axis=0)


def _parameters(target, draws):
    named = jax.vmap(target.constrain)(jnp.asarray(draws))
    # tau has no second moment to speak of; its logarithm has.
    named["tau"] = jnp.log(named["tau"])
    return np.concatenate(
        [np.asarray(v).reshape(len(v), -1) for v in named.values()], 1
    )


def _worst_moment(target, result):
    """Errors of means and standard deviations, in standard deviations."""
    mean, scale = _schools_by_nuts(target)
    values = _parameters(target, result.vectors)
    weights = np.asarray(result.weights, np.float64)
    found = weights @ values
    spread = np.sqrt(weights @ (values - found) ** 2)
    return float(
        max(np.abs((found - mean) / scale).max(), np.abs(spread / scale - 1).max())
    )


def plain_runner(target, scale, evaluations):
    """Adaptive SMC with so many evaluations: how many particles, and one run."""
    size = math.prod(target.shape)
    density = CountedDensity(lambda x: target(x.reshape(target.shape)), size)
    start = normal_start(Linear(np.zeros(size), np.full(size, scale)))
    path = start.path(density.log_density, 1)

    def run(key, count):
        return adaptive_pass(key, path, density, num_particles=count)

    run(jr.key(1000), 500)
    trial = density.num_evaluations
    count = int(np.clip(500 * evaluations / trial, 500, 50_000))
    if size > 500:
        count = min(count, 3000)

    def plain(seed):
        began, before = time.perf_counter(), density.num_evaluations
        pilot = run(jr.key(2000 + seed), count)
        return {
            "log_z": pilot.log_normalizer,
            "particles": count,
            "temperatures": len(pilot.betas) - 1,
            "evaluations": density.num_evaluations - before,
            "seconds": time.perf_counter() - began,
        }

    return plain


def long_smc(target, evaluations):
    """Log Z and its error, of plain SMC with so many evaluations, in many passes.

    The temperatures come from an adaptive pass and are then fixed, four times as fine,
    so that Z is unbiased and passes can be pooled.
    """
    size = math.prod(target.shape)
    start = normal_start(Linear(np.zeros(size), np.ones(size)))

    def density(vector):
        return target(vector.reshape(target.shape))

    pilot = adaptive_pass(
        jr.key(5),
        start.path(density, 1),
        CountedDensity(density, size),
        num_particles=2000,
    )
    plan = first_plan(start, pilot, 2000)
    count = plan.num_transitions  # of equal work already
    plan = plan.respaced(np.ones(count), 4 * count)
    sampler = plan.sampler(density)
    values, spent = [], 0
    while spent < evaluations or len(values) < 4:
        result = sampler.run(jr.fold_in(jr.key(6), len(values)))
        values.append(float(result.log_normalizer))
        spent += int(result.num_evaluations)
    z = np.exp(np.asarray(values) - max(values))
    return {
        "log_z": float(log_mean(np.asarray(values))),
        "stderr": float(z.std(ddof=1) / z.mean() / math.sqrt(len(z))),
        "passes": len(values),
        "transitions": sampler.path.num_transitions,
        "evaluations": spent,
    }


def blackjax_runner(target, scale, num_particles=2000, num_leapfrog=10):
    """A function of a key that makes one run: log Z, and how far it came."""
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

    def run(key, limit=1000, seconds=math.inf):
        began = time.perf_counter()
        key, subkey = jr.split(key)
        state = tempered.init(scale * jr.normal(subkey, (num_particles, size)))
        state = state._replace(tempering_param=jnp.asarray(0.0))
        total, count, step_size = 0.0, 0, 0.5 * scale / size**0.25
        while float(state.tempering_param) < 1 and count < limit:
            if time.perf_counter() - began > seconds:
                break
            key, subkey = jr.split(key)
            state, increment, rate = step(subkey, state, jnp.asarray(step_size))
            step_size *= math.exp(1.5 * (float(jnp.mean(rate)) - 0.8))
            total, count = total + float(increment), count + 1
        reached = float(state.tempering_param)
        return (total if reached >= 1 else -math.inf), reached

    return run


def blackjax_for(run, seed, seconds):
    """As many runs as fit, pooled; the first is cut after twice the time."""
    values, began = [], time.perf_counter()
    while not values or time.perf_counter() - began < 0.9 * seconds:
        key = jr.key(10_000 * (seed + 1) + len(values))
        value, reached = run(key, seconds=math.inf if values else 2 * seconds)
        values.append(value)
        if len(values) == 1 and reached < 1:
            return {"reached": reached, "seconds": time.perf_counter() - began}
    return {
        "log_z": float(log_mean(np.asarray(values))),
        "runs": len(values),
        "seconds": time.perf_counter() - began,
    }


def table(done):
    lines = [
        "| target | log Z | `sample`: median error | rms error | intervals that cover "
        "| plain SMC: rms | blackjax: rms | s (and compiling, at most) | seeds that "
        "warned | also |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, (_, exact, _) in ROWS.items():
        content = done.get(name, {})
        rows = [each for key, each in content.items() if key.isdigit()]
        ours = [each["sample"] for each in rows if "sample" in each]
        if not ours:
            continue
        errors = np.array([each["log_z"] for each in ours]) - exact
        low, high = np.transpose([each["interval"] for each in ours])

        def rms(method, rows=rows, exact=exact):
            of_method = [each[method] for each in rows if method in each]
            found = [each["log_z"] - exact for each in of_method if "log_z" in each]
            if not of_method:
                return "not run"
            if not found:
                far = max(each["reached"] for each in of_method)
                return f"no answer in twice the time (temperature {far:.2g} reached)"
            text = f"{np.sqrt(np.mean(np.square(found))):.3f}"
            seeds = f"{len(found)} seed{'s' if len(found) > 1 else ''}"
            return text if len(found) == len(rows) else f"{text} ({seeds})"

        warm = np.median([each["seconds"] - each["compiling"] for each in ours])
        compile_time = np.max([each["compiling"] for each in ours])
        lines.append(
            f"| {name} | {exact:.3f} | {np.median(np.abs(errors)):.4f} | "
            f"{np.sqrt(np.mean(errors**2)):.4f} | "
            f"{np.sum((low < exact) & (exact < high))} of {len(ours)} | "
            f"{rms('plain')} | {rms('blackjax')} | {warm:.1f} (+{compile_time:.0f}) | "
            f"{sum(bool(each['warnings']) for each in ours)} | {_also(content, ours)} |"
        )
    return "\n".join(lines)


def _also(content, rows):
    """Median over seeds of what else is known, and the longer SMC."""
    names = {
        "worst_mode_share_error": "worst mode share off by",
        "positive": "share of positive sign",
        "fewest": "lightest mode, in units of its weight",
        "most": "heaviest",
        "worst_moment_error": "worst moment off by (sd)",
    }
    found = {name: [row["extra"].get(name) for row in rows] for name in names}
    parts = [
        f"{names[key]} {np.median(each):.3f} ({min(each):.3f} to {max(each):.3f})"
        for key, each in found.items()
        if None not in each
    ]
    if longer := content.get("longer"):
        parts.append(f"longer SMC {longer['log_z']:.3f} ± {longer['stderr']:.3f}")
    return ", ".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("automatic.json"))
    parser.add_argument("--rows", default=",".join(ROWS), help="parts of names")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--more", type=int, default=0, help="seeds of sample alone")
    parser.add_argument("--methods", default="sample,plain,blackjax,longer")
    arguments = parser.parse_args()
    jax.monitoring.register_event_duration_secs_listener(_listen)
    methods = arguments.methods.split(",")
    known = ("sample", "plain", "blackjax", "longer")
    if unknown := [method for method in methods if method not in known]:
        parser.error(f"unknown methods {unknown}; use some of {list(known)}")
    for name in ROWS:
        if any(part.strip() in name for part in arguments.rows.split(",")):
            for method in methods:
                more = arguments.more if method == "sample" else 0
                _measure(name, method, arguments.seeds + more, arguments.out)
    print(table(json.loads(arguments.out.read_text())))


def _measure(name, method, seeds, out):
    """One method on one target, all seeds that the file does not have."""
    make, _, scale = ROWS[name]
    done = json.loads(out.read_text()) if out.exists() else {}
    row = done.setdefault(name, {})
    target = make()

    def keep(key, value):
        row.update(value)
        out.write_text(json.dumps(done, indent=1))
        print(name, method, key, json.dumps(value), flush=True)

    if method == "longer":
        if isinstance(target, ax.targets.Phi4) and method not in row:
            spent = row["0"]["sample"]["evaluations"]
            keep("", {method: long_smc(target, 10 * spent)})
        return
    missing = [s for s in range(seeds) if method not in row.get(str(s), {})]
    if not missing:
        return
    if method == "sample":

        def run(seed):
            return automatic(target, seed)[1]
    elif method == "plain":
        run = plain_runner(target, scale, row["0"]["sample"]["evaluations"])
    else:
        once = blackjax_runner(target, scale)
        once(jr.key(99), 3)

        def run(seed):
            ours = row[str(seed)]["sample"]
            return blackjax_for(
                once, seed, max(ours["seconds"] - ours["compiling"], 0.5)
            )

    for seed in missing:
        keep(seed, {str(seed): row.get(str(seed), {}) | {method: run(seed)}})


if __name__ == "__main__":
    main()

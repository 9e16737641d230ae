"""What the first answer costs: `ax.sample` beside NUTS and tempered SMC.

Every row is a process of its own: it imports what it needs, asks once (cold), and asks
again with another seed (warm). Kept are seconds, processor seconds, which a busy
machine changes less, programs compiled and their seconds, and evaluations of the
density, most of them with gradient. NUTS is NumPyro's, 4 chains of 1000 draws after
1000 of warm-up; tempered SMC is blackjax's adaptive one, from a wide normal, with 2000
particles.

    python benchmarks/first_answer.py answers.jsonl          # goes on where it stopped
    python benchmarks/first_answer.py answers.jsonl --table  # as Markdown
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

METHODS = ("annealax", "nuts", "blackjax-smc")

_SECONDS = 1200
"""A process is given so long."""


class Case(NamedTuple):
    """A density to ask about.

    Attributes:
        density: Log density of one point.
        shape: Shape, or shapes by name.
        support: As `annealax.sample` takes it.
        exact: log Z, if it is known.
        scale: Width of the normal from which blackjax starts.
    """

    density: Callable[[Any], Any]
    shape: Any
    support: Any
    exact: float | None
    scale: float


def _target(name: str, scale: float, **arguments: Any) -> Case:
    import annealax as ax  # noqa: PLC0415

    target = getattr(ax.targets, name)(**arguments)
    return Case(target, target.shape, None, target.log_normalizer, scale)


def _forty_modes() -> Case:
    import annealax as ax  # noqa: PLC0415

    target = ax.targets.GaussianMixture.forty_modes()
    return Case(target, target.shape, None, 0.0, 40.0)


def _logistic() -> Case:
    """34 made-up features of 350 examples, and an intercept; no exact log Z."""
    import numpy as np  # noqa: PLC0415

    random = np.random.default_rng(5)
    features = random.normal(size=(350, 34))
    logits = features @ random.normal(size=34)
    labels = (random.random(350) < 1 / (1 + np.exp(-logits))).astype(float)
    return _target("LogisticRegression", 2.0, features=features, labels=labels)


def _regression(size: int) -> Case:
    """Conjugate: the variance is inverse gamma, so that the evidence is known."""
    import jax.numpy as jnp  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415
    from jax.scipy.stats import norm  # noqa: PLC0415
    from scipy.special import gammaln  # noqa: PLC0415

    random = np.random.default_rng(size)
    count = 40
    x = random.normal(size=(count, size))
    y = x @ np.linspace(-1, 2, size) + 0.7 * random.normal(size=count)
    design, data = jnp.asarray(x), jnp.asarray(y)

    def log_density(p):
        b, variance = p["slopes"], p["variance"]
        scale = jnp.sqrt(variance)
        prior = -gammaln(2.0) - 3 * jnp.log(variance) - 1 / variance
        prior += jnp.sum(norm.logpdf(b, 0, 2 * scale))
        return prior + jnp.sum(norm.logpdf(data, design @ b, scale))

    before = np.eye(size) / 4
    after = before + x.T @ x
    mean = np.linalg.solve(after, x.T @ y)
    rate = 1 + 0.5 * (y @ y - mean @ after @ mean)
    exact = 0.5 * (np.linalg.slogdet(before)[1] - np.linalg.slogdet(after)[1])
    exact += gammaln(2 + count / 2) - gammaln(2) - (2 + count / 2) * np.log(rate)
    exact -= 0.5 * count * np.log(2 * np.pi)
    shapes = {"slopes": size, "variance": ()}
    return Case(log_density, shapes, {"variance": "positive"}, float(exact), 3.0)


def _hidden_markov() -> Case:
    """Two states, told apart by their means: labelled, so that there is one mode."""
    import jax  # noqa: PLC0415
    import jax.numpy as jnp  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415
    from jax.scipy.stats import norm  # noqa: PLC0415

    random = np.random.default_rng(3)
    states = np.cumsum(random.random(100) < 0.1) % 2
    data = jnp.asarray(np.where(states, 2.0, -1.0) + random.normal(size=100))

    def log_density(p):
        centres, scales, stay = p["centres"], p["scales"], p["stay"]
        moves = (
            jnp.stack([stay, 1 - stay]).at[:, 1].set(jnp.stack([1 - stay[1], stay[1]]))
        )
        log_moves = jnp.log(moves.T)
        emitted = norm.logpdf(data[:, None], centres, scales)

        def step(before, now):
            after = jax.nn.logsumexp(before[:, None] + log_moves, axis=0) + now
            return after, None

        end, _ = jax.lax.scan(step, jnp.log(0.5) + emitted[0], emitted[1:])
        prior = jnp.sum(norm.logpdf(centres, jnp.array([-1.0, 2.0]), 0.5))
        prior += jnp.sum(norm.logpdf(jnp.log(scales)) - jnp.log(scales))
        return prior + jax.nn.logsumexp(end)

    shapes = {"centres": 2, "scales": 2, "stay": 2}
    return Case(log_density, shapes, {"scales": "positive", "stay": "unit"}, None, 2.0)


def _banana() -> Case:
    from jax.scipy.stats import norm  # noqa: PLC0415

    def log_density(x):
        return norm.logpdf(x[0], 0, 2) + norm.logpdf(x[1], 0.3 * x[0] ** 2, 0.5)

    return Case(log_density, (2,), None, 0.0, 3.0)


CASES: dict[str, Callable[[], Case]] = {
    "eight schools 10-d": lambda: _target("EightSchools", 5.0),
    "40 modes 2-d": _forty_modes,
    "logistic regression 35-d": _logistic,
    "many well 32-d": lambda: _target("ManyWell", 2.0),
    "funnel 10-d": lambda: _target("Funnel", 3.0),
    "linear regression, 3 parameters": lambda: _regression(2),
    "linear regression, 5 parameters": lambda: _regression(4),
    "hidden Markov model, 6 parameters": _hidden_markov,
    "seeds 26-d": lambda: _target("Seeds", 2.0),
    "banana 2-d": _banana,
    "normal 20-d": lambda: _target("Normal", 3.0, mean=[1.0] * 20),
}
"""Eleven densities; what they say of log Z is exact or from very long runs."""


def one(case: str, method: str) -> dict[str, Any]:
    """A row, in this process."""
    began, processor = time.perf_counter(), time.process_time()
    import jax  # noqa: PLC0415

    compiled: list[float] = []

    def note(name: str, seconds: float, **_: Any) -> None:
        if name.endswith("backend_compile_duration"):
            compiled.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(note)
    ask = {"annealax": _annealax, "nuts": _nuts, "blackjax-smc": _blackjax}[method]
    given = CASES[case]()
    answer = ask(given, 0)
    row = {
        "case": case,
        "method": method,
        "cold": time.perf_counter() - began,
        "cold processor": time.process_time() - processor,
        "programs": len(compiled),
        "compiling": sum(compiled),
        "exact": given.exact,
    }
    began, processor = time.perf_counter(), time.process_time()
    ask(given, 1)
    row["warm"] = time.perf_counter() - began
    row["warm processor"] = time.process_time() - processor
    return row | answer


def _annealax(case: Case, seed: int) -> dict[str, Any]:
    import annealax as ax  # noqa: PLC0415

    result = ax.sample(case.density, case.shape, support=case.support, seed=seed)
    return {
        "log Z": result.log_normalizer,
        "stderr": result.log_normalizer_stderr,
        "draws": result.ess,
        "evaluations": result.num_evaluations,
        "warnings": [each.code for each in result.warnings()],
    }


def _free(case: Case) -> Any:
    """The density of one unconstrained vector."""
    from annealax.auto.density import FreeDensity  # noqa: PLC0415
    from annealax.auto.parameters import Space  # noqa: PLC0415

    return FreeDensity.of(case.density, Space(case.shape, case.support))


def _nuts(case: Case, seed: int) -> dict[str, Any]:
    import jax.random as jr  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415
    from numpyro.diagnostics import effective_sample_size  # noqa: PLC0415
    from numpyro.infer import MCMC, NUTS  # noqa: PLC0415

    free = _free(case)
    chains = MCMC(
        NUTS(potential_fn=lambda x: -free(x)),
        num_warmup=1000,
        num_samples=1000,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    first = jr.normal(jr.key(seed), (4, free.space.size))
    chains.warmup(
        jr.key(seed + 10),
        init_params=first,
        extra_fields=("num_steps",),
        collect_warmup=True,
    )
    steps = np.sum(chains.get_extra_fields()["num_steps"])
    chains.run(jr.key(seed + 20), extra_fields=("num_steps",))
    steps += np.sum(chains.get_extra_fields()["num_steps"])
    draws = np.asarray(chains.get_samples(group_by_chain=True))
    return {
        "draws": float(np.min(effective_sample_size(draws))),
        "evaluations": int(steps),
    }


def _blackjax(case: Case, seed: int) -> dict[str, Any]:
    import jax  # noqa: PLC0415
    import jax.numpy as jnp  # noqa: PLC0415
    import jax.random as jr  # noqa: PLC0415
    from blackjax import hmc  # noqa: PLC0415
    from blackjax.smc import (  # noqa: PLC0415
        adaptive_tempered,
        extend_params,
        resampling,
        tempered,
    )
    from jax.scipy.stats import norm  # noqa: PLC0415

    free = _free(case)
    size, count, leapfrogs = free.space.size, 2000, 10

    def log_start(x):
        return jnp.sum(norm.logpdf(x, 0.0, case.scale))

    kernel = adaptive_tempered.build_kernel(
        log_start,
        lambda x: free(x) - log_start(x),
        hmc.build_kernel(),
        hmc.init,
        resampling.systematic,
        0.9,
    )

    @jax.jit
    def step(key, state, step_size):
        parameters = extend_params(
            {
                "step_size": step_size,
                "inverse_mass_matrix": jnp.ones(size),
                "num_integration_steps": leapfrogs,
            }
        )
        state, info = kernel(key, state, 1, parameters)
        rate = jnp.mean(info.update_info.acceptance_rate)
        return state, info.log_likelihood_increment, rate

    key, subkey = jr.split(jr.key(seed))
    state = tempered.init(case.scale * jr.normal(subkey, (count, size)))
    state = state._replace(tempering_param=jnp.asarray(0.0))
    total, temperatures, step_size = 0.0, 0, 0.5 * case.scale / size**0.25
    while float(state.tempering_param) < 1 and temperatures < 1000:
        key, subkey = jr.split(key)
        state, increment, rate = step(subkey, state, jnp.asarray(step_size))
        step_size *= math.exp(1.5 * (float(rate) - 0.8))
        total, temperatures = total + float(increment), temperatures + 1
    reached = float(state.tempering_param) >= 1
    return {
        "log Z": total if reached else None,
        "draws": count,
        "evaluations": temperatures * count * (leapfrogs + 2),
    }


def main() -> None:
    """Run what is missing, or show the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, default=Path("answers.jsonl"))
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--table", action="store_true", help="print what is there")
    parser.add_argument("--one", nargs=2, metavar=("CASE", "METHOD"), help="a row")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(*arguments.one)))
        return
    rows = _read(arguments.file)
    if arguments.table:
        print(table(rows))
        return
    done = {(row["case"], row["method"]) for row in rows}
    for method in arguments.methods:
        for case in arguments.cases:
            if (case, method) in done:
                continue
            row = _in_own_process(case, method)
            with arguments.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(table([row]).splitlines()[-1], flush=True)


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _in_own_process(case: str, method: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", case, method]
    machine = {"machine": platform.machine(), "cores": os.cpu_count()}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except subprocess.TimeoutExpired:
        return {"case": case, "method": method, "failed": f"over {_SECONDS} s"}
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "?").strip().splitlines()[-1]
        return {"case": case, "method": method, "failed": last}
    return json.loads(done.stdout.splitlines()[-1]) | machine


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    head = (
        "density",
        "method",
        "cold: processor s",
        "programs",
        "warm: processor s",
        "evaluations",
        "error of log Z: true",
        "stated",
        "draws",
    )
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    order = {case: index for index, case in enumerate(CASES)}
    for row in sorted(rows, key=lambda row: order[row["case"]]):
        if "failed" in row:
            cells = [row["case"], row["method"], row["failed"], *[""] * 6]
        else:
            cells = [
                row["case"],
                row["method"],
                f"{row['cold processor']:.1f}",
                str(row["programs"]),
                f"{row['warm processor']:.1f}",
                f"{row['evaluations']:.2g}",
                _difference(row),
                "" if row.get("stderr") is None else f"{row['stderr']:.4f}",
                f"{row['draws']:.0f}",
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _difference(row: dict[str, Any]) -> str:
    if row.get("log Z") is None or row["exact"] is None:
        return ""
    return f"{row['log Z'] - row['exact']:+.4f}"


if __name__ == "__main__":
    main()

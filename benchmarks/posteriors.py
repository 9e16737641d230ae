"""`ax.sample` on posteriors of real kinds, against long NUTS.

    python benchmarks/posteriors.py --out posteriors.jsonl [--only NAME ...]

For each posterior: one long NUTS of NumPyro, and `ax.sample` with several seeds. A line
of JSON is added as each is finished, and what is there is not made again; at the end
comes a table in Markdown. Columns: the largest difference of a mean, and of a standard
deviation, from NUTS in combined standard errors, of all coordinates and seeds (of a few
hundred comparisons one above 3.5 is expected); log Z with its error bar and chi squared
of the seeds per degree of freedom; processor seconds and density evaluations (of NUTS:
gradients) of both.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS

import annealax as ax
from _posteriors.models import POSTERIORS, Posterior

_CHAINS, _WARMUP = 4, 1000


def run_nuts(posterior: Posterior, draws: int) -> dict[str, Any]:
    """Moments with their Monte Carlo errors, and what they cost."""
    began = time.process_time()
    mcmc = MCMC(
        NUTS(posterior.model, target_accept_prob=0.95),
        num_warmup=_WARMUP,
        num_samples=draws,
        num_chains=_CHAINS,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jr.key(17), *posterior.args, extra_fields=("num_steps", "diverging"))
    seconds = time.process_time() - began
    fields = mcmc.get_extra_fields()
    found = mcmc.get_samples(group_by_chain=True)
    model = ax.from_numpyro(posterior.model, *posterior.args)
    columns = [_columns(found[each.name], 2) for each in model.space.parameters]
    x = np.concatenate(columns, axis=2).astype(np.float64)
    square = (x - x.mean((0, 1))) ** 2
    sd = x.std((0, 1))
    return {
        "mean": x.mean((0, 1)).tolist(),
        "mean_error": (sd / np.sqrt(effective_sample_size(x))).tolist(),
        "sd": sd.tolist(),
        "sd_error": (
            square.std((0, 1)) / np.sqrt(effective_sample_size(square)) / (2 * sd)
        ).tolist(),
        "r_hat": float(np.max(split_gelman_rubin(x))),
        "divergences": int(np.sum(fields["diverging"])),
        # Warm-up, which is not counted by NumPyro, is taken to cost as much a draw.
        "gradients": int(np.sum(fields["num_steps"]) * (1 + _WARMUP / draws)),
        "seconds": seconds,
    }


def run_sample(posterior: Posterior, seed: int) -> dict[str, Any]:
    """The same by `ax.sample`, and log Z."""
    began = time.process_time()
    model = ax.from_numpyro(posterior.model, *posterior.args)
    result = ax.sample(model, seed=seed)
    seconds = time.process_time() - began
    values = [_columns(each, 1) for each in result.space.split(result.x).values()]
    x = np.concatenate(values, axis=1).astype(np.float64)
    count = result.num_replicates
    weights = np.exp(np.asarray(result.log_weights, np.float64))
    weights /= weights.sum()
    mean = weights @ x
    square = (x - mean) ** 2
    variance = weights @ square

    def error(values: np.ndarray, centre: np.ndarray) -> np.ndarray:
        parts = (weights[:, None] * (values - centre)).reshape(count, -1, x.shape[1])
        return np.sqrt(np.sum(parts.sum(1) ** 2, axis=0) * count / (count - 1))

    sd = np.sqrt(variance)
    return {
        "mean": mean.tolist(),
        "mean_error": error(x, mean).tolist(),
        "sd": sd.tolist(),
        "sd_error": (error(square, variance) / (2 * sd)).tolist(),
        "log_z": result.log_normalizer,
        "log_z_error": result.log_normalizer_stderr,
        "warnings": [each.code for each in result.warnings()],
        "evaluations": result.num_evaluations,
        "seconds": seconds,
    }


def _columns(values: Any, leading: int) -> np.ndarray:
    array = np.asarray(values)
    return array.reshape(*array.shape[:leading], -1)


def table(records: dict[tuple[str, str], dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "| posterior | kind | size | means, sds off by | log Z (chi² of seeds) "
        "| warnings | processor s: ours, NUTS | evaluations: ours, NUTS |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, posterior in POSTERIORS.items():
        nuts = records.get((name, "nuts"))
        ours = [r for (n, k), r in sorted(records.items()) if n == name and k != "nuts"]
        if nuts is None or not ours:
            continue
        off = [max(_off(each, nuts, what) for each in ours) for what in ("mean", "sd")]
        z = np.array([each["log_z"] for each in ours])
        errors = np.array([each["log_z_error"] for each in ours])
        pooled = np.sum(z / errors**2) / np.sum(1 / errors**2)
        chi = np.sum(((z - pooled) / errors) ** 2) / max(len(z) - 1, 1)
        codes = sorted({code for each in ours for code in each["warnings"]})
        doubt = f"NUTS: R-hat {nuts['r_hat']:.2f}, {nuts['divergences']} divergences"
        bad = nuts["r_hat"] > 1.01 or nuts["divergences"] > 0
        spread = f"{pooled:.3f} ± {np.median(errors):.3f} ({chi:.1f}, {len(z)})"
        seconds = np.mean([each["seconds"] for each in ours])
        evaluations = np.mean([each["evaluations"] for each in ours])
        lines.append(
            f"| {name} | {posterior.kind} | {len(nuts['mean'])} "
            f"| {off[0]:.1f}, {off[1]:.1f} | {spread} "
            f"| {', '.join([*codes, *([doubt] if bad else [])]) or 'none'} "
            f"| {seconds:.0f}, {nuts['seconds']:.0f} "
            f"| {evaluations:.1e}, {nuts['gradients']:.1e} |"
        )
    return "\n".join(lines)


def _off(ours: dict[str, Any], nuts: dict[str, Any], what: str) -> float:
    """Largest difference in combined standard errors."""
    one, other = np.array(ours[what]), np.array(nuts[what])
    errors = np.hypot(ours[f"{what}_error"], nuts[f"{what}_error"])
    varies = errors > 0  # unlike the first element of a Cholesky factor
    return float(np.max(np.abs(one - other)[varies] / errors[varies]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=list(POSTERIORS), default=None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draws", type=int, default=5000, help="of each chain of NUTS")
    parser.add_argument("--out", type=Path, default=Path("posteriors.jsonl"))
    options = parser.parse_args()
    records: dict[tuple[str, str], dict[str, Any]] = {}
    if options.out.exists():
        for line in options.out.read_text().splitlines():
            record = json.loads(line)
            records[record["posterior"], record["which"]] = record
    names = options.only or list(POSTERIORS)
    tasks = [
        (name, which)
        for seed in range(options.seeds)
        for name in names
        for which in (*(["nuts"] if seed == 0 else []), f"sample-{seed}")
    ]
    for name, which in tasks:
        if (name, which) in records:
            continue
        posterior = POSTERIORS[name]
        if which == "nuts":
            found = run_nuts(posterior, options.draws)
        else:
            found = run_sample(posterior, int(which.partition("-")[2]))
        record = {"posterior": name, "which": which, **found}
        records[name, which] = record
        with options.out.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(f"{name} {which}: {found['seconds']:.0f} s", flush=True)
        jax.clear_caches()
    print(table(records))


if __name__ == "__main__":
    main()

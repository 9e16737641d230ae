"""A black box of 5 ms a call: errors against an exact grid, one worker against two.

    python benchmarks/black_box.py FOLDER [--milliseconds 5] [--seeds 1]

The likelihood is that of noisy data of an equation that SciPy solves; a call that takes
less than the time given waits for the rest of it. Each run is written to
FOLDER/black_box.jsonl as it ends, and is not made again by the next call.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

import annealax as ax

LOW, HIGH = 0.05, 8.0
TIMES = np.linspace(0.0, 4.0, 9)
NOISE = 0.3


def solution(start: float, rate: float) -> np.ndarray:
    """Of y' = -rate y."""
    path = solve_ivp(
        lambda _, y: -rate * y, (0.0, 4.0), [start], t_eval=TIMES, rtol=1e-6
    )
    return path.y[0]


DATA = solution(3.0, 0.7) + NOISE * np.random.default_rng(0).normal(size=len(TIMES))


def log_density(path: np.ndarray) -> np.ndarray:
    """Log likelihood of solutions along the last axis."""
    return -0.5 * np.sum(((path - DATA) / NOISE) ** 2, axis=-1)


def slow(milliseconds: float) -> Callable[[np.ndarray], float]:
    """What is sampled: zero outside of a box."""

    def function(x: np.ndarray) -> float:
        began = time.perf_counter()
        inside = np.all((x > LOW) & (x < HIGH))
        value = float(log_density(solution(*x))) if inside else -np.inf
        time.sleep(max(0.0, 1e-3 * milliseconds - time.perf_counter() + began))
        return value

    return function


def exact(count: int = 2000) -> dict[str, Any]:
    """Log Z and means by the midpoint rule, with the solution in closed form."""
    edge = (HIGH - LOW) / count
    grid = LOW + edge * (np.arange(count) + 0.5)
    rows = []
    for start in grid:  # a row at a time: all would be 300 MB
        rows.append(log_density(start * np.exp(-grid[:, None] * TIMES)))
    values = np.stack(rows)
    top = values.max()
    density = np.exp(values - top)
    total = density.sum()
    return {
        "log_normalizer": float(top + np.log(total * edge**2)),
        "mean": [
            float(density.sum(axis=1) @ grid / total),
            float(density.sum(axis=0) @ grid / total),
        ],
    }


def run(workers: int, milliseconds: float, seed: int) -> dict[str, Any]:
    """One answer, with its time and its errors."""
    box = ax.black_box(slow(milliseconds), (2,), executor=workers, support=(LOW, HIGH))
    began = time.perf_counter()
    result = ax.sample(box, region=(LOW, HIGH), seed=seed)
    seconds, right = time.perf_counter() - began, exact()
    low, high = result.log_normalizer_interval()
    return {
        "seconds": seconds,
        "calls": box.calls.made,
        "log_normalizer": result.log_normalizer,
        "log_normalizer_stderr": result.log_normalizer_stderr,
        "log_normalizer_exact": right["log_normalizer"],
        "covered": low < right["log_normalizer"] < high,
        "mean": np.asarray(result.mean()).tolist(),
        "mean_stderr": np.asarray(result.mean_stderr()).tolist(),
        "mean_exact": right["mean"],
        "warnings": [doubt.code for doubt in result.warnings()],
    }


def main() -> None:
    """Measure what is missing, and say how many times faster two workers are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--milliseconds", type=float, default=5.0)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    file = given.folder / "black_box.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    found = {}
    for line in map(json.loads, lines):
        found[line["workers"], line["milliseconds"], line["seed"]] = line
    for seed in range(given.seeds):
        for workers in (1, 2):
            name = (workers, given.milliseconds, seed)
            if name not in found:
                keys = ("workers", "milliseconds", "seed")
                labels = dict(zip(keys, name, strict=True))
                found[name] = {**labels, **run(*name)}
                with file.open("a") as out:
                    out.write(json.dumps(found[name]) + "\n")
            print(json.dumps(found[name]), flush=True)
        one, two = (found[w, given.milliseconds, seed] for w in (1, 2))
        per_call = [each["seconds"] / each["calls"] for each in (one, two)]
        print(
            f"two workers: {per_call[0] / per_call[1]:.2f} times as many calls a second"
        )


if __name__ == "__main__":
    main()

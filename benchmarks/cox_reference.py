r"""Log Z of the Cox process of pines, in double precision, by NumPy alone.

    python benchmarks/cox_reference.py --out cox_reference.json --passes 30

The row of the Cox process in `automatic.py` needs a truth that is more exact than the
published value, and that shares nothing with what it judges: of annealax only the
positions of the trees are used. With the mode $m$, the curvature $P + D$ there
($P$ the prior's precision, $D$ the diagonal of $a e^m$) and $F F^T = (P + D)^{-1}$, let
$x = m + F z$ and $\delta = x - m$. All terms of first and second order at the mode
cancel, and

$$\log\gamma(x) = \log\gamma(m) - \tfrac12 |z|^2 - R, \qquad
  R = \sum_i D_i \big(e^{\delta_i} - 1 - \delta_i - \tfrac12 \delta_i^2\big).$$

So Z is the Laplace value times the mean of $e^{-R}$ under a standard normal: found by
SMC along $e^{-\lambda R}$, with HMC that turns the normal part exactly. Passes are
independent, and are kept one by one.
"""

import argparse
import itertools
import json
import math
import time
from pathlib import Path

import numpy as np

from annealax.targets import LogGaussianCoxPines

VARIANCE, LENGTH_SCALE = 1.91, 1 / 33


def problem(grid):
    """Mode, factor F, diagonal D, and log Z by Laplace's method."""
    unit = (LogGaussianCoxPines.points() + np.asarray([5.0, 8.0])) / 10.0
    edges = np.linspace(0, 1, grid + 1)
    counts = np.histogram2d(*unit.T, bins=(edges, edges))[0].ravel()
    area, size = 1 / grid**2, grid**2
    mean = math.log(counts.sum()) - VARIANCE / 2
    place = np.stack(np.meshgrid(*[np.arange(grid) / grid] * 2, indexing="ij"), -1)
    place = place.reshape(-1, 2)
    apart = np.linalg.norm(place[:, None] - place[None], axis=-1)
    covariance = VARIANCE * np.exp(-apart / LENGTH_SCALE)
    precision = np.linalg.inv(covariance)
    x = np.full(size, mean)
    for _ in range(50):
        rate = area * np.exp(x)
        slope = counts - rate - precision @ (x - mean)
        step = np.linalg.solve(precision + np.diag(rate), slope)
        x = x + step
        if np.abs(step).max() < 1e-12:
            break
    rate = area * np.exp(x)
    factor = np.linalg.cholesky(np.linalg.inv(precision + np.diag(rate)))
    peak = (
        -0.5 * (x - mean) @ precision @ (x - mean)
        - 0.5 * np.linalg.slogdet(covariance)[1]
        + np.sum(counts * x - rate)
    )
    return factor, rate, peak + np.sum(np.log(np.diag(factor)))


def one_pass(rng, factor, rate, count, temperatures, leapfrogs, angle):
    """An unbiased estimate of the mean of exp(-R), as a logarithm."""

    def remainder(z):
        delta = z @ factor.T
        growth = np.expm1(delta) - delta
        return (growth - 0.5 * delta**2) @ rate, (growth * rate) @ factor

    turn, lift = math.cos(angle), math.sin(angle)
    z = rng.normal(size=(count, len(rate)))
    value, slope = remainder(z)
    total, log_weights, accepted = 0.0, np.zeros(count), []
    ladder = np.linspace(0, 1, temperatures + 1) ** 1.5
    for before, after in itertools.pairwise(ladder):
        log_weights = log_weights - (after - before) * value
        weights = np.exp(log_weights - log_weights.max())
        if weights.sum() ** 2 / (weights**2).sum() < 0.5 * count:
            total += log_weights.max() + math.log(weights.mean())
            at = (rng.random() + np.arange(count)) / count
            chosen = np.searchsorted(np.cumsum(weights / weights.sum()), at)
            chosen = np.minimum(chosen, count - 1)
            z, value, slope = z[chosen], value[chosen], slope[chosen]
            log_weights = np.zeros(count)
        p = rng.normal(size=z.shape)
        new, new_value, new_slope = z, value, slope
        energy = after * value + 0.5 * np.sum(z * z + p * p, axis=1)
        for _ in range(leapfrogs):
            p = p - 0.5 * angle * after * new_slope
            new, p = turn * new + lift * p, turn * p - lift * new
            new_value, new_slope = remainder(new)
            p = p - 0.5 * angle * after * new_slope
        new_energy = after * new_value + 0.5 * np.sum(new * new + p * p, axis=1)
        yes = rng.exponential(size=count) > new_energy - energy
        z = np.where(yes[:, None], new, z)
        slope = np.where(yes[:, None], new_slope, slope)
        value = np.where(yes, new_value, value)
        accepted.append(float(np.mean(yes)))
    total += log_weights.max() + math.log(
        np.exp(log_weights - log_weights.max()).mean()
    )
    return float(total), float(np.mean(accepted))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("cox_reference.json"))
    parser.add_argument("--grid", type=int, default=40)
    parser.add_argument("--passes", type=int, default=30)
    parser.add_argument("--particles", type=int, default=500)
    parser.add_argument("--temperatures", type=int, default=60)
    parser.add_argument("--leapfrogs", type=int, default=4)
    parser.add_argument("--angle", type=float, default=0.45)
    given = parser.parse_args()
    key = f"{given.grid} {given.particles} {given.temperatures}"
    kept = json.loads(given.out.read_text()) if given.out.exists() else {}
    values = kept.setdefault(key, [])
    factor, rate, laplace = problem(given.grid)
    print(f"Laplace {laplace:.4f}", flush=True)
    while len(values) < given.passes:
        began = time.perf_counter()
        rng = np.random.default_rng([given.grid, len(values)])
        value, accepted = one_pass(
            rng,
            factor,
            rate,
            given.particles,
            given.temperatures,
            given.leapfrogs,
            given.angle,
        )
        values.append(laplace + value)
        given.out.write_text(json.dumps(kept, indent=1))
        seconds = time.perf_counter() - began
        print(f"{values[-1]:.4f}, accepted {accepted:.2f}, {seconds:.0f} s", flush=True)
    z = np.exp(np.asarray(values) - max(values))
    log_z = max(values) + math.log(z.mean())
    stderr = z.std(ddof=1) / z.mean() / math.sqrt(len(z))
    print(f"log Z {log_z:.4f} +- {stderr:.4f}, {len(z)} passes")


if __name__ == "__main__":
    main()

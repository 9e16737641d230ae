r"""Log Z of two targets in double precision, by NumPy alone.

    python benchmarks/reference.py cox --out reference.json
    python benchmarks/reference.py phi4 --out reference.json

For rows of `automatic.py` whose truth no formula gives: an estimate more exact than
what it judges, and that shares nothing with it (of annealax only the positions of the
trees are used).

Both write $Z = c\, \mathbb{E}[e^{-R(z)}]$ with a standard normal $z$, and find the mean
by SMC along $e^{-\lambda R}$, with HMC that turns the normal part exactly.

- Cox process of pines, 40 x 40 cells. With the mode $m$, the curvature $P + D$ there
  ($P$ the prior's precision, $D$ the diagonal of $a e^m$), $F F^T = (P + D)^{-1}$ and
  $\delta = F z$, all terms of first and second order cancel:

  $$R = \sum_i D_i \big(e^{\delta_i} - 1 - \delta_i - \tfrac12 \delta_i^2\big).$$

- Lattice phi^4, 8 x 8, mass squared -4.75, coupling 5.1. Both signs are alike, so that

  $$Z = \int e^{-S(\phi)}\, 2 \sigma(k M(\phi))\, d\phi$$

  for any $k$, where $M$ is the sum of the field and $\sigma$ the logistic function: one
  mode is left. $\phi = m + F z$, somewhat wider than particles of a first pass. (With
  4000 particles instead of 20 000 the estimates are skewed, and low by 0.02.)

Passes are independent, and are kept one by one.
"""

import argparse
import itertools
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from annealax.targets import LogGaussianCoxPines


class Problem(NamedTuple):
    """Log c, the dimension, and R with its gradient at an array of z.

    The others say how passes are made.
    """

    log_constant: float
    size: int
    remainder: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    particles: int
    temperatures: int
    leapfrogs: int
    angle: float


def cox(grid=40, variance=1.91, length_scale=1 / 33):
    """The Cox process."""
    unit = (LogGaussianCoxPines.points() + np.asarray([5.0, 8.0])) / 10.0
    edges = np.linspace(0, 1, grid + 1)
    counts = np.histogram2d(*unit.T, bins=(edges, edges))[0].ravel()
    area, size = 1 / grid**2, grid**2
    mean = math.log(counts.sum()) - variance / 2
    place = np.stack(np.meshgrid(*[np.arange(grid) / grid] * 2, indexing="ij"), -1)
    place = place.reshape(-1, 2)
    apart = np.linalg.norm(place[:, None] - place[None], axis=-1)
    covariance = variance * np.exp(-apart / length_scale)
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

    def remainder(z):
        delta = z @ factor.T
        growth = np.expm1(delta) - delta
        return (growth - 0.5 * delta**2) @ rate, (growth * rate) @ factor

    log_laplace = peak + np.sum(np.log(np.diag(factor)))
    return Problem(log_laplace, size, remainder, 500, 60, 4, 0.45)


def phi4(side=8, mass_squared=-4.75, coupling=5.1, softness=0.2):
    """The lattice field."""
    size = side**2
    single = (
        2 * np.eye(side) - np.roll(np.eye(side), 1, 0) - np.roll(np.eye(side), -1, 0)
    )
    kinetic = np.kron(single, np.eye(side)) + np.kron(np.eye(side), single)

    def placed(centre, covariance):
        factor = np.linalg.cholesky(covariance)
        log_constant = 0.5 * size * math.log(2 * math.pi)
        log_constant += np.sum(np.log(np.diag(factor)))

        def remainder(z):
            phi = centre + z @ factor.T
            force = phi @ kinetic
            action = np.sum(
                phi * force + mass_squared * phi**2 + coupling * phi**4, axis=1
            )
            slope = 2 * force + 2 * mass_squared * phi + 4 * coupling * phi**3
            total = softness * phi.sum(axis=1)
            # Minus log 2 sigma, and its derivative.
            action += np.logaddexp(0, -total) - math.log(2)
            slope -= softness / (1 + np.exp(total))[:, None]
            return action - 0.5 * np.sum(z**2, axis=1), slope @ factor - z

        return Problem(log_constant, size, remainder, 20_000, 60, 4, 0.35)

    level = math.sqrt(-mass_squared / (2 * coupling))
    curvature = 2 * kinetic - 4 * mass_squared * np.eye(size)
    centre = np.full(size, level)
    first = placed(centre, np.linalg.inv(curvature))
    end = one_pass(np.random.default_rng(99), first)
    phi = centre + end.z @ np.linalg.cholesky(np.linalg.inv(curvature)).T
    values, vectors = np.linalg.eigh(np.cov(phi.T))
    # Long waves are wider between the signs than in a mode.
    values = values * (1.05 + np.sqrt(values / values[-1]))
    return placed(phi.mean(axis=0), (vectors * values) @ vectors.T)


class Pass(NamedTuple):
    """Log of an estimate of the mean of exp(-R), particles, and acceptance."""

    log_mean: float
    z: np.ndarray
    accepted: float


def one_pass(rng, problem):
    """An SMC pass; the exponential of its estimate is unbiased."""
    turn, lift = math.cos(problem.angle), math.sin(problem.angle)
    count = problem.particles
    z = rng.normal(size=(count, problem.size))
    value, slope = problem.remainder(z)
    total, log_weights, accepted = 0.0, np.zeros(count), []
    ladder = np.linspace(0, 1, problem.temperatures + 1) ** 1.5
    for before, after in itertools.pairwise(ladder):
        log_weights = log_weights - (after - before) * value
        weights = np.exp(log_weights - log_weights.max())
        few = weights.sum() ** 2 / (weights**2).sum() < 0.5 * count
        if few or after == 1:
            total += log_weights.max() + math.log(weights.mean())
            at = (rng.random() + np.arange(count)) / count
            chosen = np.searchsorted(np.cumsum(weights / weights.sum()), at)
            chosen = np.minimum(chosen, count - 1)
            z, value, slope = z[chosen], value[chosen], slope[chosen]
            log_weights = np.zeros(count)
        p = rng.normal(size=z.shape)
        new, new_value, new_slope = z, value, slope
        energy = after * value + 0.5 * np.sum(z * z + p * p, axis=1)
        for _ in range(problem.leapfrogs):
            p = p - 0.5 * problem.angle * after * new_slope
            new, p = turn * new + lift * p, turn * p - lift * new
            new_value, new_slope = problem.remainder(new)
            p = p - 0.5 * problem.angle * after * new_slope
        new_energy = after * new_value + 0.5 * np.sum(new * new + p * p, axis=1)
        yes = rng.exponential(size=count) > new_energy - energy
        z = np.where(yes[:, None], new, z)
        slope = np.where(yes[:, None], new_slope, slope)
        value = np.where(yes, new_value, value)
        accepted.append(float(np.mean(yes)))
    return Pass(float(total), z, float(np.mean(accepted)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=("cox", "phi4"))
    parser.add_argument("--out", type=Path, default=Path("reference.json"))
    parser.add_argument("--passes", type=int, default=30)
    given = parser.parse_args()
    if given.passes < 2:
        parser.error(f"an error bar takes 2 passes at the least, got {given.passes}")
    kept = json.loads(given.out.read_text()) if given.out.exists() else {}
    values = kept.setdefault(given.target, [])
    problem = {"cox": cox, "phi4": phi4}[given.target]()
    while len(values) < given.passes:
        began = time.perf_counter()
        end = one_pass(np.random.default_rng([40, len(values)]), problem)
        values.append(problem.log_constant + end.log_mean)
        given.out.write_text(json.dumps(kept, indent=1))
        seconds = time.perf_counter() - began
        print(
            f"{values[-1]:.4f}, accepted {end.accepted:.2f}, {seconds:.0f} s",
            flush=True,
        )
    z = np.exp(np.asarray(values) - max(values))
    log_z = max(values) + math.log(z.mean())
    stderr = z.std(ddof=1) / z.mean() / math.sqrt(len(z))
    print(f"log Z {log_z:.4f} +- {stderr:.4f}, {len(z)} passes")


if __name__ == "__main__":
    main()

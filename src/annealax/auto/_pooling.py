"""Replicates put together: the draws of all, each by its own estimate of Z."""

from typing import NamedTuple

import jax
import numpy as np

from annealax._estimates import log_mean, pareto_shape
from annealax._result import Result, StepInfo
from annealax.auto._placement import Coordinates, positions


class Pool(NamedTuple):
    """Several replicates as one weighted sample.

    Attributes:
        vectors: Unconstrained draws of all replicates.
        log_weights: Their normalised log weights.
        roots: Which initial draw of its replicate each descends from.
        log_normalizers: log Z of each replicate.
        stderrs: Standard error of each.
        steps: Diagnostics: arrays of replicates by transitions.
        pareto_k: Shape of the tail of what initial draws contribute to Z.
    """

    vectors: np.ndarray
    log_weights: np.ndarray
    roots: np.ndarray
    log_normalizers: np.ndarray
    stderrs: np.ndarray
    steps: StepInfo
    pareto_k: float

    @property
    def weights(self) -> np.ndarray:
        """Normalised weights."""
        return np.exp(self.log_weights)

    @property
    def ess(self) -> float:
        """Effective sample size of the weights."""
        return float(1 / np.sum(self.weights**2))

    @property
    def num_particles(self) -> int:
        """Particles of a replicate."""
        return len(self.log_weights) // len(self.log_normalizers)


def pool_replicates(results: list[Result], placement: Coordinates) -> Pool:
    """Put replicates in the coordinates of a placement together."""
    log_normalizers = np.asarray([r.log_normalizer for r in results], np.float64)
    log_weights = np.concatenate(
        [
            np.asarray(r.log_weights, np.float64) + value
            for r, value in zip(results, log_normalizers, strict=True)
        ]
    )
    steps = jax.tree.map(lambda *each: np.stack(each), *[r.steps for r in results])
    return Pool(
        vectors=np.concatenate(
            [positions(placement, np.asarray(r.x)) for r in results]
        ),
        log_weights=log_weights - log_mean(log_weights) - np.log(len(log_weights)),
        roots=np.concatenate([np.asarray(r.particles.roots) for r in results]),
        log_normalizers=log_normalizers,
        stderrs=np.asarray([r.log_normalizer_stderr for r in results], np.float64),
        steps=StepInfo(*steps),
        pareto_k=pareto_shape(_root_contributions(results, log_normalizers)),
    )


def _root_contributions(
    results: list[Result], log_normalizers: np.ndarray
) -> np.ndarray:
    """What each initial draw contributes to Z, through all its descendants."""
    scale = np.exp(log_normalizers - log_normalizers.max())
    parts = []
    for result, factor in zip(results, scale, strict=True):
        count = result.particles.num_particles
        by_root = np.bincount(
            np.asarray(result.particles.roots),
            np.asarray(result.weights, np.float64),
            count,
        )
        parts.append(factor * by_root)
    return np.concatenate(parts)

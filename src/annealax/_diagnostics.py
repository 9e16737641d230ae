r"""Convergence of Markov chains (Vehtari et al. 2021).

Each chain is split in half and the draws are replaced by normal scores of their ranks,
:math:`z = \Phi^{-1}((r - 3/8) / (n + 1/4))`, ties sharing their average rank. Then

- R-hat compares the variance between the halves with that within them; it is also
  taken of the distances from the median, and the larger of the two counts;
- the bulk effective sample size is that of the scores.
"""

import jax
import numpy as np
from blackjax.diagnostics import effective_sample_size, potential_scale_reduction


def split_rhat(trace: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat of traces of shape (chains, iterations, ...).

    The result has the trailing shape; NaN for an observable that never changes.
    """
    halves = _split(trace)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    values = [
        np.asarray(potential_scale_reduction(_normal_scores(each)))
        for each in (halves, folded)
    ]
    return np.asarray(np.fmax(*values)).reshape(trace.shape[2:])


def bulk_effective_sample_size(trace: np.ndarray) -> np.ndarray:
    """Bulk effective sample size of traces of shape (chains, iterations, ...)."""
    scores = _normal_scores(_split(trace))
    return np.asarray(effective_sample_size(scores)).reshape(trace.shape[2:])


def _split(trace: np.ndarray) -> np.ndarray:
    """Halves of chains as chains, the trailing shape flattened."""
    chains, length = trace.shape[:2]
    half = length // 2
    flat = np.asarray(trace, np.float64).reshape(chains, length, -1)
    return np.concatenate([flat[:, :half], flat[:, half : 2 * half]])


def _normal_scores(trace: np.ndarray) -> np.ndarray:
    pooled = trace.reshape(-1, trace.shape[2])
    scores = np.empty_like(pooled)
    for column in range(pooled.shape[1]):
        _, inverse, counts = np.unique(
            pooled[:, column], return_inverse=True, return_counts=True
        )
        last = np.cumsum(counts)
        scores[:, column] = (last - 0.5 * (counts - 1))[inverse]
    quantiles = (scores - 0.375) / (len(pooled) + 0.25)
    normal = np.asarray(jax.scipy.special.ndtri(quantiles.astype(np.float32)))
    return normal.reshape(trace.shape)

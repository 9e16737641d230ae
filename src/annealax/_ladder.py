r"""Ladders of temperatures: how hard transitions are, and how to make them equal.

A transition loses nats: the free energy above the log ratio of the two normalising
constants, half the variance of its incremental log weights to leading order. The root
of that is a length which adds up along the path, so a ladder whose rungs have equal
length is as good as a ladder of that many rungs can be.
"""

import numpy as np

from annealax._result import Result

_UNMEASURED = 4.0
"""A transition that lost more nats was not measured, only found wanting."""

_SHORTEST = 0.02
"""No transition counts as shorter than this share of the mean."""


def work_of(result: Result) -> np.ndarray:
    """Nats lost at each transition: the free energy above the log ratio."""
    steps = result.steps
    work = np.asarray(steps.free_energy) + np.asarray(steps.log_ratio)
    return np.maximum(work.astype(np.float64), 0)


def lengths(work: np.ndarray) -> np.ndarray:
    """Length of each transition: the root of what it loses, never quite zero."""
    work = np.nan_to_num(np.asarray(work, np.float64), nan=1.0, posinf=_UNMEASURED)
    root = np.sqrt(np.clip(work, 0, _UNMEASURED))
    return root + _SHORTEST * root.mean() + 1e-6


def even_betas(betas: np.ndarray, work: np.ndarray, num_transitions: int) -> np.ndarray:
    """Temperatures between which transitions are equally hard.

    Args:
        betas: Temperatures at which the work was measured.
        work: Nats lost at each transition.
        num_transitions: How many there shall be.
    """
    total = np.concatenate([[0.0], np.cumsum(lengths(work))])
    even = np.linspace(0, total[-1], num_transitions + 1)
    spaced = np.interp(even, total, np.asarray(betas, np.float64))
    spaced[0], spaced[-1] = 0.0, 1.0
    return rising(spaced)


def rising(betas: np.ndarray) -> np.ndarray:
    """Strictly rising from 0 to 1 in single precision, keeping what can be kept."""
    kept = [0.0]
    for beta in np.asarray(betas, np.float32)[1:-1]:
        if np.float32(kept[-1]) < beta < 1:
            kept.append(float(beta))
    kept.append(1.0)
    while len(kept) < len(betas):  # collisions: split the widest gaps
        gap = int(np.argmax(np.diff(kept)))
        kept.insert(gap + 1, 0.5 * (kept[gap] + kept[gap + 1]))
    return np.asarray(kept)

"""Reasons for doubt, in words."""

import numpy as np

from annealax._estimates import pooled_stderr, rounding_of
from annealax._result import StepInfo
from annealax.auto._answer import ModeTable
from annealax.auto._pooling import Pool

_MIN_ESS = 200
_MIN_ACCEPTANCE = 0.4
_MODE_SHARE = 0.01


def doubts(pool: Pool, modes: ModeTable, num_unseen: float) -> tuple[str, ...]:
    """All reasons to doubt an answer; none if there are none.

    Args:
        pool: The replicates.
        modes: Peaks among the draws.
        num_unseen: Modes that there probably are beyond those that the start is made
            of.
    """
    found = [
        *_about_replicates(pool.log_normalizers, pool.stderrs, pool.pareto_k),
        *_about_weights(pool.ess, pool.pareto_k),
        *_about_steps(pool.steps, pool.num_particles),
        *_about_modes(modes),
        *_about_start(num_unseen),
    ]
    return tuple(found)


def _about_replicates(
    log_normalizers: np.ndarray, stderrs: np.ndarray, pareto_k: float
):
    count = len(log_normalizers)
    error = pooled_stderr(log_normalizers, stderrs, pareto_k)
    spread = float(np.std(log_normalizers, ddof=1)) if count > 1 else 0.0
    typical = float(np.sqrt(np.mean(np.square(stderrs))))
    if count > 1 and spread > 2 * typical + 1e-3:
        yield (
            f"replicates disagree: log Z differs by {spread:.2g} from one to another, "
            f"but each claims {typical:.2g}; parts of the target may be missed by "
            "some: give a larger budget"
        )
    rounding = rounding_of(log_normalizers)
    if rounding > 0.5 * error:
        yield (
            f"log Z is so large that it is rounded to {rounding:.2g}, which is most of "
            "its error: subtract a constant from the log density, or use double "
            'precision (jax.config.update("jax_enable_x64", True))'
        )
    if error > 0.2:
        yield (
            f"the error of log Z is {error:.2g}: too large for a normal "
            "approximation; give a larger budget"
        )


def _about_weights(ess: float, pareto_k: float):
    if ess < _MIN_ESS:
        yield (
            f"the effective sample size is {ess:.0f}: expectations rest on few draws; "
            "give a larger budget"
        )
    if pareto_k > 0.7:
        yield (
            f"the weights have a heavy tail (Pareto k = {pareto_k:.2f}, above 0.7): "
            "log Z is probably too low and its error bar too small"
        )


def _about_steps(steps: StepInfo, num_particles: int):
    rates = np.asarray(steps.acceptance_rate).mean(axis=0)
    if rates.min() < _MIN_ACCEPTANCE:
        worst = int(np.argmin(rates))
        yield (
            f"acceptance is {rates[worst]:.2f} at temperature {worst + 1} of "
            f"{len(rates)}: moves there are mostly refused"
        )
    for name, counts in (
        ("NaN", np.asarray(steps.num_nan)),
        ("+inf", np.asarray(steps.num_infinite)),
    ):
        if counts.any():
            share = counts.sum() / (counts.size * num_particles)
            yield (
                f"the density was {name} at {counts.sum()} of the points where "
                f"particles were weighed ({share:.2g}); they count as zero density"
            )


def _about_modes(modes: ModeTable):
    if len(modes.weights) < 2:
        return
    few = [
        (weight, int(np.sum(shares > 0)))
        for weight, shares in zip(modes.weights, modes.shares.T, strict=True)
        if weight > _MODE_SHARE and np.mean(shares > 0) < 0.5
    ]
    if few:
        weight, seen = max(few)
        yield (
            f"{len(few)} of {len(modes.weights)} modes were seen by fewer than half of "
            f"the {len(modes.shares)} replicates (one with weight {weight:.2g} by "
            f"{seen}): mode weights are uncertain, and modes may be missing"
        )


def _about_start(num_unseen: float):
    if num_unseen >= 0.5:
        yield (
            f"ascents went on to find new modes: about {num_unseen:.0f} more may exist "
            "that the start does not know, and log Z may be too low"
        )

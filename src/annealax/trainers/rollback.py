r"""When training has gone wrong, and where to go back to.

The steps of a fit fall into blocks of equal length. Block :math:`j` is *bad* if

- most of its losses are not finite, or
- most of its updates were skipped because the gradient was not finite, or
- it is far above where training began: with the medians :math:`m_i` of the losses in
  the blocks, the noise :math:`s` (a robust standard deviation of the losses within
  blocks) and the best block so far,

$$ m_j > m_0 + (m_0 - \min_{i<j} m_i) + 10 \max(1, s) . $$

Two bad blocks in a row, or a bad one at the end, and the fit stops with the state that
the last good block *began* with: that its losses were good is known. What is decided
depends on the losses alone, not on the clock, so a resumed fit decides the same.
"""

from typing import Any, NamedTuple

import numpy as np

from annealax.trainers.base import TrainInfo

_FEW_STEPS = 5  # fewer say nothing about noise
_PATIENCE = 2


class Rollback(NamedTuple):
    """Training diverged, and went back.

    Attributes:
        step: The step whose state was taken; 0 is the start.
        detected: Steps made when it was found out.
        reason: What went wrong, in words.
    """

    step: int
    detected: int
    reason: str


def block_length(num_steps: int, steps_per_call: int | None) -> int:
    """Steps of a block: a tenth of the fit, from 20 to 100; whole device calls."""
    length = min(max(num_steps // 10, 20), 100)
    call = steps_per_call or 1
    return -(-length // call) * call


def judge(history: TrainInfo, length: int) -> str | None:
    """What is wrong with the last block of a history, in words; None if nothing.

    Args:
        history: All steps so far.
        length: Steps of a block.
    """
    losses = np.asarray(history.loss, np.float64)
    blocks = [losses[i : i + length] for i in range(0, len(losses), length)]
    if len(blocks) > 1 and len(blocks[-1]) < _FEW_STEPS:  # too short by itself
        blocks[-2:] = [np.concatenate(blocks[-2:])]
    last, size = blocks[-1], len(blocks[-1])
    lost = size - np.count_nonzero(np.isfinite(last))
    if lost == size or (size >= _FEW_STEPS and lost > 0.5 * size):
        return f"the loss was not finite in {lost} of {size} steps"
    if size < _FEW_STEPS:
        return None
    transitions = np.asarray(history.steps.ess).shape[1]
    skipped = np.asarray(history.num_skipped, np.float64)[-size:].sum()
    if skipped > 0.5 * size * transitions:
        return (
            f"{skipped:.0f} of {size * transitions} updates of the flows had a "
            "gradient that was not finite"
        )
    return _explosion(blocks)


def _explosion(blocks: list[np.ndarray]) -> str | None:
    # The first block is judged by its first losses, which few updates have touched.
    before = blocks[:-1] or [blocks[0][:3]]
    medians = np.array([_median(block) for block in before])
    if not np.isfinite(medians[0]):
        return None  # nothing to compare with
    deviations = [
        np.abs(block - _median(block))
        for block in (before if len(blocks) > 1 else blocks)
        if np.isfinite(_median(block))
    ]
    noise = 1.4826 * _median(np.concatenate(deviations))
    gained = medians[0] - np.nanmin(medians)
    here, limit = _median(blocks[-1]), medians[0] + gained + 10 * max(1.0, noise)
    if not here > limit:
        return None
    return (
        f"the loss rose to {here:.4g}, from {medians[0]:.4g} at the start and "
        f"{np.min(medians):.4g} at best"
    )


def _median(losses: np.ndarray) -> float:
    """The median, counting what is not finite as infinite."""
    return float(np.median(np.where(np.isfinite(losses), losses, np.inf)))


class Watch(NamedTuple):
    """Follows a fit, block by block.

    Attributes:
        length: Steps of a block.
        anchor: The state that the present block began with.
        good: The state that the last good block began with.
        anchor_step: The step of `anchor`.
        good_step: The step of `good`.
        num_bad: Bad blocks in a row.
    """

    length: int
    anchor: Any
    good: Any
    anchor_step: int = 0
    good_step: int = 0
    num_bad: int = 0

    def steps_left(self, step: int) -> int:
        """Steps until the present block ends."""
        return self.anchor_step + self.length - step

    def after_block(
        self, step: int, state: Any, history: TrainInfo, *, is_last: bool
    ) -> tuple["Watch", Rollback | None]:
        """The watch after a block, or the fit, has ended, and what to do about it."""
        watch, reason = self, judge(history, self.length)
        if reason is None:
            watch = watch._replace(
                good=self.anchor, good_step=self.anchor_step, num_bad=0
            )
        else:
            watch = watch._replace(num_bad=self.num_bad + 1)
            if is_last or watch.num_bad >= _PATIENCE:
                return watch, Rollback(watch.good_step, step, reason)
        return watch._replace(anchor=state, anchor_step=step), None

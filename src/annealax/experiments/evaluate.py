"""Several passes of one sampler: what they estimate, how far apart, at which cost."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import PRNGKeyArray

from annealax._doubts import Doubt
from annealax._result import Result
from annealax._sampler import Sampler, jitted_pass, pass_arguments
from annealax._work.checkpoint import Checkpoint
from annealax._work.drive import Callback, as_callbacks, call_all
from annealax._work.fingerprint import fingerprint
from annealax._work.program import compile_ahead
from annealax._work.progress import Lines
from annealax._work.signals import deferred_signals


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Independent passes of one sampler.

    Attributes:
        label: What to call it.
        sampler: The sampler.
        flows: Its flows, if any.
        result: The first pass, in full.
        log_normalizers: log Z of every pass.
        stderrs: The error bar that each pass gave for it.
        ess: Final effective sample size of every pass, as a fraction of N.
        lowest_ess: The lowest along the ladder, before resampling.
        seconds: Time of the fastest pass, after compilation.
    """

    label: str
    sampler: Sampler
    flows: AbstractBijection | None
    result: Result
    log_normalizers: np.ndarray
    stderrs: np.ndarray
    ess: np.ndarray
    lowest_ess: np.ndarray
    seconds: float

    @property
    def num_transitions(self) -> int:
        """Annealing transitions of a pass."""
        return self.sampler.path.num_transitions

    @property
    def mean(self) -> float:
        """Mean of log Z over the passes."""
        return float(np.mean(self.log_normalizers))

    @property
    def spread(self) -> float | None:
        """Standard deviation of log Z over the passes; None for a single pass."""
        if len(self.log_normalizers) < 2:
            return None
        return float(np.std(self.log_normalizers, ddof=1))

    def squared_error(self, truth: float | None) -> float | None:
        """Mean squared error of log Z; its variance if the truth is unknown."""
        if truth is not None:
            return float(np.mean((self.log_normalizers - truth) ** 2))
        return None if self.spread is None else self.spread**2

    def warnings(self) -> list[Doubt]:
        """Reasons to doubt the first pass, or all of them."""
        messages = self.result.warnings()
        typical = float(np.sqrt(np.mean(self.stderrs**2)))
        spread = self.spread
        if spread is not None and len(self.stderrs) >= 5 and spread > 2 * typical:
            messages.append(
                Doubt(
                    "passes-disagree",
                    f"passes spread by {spread:.2g}, but their own error bars say "
                    f"{typical:.2g}: trust the spread; some passes may miss modes",
                )
            )
        return messages


@dataclasses.dataclass(frozen=True)
class CompiledPass:
    """A pass of a sampler, compiled.

    Attributes:
        run: From a key to the result of a finished, checked pass.
        compile_seconds: Time to compile.
        memory: Bytes that it needs.
    """

    run: Callable[[PRNGKeyArray], Result]
    compile_seconds: float
    memory: int


def compile_pass(
    sampler: Sampler, flows: AbstractBijection | None = None
) -> CompiledPass:
    """Compile `sampler.run`."""
    program = compile_ahead(jitted_pass, *pass_arguments(sampler, jr.key(0), flows))

    def run(key: PRNGKeyArray) -> Result:
        arguments = pass_arguments(sampler, key, flows)
        result = jax.block_until_ready(program.run(*arguments))
        result.check(sampler.path)
        return result

    return CompiledPass(run, program.compile_seconds, program.memory)


class PassSnapshot(NamedTuple):
    """What a callback of `evaluate` sees after each pass.

    Attributes:
        step: Passes made so far.
        num_steps: Passes asked for.
        row: log Z, its error bar, final and lowest ESS of this pass.
        seconds: Time of all passes so far.
    """

    step: int
    num_steps: int
    row: np.ndarray
    seconds: float

    def metrics(self) -> dict[str, np.ndarray]:
        """The numbers of this pass."""
        names = ("log_normalizer", "log_normalizer_stderr", "ess", "lowest_ess")
        return dict(zip(names, self.row[:, None], strict=True))


def evaluate(
    key: PRNGKeyArray,
    sampler: Sampler,
    flows: AbstractBijection | None = None,
    *,
    label: str,
    num_repeats: int,
    progress: bool = False,
    callback: Callback | Iterable[Callback] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Evaluation:
    """Run the sampler several times, after one pass to compile it.

    Args:
        key: Random key; a pass depends on it and on its own index alone.
        sampler: The sampler.
        flows: Flows for it, or None.
        label: What to call it.
        num_repeats: Number of passes.
        progress: Show a live line with log Z and ESS.
        callback: One or several functions of a `PassSnapshot`, called after each pass.
        checkpoint: Where finished passes are saved; the same call goes on from there.
    """
    callbacks = as_callbacks(callback)
    passes = _Passes(key, sampler, flows, num_repeats)
    if checkpoint is not None:
        passes.load(checkpoint)
    done = len(passes.rows)
    with Lines(f"{label}, passes", num_repeats, enabled=progress, start=done) as line:
        callbacks.append(lambda each: line.update(each.step, _describe(each.row)))
        if checkpoint is None:
            for snapshot in passes.make():
                call_all(callbacks, snapshot)
        else:
            passes.make_and_keep(label, callbacks, checkpoint)
    log_normalizers, stderrs, ess, lowest_ess = passes.rows.T
    assert passes.first is not None
    return Evaluation(
        label=label,
        sampler=sampler,
        flows=flows,
        result=passes.first,
        log_normalizers=log_normalizers,
        stderrs=stderrs,
        ess=ess,
        lowest_ess=lowest_ess,
        seconds=float(passes.seconds.min()),
    )


class _Passes:
    """Passes under way: all that a checkpoint holds."""

    def __init__(
        self,
        key: PRNGKeyArray,
        sampler: Sampler,
        flows: AbstractBijection | None,
        num_repeats: int,
    ):
        self.key, self.sampler, self.flows = key, sampler, flows
        self.num_repeats = num_repeats
        self.first: Result | None = None
        self.rows, self.seconds = np.zeros((0, 4)), np.zeros(0)

    def make(self) -> Iterator[PassSnapshot]:
        """Make the passes that are left."""
        if len(self.rows) < self.num_repeats:
            self.first = self._run(0)  # compiles; not timed
        while len(self.rows) < self.num_repeats:
            began = time.perf_counter()
            result = self._run(len(self.rows))
            self.seconds = np.append(self.seconds, time.perf_counter() - began)
            row = pass_numbers(result, self.sampler.num_particles)
            self.rows = np.append(self.rows, [row], axis=0)
            yield PassSnapshot(
                len(self.rows), self.num_repeats, row, float(self.seconds.sum())
            )

    def make_and_keep(
        self, label: str, callbacks: list[Callback], store: Checkpoint
    ) -> None:
        """Make the passes that are left, and save them as they come."""
        with deferred_signals() as signals:
            for snapshot in self.make():
                call_all(callbacks, snapshot)
                is_last = snapshot.step == self.num_repeats
                if is_last or signals.pending or store.due(snapshot.step):
                    self.save(store)
                signals.stop_if_asked(f"{label} stopped after {snapshot.step} passes")

    def _run(self, index: int) -> Result:
        key = jr.fold_in(self.key, index)
        return jax.block_until_ready(self.sampler.run(key, self.flows))

    def save(self, store: Checkpoint) -> None:
        """Save finished passes."""
        count = len(self.rows)
        store.save(
            (self.first, self.rows, self.seconds),
            identity=self._identity(),
            meta={"done": count},
            step=count,
        )

    def load(self, store: Checkpoint) -> None:
        """Take over finished passes, if there are any."""
        if (saved := store.latest(self._identity())) is None:
            return
        count = saved.meta["done"]
        shapes = eqx.filter_eval_shape(self.sampler.run, self.key, self.flows)
        like = (shapes, np.zeros((count, 4)), np.zeros(count))
        self.first, self.rows, self.seconds = saved.restore(like)

    def _identity(self) -> dict[str, Any]:
        return {
            "work": "evaluate",
            "num_repeats": self.num_repeats,
            "key": fingerprint(self.key),
            "sampler": fingerprint((self.sampler, self.flows)),
        }


def _describe(row: np.ndarray) -> str:
    log_normalizer, _, ess, _ = row
    return f"log Z {log_normalizer:.4f}  ESS {ess:.0%}"


def pass_numbers(result: Result, num_particles: int) -> np.ndarray:
    """What a `PassSnapshot` says of a pass."""
    numbers = (
        result.log_normalizer,
        result.log_normalizer_stderr,
        result.ess / num_particles,
        result.steps.ess.min() / num_particles,
    )
    return np.array([float(number) for number in numbers])

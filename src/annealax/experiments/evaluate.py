"""Several passes of one sampler: what they estimate, how far apart, at which cost."""

import dataclasses
import time
from collections.abc import Callable

import jax
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import PRNGKeyArray

from annealax._memory import peak_memory
from annealax._result import Result
from annealax._sampler import Sampler, lower_pass, pass_arguments


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

    def warnings(self) -> list[str]:
        """Reasons, in words, to doubt the first pass, or all of them."""
        messages = self.result.warnings()
        typical = float(np.sqrt(np.mean(self.stderrs**2)))
        spread = self.spread
        if spread is not None and len(self.stderrs) >= 5 and spread > 2 * typical:
            messages.append(
                f"passes spread by {spread:.2g}, but their own error bars say "
                f"{typical:.2g}: trust the spread; some passes may miss modes"
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
    began = time.perf_counter()
    compiled = lower_pass(sampler, jr.key(0), flows).compile()
    seconds = time.perf_counter() - began

    def run(key: PRNGKeyArray) -> Result:
        result = jax.block_until_ready(compiled(*pass_arguments(sampler, key, flows)))
        result.check(sampler.path)
        return result

    return CompiledPass(run, seconds, peak_memory(compiled))


def evaluate(
    key: PRNGKeyArray,
    sampler: Sampler,
    flows: AbstractBijection | None = None,
    *,
    label: str,
    num_repeats: int,
) -> Evaluation:
    """Run the sampler several times, after one pass to compile it.

    Args:
        key: Random key; a pass depends on it and on its own index alone.
        sampler: The sampler.
        flows: Flows for it, or None.
        label: What to call it.
        num_repeats: Number of passes.
    """

    def run(index: int) -> Result:
        return jax.block_until_ready(sampler.run(jr.fold_in(key, index), flows))

    first = run(0)
    seconds, rows = [], []
    for index in range(num_repeats):
        began = time.perf_counter()
        result = run(index)
        seconds.append(time.perf_counter() - began)
        rows.append(
            (
                result.log_normalizer,
                result.log_normalizer_stderr,
                result.ess / sampler.num_particles,
                result.steps.ess.min() / sampler.num_particles,
            )
        )
    log_normalizers, stderrs, ess, lowest_ess = np.asarray(rows, np.float64).T
    return Evaluation(
        label=label,
        sampler=sampler,
        flows=flows,
        result=first,
        log_normalizers=log_normalizers,
        stderrs=stderrs,
        ess=ess,
        lowest_ess=lowest_ess,
        seconds=min(seconds),
    )

"""`annealax.sample`: a log density in, samples and log Z out.

Four stages, of which only the last makes the answer:

1. a start, and coordinates in which the density is tame (`_start`);
2. temperatures, step sizes and trajectory lengths, over a few passes (`_plan`);
3. flows, if they pay (`_flow_choice`);
4. independent runs of the sampler so found, frozen (`_answer`).
"""

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, PRNGKeyArray
from rich.console import Console

from annealax._estimates import log_mean
from annealax._ladder import work_of
from annealax._result import Result
from annealax._sampler import Sampler
from annealax._work.budget import Budget
from annealax._work.checkpoint import Checkpoint, as_checkpoint
from annealax._work.drive import Callback, as_callbacks, call_all
from annealax.auto._answer import ReplicateSnapshot, Sample, Stage
from annealax.auto._choice import Choice
from annealax.auto._explore import Ascents
from annealax.auto._flow_choice import choose_flows, families_for
from annealax.auto._kept import Kept
from annealax.auto._messages import doubts
from annealax.auto._modes import find_modes
from annealax.auto._plan import Plan, first_plan
from annealax.auto._pooling import pool_replicates
from annealax.auto._space import Support
from annealax.auto._start import Search
from annealax.auto._task import Task, task_of

_TUNING_PASSES = 4
_MIN_REPLICATES, _MAX_REPLICATES = 4, 256
_GOOD_ENOUGH, _PRECISE = 0.05, 0.03
_MANY_DIMENSIONS = 500


def sample(
    log_density: Callable[[Any], Array],
    shape: int | Sequence[int] | Mapping[str, int | Sequence[int]] | None = None,
    *,
    seed: int = 0,
    budget: Budget | str | float | None = None,
    support: Support | Mapping[str, Support] = None,
    flow: str = "auto",
    num_particles: int | None = None,
    num_replicates: int | None = None,
    progress: bool | Callable[[str], None] = False,
    callback: Callback | Iterable[Callback] | None = None,
    checkpoint: Checkpoint | str | os.PathLike | None = None,
) -> Sample:
    """Draw from an unnormalised density and estimate its normalising constant.

    Everything is chosen for you: where to start, temperatures, step sizes, flows. The
    answer comes from independent runs of the sampler so found, so that the estimate
    of Z is unbiased and its error bar honest. Read `result.summary()`, and above all
    `result.warnings()`.

    Args:
        log_density: Log density of one point, up to a constant; any JAX function.
        shape: Shape of a point such as `(2,)`; or a dict of shapes by name, and the
            density takes a dict. None for a target that has a `shape`.
        seed: Seed of all that is random.
        budget: None; or a time such as "60s" or "5m"; or a number of density
            evaluations. More budget buys more replicates.
        support: Where parameters may lie: "real", "positive", "unit" (0 to 1),
            "simplex" (along the last axis), a pair of bounds such as `(0, 10)` or
            `(None, 3)`, or a flowjax bijection from the reals. For named shapes a
            dict of some of the names. The Jacobian is counted: log Z is that of the
            density in its own space.
        flow: "auto", "none", or the name of a family to use in any case.
        num_particles: Particles of a replicate; None to choose.
        num_replicates: Independent runs behind the answer; None to choose.
        progress: Say what is going on; or a function that is called with each line.
        callback: One or several functions of a `ReplicateSnapshot`, such as
            `annealax.loggers.CSV(path)`, called after each replicate.
        checkpoint: Folder in which replicates and decisions are kept as they come. A
            call with the same arguments goes on from there, with the same answer to
            the bit; only the search for a start and the tuning are made again.

    Raises:
        InvalidInputError: If the arguments do not fit together.
        SamplingError: If the density cannot be sampled from any start.
    """
    task = task_of(
        log_density,
        shape,
        support,
        seed=seed,
        budget=budget,
        flow=flow,
        num_particles=num_particles,
        num_replicates=num_replicates,
    )
    job = _Job(task, as_checkpoint(checkpoint))
    console = Console(stderr=True)

    def say(text: str) -> None:
        if callable(progress):
            progress(text)
        elif progress:
            console.print(text, highlight=False, style="dim")

    return job.run(say, as_callbacks(callback))


class _Job:
    """One call of `sample`."""

    def __init__(self, task: Task, store: Checkpoint | None = None):
        self.task = task
        self.kept = Kept(store, {"work": "sample", "arguments": task.fingerprint})
        self.stages: list[Stage] = []
        self.began = time.perf_counter()

    def run(self, say: Callable[[str], None], callbacks: list[Callback]) -> Sample:
        """All four stages."""
        keys = jr.split(self.task.key, 5)
        key_start, key_tune, key_flow, key_answer, key_modes = keys
        size = self.task.space.size
        ascents = Ascents(self.task.density)
        say(f"looking for a start in {size} dimensions")
        choice = self._start(key_start, ascents, say)
        say(f"start: {choice.start.name}")
        plan, errors = self._tune(key_tune, choice)
        say(f"tuned: {plan.num_transitions} transitions, {plan.num_leapfrog} leapfrogs")
        sampler = plan.sampler(self.task.density)
        # With a budget of time the clock decides, so what it decided is kept.
        likely = self._count("likely-replicates", errors)
        flows, reason = self._flows(key_flow, sampler, errors, likely, say)
        say(f"flows: {reason}")
        count = self._count("replicates", errors)
        results = self._answer(key_answer, sampler, flows, count, say, callbacks)
        return self._report(key_modes, ascents, choice, plan, results, reason)

    def _start(self, key: PRNGKeyArray, ascents: Ascents, say) -> Choice:
        began = time.perf_counter()
        size = self.task.space.size
        pilots = 400 if size > _MANY_DIMENSIONS else 1000
        choice = Search(self.task.density, size, pilots, say).run(key, ascents)
        self._record("start", choice.num_evaluations, began)
        return choice

    def _tune(self, key: PRNGKeyArray, choice: Choice) -> tuple[Plan, "_Errors"]:
        """Passes that improve temperatures and step sizes."""
        began = time.perf_counter()
        start, seconds = choice.start, list[float]()
        count = self.task.num_particles or (
            500 if self.task.space.size > _MANY_DIMENSIONS else 1000
        )
        plan = first_plan(start.pilot, start.placement, count)

        def run(subkey: PRNGKeyArray) -> Result:
            pass_began = time.perf_counter()
            result = jax.block_until_ready(plan.sampler(self.task.density).run(subkey))
            seconds.append(time.perf_counter() - pass_began)
            return result

        first, *others = jr.split(key, _TUNING_PASSES)
        result = run(first)
        evaluations = int(result.num_evaluations)
        for index, subkey in enumerate(others):
            plan = plan.adjusted(_acceptance(result), 1.5 / (index + 1))
            plan = plan.respaced(work_of(result), plan.num_transitions)
            result = run(subkey)
            evaluations += int(result.num_evaluations)
        self._record("tuning", evaluations, began)
        return plan, _Errors(
            stderr=float(result.log_normalizer_stderr),
            seconds=float(np.median(seconds[1:])),
            evaluations=int(result.num_evaluations),
        )

    def _count(self, name: str, errors: "_Errors") -> int:
        def compute() -> np.ndarray:
            return np.asarray(self._replicates(errors))

        return int(self.kept.once(name, compute, like=np.asarray(0)))

    def _replicates(self, errors: "_Errors") -> int:
        """How many runs the budget allows."""
        if self.task.num_replicates is not None:
            return self.task.num_replicates
        spent = sum(stage.evaluations for stage in self.stages)
        if self.task.budget is None:
            # The answer gets at least twice what the search for its sampler took. In
            # many dimensions, where evaluations are dear, not more than it needs.
            many = self.task.space.size > _MANY_DIMENSIONS
            usual = 8 if many else 16
            count = 2 * spent / errors.evaluations
            if many:
                count = min(count, (errors.stderr / _PRECISE) ** 2)
            return int(np.clip(count, usual, 4 * usual))
        left, each = self.task.budget.amount - spent, float(errors.evaluations)
        if self.task.budget.unit == "seconds":
            left = self.task.budget.amount - (time.perf_counter() - self.began)
            each = errors.seconds
        return int(np.clip(left / each, _MIN_REPLICATES, _MAX_REPLICATES))

    def _flows(
        self, key: PRNGKeyArray, sampler: Sampler, errors: "_Errors", count: int, say
    ) -> tuple[AbstractBijection | None, str]:
        began = time.perf_counter()
        if self.task.flow == "none":
            return None, "none, as asked"
        expected = errors.stderr / np.sqrt(count)
        families = families_for(self.task.space.size)
        if self.task.flow != "auto":
            families = (self.task.flow,)
        elif expected < _GOOD_ENOUGH:
            return None, (
                f"not tried: without them the error of log Z is about {expected:.1g}"
            )
        elif self.task.budget is not None and count <= 2 * _MIN_REPLICATES:
            return None, "not tried: the budget is too small to train them"
        known = self.kept.saved("flows", np.asarray(0))
        chosen = choose_flows(
            key,
            sampler,
            families,
            say,
            None if known is None else int(known),
            forced=self.task.flow != "auto",
        )
        self.kept.once(
            "flows", lambda: np.asarray(chosen.index), like=np.asarray(chosen.index)
        )
        self._record("flows", chosen.num_evaluations, began)
        return chosen.flows, chosen.reason

    def _answer(
        self, key: PRNGKeyArray, sampler: Sampler, flows, count: int, say, callbacks
    ) -> list[Result]:
        """Independent runs of the frozen sampler."""
        began = time.perf_counter()
        results: list[Result] = []
        for index, subkey in enumerate(jr.split(key, count)):
            result = self.kept.once(
                f"replicate-{index + 1}",
                functools.partial(sampler.run, subkey, flows),
                like=results[0] if results else None,
            )
            results.append(jax.block_until_ready(result))
            seconds = time.perf_counter() - began
            call_all(callbacks, ReplicateSnapshot(index + 1, count, result, seconds))
            if (index + 1) % max(1, count // 4) == 0:
                value = log_mean(np.asarray([each.log_normalizer for each in results]))
                say(f"replicate {index + 1} of {count}: log Z {value:.4f}")
        evaluations = sum(int(each.num_evaluations) for each in results)
        self._record("answer", evaluations, began)
        return results

    def _report(
        self,
        key: PRNGKeyArray,
        ascents: Ascents,
        choice: Choice,
        plan: Plan,
        results: list[Result],
        reason: str,
    ) -> Sample:
        """Pool the replicates, and look for reasons to doubt them."""
        began = time.perf_counter()
        before = ascents.num_evaluations
        pool = pool_replicates(results, plan.placement)
        modes = find_modes(key, ascents, pool.vectors, pool.weights, len(results))
        self._record("modes", ascents.num_evaluations - before, began)
        return Sample(
            vectors=jnp.asarray(pool.vectors, jnp.result_type(float)),
            log_weights=jnp.asarray(pool.log_weights, jnp.result_type(float)),
            roots=pool.roots,
            replicate_log_normalizers=pool.log_normalizers,
            replicate_stderrs=pool.stderrs,
            steps=pool.steps,
            betas=plan.betas,
            step_sizes=plan.step_sizes,
            num_leapfrog=plan.num_leapfrog,
            pareto_k=pool.pareto_k,
            modes=modes,
            choices={
                "start": choice.start.name,
                "starts tried": "; ".join(map(str, choice.tried)),
                "flows": reason,
            },
            stages=tuple(self.stages),
            space=self.task.space,
            messages=doubts(pool, modes, choice.num_unseen),
        )

    def _record(self, name: str, evaluations: int, began: float) -> None:
        self.stages.append(Stage(name, evaluations, time.perf_counter() - began))


@dataclasses.dataclass(frozen=True)
class _Errors:
    """What one pass of the tuned sampler shows.

    Attributes:
        stderr: Standard error of its log Z.
        seconds: Its time.
        evaluations: Density evaluations that it makes.
    """

    stderr: float
    seconds: float
    evaluations: int


def _acceptance(result: Result) -> np.ndarray:
    return np.asarray(result.steps.acceptance_rate)

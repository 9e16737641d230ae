"""A run folder, read back: `annealax.load_run(path)`.

What is asked for is read when it is asked for: arrays and tables need nothing but their
files; `settings`, `problem`, `sampler` and `flows` need the experiment's class.
"""

import functools
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import Array
from pydantic import BaseModel, RootModel

from annealax._errors import InvalidInputError
from annealax._particles import Particles
from annealax._pimh import Chain
from annealax._result import Result, StepInfo
from annealax._sampler import Sampler
from annealax.experiments.experiment import Experiment, Problem
from annealax.experiments.files import damaged, read_arrays, read_json
from annealax.experiments.jobs import (
    ExperimentJob,
    MainJob,
    Proposal,
    RunJob,
    SampleJob,
    load_job,
)

CHAIN_ANSWER = "pimh_answer.json"


class History(NamedTuple):
    """The training of a run, step by step.

    Attributes:
        loss: Sum over transitions of the free energy.
        log_normalizer: log Z of each training pass.
        ess: Effective sample sizes, steps by transitions.
        acceptance_rate: Acceptance rates, steps by transitions.
        num_skipped: Flow updates that were skipped.
    """

    loss: np.ndarray
    log_normalizer: np.ndarray
    ess: np.ndarray
    acceptance_rate: np.ndarray
    num_skipped: np.ndarray


class Draws(NamedTuple):
    """The weighted draws that `annealax sample` left.

    Attributes:
        x: The draws: an array, or a dict of arrays by parameter.
        log_weights: Their normalised log weights.
        log_normalizer: Estimate of log Z.
        log_normalizer_stderr: Its standard error.
    """

    x: Any
    log_weights: np.ndarray
    log_normalizer: float
    log_normalizer_stderr: float

    @property
    def weights(self) -> np.ndarray:
        """Their normalised weights."""
        return np.exp(self.log_weights)

    def expectation(self, function: Callable[[Any], Array]) -> Array:
        """Weighted average of a function of one draw."""
        values = jax.vmap(function)(self.x)
        return jnp.tensordot(jnp.asarray(self.weights), values, 1)

    def mean(self) -> Any:
        """Mean of the draws."""
        return jax.tree.map(lambda x: np.tensordot(self.weights, x, 1), self.x)


class Run:
    """What a command left in its folder.

    Attributes:
        path: The folder.
        job: What was asked for.
    """

    def __init__(self, path: Path, job: MainJob):
        self.path = path
        self.job = job

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {self.job.command} of {self.job.name})"

    @property
    def name(self) -> str:
        """Name of the experiment or function."""
        return self.job.name

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.job.method

    @property
    def seed(self) -> int:
        """The seed."""
        return self.job.seed

    @property
    def settings(self) -> Experiment:
        """The experiment, with the settings that it ran with."""
        return self._of_an_experiment().experiment

    @property
    def problem(self) -> Problem:
        """Its target, start and observables; a pilot, if it has one, runs again."""
        return self._of_an_experiment().problem

    @functools.cached_property
    def sampler(self) -> Sampler:
        """The sampler that was deployed: `run.sampler.run(key, run.flows)`.

        That of `annealax sample` works in coordinates of its own; what `proposal`
        gives is in those of the function.
        """
        if isinstance(self.job, SampleJob):
            density, plan, _ = self.job.sampler(self.path)
            return plan.sampler(density)
        return self._of_a_run().way.sampler(self.problem)

    @functools.cached_property
    def flows(self) -> AbstractBijection | None:
        """The trained flows; None if the method has none."""
        if isinstance(self.job, SampleJob):
            return self.job.sampler(self.path)[2]
        return self._of_a_run().flows(self.path)

    def proposal(self, num_particles: int | None = None) -> Proposal:
        """What particle MCMC can draw from: `ax.pimh(key, run.proposal().run, ...)`.

        Args:
            num_particles: Particles of a proposal; None for as many as there were.
        """
        return self.job.proposal(self.path, num_particles)

    @functools.cached_property
    def table(self) -> dict[str, Any]:
        """What was answered, with times: `table.json`, or `compare.json` and so on."""
        return read_json(
            self.path / self.job.answer_file, RootModel[dict[str, Any]]
        ).root

    @functools.cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays of `result.npz`, or of `compare.npz`, by name."""
        if self.job.arrays_file is None:
            raise self._lacks("arrays")
        return read_arrays(self.path / self.job.arrays_file)

    @functools.cached_property
    def result(self) -> Any:
        """The first pass as a `Result`; of `annealax sample`, its `Draws`."""
        if not isinstance(self.job, RunJob | SampleJob):
            raise self._lacks("one result")
        arrays, file = self.arrays, self.path / "result.npz"
        try:
            return _draws(arrays) if self.job.command == "sample" else _result(arrays)
        except KeyError as error:
            raise damaged(file, f"it has no array {error}") from error

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters of `annealax sample`, in order; empty if none."""
        of_parameters = isinstance(self.job, SampleJob)
        return tuple(_named(self.arrays, "x_")) if of_parameters else ()

    @functools.cached_property
    def history(self) -> History | None:
        """The training, if there was one."""
        if not isinstance(self.job, RunJob) or "history_loss" not in self.arrays:
            return None
        return History(*(self.arrays[f"history_{name}"] for name in History._fields))

    @functools.cached_property
    def chain(self) -> Chain | None:
        """The chains of `annealax pimh`, if it ran in this folder."""
        return read_chain(self.path)

    def _of_an_experiment(self) -> ExperimentJob:
        if not isinstance(self.job, ExperimentJob):
            raise InvalidInputError(f"{self.path} holds no experiment.")
        return self.job

    def _of_a_run(self) -> RunJob:
        if not isinstance(self.job, RunJob):
            raise self._lacks("one sampler")
        return self.job

    def _lacks(self, what: str) -> InvalidInputError:
        return InvalidInputError(
            f"{self.path} was made by `annealax {self.job.command}`: it has no {what}; "
            "what it answered is in `table`."
        )


class _ChainAnswer(BaseModel):
    seconds: float = math.nan


def read_chain(folder: Path) -> Chain | None:
    """The chains of `annealax pimh`, if it ran in this folder.

    Raises:
        FileError: If their files are damaged.
    """
    file, answer = folder / "pimh.npz", folder / CHAIN_ANSWER
    if not file.exists():
        return None
    arrays = read_arrays(file)
    for name in ("accepted", "log_normalizer", "proposed_log_normalizer"):
        if name not in arrays:
            raise damaged(file, f"it has no array {name!r}")
    shape = arrays["accepted"].shape
    if len(shape) != 2 or not arrays["accepted"].size:
        raise damaged(file, "'accepted' is not a table of chains and iterations")
    if "configurations" in arrays and not arrays["configurations"].ndim:
        del arrays["configurations"]  # none were kept
    for name, value in arrays.items():
        is_mean = name.startswith(("mean_", "stderr_"))
        fits = value.shape[:2] == shape and value.dtype.kind in "fiub"
        if not is_mean and not fits:
            raise damaged(file, f"{name!r} does not fit to 'accepted'")
    took = read_json(answer, _ChainAnswer) if answer.exists() else _ChainAnswer()
    return Chain(
        observables=_named(arrays, "trace_"),
        log_normalizer=arrays["log_normalizer"],
        accepted=arrays["accepted"],
        proposed_log_normalizer=arrays["proposed_log_normalizer"],
        configurations=_named(arrays, "configurations_")
        or arrays.get("configurations"),
        seconds=took.seconds,
    )


def load_run(path: str | os.PathLike) -> Run:
    """Read back what a command left in a folder: `annealax run`, `sample`, and others.

        run = ax.load_run("runs/phi4-seed0")
        run.result.log_normalizer, run.settings.num_particles
        again = run.sampler.run(jr.key(1), run.flows)

    Args:
        path: The folder.

    Raises:
        FileError: If there is no run in it, or its description is damaged.
    """
    folder = Path(path)
    return Run(folder, load_job(folder))


def _result(arrays: Mapping[str, np.ndarray]) -> Result:
    number = len(arrays["log_weights"])
    particles = Particles(
        x=jnp.asarray(arrays["x"]),
        log_density=jnp.asarray(arrays["log_density"]),
        log_weights=jnp.asarray(arrays["log_weights"]),
        log_normalizer=jnp.asarray(arrays["log_normalizer"]),
        roots=jnp.asarray(arrays["roots"]),
        log_selection=jnp.asarray(arrays["log_selection"]),
        log_choices=jnp.zeros(number, arrays["log_weights"].dtype),  # for training only
    )
    steps = {name: jnp.asarray(arrays[f"step_{name}"]) for name in StepInfo._fields}
    return Result(particles, StepInfo(**steps))


def _draws(arrays: Mapping[str, np.ndarray]) -> Draws:
    return Draws(
        x=_named(arrays, "x_") or arrays["x"],
        log_weights=arrays["log_weights"],
        log_normalizer=float(arrays["log_normalizer"]),
        log_normalizer_stderr=float(arrays["log_normalizer_stderr"]),
    )


def _named(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {
        key.removeprefix(prefix): value
        for key, value in arrays.items()
        if key.startswith(prefix)
    }

"""What was asked of a command: one checked description, one writer, one reader.

The description of a command's work is the file `settings.json` of its folder; that of
`pimh`, which works in the folder of another command, is `pimh.json`. Starting a command
is: make its job, save it, do it. Resuming is: load the job, do it.
"""

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

import jax.random as jr
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, PRNGKeyArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    ValidationError,
    field_validator,
    model_validator,
)

from annealax._checks import MAX_SEED, unknown_name
from annealax._errors import InvalidInputError
from annealax._result import Result
from annealax._work.budget import Budget, as_budget
from annealax._work.serialise import FileError, load
from annealax.auto.density import FreeDensity
from annealax.auto.knowledge import region_bounds
from annealax.auto.parameters import Space
from annealax.auto.result import Replicate, propose
from annealax.auto.sample import FLOW_CHOICES, free_density
from annealax.auto.tuning import Plan
from annealax.experiments.comparison import find_methods
from annealax.experiments.experiment import Count, Experiment, Positive, Problem
from annealax.experiments.files import damaged, finished_file, read_json
from annealax.experiments.methods import Method, find_method
from annealax.experiments.registry import find_experiment, import_file, import_module
from annealax.experiments.settings import Settings, explain, format_value
from annealax.flows.base import replicate
from annealax.models import Model, from_pymc

SETTINGS = "settings.json"
FLOWS = "flows.npz"
SAMPLER = "sampler.npz"

_J = TypeVar("_J", bound="Job")
Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
Shape = tuple[int, ...]
Support = str | tuple[float | None, float | None]
Region = tuple[float, float]


class Proposal(NamedTuple):
    """What proposes for particle MCMC.

    Attributes:
        label: What to call it.
        run: From a key to a pass.
        observables: Functions of a configuration, by name; empty for all of it.
        num_particles: Particles of a pass.
    """

    label: str
    run: Callable[[PRNGKeyArray], Result | Replicate]
    observables: Mapping[str, Callable[[Array], Array]]
    num_particles: int


class Job(BaseModel):
    """What a command was asked for."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False
    )
    file: ClassVar[str] = SETTINGS
    """Where its description is kept."""
    result: ClassVar[str] = "result.npz"
    """What is there once its work is done."""

    command: str
    seed: Seed

    @classmethod
    def make(cls: type[_J], **values: Any) -> _J:
        """A job from arguments; what is wrong with them is one line."""
        try:
            return cls(**values)
        except ValidationError as error:
            text = explain(error, cls.model_fields)
            raise InvalidInputError(text) from None

    def text(self) -> str:
        """The description, as `load_job` reads it."""
        return f"{self.model_dump_json(indent=2)}\n"


class MainJob(Job):
    """Work that has a folder of its own.

    Attributes:
        name: What to call it.
        method: How it is done.
        overrides: Settings that were changed.
        settings: All settings.
    """

    answer_file: ClassVar[str] = "table.json"
    """What is answered in a few numbers."""
    arrays_file: ClassVar[str | None] = "result.npz"
    """All arrays, if it leaves any."""

    name: str
    method: str
    overrides: dict[str, Any] = {}
    settings: dict[str, Any] = {}

    def proposal(self, folder: Path, num_particles: int | None) -> Proposal:
        """What `annealax pimh` draws its proposals from.

        Args:
            folder: The folder of the finished work.
            num_particles: Particles of a proposal; None for as many as there were.
        """
        del num_particles
        raise InvalidInputError(
            f"{folder} was made by `annealax {self.command}`, which leaves no sampler "
            "behind; give a folder of `annealax run` or `annealax sample`."
        )


class ExperimentJob(MainJob):
    """Work on an experiment.

    Attributes:
        source: Where its class is found, if not by its name.
    """

    source: str | None = None

    @functools.cached_property
    def experiment(self) -> Experiment:
        """The experiment with its settings."""
        cls = find_experiment(self.source or self.name).experiment
        for key in self.overrides:
            if key not in cls.model_fields:
                raise unknown_name("setting", key, cls.model_fields)
        return cls(**self.settings)

    @functools.cached_property
    def problem(self) -> Problem:
        """What is sampled: built once, for all that this job does."""
        return self.experiment.problem()


class RunJob(ExperimentJob):
    """`annealax run`: train, deploy, and compare with plain SMC."""

    command: Literal["run"] = "run"
    checkpoint_seconds: float = Field(60.0, ge=0)

    @property
    def way(self) -> Method:
        """The method."""
        return find_method(self.method, self.experiment)

    def flows(self, folder: Path) -> AbstractBijection | None:
        """The trained flows; None if the method has none."""
        if self.way.trainer is None:
            return None
        file = finished_file(folder / FLOWS)
        count = self.way.sampler(self.problem).path.num_transitions
        return load(file, replicate(self.problem.flow(jr.key(0)), count))

    def proposal(self, folder: Path, num_particles: int | None) -> Proposal:
        """The sampler that was deployed, with the flows that were trained."""
        flows, sampler = self.flows(folder), self.way.sampler(self.problem)
        if num_particles is not None:
            sampler = dataclasses.replace(sampler, num_particles=num_particles)
        return Proposal(
            self.way.label,
            lambda key: sampler.run(key, flows),
            self.problem.observables,
            sampler.num_particles,
        )


class CompareJob(ExperimentJob):
    """`annealax compare`, of one experiment; `method` has commas between."""

    command: Literal["compare"] = "compare"
    result: ClassVar[str] = "compare.json"
    answer_file: ClassVar[str] = "compare.json"
    arrays_file: ClassVar[str | None] = "compare.npz"
    budget: Budget
    num_repeats: int = Field(ge=1)

    @property
    def methods(self) -> list[str]:
        """Names of the methods."""
        return find_methods(self.method, self.experiment)


class SampleJob(ExperimentJob):
    """`annealax sample` of a function, or `annealax run --auto` of an experiment.

    Attributes:
        shape: As for `annealax.sample`; None for an experiment.
        support: As for `annealax.sample`.
        region: As for `annealax.sample`: two bounds, or two by name.
        budget: As for `annealax.sample`.
        flow: As for `annealax.sample`.
        of_model: Whether the name is that of a model, which has a shape of its own.
    """

    command: Literal["sample"] = "sample"
    method: Literal["sample"] = "sample"
    shape: Shape | dict[str, Shape] | None = None
    support: Support | dict[str, Support] | None = None
    region: Region | dict[str, Region] | None = None
    budget: str | float | None = None
    flow: str = "auto"
    of_model: bool = False

    @model_validator(mode="after")
    def _is_a_space(self):
        if self.shape is not None:
            space = Space(self.shape, self.support)
            if self.region is not None:
                region_bounds(space, self.region)
        return self

    @field_validator("flow")
    @classmethod
    def _is_a_flow(cls, value: str) -> str:
        if value not in FLOW_CHOICES:
            raise unknown_name("flow", value, FLOW_CHOICES)
        return value

    @field_validator("budget")
    @classmethod
    def _is_a_budget(cls, value: Any) -> Any:
        as_budget(value)
        return value

    @classmethod
    def make(cls, **values: Any) -> "SampleJob":
        """A job from arguments; its settings are these in words, for the page."""
        names = ("shape", "support", "region", "budget", "flow")
        words = {key: format_value(values[key]) for key in names if values.get(key)}
        return super().make(settings=words, **values)

    @functools.cached_property
    def experiment(self) -> Experiment:
        """The experiment of `run --auto`."""
        if self.shape is not None or self.of_model:
            raise InvalidInputError(f"{self.name} is a function, not an experiment.")
        cls = find_experiment(self.source or self.name).experiment
        return cls(**self.overrides)

    @functools.cached_property
    def density(self) -> Any:
        """The log density, or a model."""
        if self.of_model:
            return find_model(self.name)
        if self.shape is None:
            return self.experiment.target()
        return find_density(self.name)

    def sampler(self, folder: Path) -> tuple[FreeDensity, Plan, Any]:
        """The density, and the plan and flows of the sampler that was found."""
        file = finished_file(folder / SAMPLER)
        try:
            plan, flows = load(file)
        except FileError as error:
            if not self.of_model:
                raise
            raise FileError(
                f"{file} cannot be used by itself: its runs start at the prior of "
                f"{self.name}, which no file holds. From Python, give result.propose "
                "of annealax.sample to annealax.pimh."
            ) from error
        if not isinstance(plan, Plan):
            raise FileError(f"{folder / SAMPLER} holds no sampler; run it again.")
        return free_density(self.density, self.shape, self.support), plan, flows

    def proposal(self, folder: Path, num_particles: int | None) -> Proposal:
        """The sampler that was found, in the space of the function."""
        density, plan, flows = self.sampler(folder)
        if num_particles is not None:
            plan = dataclasses.replace(plan, num_particles=num_particles)
        observables: Mapping[str, Any] = {}
        if self.shape is None and not self.of_model:
            observables = self.experiment.observables(self.experiment.target())
        return Proposal(
            "the sampler found",
            lambda key: propose(key, density, plan, flows),
            observables,
            plan.num_particles,
        )


class TrainVAESettings(Settings):
    """Numbers of `annealax train-vae`."""

    data: str = Field(description="where the images are")
    decoder: str = Field(description="file for the decoder, seen from the folder")
    num_steps: Count = Field(6000, description="training steps")
    batch_size: Count = Field(200, description="images in a batch")
    learning_rate: Positive = Field(
        2e-3, description="learning rate of Adam at the start"
    )


class TrainVAEJob(MainJob):
    """`annealax train-vae`: the decoder of a VAE."""

    answer_file: ClassVar[str] = "vae.json"
    command: Literal["train-vae"] = "train-vae"
    name: Literal["vae-decoder"] = "vae-decoder"
    method: Literal["train-vae"] = "train-vae"
    checkpoint_seconds: float = Field(60.0, ge=0)

    @field_validator("settings")
    @classmethod
    def _are_numbers(cls, value: dict[str, Any]) -> dict[str, Any]:
        return TrainVAESettings(**value).values()

    @property
    def numbers(self) -> TrainVAESettings:
        """Its settings."""
        return TrainVAESettings(**self.settings)


class ChainJob(Job):
    """`annealax pimh`: particle MCMC on top of finished work.

    Attributes:
        num_steps: Iterations of each chain.
        num_chains: Independent chains.
        num_particles: Particles of a proposal; None for as many as there were.
        checkpoint_seconds: Time between checkpoints.
    """

    file: ClassVar[str] = "pimh.json"
    result: ClassVar[str] = "pimh.npz"
    command: Literal["pimh"] = "pimh"
    num_steps: int = Field(ge=2)
    num_chains: int = Field(1, ge=1)
    num_particles: int | None = Field(None, ge=1)
    checkpoint_seconds: float = Field(60.0, ge=0)


class ReproduceJob(MainJob):
    """`annealax reproduce`: figures of the paper.

    Attributes:
        figures: Their numbers.
        scale: How much of the paper's settings.
        repeats: Repeats of each line; None for those of the scale.
        workers: Processes side by side; None for as many as suit.
        checkpoint_seconds: Time between checkpoints.
    """

    command: Literal["reproduce"] = "reproduce"
    result: ClassVar[str] = "reproduction.json"
    answer_file: ClassVar[str] = "reproduction.json"
    arrays_file: ClassVar[str | None] = None
    name: Literal["reproduction"] = "reproduction"
    method: Literal["reproduce"] = "reproduce"
    figures: tuple[Annotated[int, Field(ge=1, le=8)], ...] = Field(min_length=1)
    scale: Literal["smoke", "cpu", "paper"]
    repeats: int | None = Field(None, ge=1, le=1000)
    workers: int | None = Field(None, ge=1, le=1000)
    checkpoint_seconds: float = Field(60.0, ge=0)


JOBS: Mapping[str, type[Job]] = {
    "run": RunJob,
    "sample": SampleJob,
    "compare": CompareJob,
    "train-vae": TrainVAEJob,
    "pimh": ChainJob,
    "reproduce": ReproduceJob,
}


def load_job(folder: Path, file: str = SETTINGS) -> Any:
    """The job that a folder was made for.

    Args:
        folder: The folder.
        file: Which description; that of the folder itself if not given.

    Raises:
        FileError: If there is none, or it is damaged.
    """
    path = folder / file
    if not path.exists():
        raise FileError(
            f"{folder} is not a run folder: it has no {file}; give the folder that "
            "`annealax run` printed."
        )
    content = read_json(path, RootModel[Any]).root
    known = [name for name, each in JOBS.items() if each.file == file]
    command = content.get("command") if isinstance(content, dict) else None
    if command not in known:
        raise damaged(path, f"command must be one of {', '.join(known)}")
    return read_json(path, JOBS[command])


def find_density(reference: str) -> Callable[[Any], Any]:
    """The function that `module:function` or `file.py:function` names."""
    module, name = _module_of(reference)
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, each in vars(module).items() if callable(each)]
        raise InvalidInputError(
            f"{module.__name__} has no function {name!r}; it has {sorted(known)[:10]}."
        )
    return function


def find_model(reference: str) -> Model:
    """The model that `module:name` names, or that this function returns.

    Raises:
        InvalidInputError: If it is something else, such as a log density.
    """
    module, name = _module_of(reference)
    found = getattr(module, name, None)
    if inspect.isfunction(found) and not inspect.signature(found).parameters:
        found = found()
    if _is_pymc(found):
        found = from_pymc(found)
    if not isinstance(found, Model):
        raise InvalidInputError(
            f"{reference} needs --shape, unless it is a model: what "
            "annealax.from_numpyro, from_pymc or from_stan returns, a pymc.Model, or a "
            f"function without arguments that returns one; got {type(found).__name__}."
        )
    return found


def _is_pymc(found: Any) -> bool:
    pymc = sys.modules.get("pymc")
    return pymc is not None and isinstance(found, pymc.Model)


def _module_of(reference: str) -> tuple[ModuleType, str]:
    """The module, or the file, and the name; modules of this folder count."""
    module_name, _, name = reference.rpartition(":")
    if module_name.endswith(".py") and name.isidentifier():
        return import_file(Path(module_name).resolve()), name
    if not module_name or not name.isidentifier():
        raise InvalidInputError(
            f"give the density as module:function, such as model:log_density for the "
            f"function log_density in model.py; got {reference!r}."
        )
    return import_module(module_name), name

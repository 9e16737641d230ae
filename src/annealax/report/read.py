"""What a folder holds, read and checked: a run, an answer, a comparison, a decoder.

Reports are made from these records alone, and nothing here needs the experiment itself,
so a folder can be read where its model is not. JSON files are checked by pydantic,
arrays by their shapes.
"""

import dataclasses
import functools
import io
import math
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pydantic

from annealax import Chain
from annealax._doubts import Doubt
from annealax._evidence import Estimate
from annealax._work.budget import Budget
from annealax._work.serialise import FileError
from annealax.experiments.comparison import Comparison as Outcome
from annealax.experiments.comparison import Row as Contender
from annealax.experiments.files import damaged, read_arrays, read_json
from annealax.experiments.jobs import ChainJob, MainJob, SampleJob, load_job
from annealax.experiments.runs import read_chain

PARAMETERS = "parameters.npz"
"""Draws by the names of parameters, and exact draws, where the problem knows them."""


# Records of numbers, from files or from a result in memory.


@dataclasses.dataclass(frozen=True)
class Passes:
    """Log Z of independent passes.

    Attributes:
        values: log Z of each.
        errors: The error bar that each gave; empty if not known.
        centre: The answer: all of them pooled.
        error: Its error bar.
        truth: The exact value, or None.
    """

    values: np.ndarray
    errors: np.ndarray
    centre: float
    error: float
    truth: float | None = None


@dataclasses.dataclass(frozen=True)
class Ladder:
    """What happened at each transition, one row for each replicate.

    Attributes:
        betas: Inverse temperatures, one more than there are transitions.
        work: Nats lost; empty if not known.
        ess: Effective sample size after reweighting, as a share of the particles.
        resampled: Share of replicates that resampled.
        acceptance: Acceptance of the Markov kernel.
        step_sizes: Its step sizes, or None.
        threshold: Share of the particles below which it resamples, or None.
    """

    betas: np.ndarray
    work: np.ndarray
    ess: np.ndarray
    resampled: np.ndarray
    acceptance: np.ndarray
    step_sizes: np.ndarray | None = None
    threshold: float | None = None


@dataclasses.dataclass(frozen=True)
class Draws:
    """Weighted draws of named numbers.

    Attributes:
        names: Of the columns.
        values: One row for each draw.
        weights: Of the rows; they add up to one.
        exact: Exact draws, one row for each, or None.
        prior: Draws from the prior, one row for each, or None.
        named: Whether somebody gave the names.
        num_replicates: Replicates that they are of, as many of each, one after the
            other.
    """

    names: tuple[str, ...]
    values: np.ndarray
    weights: np.ndarray
    exact: np.ndarray | None = None
    prior: np.ndarray | None = None
    named: bool = False
    num_replicates: int = 1

    def columns(self, indices: list[int]) -> "Draws":
        """These columns only."""
        exact, prior = (
            None if each is None else each[:, indices]
            for each in (self.exact, self.prior)
        )
        names = tuple(self.names[index] for index in indices)
        values = self.values[:, indices]
        return dataclasses.replace(
            self, names=names, values=values, exact=exact, prior=prior
        )

    def vectors(self) -> dict[str, list[int]]:
        """Columns of each parameter that is a list of numbers."""
        found: dict[str, list[int]] = {}
        for index, name in enumerate(self.names):
            if match := re.fullmatch(r"(.+)\[\d+\]", name):
                found.setdefault(match[1], []).append(index)
        return found


def named_draws(
    values: Mapping[str, np.ndarray],
    weights: np.ndarray,
    exact: np.ndarray | None = None,
    prior: Mapping[str, np.ndarray] | None = None,
    num_replicates: int = 1,
) -> Draws:
    """Draws of parameters, each an array over draws and its own shape.

    A parameter without a name, the key "", is called x. Draws from the prior have the
    same names.
    """
    count = len(weights)
    names = [
        f"{name or 'x'}[{','.join(map(str, index))}]" if index else name or "x"
        for name, value in values.items()
        for index in np.ndindex(value.shape[1:])
    ]

    def columns(found: Mapping[str, np.ndarray]) -> np.ndarray:
        arrays = [np.asarray(found[name], np.float64) for name in values]
        return np.concatenate([each.reshape(len(each), -1) for each in arrays], axis=1)

    return Draws(
        tuple(names),
        columns(values),
        np.asarray(weights, np.float64) / np.sum(weights, dtype=np.float64),
        exact,
        columns(prior) if prior and set(values) <= set(prior) else None,
        named=set(values) != {""},
        num_replicates=num_replicates if count % num_replicates == 0 else 1,
    )


# JSON files.


def _doubt(value: object) -> str:
    """The text of a warning, with its code where that is known."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        code = str(value.get("code"))
        return Doubt(code, value["text"]) if code in Doubt.CODES else value["text"]
    raise ValueError("a warning is an object with a code and a text")


def _numbers(value: object) -> np.ndarray:
    if not isinstance(value, list) or not value:
        raise ValueError("a list of numbers is expected")
    if not all(v is None or type(v) in (int, float) for v in value):
        raise ValueError("it holds something that is not a number")
    return np.array([math.nan if v is None else float(v) for v in value])


_Doubts = tuple[Annotated[str, pydantic.PlainValidator(_doubt)], ...]
_Numbers = Annotated[np.ndarray, pydantic.PlainValidator(_numbers)]


class _Content(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(
        strict=True, frozen=True, arbitrary_types_allowed=True
    )


class Row(_Content):
    """One sampler of `table.json`; a number that is None was not finite."""

    label: str
    num_transitions: int
    log_normalizer: float | None
    log_normalizer_stderr: float | None
    repeats_log_normalizer: _Numbers
    repeats_ess: _Numbers
    repeats_lowest_ess: _Numbers
    seconds_per_pass: float
    evaluations_per_pass: float | None
    warnings: _Doubts

    @pydantic.model_validator(mode="after")
    def _same_lengths(self) -> "Row":
        lists = (self.repeats_log_normalizer, self.repeats_ess, self.repeats_lowest_ess)
        if len(set(map(len, lists))) > 1:
            raise ValueError("its lists over passes have different lengths")
        return self

    @property
    def mean(self) -> float:
        """Mean of log Z over the passes."""
        return float(np.mean(self.repeats_log_normalizer))

    @property
    def spread(self) -> float | None:
        """Standard deviation of log Z over the passes; None for a single pass."""
        values = self.repeats_log_normalizer
        return float(np.std(values, ddof=1)) if len(values) > 1 else None

    def squared_error(self, truth: float | None) -> float | None:
        """Mean squared error of log Z; its variance if the truth is unknown."""
        return squared_error(self.repeats_log_normalizer, truth)


def squared_error(values: np.ndarray, truth: float | None) -> float | None:
    """Mean squared error of estimates; their variance if the truth is unknown."""
    if truth is not None:
        return float(np.mean((values - truth) ** 2)) if len(values) else None
    return float(np.var(values, ddof=1)) if len(values) > 1 else None


class _Table(_Content):
    """`table.json`."""

    log_normalizer_true: float | None
    training_seconds: float | None = None
    training_compile_seconds: float | None = None
    training_warnings: _Doubts = ()
    rows: tuple[Row, ...] = pydantic.Field(min_length=1)


class _Answer(_Content):
    """What is read of `answer.json`."""

    notes: dict[str, str] = {}


class _Decoder(_Content):
    """`vae.json`."""

    test_elbo: float
    num_train_images: int
    num_test_images: int


# Folders.


@dataclasses.dataclass(frozen=True)
class Picture:
    """A PNG file: its bytes and its size."""

    data: bytes
    width: int
    height: int


@dataclasses.dataclass(frozen=True)
class Folder:
    """What every folder has.

    Attributes:
        path: Where it is.
        asked: What was asked for.
        environment: Versions, devices and commits.
    """

    path: Path
    asked: MainJob
    environment: Mapping[str, Any]

    @functools.cached_property
    def pictures(self) -> dict[str, Picture]:
        """All PNG files, by name."""
        files = sorted(self.path.glob("*.png"))
        return {file.name: _read_picture(file) for file in files}


@dataclasses.dataclass(frozen=True)
class Run(Folder):
    """A finished run, of one sampler beside others, or of the automatic mode.

    Attributes:
        truth: Exact log Z, or None.
        training_seconds: Time of the training, or None.
        training_compile_seconds: Time to compile it, or None.
        training_warnings: What went wrong in training.
        rows: The sampler first, then what it is compared with.
        arrays: `result.npz`.
        parameters: `parameters.npz`; empty if there is none.
        chain: Particle MCMC on top of it, or None.
        chain_plan: What was asked for that, or None.
        notes: How the automatic mode found the answer, a sentence for each part.
    """

    truth: float | None
    training_seconds: float | None
    training_compile_seconds: float | None
    training_warnings: tuple[str, ...]
    rows: tuple[Row, ...]
    arrays: Mapping[str, np.ndarray]
    parameters: Mapping[str, np.ndarray]
    chain: Chain | None
    chain_plan: ChainJob | None
    notes: Mapping[str, str]

    @property
    def main(self) -> Row:
        """The sampler itself."""
        return self.rows[0]

    @property
    def pooled(self) -> bool:
        """Whether the answer is that of all replicates together."""
        return "replicate_step_ess" in self.arrays

    @property
    def evidence(self) -> Estimate:
        """What it says about log Z, to be compared with other models."""
        main = self.main
        value, error = main.log_normalizer, main.log_normalizer_stderr
        passes = len(main.repeats_log_normalizer)
        freedom = passes - 1 if passes > 1 else math.inf
        return Estimate(
            math.nan if value is None else value,
            math.nan if error is None else error,
            freedom,
            main.warnings,
        )

    @property
    def num_draws(self) -> int:
        """Weighted draws, of all replicates where they are pooled."""
        return len(self.arrays["log_weights"])

    @property
    def num_particles(self) -> int:
        """Particles in a pass."""
        passes = len(self.main.repeats_log_normalizer) if self.pooled else 1
        return max(1, self.num_draws // passes)

    @property
    def chain_particles(self) -> int:
        """Particles of a proposal of particle MCMC."""
        plan = self.chain_plan
        if plan is None or plan.num_particles is None:
            return self.num_particles
        return plan.num_particles

    @property
    def weights(self) -> np.ndarray:
        """Of the draws; they add up to one."""
        logs = np.asarray(self.arrays["log_weights"], np.float64)
        weights = np.exp(logs - logs.max())
        return weights / weights.sum()

    @property
    def ess(self) -> float:
        """Effective sample size of the final weights."""
        return float(1 / np.sum(self.weights**2))

    @property
    def just_resampled(self) -> bool:
        """Whether the last temperature resampled, which makes all weights equal."""
        return not self.pooled and bool(self.arrays["step_resampled"][-1])

    @property
    def passes(self) -> Passes:
        """Log Z of the passes of the sampler itself."""
        main = self.main
        errors = self.arrays.get("repeats_log_normalizer_stderr", np.zeros(0))
        if errors.shape != main.repeats_log_normalizer.shape:
            errors = np.zeros(0)
        centre, error = main.log_normalizer, main.log_normalizer_stderr
        return Passes(
            main.repeats_log_normalizer,
            errors,
            math.nan if centre is None else centre,
            math.nan if error is None else error,
            self.truth,
        )

    @property
    def ladder(self) -> Ladder:
        """What happened at each transition."""
        prefix = "replicate_step_" if self.pooled else "step_"

        def steps(name: str) -> np.ndarray:
            return np.atleast_2d(np.asarray(self.arrays[prefix + name], np.float64))

        work = np.zeros((0, 0))
        if {"step_free_energy", "step_log_ratio"} <= set(self.arrays):
            work = np.maximum(steps("free_energy") + steps("log_ratio"), 0)
        threshold = self.asked.settings.get("resample_threshold")
        return Ladder(
            np.asarray(self.arrays["betas"], np.float64),
            work,
            steps("ess") / self.num_particles,
            steps("resampled").mean(axis=0),
            steps("acceptance_rate"),
            self.arrays.get("step_sizes") if self.pooled else None,
            float(threshold) if isinstance(threshold, int | float) else None,
        )

    @property
    def draws(self) -> Draws:
        """The draws, by the names of parameters where there are any."""
        weights, source = self.weights, {**self.arrays, **self.parameters}
        exact = self.parameters.get("exact")
        found, prior = (_beginning(source, each) for each in ("x_", "prior_"))
        values = _ordered(self.asked, found) or {"": self.arrays["x"]}
        if "prior" in source and not found:
            prior = {"": source["prior"]}
        replicates = len(self.main.repeats_log_normalizer) if self.pooled else 1
        return named_draws(values, weights, exact, prior, replicates)


@dataclasses.dataclass(frozen=True)
class Comparison(Folder):
    """Methods that had the same budget.

    Attributes:
        budget: Of each repeat of each method.
        truth: Exact log Z, or None.
        contenders: The methods.
        curves: `compare.npz`: seconds, evaluations and log Z along each repeat.
    """

    budget: Budget
    truth: float | None
    contenders: tuple[Contender, ...]
    curves: Mapping[str, np.ndarray]

    @property
    def num_repeats(self) -> int:
        """Repeats of each method."""
        return len(self.contenders[0].attempts)


@dataclasses.dataclass(frozen=True)
class Decoder(Folder):
    """A decoder and its training.

    Attributes:
        test_elbo: Lower bound on the evidence of a test image.
        num_train_images: Images to train on.
        num_test_images: Images to test on.
        arrays: `result.npz`: the bound of each batch, and images to show.
    """

    test_elbo: float
    num_train_images: int
    num_test_images: int
    arrays: Mapping[str, np.ndarray]


def read(path: Path) -> Run | Comparison | Decoder:
    """Read a folder of whatever kind.

    Raises:
        FileError: If nothing finished there, or its files are damaged.
    """
    if (path / "compare.json").exists() and not (path / "table.json").exists():
        return _read_comparison(path)
    if (path / "vae.json").exists():
        return _read_decoder(path)
    if (path / "reproduction.json").exists():
        raise FileError(
            f"{path} holds figures of the paper, which have pages of their own: see "
            f"figure-*.md there; `annealax reproduce` writes them again."
        )
    return read_run(path)


def read_run(path: Path) -> Run:
    """Read the folder of a finished run.

    Raises:
        FileError: If there is no finished run, or its files are damaged.
    """
    header = _read_header(path)
    if not (path / "table.json").exists():
        for name, what in (
            ("compare.json", "a comparison of methods"),
            ("vae.json", "a decoder"),
        ):
            if (path / name).exists():
                raise FileError(
                    f"{path} holds {what}, not a run: give it to `annealax report` "
                    "alone"
                )
    table = read_json(path / "table.json", _Table)
    file = path / "result.npz"
    arrays = read_arrays(file)
    _check_arrays(file, arrays)
    plan, parameters = path / ChainJob.file, path / PARAMETERS
    answer, notes = path / "answer.json", {}
    if answer.exists():
        notes = read_json(answer, _Answer).notes
    chain = read_chain(path)
    if chain is not None:
        traces = _ordered(header["asked"], chain.observables)
        chain = chain._replace(observables=traces)
    return Run(
        **header,
        truth=table.log_normalizer_true,
        training_seconds=table.training_seconds,
        training_compile_seconds=table.training_compile_seconds,
        training_warnings=table.training_warnings,
        rows=table.rows,
        arrays=arrays,
        parameters=_read_parameters(parameters, arrays) if parameters.exists() else {},
        chain=chain,
        chain_plan=load_job(path, ChainJob.file) if plan.exists() else None,
        notes=notes,
    )


def _read_comparison(path: Path) -> Comparison:
    header = _read_header(path)
    content = read_json(path / "compare.json", pydantic.RootModel[Outcome]).root
    curves, places = path / "compare.npz", {}
    if curves.exists():
        places = read_arrays(curves)
        for name, curve in places.items():
            if curve.ndim != 2 or curve.shape[1] != 3 or curve.dtype.kind not in "fiu":
                raise damaged(curves, f"{name!r} is not a table of three columns")
    return Comparison(
        **header,
        budget=content.budget,
        truth=content.log_normalizer_true,
        contenders=content.rows,
        curves=places,
    )


def _read_decoder(path: Path) -> Decoder:
    header = _read_header(path)
    content = read_json(path / "vae.json", _Decoder)
    file = path / "result.npz"
    arrays = read_arrays(file)
    if "elbo" not in arrays or arrays["elbo"].ndim != 1:
        raise damaged(file, "it has no list 'elbo'")
    return Decoder(**header, **dict(content), arrays=arrays)


def _read_header(path: Path) -> dict[str, Any]:
    environment, facts = path / "environment.json", {}
    if environment.exists():
        facts = read_json(environment, pydantic.RootModel[dict[str, Any]]).root
    return {"path": path, "asked": load_job(path), "environment": facts}


def _beginning(arrays: Mapping[str, np.ndarray], start: str) -> dict[str, np.ndarray]:
    """Arrays whose names begin so, by what comes after it."""
    return {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}


def _ordered(asked: MainJob, found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parameters in the order in which they were asked for.

    JAX sorts names, and so do the files of the automatic mode.
    """
    shape = asked.shape if isinstance(asked, SampleJob) else None
    names = [name for name in shape if name in found] if isinstance(shape, dict) else []
    return {name: found[name] for name in dict.fromkeys([*names, *found])}


# Files.


def _read_parameters(
    file: Path, result: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    arrays = read_arrays(file)
    count, columns = len(result["log_weights"]), 0
    for name, value in arrays.items():
        if value.dtype.kind not in "fiub" or not value.ndim:
            raise damaged(file, f"{name!r} does not hold numbers")
        if name.startswith("x_"):
            columns += math.prod(value.shape[1:])
            if len(value) != count:
                raise damaged(file, f"{name!r} does not fit to result.npz")
    expected = (columns or math.prod(result["x"].shape[1:]),)
    if "exact" in arrays and arrays["exact"].shape[1:] != expected:
        raise damaged(file, "'exact' does not fit to the other arrays")
    _check_prior(file, arrays, {**result, **arrays})
    return arrays


def _check_prior(
    file: Path, arrays: Mapping[str, np.ndarray], draws: Mapping[str, np.ndarray]
) -> None:
    """Draws from the prior have the shapes of the draws of the same name."""
    for name, value in arrays.items():
        of = draws.get(f"x{name.removeprefix('prior')}")
        if not name.startswith("prior") or of is None:
            continue
        if not value.ndim or not len(value) or value.shape[1:] != of.shape[1:]:
            raise damaged(file, f"{name!r} does not fit to the draws")


def _read_picture(file: Path) -> Picture:
    from PIL import Image  # noqa: PLC0415 (only pages need it)

    try:
        data = file.read_bytes()
        with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            width, height = image.size
            image.verify()  # every chunk has its checksum, and the last one is there
    except (OSError, SyntaxError, ValueError, struct.error) as error:
        raise damaged(file, f"it is not a whole PNG picture ({error})") from error
    return Picture(data, width, height)


def _check_arrays(file: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Shapes that reports rely on."""
    steps = ("step_ess", "step_acceptance_rate", "step_resampled")
    for name in ("x", "log_weights", "betas", *steps):
        if name not in arrays:
            raise damaged(file, f"it has no array {name!r}")
    for name, value in arrays.items():
        if value.dtype.kind not in "fiub":
            raise damaged(file, f"{name!r} does not hold numbers")
    n, transitions = len(np.atleast_1d(arrays["log_weights"])), arrays["step_ess"].shape
    if arrays["log_weights"].shape != (n,) or arrays["x"].shape[:1] != (n,) or n == 0:
        raise damaged(file, "'x' and 'log_weights' do not fit together")
    if len(transitions) != 1 or not transitions[0]:
        raise damaged(file, "'step_ess' is not a list of numbers")
    for name, value in arrays.items():
        ends = value.shape[-1:] if name.startswith("replicate_step_") else value.shape
        if "step_" in name and name != "step_sizes" and ends != transitions:
            raise damaged(file, f"{name!r} does not fit to 'step_ess'")
        if name.startswith("x_") and value.shape[:1] != (n,):
            raise damaged(file, f"{name!r} does not fit to 'log_weights'")
    if arrays["betas"].shape != (transitions[0] + 1,):
        raise damaged(file, "'betas' does not fit to the other arrays")
    _check_prior(file, arrays, arrays)
    if not np.isfinite(np.max(arrays["log_weights"])):
        raise damaged(file, "no particle of 'log_weights' has a weight")

"""The automatic mode as a command: for a function in a module, or an experiment."""

import contextlib
import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from annealax import report
from annealax._arviz import MissingExtraError, to_netcdf
from annealax._errors import InvalidInputError
from annealax._work.serialise import FileError
from annealax.auto import Sample, sample
from annealax.experiments._environment import environment
from annealax.experiments._folder import CHECKPOINTS, METRICS, RunFolder
from annealax.experiments._numbers import json_number
from annealax.experiments._output import Output
from annealax.experiments._working import working
from annealax.experiments.problems import find_experiment
from annealax.loggers import JSONLines
from annealax.targets import AbstractTarget

_SETTINGS = "settings.json"
COMMAND = "sample"


def find_density(reference: str) -> Callable[[Any], Any]:
    """The function that `module:function` names; modules of this folder count."""
    module_name, _, name = reference.partition(":")
    if not module_name or not name.isidentifier():
        raise InvalidInputError(
            f"give the density as module:function, such as model:log_density for the "
            f"function log_density in model.py; got {reference!r}."
        )
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f"there is no module {error.name!r} here or among the installed packages; "
            "run the command in the folder that holds it."
        ) from error
    except Exception as error:
        raise InvalidInputError(
            f"importing {module_name} failed: {type(error).__name__}: {error}"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, each in vars(module).items() if callable(each)]
        raise InvalidInputError(
            f"{module_name} has no function {name!r}; it has {sorted(known)[:10]}."
        )
    return function


def parse_shape(texts: Sequence[str]) -> tuple[int, ...] | dict[str, tuple[int, ...]]:
    """`10`, `8,8`, or several `name=...`; a name alone means one number."""
    if len(texts) == 1 and not texts[0].strip().isidentifier() and "=" not in texts[0]:
        return _sizes(texts[0])
    shapes = {}
    for text in texts:
        name, _, sizes = text.partition("=")
        if not name.strip().isidentifier():
            raise InvalidInputError(
                f"--shape is sizes such as 10 or 8,8, or NAME=SIZES for each "
                f"parameter; got {text!r}."
            )
        shapes[name.strip()] = _sizes(sizes) if sizes.strip() else ()
    return shapes


def parse_support(texts: Sequence[str], named: bool) -> Any:
    """`positive`, `0,10`, or several `name=...`."""
    if not texts:
        return None
    if not named:
        if len(texts) > 1:
            raise InvalidInputError("give --support once, or name the parameters.")
        return _support(texts[0])
    supports = {}
    for text in texts:
        name, found, value = text.partition("=")
        if not found:
            raise InvalidInputError(
                f"with named shapes, --support is NAME=SUPPORT; got {text!r}."
            )
        supports[name.strip()] = _support(value)
    return supports


class Automatic(NamedTuple):
    """What `annealax sample` and `annealax run --auto` were asked for.

    Attributes:
        name: The experiment, or module:function.
        overrides: Settings of the experiment that were changed.
        shape: As for `annealax.sample`; None for an experiment.
        support: As for `annealax.sample`.
        seed: The seed.
        budget: As for `annealax.sample`.
        flow: As for `annealax.sample`.
    """

    name: str
    overrides: Mapping[str, Any]
    shape: Any
    support: Any
    seed: int
    budget: str | float | None
    flow: str

    def density(self) -> Callable[[Any], Any]:
        """The log density."""
        if self.shape is not None:
            return find_density(self.name)
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in self.overrides.items()
        }
        return find_experiment(self.name)(**values).target()


def start(plan: Automatic, folder: RunFolder, output: Output) -> None:
    """Sample, and leave the answer in a folder."""
    surroundings = environment()
    folder.write_json("environment.json", surroundings)
    asked = plan._asdict()
    folder.write_json(
        _SETTINGS,
        {
            "command": COMMAND,
            "method": COMMAND,
            **asked,
            "settings": {
                key: _plain(asked[key])
                for key in ("shape", "support", "budget", "flow")
                if asked[key] is not None
            },
            "versions": surroundings["versions"],
            "devices": surroundings["devices"],
        },
    )
    _run(plan, folder, output)


def go_on(path: Path, output: Output) -> None:
    """Go on with an automatic run that was interrupted."""
    file = path / _SETTINGS
    try:
        content = json.loads(file.read_text())
        plan = Automatic(**{name: content[name] for name in Automatic._fields})
        shape = plan.shape
        if isinstance(shape, dict):
            shape = {key: tuple(value) for key, value in shape.items()}
        elif shape is not None:
            shape = tuple(shape)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(f"{file} is damaged: {error!r}; sample again.") from error
    _run(plan._replace(shape=shape), RunFolder(path, existing=True), output)


def _run(plan: Automatic, folder: RunFolder, output: Output) -> None:
    density = plan.density()
    with working(output, folder, COMMAND) as signals:

        def stop_if_asked(*_: object) -> None:
            signals.stop_if_asked("what was finished is saved")

        def say(text: str) -> None:
            stop_if_asked()
            output.say(text)

        result = sample(
            density,
            plan.shape,
            seed=plan.seed,
            budget=plan.budget,
            support=plan.support,
            flow=plan.flow,
            progress=say,
            callback=[
                JSONLines(folder.path / METRICS, stage="replicates"),
                *output.callbacks("replicates"),
                stop_if_asked,
            ],
            checkpoint=folder.path / CHECKPOINTS,
        )
        names = _write(plan, folder, result)

    def show(console: Console) -> None:
        report.show(console, folder.path)
        console.print(
            f"Files in {folder.path}: {', '.join(names)}",
            highlight=False,
            soft_wrap=True,
        )

    output.finish(show, lambda: {**_answer(plan, result), "files": names})


def _write(plan: Automatic, folder: RunFolder, result: Sample) -> list[str]:
    folder.write_arrays("result.npz", arrays_of(result))
    folder.write_json("answer.json", _answer(plan, result))
    folder.write_json("table.json", _table(plan, result))
    with folder.writing("summary.txt") as file:
        file.write((result.summary() + "\n").encode())
    names = ["result.npz", "answer.json", "summary.txt"]
    with contextlib.suppress(MissingExtraError):
        to_netcdf(folder.path / "result.nc", result.to_arviz())
        names.append("result.nc")
    return names + report.write_pictures(folder.path) + report.write_page(folder.path)


def _table(plan: Automatic, result: Sample) -> dict[str, Any]:
    """What the page of a run is made from."""
    density = plan.density()
    exact = density.log_normalizer if isinstance(density, AbstractTarget) else None
    weights = np.exp(np.asarray(result.log_weights, np.float64))
    weights = weights.reshape(result.num_replicates, -1)
    share = weights.sum(axis=1) ** 2 / np.sum(weights**2, axis=1)
    lowest = np.asarray(result.steps.ess).min(axis=1)
    answer = next(stage for stage in result.stages if stage.name == "answer")
    return {
        "log_normalizer_true": exact,
        "training_seconds": None,
        "rows": [
            {
                "label": "sample",
                "num_transitions": len(result.betas) - 1,
                "log_normalizer": json_number(result.log_normalizer),
                "log_normalizer_stderr": json_number(result.log_normalizer_stderr),
                "repeats_log_normalizer": [
                    json_number(value) for value in result.replicate_log_normalizers
                ],
                "repeats_ess": list(share / result.num_particles),
                "repeats_lowest_ess": list(map(float, lowest / result.num_particles)),
                "seconds_per_pass": answer.seconds / result.num_replicates,
                "evaluations_per_pass": answer.evaluations / result.num_replicates,
                "warnings": result.warnings(),
            }
        ],
    }


def _plain(value: Any) -> Any:
    """A setting as one line of text."""
    if isinstance(value, dict):
        return ", ".join(f"{key}={_plain(each)}" for key, each in value.items())
    if isinstance(value, tuple | list):
        return ",".join("" if each is None else f"{each}" for each in value)
    return str(value)


def arrays_of(result: Sample) -> Mapping[str, Any]:
    """All numbers of an answer, for an npz file."""
    values = result.x
    draws = {"x": values}
    if isinstance(values, dict):  # by name, and side by side
        columns = [np.asarray(v).reshape(len(v), -1) for v in values.values()]
        draws = {f"x_{key}": value for key, value in values.items()}
        draws["x"] = np.concatenate(columns, axis=1)
    steps = result.steps._asdict()
    return {
        **draws,
        "vectors": result.vectors,
        "log_weights": result.log_weights,
        "log_normalizer": result.log_normalizer,
        "log_normalizer_stderr": result.log_normalizer_stderr,
        "repeats_log_normalizer": result.replicate_log_normalizers,
        "repeats_log_normalizer_stderr": result.replicate_stderrs,
        "betas": result.betas,
        "step_sizes": result.step_sizes,
        "mode_points": result.modes.points,
        "mode_weights": result.modes.weights,
        **{f"replicate_step_{key}": value for key, value in steps.items()},
        **{f"step_{key}": np.mean(value, axis=0) for key, value in steps.items()},
        "step_ess": np.sum(steps["ess"], axis=0),
        "step_resampled": np.mean(steps["resampled"], axis=0) > 0.5,
    }


def _answer(plan: Automatic, result: Sample) -> dict[str, Any]:
    return {
        "command": COMMAND,
        "name": plan.name,
        "seed": plan.seed,
        "log_normalizer": json_number(result.log_normalizer),
        "log_normalizer_stderr": json_number(result.log_normalizer_stderr),
        "ess": json_number(result.ess),
        "pareto_k": json_number(result.pareto_k),
        "choices": dict(result.choices),
        "warnings": result.warnings(),
        "stages": [
            {
                "name": stage.name,
                "evaluations": stage.evaluations,
                "seconds": stage.seconds,
            }
            for stage in result.stages
        ],
    }


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.replace("x", ",").split(",") if part)
    except ValueError:
        raise InvalidInputError(
            f"a shape is whole numbers with commas between, such as 10 or 8,8; got "
            f"{text!r}."
        ) from None


def _support(text: str) -> Any:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1:
        return parts[0]
    if len(parts) == 2:
        try:
            return tuple(float(part) if part else None for part in parts)
        except ValueError:
            pass
    raise InvalidInputError(
        f"a support is real, positive, unit, simplex, or two bounds such as 0,10 (one "
        f"of them may be left out); got {text!r}."
    )

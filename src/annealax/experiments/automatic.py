"""The automatic mode as a command: for a function in a module, or an experiment."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from annealax._errors import InvalidInputError
from annealax.auto import Sample, sample
from annealax.experiments._folder import RunFolder
from annealax.experiments._numbers import json_number
from annealax.targets import AbstractTarget


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


def run_automatic(
    console: Console,
    folder: RunFolder,
    density: Callable[[Any], Any],
    *,
    name: str,
    shape: Any = None,
    support: Any = None,
    seed: int = 0,
    budget: str | None = None,
    flow: str = "auto",
    quiet: bool = False,
) -> Sample:
    """Sample, and leave the answer in a folder.

    Args:
        console: Where the summary goes.
        folder: Where the files go.
        density: The log density.
        name: What to call it.
        shape: As for `annealax.sample`.
        support: As for `annealax.sample`.
        seed: The seed.
        budget: As for `annealax.sample`.
        flow: As for `annealax.sample`.
        quiet: Print the summary only.
    """
    result = sample(
        density,
        shape,
        seed=seed,
        budget=budget,
        support=support,
        flow=flow,
        progress=not quiet,
    )
    console.print(result.summary(), highlight=False, soft_wrap=True, markup=False)
    if isinstance(density, AbstractTarget) and density.log_normalizer is not None:
        error = result.log_normalizer - density.log_normalizer
        console.print(
            f"exact   log Z {density.log_normalizer:.4f}: off by {error:+.4f}, "
            f"{error / result.log_normalizer_stderr:+.1f} standard errors",
            highlight=False,
        )
    folder.write_arrays("result.npz", arrays_of(result))
    folder.write_json("answer.json", _answer(name, seed, result))
    with folder.writing("summary.txt") as file:
        file.write((result.summary() + "\n").encode())
    with folder.writing("answer.png") as file:
        result.plot().savefig(file, dpi=120, format="png")
    console.print(
        f"Files in {folder.path}: result.npz, answer.json, answer.png, summary.txt",
        highlight=False,
        soft_wrap=True,
    )
    return result


def arrays_of(result: Sample) -> Mapping[str, Any]:
    """All numbers of an answer, for an npz file."""
    values = result.x
    draws = (
        {f"x_{key}": value for key, value in values.items()}
        if isinstance(values, dict)
        else {"x": values}
    )
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
        **{f"step_{key}": value for key, value in result.steps._asdict().items()},
    }


def _answer(name: str, seed: int, result: Sample) -> Mapping[str, Any]:
    return {
        "name": name,
        "seed": seed,
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

"""`annealax sample` and `annealax run --auto`: everything chosen automatically."""

import contextlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from annealax._arviz import MissingExtraError, to_netcdf
from annealax._errors import InvalidInputError
from annealax._evidence import as_probabilities, compare_evidence
from annealax._work.live import Live
from annealax._work.serialise import save
from annealax.auto import Sample, sample
from annealax.auto.sample import free_density
from annealax.auto.show import notes
from annealax.cli.folder import Done, Workplace
from annealax.cli.output import Output, json_doubts, json_number
from annealax.experiments.files import writing
from annealax.experiments.jobs import SAMPLER, SampleJob
from annealax.report import write_comparison
from annealax.report.read import read_run
from annealax.targets import AbstractTarget


def prepare(job: SampleJob, _: Path) -> Callable[[Any], Any]:
    """Find the density: a wrong name, or shape, is an error now."""
    free_density(job.density, job.shape, job.support)
    return job.density


def work(place: Workplace, job: SampleJob, density: Callable[[Any], Any]) -> Done:
    """Sample, from what is finished already."""

    def stop_if_asked(*_: object) -> None:
        place.signals.stop_if_asked("what was finished is saved")

    def hear(text: str) -> None:
        stop_if_asked()
        if place.output.as_json:
            place.output.say(text)

    with Live(place.output.progress, place.output.console, also=hear) as live:
        result = sample(
            density,
            job.shape,
            seed=job.seed,
            budget=job.budget,
            support=job.support,
            region=job.region,
            flow=job.flow,
            progress=live,
            callback=[*place.callbacks("replicates"), live.watch, stop_if_asked],
            checkpoint=place.checkpoint(),
            executor=place.workers,
        )
    exact = density.log_normalizer if isinstance(density, AbstractTarget) else None
    folder, answer = place.folder, as_json(job, result)
    folder.write_json("answer.json", answer)
    folder.write_json("table.json", as_table(result, exact))
    with writing(place.path / "summary.txt") as file:
        file.write((result.summary() + "\n").encode())
    save(place.path / SAMPLER, (result.plan, result.flows))
    folder.write_arrays("result.npz", as_arrays(result))
    files = ["result.npz", "answer.json", "summary.txt", SAMPLER]
    with contextlib.suppress(MissingExtraError):
        to_netcdf(place.path / "result.nc", result.to_arviz())
        files.append("result.nc")
    return Done(files, answer)


def as_arrays(result: Sample) -> dict[str, Any]:
    """What `result.npz` holds: all numbers of an answer."""
    values = result.x
    draws = {"x": values}
    if isinstance(values, dict):  # by name, and side by side
        columns = [np.asarray(v).reshape(len(v), -1) for v in values.values()]
        draws = {f"x_{key}": value for key, value in values.items()}
        draws["x"] = np.concatenate(columns, axis=1)
    prior = result.prior_draws()
    if isinstance(prior, dict):
        draws |= {f"prior_{key}": np.asarray(value) for key, value in prior.items()}
    elif prior is not None:
        draws["prior"] = np.asarray(prior)
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


def as_json(job: SampleJob, result: Sample) -> dict[str, Any]:
    """What `answer.json` holds: the answer, what was decided, and what it cost."""
    return {
        "command": job.command,
        "name": job.name,
        "seed": job.seed,
        "log_normalizer": json_number(result.log_normalizer),
        "log_normalizer_stderr": json_number(result.log_normalizer_stderr),
        "ess": json_number(result.ess),
        "pareto_k": json_number(result.pareto_k),
        "choices": dict(result.choices),
        "notes": notes(result),
        "num_devices": result.num_devices,
        "warnings": json_doubts(result.warnings()),
        "stages": [
            {
                "name": stage.name,
                "evaluations": stage.evaluations,
                "seconds": stage.seconds,
            }
            for stage in result.stages
        ],
    }


def as_table(result: Sample, exact: float | None) -> dict[str, Any]:
    """What `table.json` holds: the replicates as the passes of one method."""
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
                "num_devices": result.num_devices,
                "evaluations_per_pass": answer.evaluations / result.num_replicates,
                "warnings": json_doubts(result.warnings()),
            }
        ],
    }


def short_names(functions: Sequence[str]) -> list[str]:
    """A name for each function of a comparison: that in its module, if they differ."""
    if len(set(functions)) < len(functions):
        raise InvalidInputError(
            f"the models of a comparison must differ, got {' '.join(functions)}."
        )
    names = [function.rpartition(":")[2] for function in functions]
    if len(set(names)) == len(names):
        return names
    return [path_name(function) for function in functions]


def path_name(function: str) -> str:
    """A function as a part of the name of a folder."""
    name = function.replace(".py:", "-").replace(":", "-")
    return "-".join(part for part in Path(name).parts if part not in ("/", ".."))


def parse_priors(
    texts: Sequence[str], names: Sequence[str]
) -> dict[str, float | int] | None:
    """`NAME=NUMBER` for each model; None if there are none."""
    if not texts:
        return None
    found: dict[str, float | int] = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            found[name.strip()] = float(number)
        except ValueError:
            found = {}
        if name.strip() not in names or not found:
            raise InvalidInputError(
                f"--prior is FUNCTION=NUMBER with one of {', '.join(names)}; got "
                f"{text!r}."
            )
    as_probabilities(tuple(names), found)
    return found


def compare(
    folders: Mapping[str, Path],
    base: Path,
    priors: Mapping[str, float | int] | None,
    output: Output,
) -> None:
    """Compare the models in these folders: `evidence.json` and `report.html`."""
    runs = {name: read_run(path) for name, path in folders.items()}
    results = {name: run.evidence for name, run in runs.items()}
    found = compare_evidence(results, priors)
    with writing(base / "evidence.json") as file:
        file.write((json.dumps(found.as_json(), indent=1) + "\n").encode())
    write_comparison(list(folders.values()), base, priors)
    if output.as_json:
        files = ["evidence.json", "report.html"]
        output.emit("comparison", **found.as_json(), folder=str(base), files=files)
        return
    output.tell("")
    for line in found.summary().splitlines():
        output.tell(line)
    output.left(base, ["evidence.json", *folders, "report.html"])


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
    return _by_name("support", texts, named, _support)


def parse_region(texts: Sequence[str], named: bool) -> Any:
    """`-5,5`, or several `name=...`."""
    return _by_name("region", texts, named, _region)


def _by_name(
    option: str, texts: Sequence[str], named: bool, parse: Callable[[str], Any]
) -> Any:
    """One value, or one for each name."""
    if not texts:
        return None
    if not named:
        if len(texts) > 1:
            raise InvalidInputError(f"give --{option} once, or name the parameters.")
        return parse(texts[0])
    values = {}
    for text in texts:
        name, found, value = text.partition("=")
        if not found:
            raise InvalidInputError(
                f"with named shapes, --{option} is NAME={option.upper()}; got {text!r}."
            )
        values[name.strip()] = parse(value)
    return values


def _region(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise InvalidInputError(
            f"a region is two numbers such as -5,5; got {text!r}."
        ) from None
    return low, high


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.replace("x", ",").split(",") if part)
    except ValueError:
        raise InvalidInputError(
            f"a shape is whole numbers with commas between, such as 10 or 8,8; got "
            f"{text!r}."
        ) from None


def _support(text: str) -> Any:
    """A name, or two bounds, where None and an infinite bound mean no bound."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1:
        return parts[0]
    try:
        first, second = parts
        low, high = _bound(first, -math.inf), _bound(second, math.inf)
    except ValueError:
        raise InvalidInputError(
            f"a support is real, positive, unit, simplex, or two bounds such as 0,10 "
            f"(one of them may be left out); got {text!r}."
        ) from None
    return "real" if low is high is None else (low, high)


def _bound(text: str, end: float) -> float | None:
    """A bound, or None where there is none: nothing, or infinity at its own end."""
    if not text:
        return None
    value = float(text)
    if "inf" in text.lower() and value == end:
        return None
    if not math.isfinite(value):
        raise ValueError(text)
    return value

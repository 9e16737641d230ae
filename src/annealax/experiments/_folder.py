"""Run folders: what is kept of a run, as JSON, npz and pictures; nothing is pickled.

- `settings.json`: what was run, written before anything else;
- `environment.json`: versions, devices and commit;
- `status.json`: how far each command has come in this folder;
- `metrics.jsonl`: a line for each training step and each pass, while they are made;
- `checkpoints/`: what `annealax resume` goes on from;
- `result.npz`: particles, log Z, diagnostics, training history (the same for the same
  seed, to the bit);
- `table.json`: the comparison, with times;
- `flows.npz`: the trained flows, as `annealax.save` writes them;
- pictures.

Files are written whole or not at all, and a folder that holds a run is left alone.
"""

import contextlib
import json
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import jax
import jax.random as jr
import numpy as np

import annealax
from annealax._errors import InvalidInputError
from annealax._work.serialise import FileError, load, replacing, save
from annealax.experiments._environment import environment
from annealax.experiments._fields import fields_of
from annealax.experiments._numbers import json_number
from annealax.experiments._settings import Settings
from annealax.experiments.problems import find_experiment
from annealax.experiments.run import FinishedRun, Outcome, find_method
from annealax.flows.base import replicate

_SETTINGS = "settings.json"
_FLOWS = "flows.npz"
_STATUS = "status.json"
METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"

Status = Literal["running", "interrupted", "finished"]


class RunFolder:
    """A folder for one run.

    Args:
        path: Where; if there is a run already, the next free of path-2, path-3, ...
        existing: Add to the run that is there instead.
    """

    path: Path

    def __init__(self, path: Path, *, existing: bool = False):
        if existing:
            self.path = path
            return
        path = path if path.name else path.resolve()  # "." has no name to extend
        candidate, index = path, 1
        try:
            while (candidate / _SETTINGS).exists():
                index += 1
                candidate = path.with_name(f"{path.name}-{index}")
            candidate.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInputError(
                f"cannot make the run folder {candidate}: {error.strerror}; choose "
                "another with --out."
            ) from error
        self.path = candidate

    def write_json(self, name: str, content: Mapping[str, Any]) -> Path:
        """Write a JSON file."""
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        with self.writing(name) as file:
            file.write(text.encode())
        return self.path / name

    def write_arrays(self, name: str, arrays: Mapping[str, Any]) -> Path:
        """Write an npz file."""
        numbers: dict[str, Any] = {k: np.asarray(v) for k, v in arrays.items()}
        with self.writing(name) as file:
            np.savez_compressed(file, **numbers)
        return self.path / name

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """A file to write to, which appears under its name once it is complete."""
        try:
            with replacing(self.path / name) as file:
                yield file
        except OSError as error:
            raise InvalidInputError(
                f"cannot write {self.path / name}: {error.strerror}; free some space "
                f"and go on with `annealax resume {self.path}`."
            ) from error

    def set_status(self, command: str, status: Status) -> None:
        """Note how far a command has come."""
        self.write_json(_STATUS, read_status(self.path) | {command: status})


def write_settings(
    folder: RunFolder,
    *,
    name: str,
    method: str,
    seed: int,
    overrides: Mapping[str, Any],
    values: Mapping[str, Any],
    checkpoint_seconds: float = 60.0,
    **more: Any,
) -> Path:
    """What is about to run, and with which software; `more` is kept as it is."""
    folder.write_json("environment.json", environment())
    return folder.write_json(
        _SETTINGS,
        {
            "name": name,
            "method": method,
            "seed": seed,
            "overrides": overrides,
            "settings": values,
            "checkpoint_seconds": checkpoint_seconds,
            **more,
            "versions": {
                "annealax": annealax.__version__,
                "jax": jax.__version__,
                "python": platform.python_version(),
            },
            "devices": [str(device) for device in jax.devices()],
        },
    )


def write_outcome(folder: RunFolder, outcome: Outcome) -> Path:
    """The results as arrays, and the table."""
    result, sampler = outcome.main.result, outcome.main.sampler
    arrays = {
        "x": result.x,
        "log_weights": result.log_weights,
        "log_normalizer": result.log_normalizer,
        "log_normalizer_stderr": result.log_normalizer_stderr,
        "log_normalizer_true": np.nan if outcome.truth is None else outcome.truth,
        "betas": sampler.path.betas,
        "repeats_log_normalizer": outcome.main.log_normalizers,
        "repeats_log_normalizer_stderr": outcome.main.stderrs,
        **{f"step_{key}": value for key, value in result.steps._asdict().items()},
    }
    if outcome.fit is not None:
        history = outcome.fit.history
        arrays |= {
            "history_loss": history.loss,
            "history_log_normalizer": history.log_normalizer,
            "history_ess": history.steps.ess,
            "history_acceptance_rate": history.steps.acceptance_rate,
            "history_num_skipped": history.num_skipped,
        }
    folder.write_json("table.json", outcome_table(outcome))
    if outcome.fit is not None:
        save(folder.path / _FLOWS, outcome.fit.flows)
    return folder.write_arrays("result.npz", arrays)


def read_command(path: Path) -> str:
    """The command that made a folder; "run" if its settings do not say."""
    try:
        return str(json.loads((path / _SETTINGS).read_text()).get("command", "run"))
    except (OSError, ValueError, AttributeError):  # `read_settings` says what is wrong
        return "run"


class Recorded(NamedTuple):
    """What `settings.json` says.

    Attributes:
        name: Name of the experiment.
        settings: Its settings.
        method: Name of the method.
        seed: The seed.
        checkpoint_seconds: Time between checkpoints.
        content: All of the file.
    """

    name: str
    settings: Settings
    method: str
    seed: int
    checkpoint_seconds: float
    content: Mapping[str, Any]


def read_settings(path: Path) -> Recorded:
    """What `write_settings` left in a folder.

    Raises:
        FileError: If there is no run, or its settings are damaged.
    """
    file = path / _SETTINGS
    try:
        content = json.loads(file.read_text())
        name, method, seed = content["name"], content["method"], content["seed"]
        seconds = float(content.get("checkpoint_seconds", 60.0))
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in content["settings"].items()
        }
    except (FileNotFoundError, NotADirectoryError):
        raise FileError(
            f"{path} is not a run folder: it has no {_SETTINGS}; give the folder that "
            "`annealax run` printed."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(f"{file} is damaged: {error!r}; run it again.") from error
    if not (isinstance(name, str) and isinstance(method, str) and type(seed) is int):
        raise FileError(
            f"{file} is damaged: name {name!r}, method {method!r}, seed {seed!r}."
        )
    if "," in method and "command" not in content:
        raise FileError(
            f"{path} holds a comparison of an older version; compare again."
        )
    cls = find_experiment(name)
    if unknown := sorted(set(values) - set(fields_of(cls))):
        raise FileError(
            f"{file} has settings that {name} does not know: {unknown}; it was "
            "written by another version of annealax."
        )
    return Recorded(name, cls(**values), method, seed, seconds, content)


def read_run(path: Path) -> FinishedRun:
    """What `write_settings` and `write_outcome` left in a folder.

    Raises:
        FileError: If there is no finished run, or its files are damaged.
    """
    name, settings, method, seed, *_ = read_settings(path)
    if "," in method:
        raise FileError(f"{path} holds a comparison of methods, not a run.")
    chosen = find_method(method)
    flows = None
    if chosen.trainer is not None:
        if not (path / _FLOWS).exists():
            raise FileError(
                f"{path} has no {_FLOWS}: the run did not finish; `annealax resume "
                f"{path}` goes on with it."
            )
        count = chosen.sampler(settings).path.num_transitions
        flows = load(path / _FLOWS, replicate(settings.flow(jr.key(0)), count))
    return FinishedRun(name, settings, method, seed, flows)


def read_status(path: Path) -> dict[str, Status]:
    """How far each command has come in a folder."""
    try:
        content = json.loads((path / _STATUS).read_text())
        return {str(command): status for command, status in content.items()}
    except FileNotFoundError:  # of before there was this file
        return {"run": "finished"} if (path / "result.npz").exists() else {}
    except (OSError, ValueError, AttributeError) as error:
        raise FileError(
            f"{path / _STATUS} is damaged: {error!r}; remove it and try again."
        ) from error


def outcome_table(outcome: Outcome) -> dict[str, Any]:
    """The comparison, as JSON holds it."""
    fit = outcome.fit
    return {
        "log_normalizer_true": outcome.truth,
        "training_seconds": None if fit is None else fit.seconds,
        "training_compile_seconds": None if fit is None else fit.compile_seconds,
        "training_num_skipped": None
        if fit is None
        else int(fit.history.num_skipped.sum()),
        "training_warnings": [] if fit is None else fit.warnings(),
        "rows": [
            {
                "label": row.label,
                "num_transitions": row.num_transitions,
                "log_normalizer": json_number(row.result.log_normalizer),
                "log_normalizer_stderr": json_number(row.result.log_normalizer_stderr),
                "repeats_log_normalizer": list(map(json_number, row.log_normalizers)),
                "repeats_ess": list(map(json_number, row.ess)),
                "repeats_lowest_ess": list(map(json_number, row.lowest_ess)),
                "seconds_per_pass": row.seconds,
                "evaluations_per_pass": json_number(row.result.num_evaluations),
                "warnings": row.warnings(),
            }
            for row in outcome.evaluations
        ],
    }

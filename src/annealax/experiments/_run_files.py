"""What a report is made from: the files of a run folder, read and checked.

Nothing here needs the experiment itself, so folders of other versions can be read.
Whatever is missing or damaged is a `FileError` of one line.
"""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from annealax._work.serialise import FileError
from annealax.experiments._read import (
    Picture,
    damaged,
    entries,
    number,
    optional_number,
    read_arrays,
    read_json,
    read_pictures,
    typed,
)


@dataclasses.dataclass(frozen=True)
class TableRow:
    """One method of `table.json`; a number that is None was not finite."""

    label: str
    num_transitions: int
    log_normalizer: float | None
    log_normalizer_stderr: float | None
    repeats: np.ndarray
    ess: np.ndarray
    lowest_ess: np.ndarray
    seconds: float
    evaluations: float | None
    warnings: tuple[str, ...]

    @property
    def mean(self) -> float:
        """Mean of log Z over the passes."""
        return float(np.mean(self.repeats))

    @property
    def spread(self) -> float | None:
        """Standard deviation of log Z over the passes; None for a single pass."""
        return float(np.std(self.repeats, ddof=1)) if len(self.repeats) > 1 else None


@dataclasses.dataclass(frozen=True)
class Header:
    """`settings.json`: what was run, and with which software."""

    path: Path
    name: str
    method: str
    seed: int
    overrides: Mapping[str, Any]
    settings: Mapping[str, Any]
    versions: Mapping[str, Any]
    devices: tuple[str, ...]
    environment: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class RunFiles:
    """A finished run.

    Attributes:
        header: What was run.
        truth: Exact log Z, or None.
        training_seconds: Time of the training, or None.
        rows: The method first, then what it is compared with.
        arrays: `result.npz`.
        chain: `pimh.npz`; empty if there was no particle MCMC.
        pictures: All pictures by file name.
    """

    header: Header
    truth: float | None
    training_seconds: float | None
    rows: tuple[TableRow, ...]
    arrays: Mapping[str, np.ndarray]
    chain: Mapping[str, np.ndarray]
    pictures: Mapping[str, Picture]

    @property
    def main(self) -> TableRow:
        """The method itself."""
        return self.rows[0]

    @property
    def num_particles(self) -> int:
        """Particles in a pass."""
        return len(self.arrays["log_weights"])

    @property
    def ess(self) -> float:
        """Effective sample size of the final weights."""
        weights = np.exp(self.arrays["log_weights"])
        return float(weights.sum() ** 2 / np.sum(weights**2))

    @property
    def just_resampled(self) -> bool:
        """Whether the last temperature resampled, which makes all weights equal."""
        return bool(self.arrays["step_resampled"][-1])


def read_files(path: Path) -> RunFiles:
    """Read the folder of a finished run.

    Raises:
        FileError: If there is no finished run, or its files are damaged.
    """
    header, file = read_header(path), path / "table.json"
    if (path / "compare.json").exists() and not file.exists():
        raise FileError(
            f"{path} holds a comparison of methods, not a run: give it to `annealax "
            "report` alone"
        )
    table = read_json(file, "the run did not finish")
    arrays = read_arrays(path / "result.npz")
    _check_arrays(path / "result.npz", arrays)
    chain = path / "pimh.npz"
    return RunFiles(
        header=header,
        truth=optional_number(file, table, "log_normalizer_true"),
        training_seconds=optional_number(
            path / "table.json", table, "training_seconds"
        ),
        rows=_rows(file, table),
        arrays=arrays,
        chain=read_arrays(chain) if chain.exists() else {},
        pictures=read_pictures(path),
    )


def read_header(path: Path) -> Header:
    """Read `settings.json`, and `environment.json` if there is one."""
    file = path / "settings.json"
    if not file.exists():
        raise FileError(
            f"{path} is not a run folder: it has no settings.json; give the folder "
            "that `annealax run` printed"
        )
    content = read_json(file, "")
    file_environment = path / "environment.json"
    environment = read_json(file_environment, "") if file_environment.exists() else {}
    seed = typed(file, content, "seed", int)
    return Header(
        path=path,
        name=typed(file, content, "name", str),
        method=typed(file, content, "method", str),
        seed=seed,
        overrides=typed(file, content, "overrides", dict),
        settings=typed(file, content, "settings", dict),
        versions=environment.get("versions", {}),
        devices=tuple(map(str, environment.get("devices", ()))),
        environment=environment,
    )


def _rows(file: Path, table: Mapping[str, Any]) -> tuple[TableRow, ...]:
    return tuple(_row(file, row) for row in entries(file, table, "rows"))


def _row(file: Path, row: Mapping[str, Any]) -> TableRow:
    def numbers(key: str) -> np.ndarray:
        found = typed(file, row, key, list)
        try:
            return np.array([math.nan if v is None else float(v) for v in found])
        except (TypeError, ValueError) as error:
            raise damaged(file, f"{key!r}: {error}") from error

    repeats = numbers("repeats_log_normalizer")
    ess, lowest = numbers("repeats_ess"), numbers("repeats_lowest_ess")
    if not len(repeats) == len(ess) == len(lowest) or not len(repeats):
        raise damaged(file, "its rows hold lists of different lengths, or empty ones")
    return TableRow(
        label=typed(file, row, "label", str),
        num_transitions=typed(file, row, "num_transitions", int),
        log_normalizer=optional_number(file, row, "log_normalizer"),
        log_normalizer_stderr=optional_number(file, row, "log_normalizer_stderr"),
        repeats=repeats,
        ess=ess,
        lowest_ess=lowest,
        seconds=number(file, row, "seconds_per_pass"),
        evaluations=optional_number(file, row, "evaluations_per_pass"),
        warnings=tuple(
            each["text"] if isinstance(each, dict) else str(each)
            for each in typed(file, row, "warnings", list)
        ),
    )


def _check_arrays(file: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Shapes that pages rely on."""
    steps = ("step_ess", "step_acceptance_rate", "step_resampled")
    for name in ("x", "log_weights", "betas", *steps):
        if name not in arrays:
            raise damaged(file, f"it has no array {name!r}")
        if arrays[name].dtype.kind not in "fiub":
            raise damaged(file, f"{name!r} does not hold numbers")
    n, transitions = len(np.atleast_1d(arrays["log_weights"])), arrays["step_ess"].shape
    if arrays["log_weights"].shape != (n,) or arrays["x"].shape[:1] != (n,) or n == 0:
        raise damaged(file, "'x' and 'log_weights' do not fit together")
    if (
        len(transitions) != 1
        or not transitions[0]
        or any(arrays[s].shape != transitions for s in steps)
    ):
        raise damaged(file, "its arrays over temperatures do not fit together")
    if arrays["betas"].shape != (transitions[0] + 1,):
        raise damaged(file, "'betas' does not fit to the other arrays")
    if not np.isfinite(np.max(arrays["log_weights"])):
        raise damaged(file, "no particle of 'log_weights' has a weight")

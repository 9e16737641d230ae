"""What a report is made from: the files of a run folder, read and checked.

Nothing here needs the experiment itself, so folders of other versions can be read.
Whatever is missing or damaged is a `FileError` of one line.
"""

import dataclasses
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from annealax._serialise import FileError

_AGAIN = "run it again"
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"IEND\xaeB`\x82"


@dataclasses.dataclass(frozen=True)
class Picture:
    """A PNG file: its bytes and size."""

    name: str
    data: bytes
    width: int
    height: int


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
    header = read_header(path)
    table = read_json(path / "table.json", "the run did not finish")
    arrays = read_arrays(path / "result.npz")
    _check_arrays(path / "result.npz", arrays)
    chain = path / "pimh.npz"
    return RunFiles(
        header=header,
        truth=_optional(path / "table.json", table, "log_normalizer_true"),
        training_seconds=_optional(path / "table.json", table, "training_seconds"),
        rows=_rows(path / "table.json", table),
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
    environment = path / "environment.json"
    seed = _get(file, content, "seed", int)
    return Header(
        path=path,
        name=_get(file, content, "name", str),
        method=_get(file, content, "method", str),
        seed=seed,
        overrides=_get(file, content, "overrides", dict),
        settings=_get(file, content, "settings", dict),
        versions=_get(file, content, "versions", dict),
        devices=tuple(map(str, _get(file, content, "devices", list))),
        environment=read_json(environment, "") if environment.exists() else {},
    )


def read_json(file: Path, missing: str) -> dict[str, Any]:
    """An object from a JSON file; `missing` says why it may not be there."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileError(f"there is no {file}: {missing}; {_AGAIN}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(file, error) from error
    if not isinstance(content, dict):
        raise damaged(file, f"an object is expected, not {type(content).__name__}")
    return content


def read_arrays(file: Path) -> dict[str, np.ndarray]:
    """All arrays of an npz file."""
    try:
        # Opened here because np.load forgets to close a file it cannot read.
        with file.open("rb") as raw, np.load(raw, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except FileNotFoundError:
        raise FileError(
            f"there is no {file}: the run did not finish; {_AGAIN}"
        ) from None
    except (
        OSError,
        ValueError,
        EOFError,
        KeyError,
        AttributeError,  # a single array has no files
        TypeError,
        SyntaxError,  # a header that numpy cannot read
        NotImplementedError,  # a compression that zipfile does not know
        RuntimeError,  # a file that says it is encrypted
        struct.error,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise damaged(file, error) from error


def read_pictures(path: Path) -> dict[str, Picture]:
    """All PNG files of a folder, by name."""
    return {file.name: _picture(file) for file in sorted(path.glob("*.png"))}


def damaged(file: Path, what: object) -> FileError:
    """The error for a file that cannot be used."""
    text = " ".join(str(what).split()) or type(what).__name__
    return FileError(f"{file} is damaged: {text}; {_AGAIN}")


def entries(
    file: Path, content: Mapping[str, Any], key: str
) -> list[Mapping[str, Any]]:
    """A list of at least one object from a JSON object."""
    found = _get(file, content, key, list)
    if not found or not all(isinstance(entry, dict) for entry in found):
        raise damaged(file, f"{key!r} must hold at least one object")
    return found


def number(file: Path, content: Mapping[str, Any], key: str) -> float:
    """A number from a JSON object."""
    return float(_get(file, content, key, (int, float)))


def _picture(file: Path) -> Picture:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise damaged(file, error) from error
    if not data.startswith(_PNG) or not data.endswith(_PNG_END):
        raise damaged(file, "it is not a whole PNG picture")
    width, height = struct.unpack(">II", data[16:24])
    return Picture(file.name, data, width, height)


def _get(file: Path, content: Mapping[str, Any], key: str, kind: Any) -> Any:
    value = content.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise damaged(file, f"{key!r} is missing or of the wrong type")
    return value


def _optional(file: Path, content: Mapping[str, Any], key: str) -> float | None:
    return None if content.get(key) is None else number(file, content, key)


def _rows(file: Path, table: Mapping[str, Any]) -> tuple[TableRow, ...]:
    return tuple(_row(file, row) for row in entries(file, table, "rows"))


def _row(file: Path, row: Mapping[str, Any]) -> TableRow:
    def numbers(key: str) -> np.ndarray:
        found = _get(file, row, key, list)
        try:
            return np.array([math.nan if v is None else float(v) for v in found])
        except (TypeError, ValueError) as error:
            raise damaged(file, f"{key!r}: {error}") from error

    repeats = numbers("repeats_log_normalizer")
    ess, lowest = numbers("repeats_ess"), numbers("repeats_lowest_ess")
    if not len(repeats) == len(ess) == len(lowest) or not len(repeats):
        raise damaged(file, "its rows hold lists of different lengths, or empty ones")
    return TableRow(
        label=_get(file, row, "label", str),
        num_transitions=_get(file, row, "num_transitions", int),
        log_normalizer=_optional(file, row, "log_normalizer"),
        log_normalizer_stderr=_optional(file, row, "log_normalizer_stderr"),
        repeats=repeats,
        ess=ess,
        lowest_ess=lowest,
        seconds=number(file, row, "seconds_per_pass"),
        evaluations=_optional(file, row, "evaluations_per_pass"),
        warnings=tuple(map(str, _get(file, row, "warnings", list))),
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
    if not np.max(arrays["log_weights"]) < np.inf:
        raise damaged(file, "'log_weights' are not numbers")

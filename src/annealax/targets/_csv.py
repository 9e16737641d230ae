"""A strict CSV reader: every error names the file, the line, the column and a remedy.

The first line names the columns; cells are separated by commas; lines that are blank
or start with `#` are skipped.
"""

import csv
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from annealax._errors import InvalidInputError


class MissingFileError(InvalidInputError, FileNotFoundError):
    """A file that the user named does not exist."""


@dataclass(frozen=True)
class Table:
    """The cells of a CSV file, as text.

    Attributes:
        path: Where the table was read, for messages.
        names: Column names, in the order of the file.
        rows: The cells, one tuple for each row.
        lines: The line of the file on which each row ends.
    """

    path: Path
    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]

    def text(self, name: str) -> list[str]:
        """The cells of one column."""
        if name not in self.names:
            raise InvalidInputError(
                f"{self.path} has no column {name!r}; its columns are "
                f"{', '.join(map(repr, self.names))}"
            )
        index = self.names.index(name)
        return [row[index] for row in self.rows]

    def numbers(self, names: Sequence[str], *, missing: bool = False) -> np.ndarray:
        """The cells of some columns as finite numbers.

        Args:
            names: The columns.
            missing: Whether empty cells and `nan` are allowed; they become NaN.

        Returns:
            A float64 array of shape (rows, columns).
        """
        values = np.empty((len(self.rows), len(names)))
        for j, name in enumerate(names):
            for i, cell in enumerate(self.text(name)):
                values[i, j] = self._number(cell, name, self.lines[i], missing)
        return values

    def _number(self, cell: str, name: str, line: int, missing: bool) -> float:
        number = math.nan if cell == "" else _parse(cell)
        if number is not None and math.isfinite(number):
            return number
        if number is not None and math.isnan(number) and missing:
            return math.nan
        found = "an empty cell" if cell == "" else f"{cell!r}"
        raise InvalidInputError(
            f"{self.path}, line {line}, column {name!r}: expected a finite number, "
            f"found {found}; correct the cell or remove the row"
        )


def read_csv(path: str | os.PathLike[str]) -> Table:
    """Read a CSV file whose first line names its columns.

    Raises:
        MissingFileError: If there is no such file.
        InvalidInputError: If the file is not a table with a header and rows.
    """
    path = Path(path)
    if not path.exists():
        raise MissingFileError(
            f"there is no file {path} (looked in {path.absolute().parent}); check the "
            "path"
        )
    line = 0
    try:
        # utf-8-sig: spreadsheets put a byte order mark before the first name.
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream, strict=True)
            content = []
            for row in reader:
                line = reader.line_num
                if any(cell.strip() for cell in row) and not row[0].startswith("#"):
                    content.append((line, tuple(cell.strip() for cell in row)))
    except csv.Error as error:
        raise InvalidInputError(
            f"{path}, after line {line}: {error}; check the quotes"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); save it "
            "as CSV with UTF-8 encoding"
        ) from error
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}") from error
    if not content:
        raise InvalidInputError(
            f"{path} is empty; its first line must name the columns"
        )
    (line, names), *body = content
    _check_header(path, line, names)
    if not body:
        raise InvalidInputError(
            f"{path} has the header {','.join(names)} and no rows below it"
        )
    for line, cells in body:
        if len(cells) != len(names):
            raise InvalidInputError(
                f"{path}, line {line}: {len(cells)} cells, but the header names "
                f"{len(names)} columns ({', '.join(names)}); separate cells by commas "
                "and fill every one"
            )
    lines, rows = zip(*body, strict=True)
    return Table(path, names, rows, lines)


def load_numbers(name: str, columns: tuple[str, ...], **options) -> np.ndarray:
    """Columns of a table that is shipped with annealax, of shape (rows, columns)."""
    with resources.as_file(resources.files("annealax.targets") / "data" / name) as path:
        return read_csv(path).numbers(columns, **options)


def _check_header(path: Path, line: int, names: tuple[str, ...]) -> None:
    where = f"{path}, line {line}"
    if all(_parse(name) is not None for name in names):
        raise InvalidInputError(
            f"{where}: the first line must name the columns, found the numbers "
            f"{','.join(names)}; add a line such as "
            f"{','.join(f'column{i + 1}' for i in range(len(names)))}"
        )
    for i, name in enumerate(names):
        if not name:
            raise InvalidInputError(
                f"{where}: column {i + 1} has no name; name it or drop it (in R: "
                "row.names = FALSE)"
            )
        if name in names[:i]:
            raise InvalidInputError(
                f"{where}: two columns are called {name!r}; rename one"
            )


def _parse(cell: str) -> float | None:
    # float() also reads "1_000", which is a typing slip in data.
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None

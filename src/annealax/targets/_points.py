"""Point patterns in a rectangular window: from CSV files to counts in cells."""

import os
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import ArrayLike

from annealax._checks import whole_numbers
from annealax._errors import InvalidInputError
from annealax.targets._csv import Table, read_csv

Window = Sequence[Sequence[float | int]] | np.ndarray


def read_points(
    path: str | os.PathLike[str], window: Window, columns: tuple[str, str] | None
) -> np.ndarray:
    """The points of a CSV file, of shape (points, 2), all of them in the window."""
    table = read_csv(path)
    columns = _coordinate_columns(table) if columns is None else columns
    points = table.numbers(columns)
    _check_inside(
        points,
        _check_window(window),
        lambda i: f"{path}, line {table.lines[i]}, columns {', '.join(columns)}",
    )
    return points


def bin_points(
    points: ArrayLike | Sequence, window: Window, grid: int | tuple[int, int]
) -> tuple[np.ndarray, tuple[float, float]]:
    """Counts in cells, and the sides of the window, of which the longer is 1."""
    points = np.asarray(points, np.float64)
    if points.ndim != 2 or points.shape[1] != 2 or not points.size:
        raise InvalidInputError(
            f"points must have shape (points, 2), got {points.shape}"
        )
    low, high = _check_window(window)
    _check_inside(points, (low, high), lambda i: f"row {i} of points")
    cells = np.array(_check_grid(grid))
    # A point on the upper edge belongs to the last cell.
    index = np.floor((points - low) / (high - low) * cells).astype(int)
    counts = np.zeros(cells)
    np.add.at(counts, tuple(np.minimum(index, cells - 1).T), 1)
    width, height = ((high - low) / np.max(high - low)).tolist()
    return counts, (width, height)


def _coordinate_columns(table: Table) -> tuple[str, str]:
    if {"x", "y"} <= set(table.names):
        return ("x", "y")
    if len(table.names) < 2:
        raise InvalidInputError(
            f"{table.path} has one column, {', '.join(table.names)}; a point needs "
            "two coordinates, separated by a comma"
        )
    return table.names[0], table.names[1]


def _check_grid(grid: int | tuple[int, int]) -> tuple[int, int]:
    sizes = whole_numbers("grid", grid, at_least=2)
    if len(sizes) > 2 or not sizes:
        raise InvalidInputError(
            f"grid must be one number, or columns and rows, got {grid}"
        )
    return sizes[0], sizes[-1]


def _check_window(window: Window) -> tuple[np.ndarray, np.ndarray]:
    bounds = np.asarray(window, np.float64)
    if bounds.shape != (2, 2) or not np.all(np.isfinite(bounds)):
        raise InvalidInputError(
            f"window must be ((xmin, xmax), (ymin, ymax)), got {window}"
        )
    low, high = bounds.T
    if not np.all(low < high):
        raise InvalidInputError(
            f"window must have xmin < xmax and ymin < ymax, got {window}"
        )
    return low, high


def _check_inside(
    points: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    where: Callable[[int], str],
) -> None:
    low, high = bounds
    outside = np.flatnonzero(~np.all((points >= low) & (points <= high), axis=1))
    if outside.size:
        first = int(outside[0])
        (xmin, ymin), (xmax, ymax) = low.tolist(), high.tolist()
        raise InvalidInputError(
            f"{where(first)}: the point {tuple(points[first].tolist())} lies outside "
            f"the window x in [{xmin:g}, {xmax:g}], y in [{ymin:g}, {ymax:g}] "
            f"({outside.size} of {len(points)} points do); widen the window, or check "
            "which columns hold the coordinates"
        )

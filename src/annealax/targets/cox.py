r"""Log Gaussian Cox process: the posterior of a log intensity on a grid of cells.

A Gaussian field :math:`f` with constant mean :math:`\mu` and covariance
:math:`K_{mn} = \sigma^2 \exp(-|m - n| / (M b))` between cells :math:`m, n` of an
:math:`M \times M` grid, each of area :math:`a = 1/M^2`, drives a Poisson process with
:math:`y_i` points in cell :math:`i` (Møller, Syversveen and Waagepetersen, 1998):

$$ \log \gamma(f) = \log \mathcal{N}(f; \mu, K) + \sum_i \bigl( y_i f_i - a e^{f_i}
   \bigr) . $$

The Gaussian is normalised; the constant :math:`\sum_i (y_i \log a - \log y_i!)` of the
Poisson probabilities is left out, as in the code of the AFT and CRAFT papers, so log Z
is the evidence less that constant. Whitened, the configuration is :math:`w` with
:math:`f = \mu + L w` and :math:`K = L L^\top` (Cholesky); log Z is the same.

Nothing is factorised or solved in the density. Unwhitened, value and gradient share one
product with the precision matrix, which the mirror symmetry of the grid makes four
times cheaper than the dense product (see `_reflection`).
"""

import math
import os
from collections.abc import Callable, Mapping
from importlib import resources

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, ArrayLike, Float

from annealax._errors import InvalidInputError
from annealax.targets._base import AbstractTarget
from annealax.targets._csv import Table, read_csv
from annealax.targets._reflection import (
    covariance_blocks,
    fold,
    half_square,
    log_det_fold,
)

Window = tuple[tuple[float, float], tuple[float, float]]

_PANEL = 128  # rows of the Cholesky factor in one product; skips most of its zeros


class LogGaussianCox(AbstractTarget):
    """Posterior of the log intensity of a Cox process, given counts in cells.

    The window counts as an area of one, and its longer side as a length of one.

    Args:
        counts: Number of points in each cell, of shape (columns, rows): the first axis
            runs along x, the second along y.
        variance: Prior variance of the log intensity.
        length_scale: Distance over which the prior correlation falls to 1/e, in units
            of the longer side of the window.
        mean: Prior mean of the log intensity; None is log(number of points) less half
            the variance, so that the prior expects as many points as were seen.
        whitened: Whether the configuration is the whitened field.
        sides: Lengths of the window along x and y; the longer is 1.

    Configurations are vectors with one entry for each cell (row after row of `counts`);
    an array of the shape of `counts` is accepted too.
    """

    counts: Float[Array, "columns rows"]
    factor: tuple[Array, ...]  # precision in folded blocks, or panels of L transposed
    shape: tuple[int, ...] = eqx.field(static=True)
    log_normalizer: float | None = eqx.field(static=True)
    variance: float = eqx.field(static=True)
    length_scale: float = eqx.field(static=True)
    mean: float | None = eqx.field(static=True)
    whitened: bool = eqx.field(static=True)
    sides: tuple[float, float] = eqx.field(static=True)
    num_points: int = eqx.field(static=True)
    log_constant: float = eqx.field(static=True)

    def __init__(
        self,
        counts: ArrayLike,
        *,
        variance: float = 1.91,
        length_scale: float = 1 / 33,
        mean: float | None = None,
        whitened: bool = False,
        sides: tuple[float, float] = (1.0, 1.0),
    ):
        table = _check_counts(counts)
        _check_positive(variance=variance, length_scale=length_scale, sides=min(sides))
        self.num_points = int(table.sum())
        if mean is None and self.num_points == 0:
            raise InvalidInputError("counts hold no points; give the prior mean")
        self.counts = jnp.asarray(table, jnp.result_type(float))
        self.shape = (table.size,)
        self.log_normalizer = None
        self.variance, self.length_scale = float(variance), float(length_scale)
        self.mean = None if mean is None else float(mean)
        self.whitened = whitened
        self.sides = (float(sides[0]), float(sides[1]))
        covariance = variance * np.exp(-self._distances() / length_scale)
        prepare = _cholesky_panels if whitened else _precision_blocks
        try:
            factor, half_log_det = prepare(covariance)
        except np.linalg.LinAlgError as error:
            raise InvalidInputError(
                "the prior covariance is not positive definite in float64 with "
                f"length_scale={length_scale} on {table.shape} cells; shorten it"
            ) from error
        self.factor = tuple(jnp.asarray(x, self.counts.dtype) for x in factor)
        self.log_constant = -0.5 * table.size * math.log(2 * math.pi) - half_log_det

    @staticmethod
    def from_points(
        points: ArrayLike, *, window: Window, grid: int | tuple[int, int], **options
    ) -> "LogGaussianCox":
        """The posterior given the positions of points.

        Args:
            points: Positions, of shape (points, 2).
            window: The observed rectangle, ((xmin, xmax), (ymin, ymax)).
            grid: Number of cells along each side, or along x and along y.
            **options: `variance`, `length_scale`, `mean`, `whitened` of the class.
        """
        points = np.asarray(points, np.float64)
        if points.ndim != 2 or points.shape[1] != 2 or not points.size:
            raise InvalidInputError(
                f"points must have shape (points, 2), got {points.shape}"
            )
        window = _check_window(window)
        _check_inside(points, window, lambda i: f"row {i} of points")
        spans = np.array([high - low for low, high in window])
        cells = _check_grid(grid)
        scaled = (points - [low for low, _ in window]) / spans * cells
        # A point on the upper edge belongs to the last cell.
        index = np.minimum(np.floor(scaled).astype(int), np.array(cells) - 1)
        counts = np.zeros(cells)
        np.add.at(counts, tuple(index.T), 1)
        sides = tuple((spans / spans.max()).tolist())
        return LogGaussianCox(counts, sides=sides, **options)

    @staticmethod
    def from_csv(
        path: str | os.PathLike[str],
        *,
        window: Window,
        grid: int | tuple[int, int],
        columns: tuple[str, str] | None = None,
        **options,
    ) -> "LogGaussianCox":
        """The posterior given a CSV file with one point a row.

        Args:
            path: The file; its first line names the columns.
            window: The observed rectangle, ((xmin, xmax), (ymin, ymax)), in the units
                of the file.
            grid: Number of cells along each side, or along x and along y.
            columns: Names of the two columns of coordinates; None takes `x` and `y` if
                there are such, otherwise the first two.
            **options: `variance`, `length_scale`, `mean`, `whitened` of the class.
        """
        table = read_csv(path)
        columns = _coordinate_columns(table) if columns is None else columns
        points = table.numbers(columns)
        _check_inside(
            points,
            _check_window(window),
            lambda i: f"{path}, line {table.lines[i]}, columns {', '.join(columns)}",
        )
        return LogGaussianCox.from_points(points, window=window, grid=grid, **options)

    def __call__(self, x: Float[Array, "*shape"]) -> Float[Array, ""]:
        """Log density of one configuration."""
        field = self.log_intensity(x)
        if self.whitened:
            prior = -0.5 * jnp.sum(x * x)
        else:
            prior = -half_square(self.factor, field - self._mean(self.variance))
        return self.log_constant + prior + self._log_likelihood(field)

    def log_density(
        self,
        x: Float[Array, "*shape"],
        variance: ArrayLike | None = None,
        length_scale: ArrayLike | None = None,
        mean: ArrayLike | None = None,
    ) -> Float[Array, ""]:
        """Log density that can be differentiated in the parameters of the prior too.

        It factorises the covariance (once, whatever the number of particles under
        `vmap`), so use it to learn parameters and the target itself to sample.

        Args:
            x: One configuration.
            variance: Prior variance; None is that of the target.
            length_scale: Prior length scale; None is that of the target.
            mean: Prior mean; None is that of the target, which follows `variance` if
                the target was made with `mean=None`.
        """
        variance = jnp.asarray(self.variance if variance is None else variance, x.dtype)
        scale = self.length_scale if length_scale is None else length_scale
        mean = self._mean(variance) if mean is None else mean
        covariance = variance * jnp.exp(-jnp.asarray(self._distances(), x.dtype) / scale)
        constant = -0.5 * x.size * math.log(2 * math.pi)
        if self.whitened:
            factor = jnp.linalg.cholesky(covariance.reshape(x.size, x.size))
            field = mean + jnp.matmul(factor, x.reshape(-1), precision="highest")
            prior = constant - 0.5 * jnp.sum(x * x)
            return prior + self._log_likelihood(field.reshape(self.counts.shape))
        field = self._cells(x)
        prior = constant + log_det_fold(*self.counts.shape)
        for block, part in zip(
            covariance_blocks(covariance), fold(field - mean), strict=True
        ):
            factor = jnp.linalg.cholesky(block)
            white = solve_triangular(factor, part.reshape(-1), lower=True)
            prior -= 0.5 * jnp.sum(white**2) + jnp.sum(jnp.log(jnp.diagonal(factor)))
        return prior + self._log_likelihood(field)

    def log_intensity(self, x: Float[Array, "*shape"]) -> Float[Array, "columns rows"]:
        """The log intensity in each cell, per area of the window."""
        if not self.whitened:
            return self._cells(x)
        white = self._cells(x).reshape(-1)
        field = jnp.concatenate(
            [
                jnp.matmul(white[: panel.shape[0]], panel, precision="highest")
                for panel in self.factor
            ]
        )
        return self._mean(self.variance) + field.reshape(self.counts.shape)

    @property
    def observables(self) -> Mapping[str, Callable[[Array], Array]]:
        """Expected number of points in the window, and the mean log intensity."""
        return {
            "expected_count": lambda x: jnp.mean(jnp.exp(self.log_intensity(x))),
            "mean_log_intensity": lambda x: jnp.mean(self.log_intensity(x)),
        }

    def _log_likelihood(self, field: Array) -> Array:
        return jnp.sum(self.counts * field - jnp.exp(field) / self.counts.size)

    def _mean(self, variance: ArrayLike) -> ArrayLike:
        if self.mean is not None:
            return self.mean
        return math.log(self.num_points) - 0.5 * variance

    def _cells(self, x: Array) -> Array:
        if x.shape not in (self.shape, self.counts.shape):
            raise InvalidInputError(
                f"a configuration of this Cox process has shape {self.shape} or "
                f"{self.counts.shape}, got {x.shape}"
            )
        return x.reshape(self.counts.shape)

    def _distances(self) -> np.ndarray:
        along = [
            np.subtract.outer(np.arange(cells), np.arange(cells)) * (side / cells)
            for cells, side in zip(self.counts.shape, self.sides, strict=True)
        ]
        return np.hypot(along[0][:, None, :, None], along[1][None, :, None, :])


class LogGaussianCoxPines(LogGaussianCox):
    """The Cox process of 126 Finnish pine saplings, on `grid` times `grid` cells.

    Variance 1.91, length scale 1/33 and mean log 126 - 1.91/2, after Møller et al.
    (1998). Published log Z for this file of points: 503.39 on 32 x 32 cells (1024
    dimensions), 501.81 on 40 x 40 (1600). Another file in circulation repeats a row
    and gives about ten more.

    Args:
        grid: Number of cells along each side.
        whitened: Whether the configuration is the whitened field.
    """

    def __init__(self, grid: int = 32, *, whitened: bool = False):
        data = resources.files("annealax.targets") / "data" / "finpines_raw.csv"
        with resources.as_file(data) as path:
            pines = LogGaussianCox.from_csv(
                path,
                window=((-5.0, 5.0), (-8.0, 2.0)),
                grid=grid,
                columns=("x_m", "y_m"),
                whitened=whitened,
            )
        for name, value in vars(pines).items():
            setattr(self, name, value)


def _precision_blocks(covariance: np.ndarray) -> tuple[list[np.ndarray], float]:
    blocks, half_log_det = [], -log_det_fold(*covariance.shape[:2])
    for block in covariance_blocks(covariance):
        half_log_det += np.log(np.diagonal(np.linalg.cholesky(block))).sum()
        inverse = np.linalg.inv(block)
        blocks.append(0.5 * (inverse + inverse.T))
    return blocks, float(half_log_det)


def _cholesky_panels(covariance: np.ndarray) -> tuple[list[np.ndarray], float]:
    size = math.prod(covariance.shape[:2])
    factor = np.linalg.cholesky(covariance.reshape(size, size))
    ends = [*range(_PANEL, size, _PANEL), size]
    starts = [0, *ends[:-1]]
    # The density in the whitened field has no determinant.
    return [
        factor[start:end, :end].T for start, end in zip(starts, ends, strict=True)
    ], 0.0


def _coordinate_columns(table: Table) -> tuple[str, str]:
    if {"x", "y"} <= set(table.names):
        return ("x", "y")
    if len(table.names) < 2:
        raise InvalidInputError(
            f"{table.path} has one column, {table.names[0]!r}; a point needs two "
            "coordinates, separated by a comma"
        )
    return table.names[0], table.names[1]


def _check_counts(counts: ArrayLike) -> np.ndarray:
    table = np.asarray(counts, np.float64)
    if table.ndim != 2 or min(table.shape) < 2:
        raise InvalidInputError(
            "counts must be a table of at least 2 x 2 cells, got shape "
            f"{table.shape}; for positions use LogGaussianCox.from_points"
        )
    if not (np.all(table >= 0) and np.all(table == np.floor(table))):
        raise InvalidInputError(
            "counts must be whole numbers, none negative; for positions use "
            "LogGaussianCox.from_points"
        )
    return table


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise InvalidInputError(f"{name} must be positive and finite, got {value}")


def _check_grid(grid: int | tuple[int, int]) -> tuple[int, int]:
    cells = (grid, grid) if isinstance(grid, int) else tuple(grid)
    if len(cells) != 2 or min(cells) < 2:
        raise InvalidInputError(f"grid must be 2 cells or more each way, got {grid}")
    return cells


def _check_window(window: Window) -> Window:
    bounds = np.asarray(window, np.float64)
    if bounds.shape != (2, 2) or not np.all(np.isfinite(bounds)):
        raise InvalidInputError(
            f"window must be ((xmin, xmax), (ymin, ymax)), got {window}"
        )
    if not np.all(bounds[:, 0] < bounds[:, 1]):
        raise InvalidInputError(
            f"window must have xmin < xmax and ymin < ymax, got {window}"
        )
    return window


def _check_inside(
    points: np.ndarray, window: Window, where: Callable[[int], str]
) -> None:
    low, high = np.asarray(window, np.float64).T
    outside = np.flatnonzero(~np.all((points >= low) & (points <= high), axis=1))
    if outside.size:
        first = int(outside[0])
        raise InvalidInputError(
            f"{where(first)}: the point {tuple(points[first].tolist())} lies outside "
            f"the window {window}, as do {outside.size - 1} others of {len(points)}; "
            "widen the window, or choose the columns of the coordinates"
        )

r"""Log Gaussian Cox process: the posterior of a log intensity on a grid of cells.

A Gaussian field $f$ with constant mean $\mu$ and covariance
$K_{mn} = \sigma^2 \exp(-|m - n| / (M b))$ between cells $m, n$ of an
$M \times M$ grid, each of area $a = 1/M^2$, drives a Poisson process with
$y_i$ points in cell $i$ (Møller, Syversveen and Waagepetersen, 1998):

$$ \log \gamma(f) = \log \mathcal{N}(f; \mu, K) + \sum_i \bigl( y_i f_i - a e^{f_i}
   \bigr) . $$

The Gaussian is normalised; the constant $\sum_i (y_i \log a - \log y_i!)$ of the
Poisson probabilities is left out, as in the code of the AFT and CRAFT papers, so log Z
is the evidence less that constant. Whitened, the configuration is $w$ with
$f = \mu + L w$ and $K = L L^\top$ (Cholesky); log Z is the same.

Nothing is factorised or solved in the density. Unwhitened, value and gradient share one
product with the precision matrix, which the mirror symmetry of the grid makes four
times cheaper than the dense product (see `_reflection`).
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, ArrayLike, Float

from annealax._checks import finite_array, finite_number, positive_number, whole_numbers
from annealax._errors import InvalidInputError
from annealax.targets._csv import Table, load_numbers, read_csv
from annealax.targets._reflection import (
    covariance_blocks,
    fold,
    half_square,
    log_det_fold,
)
from annealax.targets.base import AbstractTarget, check_configuration

Window = Sequence[Sequence[float | int]] | np.ndarray
_PANEL = 128  # rows of the Cholesky factor in one product; skips most of its zeros


class CoxDensity(eqx.Module):
    """Log density of the (whitened) field, differentiable in all parameters.

    The prior's parameters may be traced, to learn them. The covariance is factorised
    when the density is built, not when it is evaluated.

    Args:
        counts: Number of points in each cell.
        covariance: Prior covariance, of shape (columns, rows, columns, rows).
        mean: Prior mean.
        whitened: Whether the configuration is the whitened field.
    """

    counts: Float[Array, "columns rows"]
    factors: tuple[Array, ...]  # transposed: the Cholesky factor, or inverses of four
    mean: Float[Array, ""]
    log_constant: Float[Array, ""]
    whitened: bool = eqx.field(static=True)

    def __init__(
        self,
        counts: Float[Array, "columns rows"],
        covariance: Float[Array, "columns rows columns rows"],
        mean: Float[Array, ""],
        *,
        whitened: bool,
    ):
        self.counts, self.mean, self.whitened = counts, mean, whitened
        size = counts.size
        constant = jnp.asarray(-0.5 * size * math.log(2 * math.pi), counts.dtype)
        if whitened:
            self.factors = (jnp.linalg.cholesky(covariance.reshape(size, size)).T,)
            self.log_constant = constant
            return
        blocks = [jnp.linalg.cholesky(block) for block in covariance_blocks(covariance)]
        half_log_det = sum(jnp.sum(jnp.log(jnp.diagonal(block))) for block in blocks)
        self.log_constant = constant + log_det_fold(*counts.shape) - half_log_det
        self.factors = tuple(
            solve_triangular(
                block, jnp.eye(len(block), dtype=block.dtype), lower=True
            ).T
            for block in blocks
        )

    def __call__(self, x: Float[Array, "*shape"]) -> Float[Array, ""]:
        """Log density of one configuration."""
        if x.shape != self.counts.shape:
            check_configuration((self.counts.size,), x)
        if self.whitened:
            field = self.mean + _product(x, self.factors[0])
            prior = -0.5 * jnp.sum(x * x)
        else:
            field = x
            centred = x.reshape(self.counts.shape) - self.mean
            white = map(_product, fold(centred), self.factors)
            prior = -0.5 * jnp.sum(jnp.stack([jnp.sum(part**2) for part in white]))
        field = field.reshape(self.counts.shape)
        likelihood = jnp.sum(self.counts * field - jnp.exp(field) / self.counts.size)
        return self.log_constant + prior + likelihood


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
        counts: ArrayLike | Sequence,
        *,
        variance: float | int = 1.91,
        length_scale: float | int = 1 / 33,
        mean: float | int | None = None,
        whitened: bool = False,
        sides: Sequence[float | int] = (1.0, 1.0),
    ):
        table = _check_counts(counts)
        self.variance = positive_number("variance", variance)
        self.length_scale = positive_number("length_scale", length_scale)
        self.mean = None if mean is None else finite_number("mean", mean)
        self.sides = (
            positive_number("sides", sides[0]),
            positive_number("sides", sides[1]),
        )
        self.num_points = int(table.sum())
        if mean is None and self.num_points == 0:
            raise InvalidInputError("counts hold no points; give the prior mean.")
        self.counts = jnp.asarray(table, jnp.result_type(float))
        self.whitened = whitened
        self.shape = (table.size,)
        self.log_normalizer = None
        covariance = self.variance * np.exp(-self._distances() / self.length_scale)
        prepare = _cholesky_panels if whitened else _precision_blocks
        try:
            factor, half_log_det = prepare(covariance)
        except np.linalg.LinAlgError:
            raise InvalidInputError(
                f"length_scale={length_scale} on {table.shape} cells makes the prior "
                "covariance singular in float64; shorten it."
            ) from None
        self.factor = tuple(jnp.asarray(x, self.counts.dtype) for x in factor)
        self.log_constant = -0.5 * table.size * math.log(2 * math.pi) - half_log_det

    @staticmethod
    def from_points(
        points: ArrayLike | Sequence,
        *,
        window: Window,
        grid: int | tuple[int, int],
        **options,
    ) -> "LogGaussianCox":
        """The posterior given the positions of points.

        Args:
            points: Positions, of shape (points, 2).
            window: The observed rectangle, ((xmin, xmax), (ymin, ymax)).
            grid: Number of cells along each side, or along x and along y.
            **options: `variance`, `length_scale`, `mean`, `whitened` of the class.
        """
        counts, sides = bin_points(points, window, grid)
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
        points = read_points(path, window, columns)
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
        variance: Float[Array, ""] | float | int | None = None,
        length_scale: Float[Array, ""] | float | int | None = None,
        mean: Float[Array, ""] | float | int | None = None,
    ) -> Float[Array, ""]:
        """Log density that can be differentiated in the parameters of the prior too.

        For many configurations at the same parameters use `with_prior`, which
        factorises the covariance once; to sample, use the target itself.

        Args:
            x: One configuration.
            variance: As in `with_prior`.
            length_scale: As in `with_prior`.
            mean: As in `with_prior`.
        """
        return self.with_prior(variance, length_scale, mean)(x)

    def with_prior(
        self,
        variance: Float[Array, ""] | float | int | None = None,
        length_scale: Float[Array, ""] | float | int | None = None,
        mean: Float[Array, ""] | float | int | None = None,
    ) -> CoxDensity:
        """The log density under another prior, whose parameters may be traced.

        Args:
            variance: Prior variance; None is that of the target.
            length_scale: Prior length scale; None is that of the target.
            mean: Prior mean; None is that of the target, which follows `variance` if
                the target was made with `mean=None`.
        """
        dtype = self.counts.dtype
        variance = jnp.asarray(self.variance if variance is None else variance, dtype)
        scale = self.length_scale if length_scale is None else length_scale
        mean = self._mean(variance) if mean is None else mean
        covariance = variance * jnp.exp(-jnp.asarray(self._distances(), dtype) / scale)
        return CoxDensity(
            self.counts, covariance, jnp.asarray(mean, dtype), whitened=self.whitened
        )

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
            "expected_count": self.expected_count,
            "mean_log_intensity": self.mean_log_intensity,
        }

    def expected_count(self, x: Float[Array, "*shape"]) -> Float[Array, ""]:
        """The number of points that the field of one configuration predicts."""
        return jnp.mean(jnp.exp(self.log_intensity(x)))

    def mean_log_intensity(self, x: Float[Array, "*shape"]) -> Float[Array, ""]:
        """The log intensity of one configuration, averaged over the cells."""
        return jnp.mean(self.log_intensity(x))

    def _log_likelihood(self, field: Array) -> Array:
        return jnp.sum(self.counts * field - jnp.exp(field) / self.counts.size)

    def _mean(self, variance: Array | float) -> Array | float:
        if self.mean is not None:
            return self.mean
        return math.log(self.num_points) - 0.5 * variance

    def _cells(self, x: Array) -> Array:
        if x.shape != self.counts.shape:
            check_configuration(self.shape, x)
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

    window: ClassVar[tuple[tuple[float, float], tuple[float, float]]] = (
        (-5.0, 5.0),
        (-8.0, 2.0),
    )  # metres

    def __init__(self, grid: int = 32, *, whitened: bool = False):
        counts, _ = bin_points(self.points(), self.window, grid)
        super().__init__(counts, whitened=whitened)

    @staticmethod
    def points() -> np.ndarray:
        """Positions of the saplings in metres, of shape (126, 2)."""
        return load_numbers("finpines_raw.csv", ("x_m", "y_m"))


def _product(x: Array, factor: Array) -> Array:
    return jnp.matmul(x.reshape(-1), factor, precision="highest")


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


def _check_counts(counts: ArrayLike | Sequence) -> np.ndarray:
    table = finite_array("counts", counts)
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


# Points in a rectangular window: from CSV files to counts in cells.


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

r"""Weighted draws as an ArviZ `InferenceData`, and as a netCDF file.

ArviZ knows draws without weights, so the weighted particles are resampled. What must
not get lost on the way is how little a few heavy particles say:

- by default there are as many draws as the particles are worth (`effective_draws`), and
  not as many as there were particles. That is at most the effective sample size of the
  weights, where copies of one point count as one point with the sum of their weights;
- resampling within a run makes weights equal, but not the particles independent. Where
  the *roots* are known, the ancestors among the initial draws, the number of draws is
  also at most the variance of the coordinates over the square of the standard error
  that the genealogy gives for their means (`annealax._particles`): full credit for
  particles that the kernel has mixed, none for what still remembers its ancestor. A
  population that descends from one initial draw is worth one draw: nothing shows more;
- copies of one point stand together in the chain, as where a Markov chain has rejected
  its proposals, so that `arviz.ess` sees them. Who asks for more draws than the
  particles are worth is warned all the same.

The groups are

- `posterior`: the resampled draws, one chain;
- `weighted_posterior`: the particles as they were, along the dimension `particle`;
- `importance_sampling`: their `weight` and `log_weight` along the same dimension,
  `log_normalizer`, `log_normalizer_stderr`, `ess` and `effective_draws`. The last four
  are attributes of `posterior` too.
"""

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import ArrayLike

from annealax._errors import AnnealaxError, InvalidInputError
from annealax._weighted_draws import distinct_points, effective_draws, resample


class MissingExtraError(AnnealaxError, ImportError):
    """Something needs a package that is an optional extra."""


def to_arviz(
    values: ArrayLike | Mapping[str, ArrayLike],
    log_weights: ArrayLike,
    *,
    log_normalizer: ArrayLike = np.nan,
    log_normalizer_stderr: ArrayLike = np.nan,
    num_draws: int | None = None,
    names: Sequence[str] | None = None,
    roots: ArrayLike | None = None,
    seed: int = 0,
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """Export weighted draws to ArviZ.

    Args:
        values: The draws, particles first: one array, or arrays by name.
        log_weights: Their log weights, normalised or not.
        log_normalizer: Estimate of log Z.
        log_normalizer_stderr: Its standard error.
        num_draws: Resampled draws; None for as many as the particles are worth.
        names: If `values` is one array of vectors, a name for each coordinate; without
            them it becomes one variable `x`.
        roots: Index of each particle's ancestor among the initial draws, if they were
            resampled on the way.
        seed: Seed of the resampling.
        attributes: More attributes for `posterior`: text or numbers.

    Returns:
        An `arviz.InferenceData`.

    Raises:
        MissingExtraError: If ArviZ is not installed.
        InvalidInputError: If shapes do not fit together, or no weight is positive.
    """
    arviz = import_arviz()
    variables = _named(values, names)
    weights = _normalised(np.asarray(log_weights, np.float64))
    _check_lengths(variables, len(weights))
    points = distinct_points(variables)
    ess = float(1 / np.sum(np.bincount(points, weights) ** 2))
    worth = ess
    if roots is not None:
        _check_lengths({"roots": np.asarray(roots)}, len(weights))
        worth = min(ess, effective_draws(variables, weights, np.asarray(roots)))
    num_draws = _num_draws(num_draws, worth)
    chosen = resample(points, weights, num_draws, np.random.default_rng(seed))
    scalars = {
        "log_normalizer": float(np.asarray(log_normalizer)),
        "log_normalizer_stderr": float(np.asarray(log_normalizer_stderr)),
        "ess": ess,
        "effective_draws": worth,
    }
    found = {**scalars, "num_particles": len(weights), **(attributes or {})}
    return _inference_data(arviz, variables, weights, chosen, scalars, found)


def chains_to_arviz(
    configurations: ArrayLike | Mapping[str, ArrayLike] | None,
    statistics: Mapping[str, ArrayLike],
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """Chains of particle MCMC for ArviZ.

    Args:
        configurations: Draws, (chains, iterations, ...), by name or one array for the
            variable `x`: they become the posterior. None leaves that group out.
        statistics: What else is known of every iteration: the group `sample_stats`.
        attributes: More facts, kept as attributes.

    Returns:
        An `arviz.InferenceData`.

    Raises:
        MissingExtraError: If ArviZ is not installed.
    """
    arviz = import_arviz()
    posterior = None
    if configurations is not None:
        named = isinstance(configurations, Mapping)
        draws: Any = configurations if named else {"x": configurations}
        posterior = {name: np.asarray(each) for name, each in draws.items()}
    with _without_announcements():
        return arviz.from_dict(
            posterior=posterior,
            sample_stats={name: np.asarray(each) for name, each in statistics.items()},
            attrs=dict(attributes or {}),
        )


def to_netcdf(path: str | os.PathLike, data: Any) -> None:
    """Write an `InferenceData` to a netCDF file, whole or not at all.

    A slash in the name of a variable, which netCDF takes for a group, becomes a dot.

    Args:
        path: Where to write; an existing file is replaced.
        data: What `to_arviz` gave.
    """
    target = Path(path)
    renamed = data.map(
        lambda group: group.rename(
            {str(name): str(name).replace("/", ".") for name in group.variables}
        )
    )
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        renamed.to_netcdf(str(part), engine="h5netcdf")
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def import_arviz() -> ModuleType:
    """The module arviz, or an error that says how to get it."""
    with _without_announcements():
        try:
            import arviz  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtraError(
                f"exporting to ArviZ needs arviz, which cannot be imported ({error}): "
                "pip install 'annealax[arviz]'"
            ) from error
    if not hasattr(arviz, "InferenceData"):
        raise MissingExtraError(
            f"exporting to ArviZ needs arviz before 1.0, this is {arviz.__version__}: "
            "pip install 'annealax[arviz]'"
        )
    return arviz


@contextlib.contextmanager
def _without_announcements() -> Iterator[None]:
    """ArviZ 0.23 announces its next version once a day, by a warning on import."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        yield


def _named(
    values: ArrayLike | Mapping[str, ArrayLike], names: Sequence[str] | None
) -> dict[str, np.ndarray]:
    """The arrays by name."""
    if isinstance(values, Mapping):
        if names is not None:
            raise InvalidInputError(
                f"names={list(names)} are for one array of vectors, but values have "
                f"names already: {list(values)}; leave names out"
            )
        if not values:
            raise InvalidInputError("values must hold at least one array, got none")
        return {str(name): np.asarray(array) for name, array in values.items()}
    array = np.asarray(values)
    if names is None:
        return {"x": array}
    if array.ndim != 2 or len(set(names)) != array.shape[1]:
        raise InvalidInputError(
            f"names must be one different name for each coordinate of a vector, got "
            f"{list(names)} for draws of shape {array.shape[1:]}"
        )
    return {name: array[:, index] for index, name in enumerate(names)}


def _normalised(log_weights: np.ndarray) -> np.ndarray:
    if log_weights.ndim != 1 or not len(log_weights):
        raise InvalidInputError(
            "log_weights must have one axis, over at least one particle; got shape "
            f"{log_weights.shape}"
        )
    top = np.max(log_weights)
    if not np.isfinite(top):
        raise InvalidInputError(
            f"the largest log weight must be finite, got {top}: no particle, or one "
            "that is not a number, has all the weight"
        )
    weights = np.exp(log_weights - top)
    return weights / weights.sum()


def _num_draws(num_draws: int | None, worth: float) -> int:
    """What was asked for, or as many draws as the particles are worth."""
    if num_draws is None:
        return max(1, int(worth * (1 + 1e-9)))  # equal weights: rounding aside
    if num_draws < 1:
        raise InvalidInputError(
            f"num_draws must be at least 1, got {num_draws}; leave it out to get as "
            f"many as the particles are worth, here {worth:.1f}"
        )
    if num_draws > 1.01 * worth + 1:
        warnings.warn(
            f"{num_draws} draws out of particles that are worth {worth:.1f} "
            "independent ones: many are copies or relatives, and arviz.ess of them "
            "will be too high; leave num_draws out, or use the group "
            "weighted_posterior",
            stacklevel=3,
        )
    return num_draws


def _check_lengths(variables: Mapping[str, np.ndarray], count: int) -> None:
    for name, array in variables.items():
        if array.ndim == 0 or len(array) != count:
            raise InvalidInputError(
                f"{name} has shape {array.shape}, but there are {count} weights: its "
                "first axis must be over the particles"
            )


def _inference_data(
    arviz: ModuleType,
    variables: Mapping[str, np.ndarray],
    weights: np.ndarray,
    chosen: np.ndarray,
    scalars: Mapping[str, float],
    attributes: Mapping[str, Any],
) -> Any:
    import xarray  # noqa: PLC0415 (it comes with arviz)

    def trailing(name: str, array: np.ndarray) -> list[str]:
        return [f"{name}_dim_{axis}" for axis in range(array.ndim - 1)]

    posterior = {
        name: (["chain", "draw", *trailing(name, array)], array[None, chosen])
        for name, array in variables.items()
    }
    particles = {
        name: (["particle", *trailing(name, array)], array)
        for name, array in variables.items()
    }
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    weighted = {
        "weight": (["particle"], weights),
        "log_weight": (["particle"], logs),
        **scalars,
    }
    coords = {"chain": [0], "draw": np.arange(len(chosen))}
    return arviz.InferenceData(
        posterior=xarray.Dataset(posterior, coords, dict(attributes)),
        weighted_posterior=xarray.Dataset(particles),
        importance_sampling=xarray.Dataset(weighted),
        warn_on_custom_groups=False,
    )

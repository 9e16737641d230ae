r"""Weighted draws for ArviZ, and as a netCDF file.

ArviZ 1 has them in an `xarray.DataTree`, ArviZ 0 in an `arviz.InferenceData`.

ArviZ knows draws without weights, so the weighted particles are resampled. What must
not get lost on the way is how little a few heavy particles say:

- by default there are as many draws as the particles are worth, and not as many as
  there were particles. That is at most the effective sample size of the
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

Independent replicates become chains, so that R-hat compares them. The answer weighs
replicates by their estimates of Z, but ArviZ weighs chains and draws alike. So a chain
holds draws of its own replicate, and where that has less than its share of Z, draws of
one replicate that has more, after them: Walker's alias table, by which all chains
together have every replicate with the weight that it has in the answer. With equal Z
chains and replicates are the same. Where the particles are worth few draws, chains
stand for groups of replicates, so that R-hat has enough draws of each.

The groups are

- `posterior`: the resampled draws, a chain for each replicate;
- `sample_stats`: the `replicate` of each draw, and what else is known of it;
- `weighted_posterior`: the particles as they were, along the dimension `particle`;
- `importance_sampling`: their `weight` and `log_weight` along the same dimension,
  `log_normalizer`, `log_normalizer_stderr`, `ess` and `effective_draws`. The last four
  are attributes of `posterior` too; so are `replicate_log_normalizers`.
"""

import contextlib
import dataclasses
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import ArrayLike

from annealax._errors import InvalidInputError, MissingExtraError

_OVERHEAD = 100_000
"""Bytes of a netCDF file beside its numbers, and some more."""

_FEWEST_PER_CHAIN = 25
"""R-hat of shorter chains says little: replicates share them where there are fewer."""


@dataclasses.dataclass(frozen=True)
class Chosen:
    """Resampled draws: which particles they are.

    Attributes:
        index: Index of each, (chains, draws).
        replicate: Which replicate each comes from.
        weights: Normalised weights of all particles.
        ess: Effective sample size of all particles.
        worth: How many independent draws they are worth.
    """

    index: np.ndarray
    replicate: np.ndarray
    weights: np.ndarray
    ess: float
    worth: float


def to_arviz(
    values: ArrayLike | Mapping[str, ArrayLike],
    log_weights: ArrayLike,
    *,
    log_normalizer: ArrayLike = np.nan,
    log_normalizer_stderr: ArrayLike = np.nan,
    num_draws: int | None = None,
    names: Sequence[str] | None = None,
    roots: ArrayLike | None = None,
    num_replicates: int = 1,
    seed: int = 0,
    attributes: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Any] | None = None,
    further: Callable[[np.ndarray], Mapping[str, Mapping[str, Any]]] | None = None,
) -> Any:
    """Export weighted draws to ArviZ.

    Args:
        values: The draws, particles first: one array, or arrays by name.
        log_weights: Their log weights, normalised or not.
        log_normalizer: Estimate of log Z.
        log_normalizer_stderr: Its standard error.
        num_draws: Resampled draws over all chains; None for as many as the particles
            are worth.
        names: If `values` is one array of vectors, a name for each coordinate; without
            them it becomes one variable `x`.
        roots: Index of each particle's ancestor among the initial draws, if they were
            resampled on the way.
        num_replicates: Independent replicates that the draws come from, as many of
            each, one after the other.
        seed: Seed of the resampling.
        attributes: More attributes for `posterior`: text or numbers.
        dims: Names of the axes of variables, by variable.
        coords: Labels along axes, by the name of the axis.
        further: From the indices of the chosen particles, (chains, draws), to the
            variables of more groups, by name of the group.

    Returns:
        An `xarray.DataTree`, or an `arviz.InferenceData` before ArviZ 1. A slash in
        the name of a variable, which would mean a group, becomes a dot.

    Raises:
        MissingExtraError: If ArviZ is not installed.
        InvalidInputError: If shapes do not fit together, or no weight is positive.
    """
    import_arviz()
    variables = _named(values, names)
    chosen = choose_draws(
        variables,
        log_weights,
        num_draws=num_draws,
        roots=roots,
        num_replicates=num_replicates,
        seed=seed,
    )
    scalars = {
        "log_normalizer": float(np.asarray(log_normalizer)),
        "log_normalizer_stderr": float(np.asarray(log_normalizer_stderr)),
        "ess": chosen.ess,
        "effective_draws": chosen.worth,
    }
    count = len(chosen.weights)
    found = {**scalars, "num_particles": count, **(attributes or {})}
    with np.errstate(divide="ignore"):
        logs = np.log(chosen.weights)
    described = dict(dims or {}), dict(coords or {})
    resampled = {name: array[chosen.index] for name, array in variables.items()}
    groups = {"posterior": _per_draw(resampled, found, *described)}
    if num_replicates > 1:
        groups["sample_stats"] = _per_draw({"replicate": chosen.replicate})
    for name, content in (further(chosen.index) if further else {}).items():
        axes = [] if name == "observed_data" else ["chain", "draw"]
        known = {"replicate": chosen.replicate} if name == "sample_stats" else {}
        groups[name] = _dataset(axes, {**known, **content}, None, *described)
    groups["weighted_posterior"] = _dataset(["particle"], variables, None, *described)
    groups["importance_sampling"] = _dataset(
        ["particle"], {"weight": chosen.weights, "log_weight": logs}
    ).assign(scalars)
    return _gathered(groups, None)


def choose_draws(
    variables: Mapping[str, np.ndarray],
    log_weights: ArrayLike,
    *,
    num_draws: int | None = None,
    roots: ArrayLike | None = None,
    num_replicates: int = 1,
    seed: int = 0,
) -> Chosen:
    """Resample weighted draws, a chain for each replicate, to what they are worth.

    Args:
        variables: The draws by name, particles first: those of the first replicate,
            then those of the second, and so on, as many of each.
        log_weights: Their log weights, normalised or not.
        num_draws: Resampled draws over all chains; None for as many as the particles
            are worth.
        roots: Index of each particle's ancestor among all initial draws.
        num_replicates: How many replicates they come from.
        seed: Seed of the resampling.
    """
    weights = _normalised(np.asarray(log_weights, np.float64))
    _check_lengths(variables, len(weights))
    points = _distinct_points(variables)
    ess = float(1 / np.sum(np.bincount(points, weights) ** 2))
    worth = ess
    if roots is not None:
        _check_lengths({"roots": np.asarray(roots)}, len(weights))
        worth = min(ess, _effective_draws(variables, weights, np.asarray(roots)))
    num_draws = _num_draws(num_draws, worth)
    rng = np.random.default_rng(seed)
    each = len(weights) // num_replicates
    chains = max(1, min(num_replicates, num_draws // _FEWEST_PER_CHAIN))
    if chains == 1:
        index = _resample(points, weights, num_draws, rng)[None]
    else:
        index = _chains(points, weights, each, chains, num_draws // chains, rng)
    return Chosen(index, index // each, weights, ess, worth)


def _chains(
    points: np.ndarray,
    weights: np.ndarray,
    each: int,
    num_chains: int,
    length: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Indices of particles, (chains, draws), so that all chains have the weights.

    Args:
        points: Which point each particle is at.
        weights: Normalised weights.
        each: Particles of a replicate.
        num_chains: Chains, at most one for each replicate.
        length: Draws of each.
        rng: Where randomness comes from.
    """
    replicates = np.array_split(np.arange(len(weights) // each), num_chains)
    members = [slice(g[0] * each, (g[-1] + 1) * each) for g in replicates]
    shares = np.array([weights[group].sum() for group in members])
    kept, partner = alias_table(shares)
    # Rounded up or down by chance, so that nothing is lost on average.
    own = np.floor(kept * length + rng.uniform(size=num_chains)).astype(int)
    own = np.minimum(own, length)
    wanted = np.bincount(partner, length - own, num_chains).astype(int) + own
    queues = []
    for group, count in zip(members, wanted, strict=True):
        found = np.zeros(0, int)
        if count:
            local = np.unique(points[group], return_inverse=True)[1]
            found = group.start + _resample(local, weights[group], int(count), rng)
        queues.append(found)
    # What a chain takes of its own comes first; its partner's draws follow.
    first = [queue[:count] for queue, count in zip(queues, own, strict=True)]
    left = [queue[count:] for queue, count in zip(queues, own, strict=True)]
    rows = []
    for chain, other in enumerate(partner):
        more = length - own[chain]
        taken, left[other] = left[other][:more], left[other][more:]
        rows.append(np.concatenate([first[chain], taken]))
    return np.stack(rows)


def alias_table(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equal boxes filled from unequal shares, no more than two shares in each.

    Walker (1977). Returns how much of each box its own share fills, and whose share
    fills the rest.
    """
    filled = np.asarray(shares, np.float64) * len(shares) / np.sum(shares)
    kept, partner = np.ones(len(shares)), np.arange(len(shares))
    small = [i for i, part in enumerate(filled) if part < 1]
    large = [i for i, part in enumerate(filled) if part >= 1]
    while small and large:
        poor, rich = small.pop(), large[-1]
        kept[poor], partner[poor] = filled[poor], rich
        filled[rich] -= 1 - filled[poor]
        if filled[rich] < 1:
            small.append(large.pop())
    return kept, partner  # what is left over is full but for rounding


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
        An `xarray.DataTree`, or an `arviz.InferenceData` before ArviZ 1. A slash in
        the name of a variable, which would mean a group, becomes a dot.

    Raises:
        MissingExtraError: If ArviZ is not installed.
    """
    groups = {"sample_stats": _per_draw(statistics)}
    if configurations is not None:
        named = isinstance(configurations, Mapping)
        draws: Any = configurations if named else {"x": configurations}
        groups = {"posterior": _per_draw(draws), **groups}
    return _gathered(groups, attributes)


def to_netcdf(path: str | os.PathLike, data: Any) -> None:
    """Write what `to_arviz` gave to a netCDF file, whole or not at all.

    Args:
        path: Where to write; an existing file is replaced.
        data: What `to_arviz` gave.
    """
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        # HDF5 ends the whole process where the disk is full, so find out before it.
        part.write_bytes(bytes(_num_bytes(data) + _OVERHEAD))
        data.to_netcdf(str(part), engine="h5netcdf")
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _num_bytes(data: Any) -> int:
    """Of all numbers; ArviZ 1 has trees of datasets, ArviZ 0 groups of them."""
    if hasattr(data, "nbytes"):
        return int(data.nbytes)
    return sum(data[group].nbytes for group in data.groups())


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


def _per_draw(
    variables: Mapping[str, ArrayLike],
    attributes: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Any] | None = None,
) -> Any:
    """A data set of arrays over chains and draws."""
    return _dataset(["chain", "draw"], variables, attributes, dims, coords)


def _dataset(
    axes: list[str],
    variables: Mapping[str, ArrayLike],
    attributes: Mapping[str, Any] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    labels: Mapping[str, Any] | None = None,
) -> Any:
    """A data set of arrays whose first axes have these names."""
    import xarray  # noqa: PLC0415 (it comes with arviz)

    content: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    for name, value in variables.items():
        array, plain = np.asarray(value), name.replace("/", ".")
        if plain in content:
            raise InvalidInputError(
                f"{name!r} and another variable would both be called {plain!r}, for a "
                "slash becomes a dot; choose other names"
            )
        trailing = [f"{plain}_dim_{axis}" for axis in range(array.ndim - len(axes))]
        known = list((dims or {}).get(name, ()))
        if len(known) == len(trailing):
            trailing = [a or b for a, b in zip(known, trailing, strict=True)]
        content[plain] = ([*axes, *trailing], array)
        sizes.update(zip([*axes, *trailing], array.shape, strict=False))
    coords = {axis: np.arange(size) for axis, size in sizes.items() if axis in axes}
    for axis, values in (labels or {}).items():
        if values is not None and sizes.get(axis) == len(values):
            coords[axis] = np.asarray(values)
    return xarray.Dataset(content, coords, dict(attributes or {}))


def _gathered(groups: Mapping[str, Any], attributes: Mapping[str, Any] | None) -> Any:
    """Groups of variables as the ArviZ that is installed has them."""
    import xarray  # noqa: PLC0415

    arviz = import_arviz()
    if int(arviz.__version__.split(".")[0]) >= 1:
        root = xarray.Dataset(attrs=dict(attributes or {}))
        return xarray.DataTree.from_dict({"/": root, **groups})
    return arviz.InferenceData(
        **groups, attrs=dict(attributes or {}), warn_on_custom_groups=False
    )


def _distinct_points(variables: Mapping[str, np.ndarray]) -> np.ndarray:
    """A number for every particle, the same for copies of one point."""
    labels = []
    for array in variables.values():
        rows = np.ascontiguousarray(array).reshape(len(array), -1)
        if rows.shape[1]:
            row = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))
            labels.append(np.unique(row.ravel(), return_inverse=True)[1])
    if not labels:
        return np.arange(len(next(iter(variables.values()))))
    return np.unique(np.stack(labels, axis=1), axis=0, return_inverse=True)[1].ravel()


def _effective_draws(
    variables: Mapping[str, np.ndarray], weights: np.ndarray, roots: np.ndarray
) -> float:
    """How many independent draws give means as precise as these particles do.

    The ratio of variance to squared standard error, the latter by ancestry, pooled over
    all coordinates. Centring on the mean itself takes a share of the noise away, all of
    it if there is one root; that is put right.
    """
    _, families = np.unique(roots, return_inverse=True)
    left = 1 - float(np.sum(np.bincount(families, weights) ** 2))
    alive = weights > 0
    weights, families = weights[alive], families[alive]
    ratios = []
    for array in variables.values():
        for column in array.reshape(len(array), -1)[alive].T.astype(np.float64):
            centred = column - weights @ column
            variance = float(weights @ centred**2)
            error = float(np.sum(np.bincount(families, weights * centred) ** 2))
            if variance > 0 and np.isfinite(variance):
                ratios.append(error / variance)
    if not ratios or left <= 1e-6:
        return 1.0
    return max(1.0, left / max(float(np.mean(ratios)), 1e-12))


def _resample(
    points: np.ndarray, weights: np.ndarray, num_draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Indices of particles, drawn systematically; copies of a point stand together.

    Args:
        points: Which point each particle is at (`_distinct_points`).
        weights: Normalised weights.
        num_draws: Number of draws.
        rng: Where randomness comes from.
    """
    # In random order: that of the particles follows their genealogy.
    order = np.argsort(rng.permutation(points.max() + 1)[points], kind="stable")
    cumulative = np.cumsum(weights[order])
    positions = (np.arange(num_draws) + rng.uniform()) / num_draws * cumulative[-1]
    # side="right" never selects a particle of weight zero, but rounding may end past
    # the last of positive weight.
    last = np.flatnonzero(weights[order])[-1]
    index = np.minimum(np.searchsorted(cumulative, positions, side="right"), last)
    return order[index]

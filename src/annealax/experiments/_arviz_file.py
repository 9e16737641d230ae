"""The ArviZ file of a run, `result.nc`, where ArviZ is installed."""

from typing import Any

import jax

from annealax import _arviz
from annealax._errors import InvalidInputError
from annealax.experiments._folder import RunFolder
from annealax.experiments.run import Outcome
from annealax.targets._posterior import AbstractPosterior

NAME = "result.nc"


def write_arviz(folder: RunFolder, outcome: Outcome) -> list[str]:
    """Write the first pass of the method for ArviZ; returns the names of the files.

    Posteriors are written as their named parameters in their own space. Without ArviZ
    nothing is written.
    """
    try:
        _arviz.import_arviz()
    except _arviz.MissingExtraError:
        return []
    result, target = outcome.main.result, outcome.settings.target()
    values: Any = result.x
    if isinstance(target, AbstractPosterior):
        values = jax.vmap(target.constrain)(result.x)
    data = _arviz.to_arviz(
        values,
        result.log_weights,
        log_normalizer=result.log_normalizer,
        log_normalizer_stderr=result.log_normalizer_stderr,
        roots=result.particles.roots,
        seed=outcome.seed,
        attributes={
            "name": outcome.name,
            "method": outcome.method,
            "seed": outcome.seed,
        },
    )
    try:
        _arviz.to_netcdf(folder.path / NAME, data)
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {folder.path / NAME}: {error}; free some space or choose "
            "another folder with --out."
        ) from error
    return [NAME]

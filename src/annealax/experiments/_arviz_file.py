"""The ArviZ files of a run, `result.nc` and `pimh.nc`, where ArviZ is installed."""

from typing import Any

import jax

from annealax import _arviz
from annealax._errors import InvalidInputError
from annealax._pimh import Chain
from annealax.experiments._folder import RunFolder
from annealax.experiments.run import Outcome
from annealax.targets._posterior import AbstractPosterior

NAME, CHAIN_NAME = "result.nc", "pimh.nc"


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
    return _write(folder, NAME, data)


def write_chain_arviz(folder: RunFolder, chain: Chain, name: str) -> list[str]:
    """Write chains of particle MCMC for ArviZ, if it is installed."""
    try:
        data = chain.to_arviz({"name": name, "method": "pimh"})
    except _arviz.MissingExtraError:
        return []
    return _write(folder, CHAIN_NAME, data)


def _write(folder: RunFolder, name: str, data: Any) -> list[str]:
    try:
        _arviz.to_netcdf(folder.path / name, data)
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {folder.path / name}: {error}; free some space or choose "
            "another folder with --out."
        ) from error
    return [name]

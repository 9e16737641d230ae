"""Files for ArviZ in a run folder, `result.nc` and `pimh.nc`, where it is installed."""

from pathlib import Path
from typing import Any

import jax

from annealax import _arviz
from annealax._chain import Chain
from annealax._errors import InvalidInputError
from annealax.targets._posterior import AbstractPosterior

NAME, CHAIN_NAME = "result.nc", "pimh.nc"


def write_arviz(path: Path, run: Any) -> list[str]:
    """Write the first pass of a loaded run for ArviZ; returns the names of the files.

    Posteriors are written as their named parameters in their own space. Without ArviZ
    nothing is written.
    """
    try:
        _arviz.import_arviz()
    except _arviz.MissingExtraError:
        return []
    result, target = run.result, run.problem.target
    values: Any = result.x
    if isinstance(target, AbstractPosterior):
        values = jax.vmap(target.constrain)(result.x)
    data = _arviz.to_arviz(
        values,
        result.log_weights,
        log_normalizer=result.log_normalizer,
        log_normalizer_stderr=result.log_normalizer_stderr,
        roots=result.particles.roots,
        seed=run.seed,
        attributes={"name": run.name, "method": run.method, "seed": run.seed},
    )
    return _write(path / NAME, data)


def write_chain_arviz(path: Path, chain: Chain, name: str) -> list[str]:
    """Write chains of particle MCMC for ArviZ, if it is installed."""
    try:
        data = chain.to_arviz({"name": name, "method": "pimh"})
    except _arviz.MissingExtraError:
        return []
    return _write(path / CHAIN_NAME, data)


def _write(file: Path, data: Any) -> list[str]:
    try:
        _arviz.to_netcdf(file, data)
    except OSError as error:
        raise InvalidInputError(
            f"cannot write {file}: {error}; free some space or choose another folder "
            "with --out."
        ) from error
    return [file.name]

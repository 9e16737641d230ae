"""PNG files of a folder: what its page shows, and what needs the experiment itself."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from matplotlib.figure import Figure

from annealax.experiments.files import writing
from annealax.report import charts, problem_charts
from annealax.report.read import (
    PARAMETERS,
    Comparison,
    Decoder,
    Run,
    read,
)
from annealax.targets.base import AbstractPosterior

ON_PAGE = frozenset(
    {"posterior.png", "diagnostics.png", "training.png", "pimh.png", "compare.png"}
)
"""Pictures that a page has as charts, in its own colours."""

_DRAWS = 2000
"""Of what is beside a posterior: exact draws, and draws from the prior."""


@runtime_checkable
class _CanSample(Protocol):
    def sample(self, key: PRNGKeyArray, num_samples: int) -> Array: ...


@runtime_checkable
class _HasPrior(Protocol):
    def draw_prior(self, key: PRNGKeyArray) -> Array: ...


def write(path: Path, run: Any = None) -> list[str]:
    """Draw the pictures of a folder; returns the names of the files.

    Args:
        path: The folder.
        run: What `annealax.load_run` gives; without it, only what the numbers in the
            folder show is drawn.
    """
    names = [] if run is None else _keep_parameters(path, run)
    found = read(path)
    figures = dict(_figures(found))
    if run is not None:
        figures |= problem_charts.temperatures(run)
        figures |= run.settings.pictures(run)
    for name, draw in figures.items():
        with charts.style():
            picture = charts.png(draw())
        with writing(path / name) as file:
            file.write(picture)
    return [*names, *figures]


def _figures(
    found: Run | Comparison | Decoder,
) -> Mapping[str, Callable[[], Figure]]:
    """What the numbers in a folder show, by file name."""
    name = found.asked.name
    if isinstance(found, Comparison):
        panels = {"compare.png": charts.comparison_panels(found)}
    elif isinstance(found, Decoder):
        panels = {"training.png": charts.decoder_panels(found)}
    else:
        panels = {
            "diagnostics.png": [
                charts.passes_panel(found.passes, pooled=found.pooled),
                *charts.ladder_panels(found.ladder),
                charts.weights_panel(found.weights),
                *charts.posterior_panels(found.draws),
            ],
            "training.png": charts.training_panels(found),
            "pimh.png": [] if found.chain is None else charts.chain_panels(found.chain),
        }
    figures: dict[str, Callable[[], Figure]] = {
        file: functools.partial(charts.compose, each, name)
        for file, each in panels.items()
        if each
    }
    if isinstance(found, Run):
        figures["posterior.png"] = lambda: charts.corner(
            charts.main_draws(found.draws)[1]
        )
    if isinstance(found, Decoder) and "shown_images" in found.arrays:
        figures["decoded.png"] = lambda: problem_charts.draw_decoded(found.arrays)
    return figures


def _keep_parameters(path: Path, run: Any) -> list[str]:
    """Draws by the names of parameters, of the prior, and exact ones, for pages.

    Pages are made from files alone, and only the target knows these.
    """
    target, key, drawn = run.problem.target, jr.key(run.seed), {}
    if isinstance(target, _HasPrior):
        drawn["prior"] = jax.vmap(target.draw_prior)(jr.split(key, _DRAWS))
    if isinstance(target, AbstractPosterior):
        order = target.constrain(run.result.x[0])  # which `vmap` does not keep
        named = {
            start: jax.vmap(target.constrain)(values)
            for start, values in {"x": run.result.x, **drawn}.items()
        }
        drawn = {
            f"{start}_{k}": found[k] for start, found in named.items() for k in order
        }
    elif isinstance(target, _CanSample):
        exact = target.sample(key, _DRAWS)
        drawn["exact"] = exact.reshape(len(exact), -1)
    if not drawn:
        return []
    arrays = {name: np.asarray(value) for name, value in drawn.items()}
    with writing(path / PARAMETERS) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return [PARAMETERS]

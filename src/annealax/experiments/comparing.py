"""Compare methods in a folder: what `annealax compare` and `resume` share."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from annealax import report
from annealax._errors import InvalidInputError
from annealax._work.budget import Budget
from annealax._work.checkpoint import Checkpoint
from annealax._work.serialise import FileError
from annealax._work.snapshots import Callback, Progress
from annealax.experiments._folder import (
    CHECKPOINTS,
    METRICS,
    RunFolder,
    read_settings,
)
from annealax.experiments._numbers import json_number
from annealax.experiments._output import Output
from annealax.experiments._settings import Settings
from annealax.experiments._working import working
from annealax.experiments.compare import Comparison, compare, find_methods
from annealax.loggers import JSONLines

COMMAND = "compare"


class ComparisonPlan(NamedTuple):
    """What `annealax compare` was asked for, of one problem.

    Attributes:
        name: Name of the experiment.
        settings: Its settings.
        methods: Names of the methods.
        budget: What each repeat of each method may spend.
        num_repeats: Repeats.
        seed: The seed.
    """

    name: str
    settings: Settings
    methods: Sequence[str]
    budget: Budget
    num_repeats: int
    seed: int


def recorded_options(plan: ComparisonPlan) -> dict[str, Any]:
    """What `settings.json` holds beyond what it says of every run."""
    amount, unit = plan.budget.amount, plan.budget.unit
    return {
        "command": COMMAND,
        "budget": {"amount": amount, "unit": unit},
        "num_repeats": plan.num_repeats,
    }


def continue_comparison(path: Path, output: Output) -> None:
    """Go on with a comparison that was interrupted."""
    recorded = read_settings(path)
    try:
        budget = Budget(**recorded.content["budget"])
        num_repeats = int(recorded.content["num_repeats"])
    except (KeyError, TypeError, ValueError, InvalidInputError) as error:
        raise FileError(
            f"{path / 'settings.json'} is damaged: {error!r}; compare again."
        ) from error
    methods = find_methods(recorded.method)
    plan = ComparisonPlan(
        recorded.name, recorded.settings, methods, budget, num_repeats, recorded.seed
    )
    run_comparison(plan, RunFolder(path, existing=True), output)


def run_comparison(plan: ComparisonPlan, folder: RunFolder, output: Output) -> None:
    """Compare, from the repeats that are there, and leave the files."""
    with working(output, folder, COMMAND) as signals:

        def stop_if_asked(_: Progress) -> None:
            signals.stop_if_asked("finished repeats are kept")

        def callbacks(stage: str) -> list[Callback]:
            log = JSONLines(folder.path / METRICS, stage=stage)
            return [log, *output.callbacks(stage), stop_if_asked]

        def say(text: str) -> None:
            signals.stop_if_asked("finished repeats are kept")
            output.say(text)

        rows = compare(
            plan.settings,
            list(plan.methods),
            plan.budget,
            num_repeats=plan.num_repeats,
            seed=plan.seed,
            say=say,
            callbacks=callbacks,
            checkpoint=Checkpoint(folder.path / CHECKPOINTS),
        )
        truth = plan.settings.target().log_normalizer
        outcome = Comparison(plan.name, plan.seed, plan.budget, truth, tuple(rows))
        folder.write_json("compare.json", as_json(outcome))
        folder.write_arrays("compare.npz", as_arrays(outcome))
        names = ["compare.json", "compare.npz"]
        names += report.write_pictures(folder.path) + report.write_page(folder.path)

    def show(console: Console) -> None:
        report.show(console, folder.path)
        text = f"Files in {folder.path}: {', '.join(names)}"
        console.print(text, highlight=False, soft_wrap=True)

    output.finish(
        show,
        lambda: {
            **as_json(outcome),
            "command": COMMAND,
            "folder": str(folder.path),
            "files": names,
        },
    )


def as_json(outcome: Comparison) -> dict[str, Any]:
    """All numbers."""
    return {
        "name": outcome.name,
        "seed": outcome.seed,
        "budget": dataclasses.asdict(outcome.budget),
        "log_normalizer_true": outcome.truth,
        "rows": [
            {
                "method": row.name,
                "label": row.label,
                "what": row.what,
                "attempts": [
                    {
                        "log_normalizer": _optional(a.log_normalizer),
                        "ess": json_number(a.ess),
                        "rhat": _optional(a.rhat),
                        "evaluations": a.evaluations,
                        "training_seconds": a.training_seconds,
                        "seconds": a.seconds,
                        "compile_seconds": a.compile_seconds,
                        "memory": a.memory,
                    }
                    for a in row.attempts
                ],
            }
            for row in outcome.rows
        ],
    }


def as_arrays(outcome: Comparison) -> dict[str, np.ndarray]:
    """The curve of every repeat: seconds, evaluations, log Z."""
    return {
        f"{row.name}_{index}": attempt.curve
        for row in outcome.rows
        for index, attempt in enumerate(row.attempts)
    }


def _optional(value: float | None) -> float | None:
    return None if value is None else json_number(value)

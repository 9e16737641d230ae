"""Compare methods in a folder: what `annealax compare` and `resume` share."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from annealax._errors import InvalidInputError
from annealax._work.budget import Budget
from annealax._work.checkpoint import Checkpoint
from annealax._work.drive import Callback, Progress
from annealax._work.serialise import FileError
from annealax.experiments import compare_report, page_command, pictures
from annealax.experiments._folder import (
    CHECKPOINTS,
    METRICS,
    RunFolder,
    read_settings,
)
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
        folder.write_json("compare.json", compare_report.as_json(outcome))
        folder.write_arrays("compare.npz", compare_report.as_arrays(outcome))
        figure = functools.partial(compare_report.draw, outcome)
        names = ["compare.json", "compare.npz"]
        names += pictures.draw_figures(folder, {"compare.png": figure})
        names += page_command.write_page(folder)

    def show(console: Console) -> None:
        compare_report.show(console, outcome)
        text = f"Files in {folder.path}: {', '.join(names)}"
        console.print(text, highlight=False, soft_wrap=True)

    output.finish(
        show,
        lambda: {
            **compare_report.as_json(outcome),
            "command": COMMAND,
            "folder": str(folder.path),
            "files": names,
        },
    )

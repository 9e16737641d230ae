"""`annealax compare`: several methods with the same budget, written down."""

import dataclasses
from pathlib import Path
from typing import Any

from annealax._work.drive import Callback, Progress
from annealax.cli.folder import Done, Workplace
from annealax.cli.output import json_number
from annealax.experiments.comparison import Comparison, compare, reuse_compiled_programs
from annealax.experiments.experiment import Problem
from annealax.experiments.jobs import CompareJob

_KEPT = "finished repeats are kept"


def prepare(job: CompareJob, _: Path) -> Problem:
    """Find the methods, and build the problem."""
    assert job.methods
    return job.problem


def work(place: Workplace, job: CompareJob, problem: Problem) -> Done:
    """Compare, from the repeats that are there."""

    def stop_if_asked(_: Progress) -> None:
        place.signals.stop_if_asked(_KEPT)

    def callbacks(stage: str) -> list[Callback]:
        return [*place.callbacks(stage), stop_if_asked]

    def say(text: str) -> None:
        place.signals.stop_if_asked(_KEPT)
        place.output.say(text)

    with reuse_compiled_programs():
        rows = compare(
            problem,
            job.methods,
            job.budget,
            num_repeats=job.num_repeats,
            seed=job.seed,
            say=say,
            callbacks=callbacks,
            checkpoint=place.checkpoint(),
            workers=place.workers,
            waiting=lambda: place.signals.stop_if_asked(_KEPT),
        )
    truth = problem.target.log_normalizer
    outcome = Comparison(job.name, job.seed, job.budget, truth, tuple(rows))
    content = as_json(outcome)
    curves = {
        f"{row.method}_{index}": attempt.curve
        for row in outcome.rows
        for index, attempt in enumerate(row.attempts)
    }
    place.folder.write_arrays("compare.npz", curves)
    place.folder.write_json("compare.json", content)
    return Done(["compare.json", "compare.npz"], content)


def as_json(outcome: Comparison) -> dict[str, Any]:
    """What `compare.json` holds: all numbers but the curves."""
    content = dataclasses.asdict(outcome)
    for row in content["rows"]:
        for attempt in row["attempts"]:
            del attempt["curve"]
            known = {k: v for k, v in attempt.items() if v is not None}
            attempt.update({key: json_number(value) for key, value in known.items()})
    return content

"""`annealax reproduce`: the paper's experiments, figure by figure."""

import contextlib
from pathlib import Path

from annealax._errors import InvalidInputError
from annealax._work.executors import Workers
from annealax._work.signals import Interrupted
from annealax.cli.environment import environment
from annealax.cli.folder import Done, Workplace
from annealax.experiments.files import read_json
from annealax.experiments.jobs import SETTINGS, ReproduceJob, load_job
from annealax.report import reproduction
from annealax.reproduction import runner


def belongs(path: Path, job: ReproduceJob) -> bool:
    """Whether a folder holds a reproduction that a job can go on with.

    Raises:
        InvalidInputError: If it holds one at another scale or with another seed.
    """
    if not (path / SETTINGS).exists():
        return False
    there = load_job(path)
    if not isinstance(there, ReproduceJob):
        return False
    for name in ("scale", "seed"):
        one, other = getattr(there, name), getattr(job, name)
        if one != other:
            raise InvalidInputError(
                f"{path} holds a reproduction with {name} {one}, not {other}; choose "
                "another folder with --out."
            )
    return True


def prepare(job: ReproduceJob, path: Path) -> runner.Plan:
    """What is to be measured."""
    del path
    plan = runner.Plan(job.figures, job.scale, job.seed, job.repeats)
    for task in plan.tasks:
        assert task.experiment  # settings that do not fit show here
    return plan


def work(place: Workplace, job: ReproduceJob, plan: runner.Plan) -> Done:
    """Measure what is missing, then write the pages; they are written in any case."""
    store = place.checkpoint(job.checkpoint_seconds)
    count = job.workers or runner.default_workers(job.scale)
    own = Workers(count) if place.workers is None and count > 1 else None
    # Whoever says how many processes side by side says that nothing else is.
    alone = place.workers is None and own is None and job.workers is None
    devices = runner.default_devices(job.scale) if alone else []
    facts = environment()

    def stop_if_asked() -> None:
        place.signals.stop_if_asked("finished pieces are kept")

    try:
        with own or contextlib.nullcontext():
            results = runner.run(
                plan,
                store,
                workers=place.workers or own,
                devices=devices,
                say=place.output.say,
                stop_if_asked=stop_if_asked,
                progress=place.output.progress,
            )
    except Interrupted:
        found = runner.collect(plan, store)
        reproduction.write(place.path, plan, found, facts)
        raise
    place.output.say("drawing")
    files = reproduction.write(place.path, plan, results, facts)
    content = read_json(place.path / reproduction.INDEX, reproduction.Index).root
    return Done(files, content, reported=True)

"""Starting and resuming: the same work, on a job that is made or loaded."""

import dataclasses
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from annealax import report
from annealax._errors import AnnealaxError, InvalidInputError
from annealax._layout import use_devices
from annealax._work.executors import Workers
from annealax._work.serialise import FileError
from annealax._work.signals import deferred_signals
from annealax._work.together import agreed_bytes, is_first, part, together
from annealax.cli import compare, pimh, reproduce, run, sample, vae
from annealax.cli.environment import environment
from annealax.cli.folder import STATUS, Done, RunFolder, Workplace, working
from annealax.cli.output import Output
from annealax.experiments.files import writing
from annealax.experiments.jobs import SETTINGS, ChainJob, Job, RunJob, load_job
from annealax.experiments.runs import Run


class Command(Protocol):
    """What does the work of a command: a module of its own."""

    def prepare(self, job: Any, path: Path) -> Any:
        """What the work needs; what is wrong shows here, before a file is written.

        Args:
            job: What was asked for.
            path: The folder.
        """

    def work(self, place: Workplace, job: Any, ready: Any) -> Done:
        """Do it, from checkpoints if there are any.

        Args:
            place: Where and how to work.
            job: What was asked for.
            ready: What `prepare` returned.
        """
        ...


COMMANDS: Mapping[str, Command] = {
    "run": run,
    "sample": sample,
    "compare": compare,
    "train-vae": vae,
    "pimh": pimh,
    "reproduce": reproduce,
}
"""By name; `annealax.experiments.jobs.JOBS` has what each is asked for."""

_INDEPENDENT = ("run", "sample", "compare", "pimh", "reproduce")
"""Those whose parts may be made by workers."""


def start(
    job: Job,
    path: Path,
    speech: Output,
    *,
    title: str = "",
    existing: bool = False,
    workers: Workers | None = None,
) -> Path:
    """Do a job from the beginning; returns the folder that it is in.

    Args:
        job: What was asked for.
        path: Folder for the files; if it holds a run, the next free one beside it.
        speech: How to speak.
        title: What is said first, once it is clear that the work can begin.
        existing: Whether to work in the folder as it is, on top of what it holds.
        workers: Where independent parts are made; None for this process.
    """
    if not is_first():
        path, speech = Path(tempfile.mkdtemp()), Output(quiet=True)
    ready = COMMANDS[job.command].prepare(job, path)
    with deferred_signals():  # from the first file on, a signal ends it in order
        folder = RunFolder(path, existing=existing)
        if title:
            speech.say(title)
        _do(job, ready, folder, speech, fresh=True, workers=workers)
    return folder.path


def resume(path: Path, speech: Output, workers: Workers | None = None) -> None:
    """Bring what a folder holds to its end: its own work, or chains on top of it.

    Raises:
        FileError: If there is no run in the folder, or its files are damaged.
    """
    if together():
        path = _like_first(path)
    if not is_first():
        speech = Output(quiet=True)
    folder, job = RunFolder(path, existing=True), load_job(path)
    if _is_finished(job, folder):
        chains = path / ChainJob.file
        job = load_job(path, ChainJob.file) if chains.exists() else None
        if job is None or _is_finished(job, folder):
            text = f"{path}: everything is finished"
            if speech.as_json:
                speech.emit("result", command="resume", folder=str(path), text=text)
            else:
                speech.tell(text)
            return
    if workers is not None and job.command not in _INDEPENDENT:
        raise InvalidInputError(
            f"--executor is for `annealax {'` and `annealax '.join(_INDEPENDENT)}`, "
            f"but {path} holds one of `annealax {job.command}`: leave it out."
        )
    try:
        ready = COMMANDS[job.command].prepare(job, path)
    except FileError:
        raise
    except AnnealaxError as error:
        raise FileError(f"{path / job.file}: {error}") from error
    _do(job, ready, folder, speech, fresh=False, workers=workers)


def _like_first(path: Path) -> Path:
    """In other processes than the first: what decides, in a folder of their own."""
    told = {}
    if is_first():
        job = load_job(path)
        for name in (job.file, STATUS):
            if (path / name).exists():
                told[name] = (path / name).read_text(encoding="utf-8")
        if (path / job.result).exists():
            told[job.result] = ""
    content = agreed_bytes(json.dumps(told).encode())
    if is_first():
        return path
    folder = Path(tempfile.mkdtemp())
    for name, text in json.loads(content or b"{}").items():
        (folder / Path(name).name).write_text(text, encoding="utf-8")
    return folder


def _is_finished(job: Job, folder: RunFolder) -> bool:
    done = folder.status().get(job.command) == "finished"
    return done and (folder.path / job.result).exists()


def _do(
    job: Job,
    ready: Any,
    folder: RunFolder,
    speech: Output,
    *,
    fresh: bool,
    workers: Workers | None,
) -> None:
    with working(speech, folder, job.command, fresh=fresh) as here:
        place = dataclasses.replace(here, workers=workers)
        if fresh:
            prefix = "" if job.file == SETTINGS else f"{job.command}_"
            folder.write_json(f"{prefix}environment.json", environment())
            with writing(folder.path / job.file) as file:
                file.write(job.text().encode())
            place.signals.stop_if_asked("nothing but the settings is there")
        done = COMMANDS[job.command].work(place, job, ready)
        if together():  # what is left, the first one does alone
            use_devices(())
            part()
        if not is_first():  # the first one writes and speaks
            return
        place.signals.stop_if_asked("the numbers are there, the pictures are not")
        files = list(done.files)
        if not done.reported:
            speech.say("drawing")
            loaded = Run(folder.path, job) if isinstance(job, RunJob) else None
            files += report.write_pictures(folder.path, loaded)
            files += report.write_page(folder.path)
    if speech.as_json:
        facts = {"command": job.command, "folder": str(folder.path), "files": files}
        speech.emit("result", **{**done.content, **facts})
        return
    report.show(speech.console, folder.path, job.command)
    speech.left(folder.path, files)

"""Run a job, or chains on top of one, in a folder: what `run`, `pimh`, `resume` share.

Everything that is started here can be killed at any moment: `resume` goes on from the
checkpoints with the same numbers to the bit.
"""

import json
import types
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from annealax import report
from annealax._work.checkpoint import Checkpoint
from annealax._work.serialise import FileError
from annealax._work.snapshots import Callback
from annealax.experiments import chains
from annealax.experiments._arviz_file import write_arviz, write_chain_arviz
from annealax.experiments._environment import environment
from annealax.experiments._folder import (
    CHECKPOINTS,
    METRICS,
    RunFolder,
    outcome_table,
    read_run,
    read_status,
    write_outcome,
)
from annealax.experiments._numbers import json_number
from annealax.experiments._output import Output
from annealax.experiments._working import working
from annealax.experiments.run import Job, Outcome
from annealax.loggers import JSONLines
from annealax.report.tables import chain_rows

_CHAINS = "pimh.json"


class ChainPlan(NamedTuple):
    """Which chains to run on top of a finished run.

    Attributes:
        num_steps: Iterations of each chain.
        num_chains: Independent chains.
        num_particles: Particles of a proposal; None for that of the run.
        seed: The seed.
        checkpoint_seconds: Time between checkpoints.
    """

    num_steps: int
    num_chains: int
    num_particles: int | None
    seed: int
    checkpoint_seconds: float


def run_job(
    job: Job, folder: RunFolder, output: Output, *, checkpoint_seconds: float
) -> None:
    """Run a job, from its checkpoints if there are any, and leave its files."""
    store = Checkpoint(folder.path / CHECKPOINTS, every_seconds=checkpoint_seconds)
    with working(output, folder, "run") as signals:
        outcome = job.run(
            progress=output.progress,
            say=output.say,
            callbacks=lambda stage: _callbacks(folder, output, stage),
            checkpoint=store,
        )
        write_outcome(folder, outcome)
        signals.stop_if_asked("the numbers are there, the pictures are not")
        output.say("drawing")
        live = loaded(outcome)
        names = ["result.npz", *report.write_pictures(folder.path, live)]
        names += write_arviz(folder.path, live) + report.write_page(folder.path)

    def show(console: Console) -> None:
        report.show(console, folder.path)
        _show_files(console, folder, names)

    output.finish(
        show,
        lambda: {
            "command": "run",
            "name": job.name,
            "method": job.method,
            "seed": job.seed,
            "folder": str(folder.path),
            "files": names,
            **outcome_table(outcome),
        },
    )


def loaded(outcome: Outcome) -> Any:
    """An outcome in memory as what `annealax.load_run` gives."""
    return types.SimpleNamespace(
        name=outcome.name,
        method=outcome.method,
        seed=outcome.seed,
        settings=outcome.settings,
        problem=types.SimpleNamespace(target=outcome.settings.target()),
        sampler=outcome.main.sampler,
        flows=outcome.main.flows,
        result=outcome.main.result,
    )


def start_chains(run: Path, plan: ChainPlan, output: Output) -> None:
    """Run chains on top of a finished run, from the beginning."""
    _run_chains(read_run(run), RunFolder(run, existing=True), plan, output, fresh=True)


def continue_chains(run: Path, output: Output) -> None:
    """Go on with chains that were interrupted."""
    file = run / _CHAINS
    try:
        content = json.loads(file.read_text())
        plan = ChainPlan(**{name: content[name] for name in ChainPlan._fields})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(
            f"{file} is damaged: {error!r}; start again with `annealax pimh {run}`."
        ) from error
    _run_chains(read_run(run), RunFolder(run, existing=True), plan, output, fresh=False)


def unfinished(run: Path) -> str | None:
    """The command that has not come to its end in this folder, if any."""
    status = read_status(run)
    if status.get("run") != "finished":
        return "run"
    return "pimh" if status.get("pimh", "finished") != "finished" else None


def _run_chains(
    finished, folder: RunFolder, plan: ChainPlan, output: Output, *, fresh: bool
) -> None:
    with working(output, folder, "pimh"):
        if fresh:
            _chain_store(folder, plan).clear()
            folder.write_json(_CHAINS, plan._asdict() | {"environment": environment()})
        output.say(
            f"{finished.name}: compiling, then {plan.num_chains} x {plan.num_steps} "
            "proposals"
        )
        done = chains.run_chains(
            finished,
            num_steps=plan.num_steps,
            num_chains=plan.num_chains,
            num_particles=plan.num_particles,
            seed=plan.seed,
            progress=output.progress,
            callback=_callbacks(folder, output, "pimh"),
            checkpoint=_chain_store(folder, plan),
        )
        names = chains.write(folder, done)
        names += write_chain_arviz(folder.path, done.chain, finished.name)
        names += report.write_pictures(folder.path)
        names += report.write_page(folder.path)

    def show(console: Console) -> None:
        report.show(console, folder.path, part="pimh")
        _show_files(console, folder, names)

    output.finish(show, lambda: _chain_event(done, folder, names))


def _chain_event(done, folder: RunFolder, names: list[str]) -> dict[str, Any]:
    return {
        "command": "pimh",
        "name": done.run.name,
        "folder": str(folder.path),
        "files": names,
        "acceptance_rate": done.chain.acceptance_rate,
        "expectations": {
            name: {"mean": json_number(mean), "stderr": json_number(error)}
            for name, mean, error, _ in chain_rows(done.chain)
        },
    }


def _chain_store(folder: RunFolder, plan: ChainPlan) -> Checkpoint:
    return Checkpoint(
        folder.path / CHECKPOINTS / "pimh", every_seconds=plan.checkpoint_seconds
    )


def _callbacks(folder: RunFolder, output: Output, stage: str) -> list[Callback]:
    log = JSONLines(folder.path / METRICS, stage=stage)
    return [log, *output.callbacks(stage)]


def _show_files(console: Console, folder: RunFolder, names: list[str]) -> None:
    console.print(
        f"Files in {folder.path}: {', '.join(names)}", highlight=False, soft_wrap=True
    )

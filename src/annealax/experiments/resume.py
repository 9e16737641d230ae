"""Go on with what was interrupted: the command `annealax resume`."""

from pathlib import Path

from annealax.experiments import automatic, comparing, vae_command
from annealax.experiments._folder import RunFolder, read_command, read_settings
from annealax.experiments._output import Output
from annealax.experiments.run import prepare
from annealax.experiments.running import continue_chains, run_job, unfinished

_OTHERS = {
    automatic.COMMAND: automatic.go_on,
    comparing.COMMAND: comparing.continue_comparison,
    vae_command.COMMAND: vae_command.continue_training,
}
"""How to go on with what other commands than `run` left."""


def resume(path: Path, output: Output) -> None:
    """Bring what a folder holds to its end: a run, chains on top of it, a comparison.

    Raises:
        FileError: If there is no run in the folder, or its files are damaged.
    """
    if (go_on := _OTHERS.get(read_command(path))) is not None:
        go_on(path, output)
        return
    recorded = read_settings(path)
    command = unfinished(path)
    if command == "run":
        job = prepare(
            recorded.name,
            recorded.settings,
            method=recorded.method,
            seed=recorded.seed,
        )
        run_job(
            job,
            RunFolder(path, existing=True),
            output,
            checkpoint_seconds=recorded.checkpoint_seconds,
        )
    elif command == "pimh":
        continue_chains(path, output)
    else:
        text = f"{path}: everything is finished; the numbers are in result.npz"
        output.finish(
            lambda console: console.print(text, highlight=False, soft_wrap=True),
            lambda: {"command": "resume", "folder": str(path), "text": text},
        )

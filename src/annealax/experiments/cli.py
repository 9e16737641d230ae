"""The command `annealax`."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

import annealax
from annealax import report
from annealax._errors import AnnealaxError, InvalidInputError
from annealax._work.budget import parse_budget
from annealax.experiments import compare, sample_command, vae_command
from annealax.experiments._compilation import reuse_compiled_programs
from annealax.experiments._fields import fields_of, format_value, parse_overrides
from annealax.experiments._folder import RunFolder, write_settings
from annealax.experiments._options import AsJson, CheckpointSeconds, Quiet
from annealax.experiments._output import Output, new_console
from annealax.experiments.automatic import Automatic
from annealax.experiments.automatic import start as start_automatic
from annealax.experiments.comparing import (
    ComparisonPlan,
    recorded_options,
    run_comparison,
)
from annealax.experiments.problems import EXPERIMENTS, find_experiment
from annealax.experiments.resume import resume
from annealax.experiments.run import METHODS, prepare
from annealax.experiments.running import ChainPlan, run_job, start_chains

app = typer.Typer(
    name="annealax",
    help="Sample hard densities and estimate their normalising constants.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Entry point of the command."""
    app()


def _clean_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Our own errors become one message and exit code 2."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except AnnealaxError as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(2) from None

    return wrapped


def _version(value: bool) -> bool:
    if value:
        typer.echo(f"annealax {annealax.__version__}")
        raise typer.Exit
    return value


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Sample hard densities and estimate their normalising constants."""


@app.command("list")
@_clean_errors
def list_experiments() -> None:
    """List the experiments."""
    console = new_console()
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("name", no_wrap=True)
    table.add_column("shape", no_wrap=True)
    table.add_column("log Z", justify="right", no_wrap=True)
    table.add_column("what it is")
    for name, cls in EXPERIMENTS.items():
        target = cls().target()
        shape = " x ".join(map(str, target.shape))
        table.add_row(name, shape, _exact(target.log_normalizer), _summary(cls))
    console.print(table)
    console.print("annealax show NAME: its settings. annealax run NAME: run it.")


@app.command()
@_clean_errors
def show(
    name: Annotated[str, typer.Argument(help="Name of an experiment.")],
) -> None:
    """Show an experiment: what it is, and its settings."""
    console = new_console()
    cls = find_experiment(name)
    settings = cls()
    target = settings.target()
    console.print(f"[bold]{name}[/bold]: {_summary(cls)}", highlight=False)
    for paragraph in (cls.__doc__ or "").split("\n\n")[1:]:
        console.print(" ".join(paragraph.split()), highlight=False, markup=False)
    console.print(
        f"Shape of a configuration: {target.shape}. "
        f"Exact log Z: {_exact(target.log_normalizer)}.",
        highlight=False,
    )
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("setting", no_wrap=True)
    table.add_column("value")
    table.add_column("meaning")
    table.add_column("takes")
    for key, field in fields_of(cls).items():
        value = format_value(settings.values()[key])
        table.add_row(key, value, field.doc.text, field.takes)
    console.print(table)
    console.print(
        f"Change them with --set: annealax run {name} --set num_particles=500 "
        "--set step_size_betas=0,1 --set step_sizes=0.5,0.1",
        highlight=False,
    )


@app.command()
@_clean_errors
def run(
    name: Annotated[str, typer.Argument(help="Name of an experiment.")] = "bimodal",
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting."),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed; the same gives the same numbers.")
    ] = 0,
    method: Annotated[
        str, typer.Option(help=f"Method: {', '.join(METHODS)}.")
    ] = "craft",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the files; runs/NAME-seedS if not given."),
    ] = None,
    auto: Annotated[
        bool,
        typer.Option("--auto", help="Choose everything automatically: ax.sample."),
    ] = False,
    budget: Annotated[
        str | None, typer.Option(help="With --auto: time to spend, such as 60s or 2m.")
    ] = None,
    checkpoint_seconds: CheckpointSeconds = 60.0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train flows, deploy them, and compare with plain SMC at the same cost."""
    output = Output(quiet=quiet, as_json=as_json)
    cls = find_experiment(name)
    overrides = parse_overrides(cls, assignments or ())
    settings = cls(**overrides)
    if budget is not None and not auto:
        raise InvalidInputError("--budget goes with --auto.")
    if auto:
        chosen = Automatic(name, overrides, None, None, seed, budget, "auto")
        auto_folder = RunFolder(out or Path("runs") / f"{name}-auto-seed{seed}")
        start_automatic(chosen, auto_folder, output)
        return
    job = prepare(name, settings, method=method, seed=seed)
    folder = RunFolder(out or Path("runs") / f"{name}-seed{seed}")
    write_settings(
        folder,
        name=name,
        method=method,
        seed=seed,
        overrides=overrides,
        values=settings.values(),
        checkpoint_seconds=checkpoint_seconds,
    )
    output.say(f"{name}: {_summary(cls)}")
    run_job(job, folder, output, checkpoint_seconds=checkpoint_seconds)


@app.command("resume")
@_clean_errors
def resume_run(
    run: Annotated[Path, typer.Argument(help="Folder of an interrupted run.")],
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a run, or with pimh, that was interrupted."""
    resume(run, Output(quiet=quiet, as_json=as_json))


@app.command("compare")
@_clean_errors
def compare_methods(
    names: Annotated[list[str], typer.Argument(help="Names of experiments.")],
    methods: Annotated[
        str, typer.Option(help=f"Of {', '.join([*METHODS, *compare.DIRECT])}.")
    ] = "craft,aft,aft-simple,snf,vi,smc,hmc",
    budget: Annotated[
        str | None,
        typer.Option(help="Time for each method and repeat, such as 60s or 2m."),
    ] = None,
    evaluations: Annotated[
        float | None,
        typer.Option(help="Gradient evaluations instead of time, such as 1e7."),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Repeats, all afresh.", min=1)] = 3,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="[NAME:]KEY=VALUE",
            help="Change a setting, of all problems or of the one named.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed.", min=0)] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder; runs/compare-NAME if not given.")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compare methods with the same budget of time or gradient evaluations."""
    output = Output(quiet=quiet, as_json=as_json)
    chosen, limit = compare.find_methods(methods), parse_budget(budget, evaluations)
    overrides = {
        name: parse_overrides(
            find_experiment(name), _assignments_of(name, names, assignments or ())
        )
        for name in names
    }
    plans = [
        ComparisonPlan(
            name, find_experiment(name)(**changed), chosen, limit, repeats, seed
        )
        for name, changed in overrides.items()
    ]
    with reuse_compiled_programs():
        for plan in plans:
            output.say(f"{plan.name}: {_summary(type(plan.settings))}")
            base = out or Path("runs") / f"compare-{plan.name}"
            folder = RunFolder(base / plan.name if out and len(plans) > 1 else base)
            write_settings(
                folder,
                name=plan.name,
                method=",".join(chosen),
                seed=seed,
                overrides=overrides[plan.name],
                values=plan.settings.values(),
                **recorded_options(plan),
            )
            run_comparison(plan, folder, output)


def _assignments_of(
    name: str, names: Sequence[str], assignments: Sequence[str]
) -> list[str]:
    """Those for all problems, and those that begin with the name of this one."""
    found = []
    for text in assignments:
        prefix, colon, rest = text.partition(":")
        if not colon or prefix not in names:
            found.append(text)
        elif prefix == name:
            found.append(rest)
    return found


@app.command("pimh")
@_clean_errors
def particle_mcmc(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    num_steps: Annotated[
        int, typer.Option(help="Iterations of each chain.", min=2)
    ] = 100,
    num_chains: Annotated[int, typer.Option(help="Independent chains.", min=1)] = 1,
    num_particles: Annotated[
        int | None,
        typer.Option(help="Particles of a proposal; that of the run if not given."),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed; the same gives the same numbers.", min=0)
    ] = 0,
    checkpoint_seconds: CheckpointSeconds = 60.0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Particle MCMC with the sampler of a finished run: exact expectations."""
    plan = ChainPlan(num_steps, num_chains, num_particles, seed, checkpoint_seconds)
    start_chains(run, plan, Output(quiet=quiet, as_json=as_json))


@app.command("report")
@_clean_errors
def report_command(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the page; report.html, in the folder of the run, or in the "
            "current folder for several runs."
        ),
    ] = None,
) -> None:
    """Write the page of a run again, or a page that compares several runs."""
    typer.echo(report.write_comparison(runs, out))


app.command("sample")(_clean_errors(sample_command.sample))
app.command("train-vae")(_clean_errors(vae_command.train_vae))


def _summary(cls: type) -> str:
    return (cls.__doc__ or "").partition("\n")[0].rstrip(".")


def _exact(log_normalizer: float | None) -> str:
    return "unknown" if log_normalizer is None else f"{log_normalizer:.4f}"

"""The command `annealax`: its arguments, and what each becomes."""

import codecs
import contextlib
import functools
import importlib
import io
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

import annealax
from annealax import _command_start
from annealax._errors import AnnealaxError, InvalidInputError

# What needs JAX is imported by the commands themselves: `--help` needs none of it.
if TYPE_CHECKING:
    from annealax.experiments.experiment import Experiment
    from annealax.experiments.registry import Found

Name = Annotated[
    str,
    typer.Argument(help="Name of an experiment, or a file that defines one."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting."),
]
Seed = Annotated[int, typer.Option(help="Seed; the same gives the same numbers.")]
Out = Annotated[
    Path | None, typer.Option(help="Folder for the files; below runs/ if not given.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the final table only.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="One JSON object on each line, nothing else.")
]
Devices = Annotated[
    int | None,
    typer.Option(
        help="Devices to use, in each process; all if not given. A processor is split "
        "into as many (pimh: into as many as it has cores, if not given)."
    ),
]
Distributed = Annotated[
    bool,
    typer.Option(
        "--distributed",
        help="One of several processes that do it together: under Slurm, Open MPI or "
        "Kubernetes, or as --coordinator, --processes and --rank say.",
    ),
]
Coordinator = Annotated[
    str | None, typer.Option(help="HOST:PORT of process 0, with --distributed.")
]
Processes = Annotated[
    int | None, typer.Option(help="How many processes, with --distributed.")
]
Rank = Annotated[
    int | None, typer.Option(help="Which of them this is, with --distributed.")
]
Executor = Annotated[
    str | None,
    typer.Option(
        help="Where independent parts are made: processes:4, dask (on this machine) or "
        "dask://HOST:PORT; in this process if not given. The numbers stay the same.",
    ),
]
CheckpointSeconds = Annotated[float, typer.Option(help="Seconds between checkpoints.")]

_METHODS = ("craft", "aft", "aft-simple", "snf", "vi", "smc", "ais")
"""Those of `annealax.experiments.METHODS`, which need JAX."""

_PLAIN = {"±": "+-", "σ": "sigma", "−": "-", "×": "x", "²": "^2", "…": "."}

app = typer.Typer(
    name="annealax",
    help="Sample hard densities and estimate their normalising constants.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Entry point of the command."""
    codecs.register_error("plain", _plain_characters)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain")
    app()


def _plain_characters(error: UnicodeError) -> tuple[str, int]:
    """What a terminal without a character prints instead of it."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(_PLAIN.get(each, "?") for each in text), error.end


def _clean_errors(command: Callable[..., None]) -> Callable[..., None]:
    """What ends a command is one line: exit code 2 for errors, 128 + N for signals."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        importlib.import_module("annealax.cli.work")  # takes seconds
        try:
            with _interrupting():
                command(*args, **kwargs)
        except BrokenPipeError:
            raise
        except KeyboardInterrupt as error:
            signum = getattr(error, "signum", signal.SIGINT)
            print(_command_start.words(signum), file=sys.stderr)
            raise SystemExit(128 + signum) from None
        except AnnealaxError as error:
            text = str(error)
        except OSError as error:
            file = f"{error.filename}: " if error.filename else ""
            text = f"{file}{error.strerror or error}"
        else:
            return
        print(f"Error: {text}", file=sys.stderr)
        raise SystemExit(2)

    return wrapped


@contextlib.contextmanager
def _interrupting() -> Iterator[None]:
    """Signals that would end the command at once let it close what is open."""
    from annealax._work.signals import interrupt

    both = (signal.SIGINT, signal.SIGTERM)
    ours = [each for each in both if signal.getsignal(each) is _command_start.stop]
    for each in ours:
        signal.signal(each, interrupt)
    try:
        yield
    finally:
        for each in ours:
            signal.signal(each, _command_start.stop)


def _version(value: bool) -> bool:
    if value:
        print(f"annealax {annealax.__version__}")
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
def list_experiments(
    files: Annotated[
        list[str] | None, typer.Argument(help="Files with experiments to list, too.")
    ] = None,
) -> None:
    """List the experiments: ours, those of installed packages, those of files."""
    from annealax.cli.output import new_console
    from annealax.experiments.registry import (
        EXPERIMENTS,
        find_experiments,
        registered_experiments,
    )

    console = new_console()
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("name", no_wrap=True)
    table.add_column("shape", no_wrap=True)
    table.add_column("log Z", justify="right", no_wrap=True)
    table.add_column("what it is")
    for name in [*EXPERIMENTS, *registered_experiments(), *(files or ())]:
        try:
            listed = [(f, f.experiment().target()) for f in find_experiments(name)]
        except AnnealaxError as error:
            if name in (files or ()):
                raise
            table.add_row(name, "?", "?", str(error))  # of a package that is broken
            continue
        for found, target in listed:
            shape = " x ".join(map(str, target.shape))
            what = _summary(found.experiment)
            table.add_row(found.name, shape, _exact(target.log_normalizer), what)
    console.print(table)
    console.print("annealax show NAME: its settings. annealax run NAME: run it.")


@app.command()
@_clean_errors
def show(name: Name) -> None:
    """Show an experiment: what it is, and its settings."""
    from annealax.cli.output import new_console
    from annealax.experiments.registry import find_experiment
    from annealax.experiments.settings import format_value, takes

    console = new_console()
    found = find_experiment(name)
    settings = found.experiment()
    target = settings.target()
    summary = _summary(found.experiment)
    console.print(f"[bold]{found.name}[/bold]: {summary}", highlight=False)
    for paragraph in (found.experiment.__doc__ or "").split("\n\n")[1:]:
        console.print(" ".join(paragraph.split()), highlight=False, markup=False)
    console.print(
        f"Shape of a configuration: {target.shape}. "
        f"Exact log Z: {_exact(target.log_normalizer)}.",
        highlight=False,
    )
    if own := ", ".join(settings.methods()):
        console.print(f"Methods of its own: {own}.", highlight=False)
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("setting", no_wrap=True)
    table.add_column("value")
    table.add_column("meaning")
    table.add_column("takes")
    for key, field in found.experiment.model_fields.items():
        value = format_value(getattr(settings, key))
        table.add_row(key, value, field.description, takes(field))
    console.print(table)
    console.print(
        f"Change them with --set: annealax run {name} --set num_particles=500 "
        "--set step_size_betas=0,1 --set step_sizes=0.5,0.1",
        highlight=False,
    )


@app.command()
@_clean_errors
def run(
    name: Name = "bimodal",
    assignments: Settings = None,
    seed: Seed = 0,
    method: Annotated[
        str | None,
        typer.Option(help=f"Method: {', '.join(_METHODS)}, or one of its own."),
    ] = None,
    out: Out = None,
    auto: Annotated[
        bool,
        typer.Option("--auto", help="Choose everything automatically: ax.sample."),
    ] = False,
    budget: Annotated[
        str | None, typer.Option(help="With --auto: time to spend, such as 60s or 2m.")
    ] = None,
    checkpoint_seconds: CheckpointSeconds = 60.0,
    devices: Devices = None,
    executor: Executor = None,
    distributed: Distributed = False,
    coordinator: Coordinator = None,
    processes: Processes = None,
    rank: Rank = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train flows, deploy them, and compare with plain SMC at the same cost."""
    from annealax._work.executors import named_workers
    from annealax.cli import work
    from annealax.cli.devices import Where
    from annealax.cli.output import Output
    from annealax.experiments.jobs import RunJob, SampleJob
    from annealax.experiments.registry import find_experiment

    output = Output(quiet=quiet, as_json=as_json)
    found = find_experiment(name)
    settings, overrides = _settings(found, assignments or ())
    if budget is not None and not auto:
        raise InvalidInputError("--budget goes with --auto.")
    common: dict[str, Any] = {
        "name": found.name,
        "source": found.source,
        "seed": seed,
        "overrides": overrides,
    }
    where = Where(devices, distributed, coordinator, processes, rank)
    if distributed and executor is not None:
        raise InvalidInputError(
            "--executor does not go with --distributed: passes are made on workers, or "
            "by all processes together."
        )
    if auto:
        if distributed:
            raise InvalidInputError("--distributed does not go with --auto.")
        auto_job = SampleJob.make(budget=budget, flow="auto", **common)
        default = Path("runs") / f"{found.name}-auto-seed{seed}"
        with where.used(), named_workers(executor) as workers:
            work.start(auto_job, out or default, output, workers=workers)
        return
    job = RunJob.make(
        **common,
        method=method or settings.default_method,
        settings=settings.values(),
        checkpoint_seconds=checkpoint_seconds,
    )
    default = Path("runs") / f"{found.name}-seed{seed}"
    title = _title(found)
    with where.used(), named_workers(executor) as workers:
        work.start(job, out or default, output, title=title, workers=workers)


@app.command("resume")
@_clean_errors
def resume_run(
    run: Annotated[Path, typer.Argument(help="Folder of an interrupted run.")],
    devices: Devices = None,
    executor: Executor = None,
    distributed: Distributed = False,
    coordinator: Coordinator = None,
    processes: Processes = None,
    rank: Rank = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a run, or with pimh, that was interrupted.

    On any number of devices and processes: the numbers stay the same.
    """
    from annealax._work.executors import named_workers
    from annealax.cli import work
    from annealax.cli.devices import Where
    from annealax.cli.output import Output

    where = Where(devices, distributed, coordinator, processes, rank)
    with where.used(), named_workers(executor) as workers:
        work.resume(run, Output(quiet=quiet, as_json=as_json), workers)


@app.command("compare")
@_clean_errors
def compare_methods(
    names: Annotated[
        list[str], typer.Argument(help="Names of experiments, or files with them.")
    ],
    methods: Annotated[
        str,
        typer.Option(help=f"Of {', '.join(_METHODS)}, hmc, nuts, or of their own."),
    ] = "craft,aft,aft-simple,snf,vi,smc,hmc",
    budget: Annotated[
        str | None,
        typer.Option(help="Time for each method and repeat, such as 60s or 2m."),
    ] = None,
    evaluations: Annotated[
        float | None,
        typer.Option(help="Gradient evaluations instead of time, such as 1e7."),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Repeats, all afresh.")] = 3,
    devices: Devices = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="[NAME:]KEY=VALUE",
            help="Change a setting, of all problems or of the one named.",
        ),
    ] = None,
    seed: Seed = 0,
    executor: Annotated[
        str | None,
        typer.Option(
            help="Where repeats are made: processes:4, dask (on this machine) or "
            "dask://HOST:PORT; in this process if not given. The numbers stay the same "
            "with --evaluations; a budget of time is shared with what runs beside.",
        ),
    ] = None,
    out: Out = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compare methods with the same budget of time or gradient evaluations."""
    from annealax._work.budget import parse_budget
    from annealax._work.executors import named_workers
    from annealax.cli import work
    from annealax.cli.devices import Where
    from annealax.cli.output import Output
    from annealax.experiments.jobs import CompareJob
    from annealax.experiments.registry import find_experiment

    output = Output(quiet=quiet, as_json=as_json)
    limit = parse_budget(budget, evaluations)
    problems = [find_experiment(name) for name in names]
    jobs = []
    for found in problems:
        own = _assignments_of(found.name, [p.name for p in problems], assignments or ())
        settings, overrides = _settings(found, own)
        job = CompareJob.make(
            name=found.name,
            source=found.source,
            method=methods,
            seed=seed,
            overrides=overrides,
            settings=settings.values(),
            budget=limit,
            num_repeats=repeats,
        )
        assert job.methods  # wrong names are an error now, before the first is done
        jobs.append(job)
    with Where(devices).used(), named_workers(executor) as workers:
        for found, job in zip(problems, jobs, strict=True):
            base = out or Path("runs") / f"compare-{found.name}"
            folder = base / found.name if out and len(jobs) > 1 else base
            work.start(job, folder, output, title=_title(found), workers=workers)


@app.command("pimh")
@_clean_errors
def particle_mcmc(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    num_steps: Annotated[int, typer.Option(help="Iterations of each chain.")] = 100,
    num_chains: Annotated[int, typer.Option(help="Independent chains.")] = 1,
    num_particles: Annotated[
        int | None,
        typer.Option(help="Particles of a proposal; that of the run if not given."),
    ] = None,
    seed: Seed = 0,
    checkpoint_seconds: CheckpointSeconds = 60.0,
    devices: Devices = None,
    executor: Executor = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Particle MCMC with the sampler of a finished run: exact expectations."""
    from annealax._work.executors import named_workers
    from annealax.cli import work
    from annealax.cli.devices import Where
    from annealax.cli.output import Output
    from annealax.experiments.jobs import ChainJob

    job = ChainJob.make(
        num_steps=num_steps,
        num_chains=num_chains,
        num_particles=num_particles,
        seed=seed,
        checkpoint_seconds=checkpoint_seconds,
    )
    output = Output(quiet=quiet, as_json=as_json)
    where = Where(devices, is_split=executor is None)
    with where.used(), named_workers(executor) as workers:
        work.start(job, run, output, existing=True, workers=workers)


@app.command()
@_clean_errors
def sample(
    functions: Annotated[
        list[str],
        typer.Argument(
            help="Log density, as module:function or file.py:function, or model of "
            "NumPyro, PyMC or Stan; several are compared by evidence.",
            metavar="FUNCTION...",
        ),
    ],
    shape: Annotated[
        list[str] | None,
        typer.Option(
            help="Shape of a point, such as 10 or 8,8; or NAME=SHAPE for each. Of one "
            "of several functions: FUNCTION:SHAPE. A model has its own."
        ),
    ] = None,
    support: Annotated[
        list[str] | None,
        typer.Option(
            help="real, positive, unit, simplex or two bounds; or NAME=SUPPORT."
        ),
    ] = None,
    region: Annotated[
        list[str] | None,
        typer.Option(help="Where all the mass lies, such as -5,5; or NAME=REGION."),
    ] = None,
    seed: Seed = 0,
    budget: Annotated[
        str | None, typer.Option(help="Time to spend, such as 60s or 2m.")
    ] = None,
    flow: Annotated[
        str, typer.Option(help="auto, none, or the name of a family.")
    ] = "auto",
    prior: Annotated[
        list[str] | None,
        typer.Option(help="Prior probability of a model: FUNCTION=NUMBER."),
    ] = None,
    executor: Executor = None,
    out: Out = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Sample a log density, with everything chosen for you; or compare several."""
    from annealax._work.executors import named_workers
    from annealax.cli import work
    from annealax.cli.output import Output
    from annealax.cli.sample import (
        compare,
        parse_priors,
        parse_region,
        parse_shape,
        parse_support,
        path_name,
        short_names,
    )
    from annealax.experiments.jobs import SampleJob

    names, output = short_names(functions), Output(quiet=quiet, as_json=as_json)
    priors = parse_priors(prior or (), names)
    jobs = {}
    for function, name in zip(functions, names, strict=True):
        of_shape = _assignments_of(name, names, shape or ())
        sizes = parse_shape(of_shape) if of_shape else None
        named = isinstance(sizes, dict)
        jobs[name] = SampleJob.make(
            name=function,
            shape=sizes,
            of_model=sizes is None,
            support=parse_support(_assignments_of(name, names, support or ()), named),
            region=parse_region(_assignments_of(name, names, region or ()), named),
            seed=seed,
            budget=budget,
            flow=flow,
        )
    with named_workers(executor) as workers:
        title = f"{path_name(functions[0])}-seed{seed}"
        if len(jobs) == 1:
            path = out or Path("runs") / title
            work.start(jobs[names[0]], path, output, workers=workers)
            return
        base = out or Path("runs") / f"compare-{'-'.join(names)}-seed{seed}"
        for job in jobs.values():  # what is wrong shows before the first is sampled
            work.COMMANDS[job.command].prepare(job, base)
        folders = {
            name: work.start(
                job, base / name, output, title=f"{name}:", workers=workers
            )
            for name, job in jobs.items()
        }
        compare(folders, base, priors, output)


@app.command("train-vae")
@_clean_errors
def train_vae(
    data: Annotated[
        Path,
        typer.Option(help="Images: a folder of IDX files, one IDX file, or an npz."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the files; runs/vae-decoder-seedS if not given. A name "
            "that ends in .npz is that of the decoder, with the folder beside it."
        ),
    ] = None,
    num_steps: Annotated[
        int, typer.Option(help="Training steps, each on one batch.")
    ] = 6000,
    batch_size: Annotated[int, typer.Option(help="Images in a batch.")] = 200,
    learning_rate: Annotated[
        float, typer.Option(help="Learning rate of Adam at the start.")
    ] = 2e-3,
    seed: Seed = 0,
    checkpoint_seconds: CheckpointSeconds = 60.0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train the decoder of a VAE on binarised images, for targets.VAE(decoder=...)."""
    from annealax.cli import work
    from annealax.cli.output import Output
    from annealax.experiments.jobs import TrainVAEJob, TrainVAESettings

    out = out or Path("runs") / f"vae-decoder-seed{seed}"
    named = out.suffix == ".npz"
    settings = TrainVAESettings(
        data=str(data.resolve()),
        decoder=str(out.resolve()) if named else "decoder.npz",
        num_steps=num_steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
    )
    job = TrainVAEJob.make(
        seed=seed, settings=settings.values(), checkpoint_seconds=checkpoint_seconds
    )
    folder = out.with_suffix("") if named else out
    work.start(job, folder, Output(quiet=quiet, as_json=as_json))


@app.command("reproduce")
@_clean_errors
def reproduce_figures(
    figures: Annotated[
        str,
        typer.Argument(
            help="all, or numbers of figures such as 1 or 3,5; 8 is ours.",
            metavar="FIGURE",
        ),
    ] = "all",
    scale: Annotated[
        str,
        typer.Option(
            help="smoke: tiny, a minute or two; cpu: about an hour a figure on two "
            "cores; paper: the paper's settings."
        ),
    ] = "cpu",
    repeats: Annotated[
        int | None,
        typer.Option(help="Repeats of each line; those of the scale if not given."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes side by side; one for each core if not given."),
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(
            help="Other workers than these: dask (on this machine) or "
            "dask://HOST:PORT, all with the same folders."
        ),
    ] = None,
    seed: Seed = 0,
    out: Out = None,
    checkpoint_seconds: CheckpointSeconds = 60.0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Reproduce figures of the paper; in a folder that has some of it, go on."""
    from annealax._work.executors import named_workers
    from annealax.cli import reproduce, work
    from annealax.cli.output import Output
    from annealax.experiments.jobs import ReproduceJob
    from annealax.reproduction.figures import find_figures

    job = ReproduceJob.make(
        figures=find_figures(figures),
        scale=scale,
        repeats=repeats,
        workers=workers,
        seed=seed,
        checkpoint_seconds=checkpoint_seconds,
    )
    path = out or Path("runs") / f"reproduce-{scale}-seed{seed}"
    if workers is not None and executor is not None:
        raise InvalidInputError("give --workers or --executor, not both.")
    existing = reproduce.belongs(path, job)
    output = Output(quiet=quiet, as_json=as_json)
    with named_workers(executor) as side:
        work.start(job, path, output, existing=existing, workers=side)


@app.command()
@_clean_errors
def report(
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
    from annealax.report import write_comparison

    print(write_comparison(runs, out))


def _settings(
    found: "Found", assignments: Sequence[str]
) -> "tuple[Experiment, dict[str, Any]]":
    """The experiment with the settings that the command line gives, and these."""
    from annealax.experiments.settings import parse_assignments

    texts = parse_assignments(assignments)
    settings = found.experiment(**texts)
    return settings, {key: getattr(settings, key) for key in texts}


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


def _title(found: "Found") -> str:
    return f"{found.name}: {_summary(found.experiment)}"


def _summary(cls: type) -> str:
    return (cls.__doc__ or "").partition("\n")[0].rstrip(".")


def _exact(log_normalizer: float | None) -> str:
    return "unknown" if log_normalizer is None else f"{log_normalizer:.4f}"

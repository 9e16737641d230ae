"""Pages: one file that opens offline and fetches nothing.

A page is a template of `templates/` filled with tables, sentences and charts. Templates
escape whatever they are given; only charts, which we draw ourselves, are HTML already.
It runs one script, `page.js`, which it holds, and by its policy no other: the script
reads numbers off charts and enlarges them.
"""

import base64
import dataclasses
import functools
import hashlib
import itertools
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

import annealax
from annealax._doubts import Doubt
from annealax._errors import InvalidInputError
from annealax._evidence import EvidenceComparison, compare_evidence
from annealax.experiments.files import writing
from annealax.experiments.jobs import ExperimentJob, MainJob, SampleJob
from annealax.experiments.registry import EXPERIMENTS
from annealax.experiments.settings import format_value
from annealax.report import charts, tables
from annealax.report.pictures import ON_PAGE
from annealax.report.read import Comparison, Decoder, Folder, Picture, Run

NAME = "report.html"
_GENERATOR = '<meta name="generator" content="annealax'
"""How every page of ours can be told."""

_WIDE = 1000
"""Pixels beyond which a picture scrolls on a phone instead of shrinking."""

_DESCRIPTIONS: Mapping[str, tuple[str, str]] = {
    "temperatures.png": (
        "The first two coordinates of the particles, along the ladder of temperatures.",
        "Scatter plots of the particles at temperatures from the start to the target",
    ),
    "intensity.png": (
        "The intensity: posterior mean with the observed points, and relative spread.",
        "Two maps: mean intensity with the points on it, and its relative spread",
    ),
    "digits.png": (
        "The image, and draws from prior and posterior, decoded.",
        "Two rows of small grey images: prior draws above, posterior draws below",
    ),
    "fields.png": (
        "Fields drawn at temperatures along the ladder.",
        "Lattice fields in red and blue, one column for each temperature",
    ),
    "magnetisation.png": (
        "The magnetisation, with the share of either sign.",
        "Histogram of the magnetisation, negative and positive in two colours",
    ),
    "decoded.png": (
        "Test images, what encoder and decoder make of them, and draws from the prior.",
        "Three rows of small grey images",
    ),
}
"""Caption and description of the pictures that need the experiment, by file name."""


@dataclasses.dataclass(frozen=True)
class Chart:
    """A chart of a page."""

    title: str
    caption: str
    svg: Markup


@dataclasses.dataclass(frozen=True)
class Image:
    """A picture of a page, as data."""

    caption: str
    description: str
    data: str
    width: int
    height: int

    @property
    def wide(self) -> bool:
        """Whether it scrolls on a phone."""
        return self.width > 2 * self.height and self.width > _WIDE


def render(found: Run | Comparison | Decoder) -> str:
    """The page of a folder."""
    if isinstance(found, Comparison):
        return _comparison_page(found)
    if isinstance(found, Decoder):
        return _decoder_page(found)
    return _run_page(found)


def write(path: Path, text: str) -> Path:
    """Write a page, but over nothing that is not a page of ours; returns its place."""
    if path.is_dir():
        path = path / NAME
    try:
        foreign = path.exists() and _GENERATOR.encode() not in path.read_bytes()[:4096]
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror}") from error
    if foreign:
        raise InvalidInputError(
            f"{path} is there already, and is not a page of annealax: choose another "
            "file with --out"
        )
    with writing(path) as file:
        file.write(text.encode())
    return path


@dataclasses.dataclass(frozen=True)
class Remark:
    """A reason to doubt an answer, and what helps."""

    text: str
    remedy: str


def remedies(doubts: Iterable[str]) -> list[Remark]:
    """Reasons to doubt, with what helps where their code is known."""
    found = []
    for doubt in doubts:
        _, remedy = Doubt.CODES.get(getattr(doubt, "code", ""), ("", ""))
        found.append(Remark(f"{doubt.rstrip('.')}.", remedy))
    return found


# The kinds of pages.


def _run_page(run: Run) -> str:
    draw = _Drawing()
    mine, others = tables.doubts(run)
    draws = run.draws
    words, shown = charts.main_draws(draws)
    main = charts.corner(shown)
    answer = [
        charts.passes_panel(run.passes, pooled=run.pooled),
        charts.weights_panel(run.weights),
    ]
    if len(run.rows) > 1:
        rows = {row.label: row.repeats_log_normalizer for row in run.rows}
        answer.insert(1, charts.strips_panel("Beside other samplers", rows, run.truth))
    chain = None
    if run.chain is not None:
        chain = {
            "table": tables.chain_table(run, run.chain),
            "remarks": list(tables.chain_remarks(run.chain, run.chain_particles)),
            "charts": draw.panels(charts.chain_panels(run.chain)),
        }
    listed = draws.named or set(shown.names) <= set(draws.names)
    return _fill(
        "run.html.j2",
        run,
        title=f"{run.asked.name}: {tables.headline(run)}",
        headline=tables.headline(run),
        lead=_lead(run),
        numbers=_numbers(run),
        doubts=remedies(mine),
        other_doubts=remedies(others),
        remarks=list(tables.run_remarks(run)),
        corner=Chart("", words, draw.figure(main, words)),
        corner_size=len(shown.names),
        parameters=tables.parameter_table(draws) if listed else None,
        posterior_charts=draw.panels(charts.posterior_panels(draws)),
        # The cards at the top say it all of a single row of the automatic mode.
        table=None if run.pooled and len(run.rows) == 1 else tables.run_table(run),
        answer_charts=draw.panels(answer),
        chain=chain,
        pictures=images(run.pictures),
        ladder_charts=draw.panels(charts.ladder_panels(run.ladder)),
        just_resampled=run.just_resampled,
        training_charts=draw.panels(charts.training_panels(run)),
        notes=run.notes,
        commands=commands(run),
        again=_again(run),
    )


def _comparison_page(comparison: Comparison) -> str:
    draw = _Drawing()
    return _fill(
        "comparison.html.j2",
        comparison,
        title=f"{comparison.asked.name}: methods compared",
        lead=f"{comparison.num_repeats} repeats of "
        f"{tables.budget_text(comparison.budget)} for each method, seed "
        f"{comparison.asked.seed}.",
        remarks=list(tables.comparison_remarks(comparison)),
        table=tables.comparison_table(comparison),
        charts=draw.panels(charts.comparison_panels(comparison)),
        pictures=images(comparison.pictures),
        commands=commands(comparison),
        again=_again(comparison),
    )


def _decoder_page(decoder: Decoder) -> str:
    draw = _Drawing()
    bound = tables.number_text(decoder.test_elbo, 2)
    return _fill(
        "decoder.html.j2",
        decoder,
        title=f"{decoder.asked.name}: {bound} nats",
        headline=f"{bound} nats: the lower bound on the evidence of a test image",
        lead="The decoder of a variational autoencoder.",
        table=tables.decoder_table(decoder),
        charts=draw.panels(charts.decoder_panels(decoder)),
        pictures=images(decoder.pictures),
        commands=commands(decoder),
        again=_again(decoder),
    )


def compared_models(
    runs: Mapping[str, Run], priors: Mapping[str, float | int] | None = None
) -> EvidenceComparison | None:
    """Runs of the automatic mode of different functions, compared by their evidence.

    None if they are something else: samplers of one problem, or one function alone.
    """
    models = {run.asked.name for run in runs.values()}
    if len(runs) < 2 or len(models) < len(runs):
        return None
    if not all(run.pooled for run in runs.values()):
        return None
    return compare_evidence({k: run.evidence for k, run in runs.items()}, priors)


def render_runs(
    runs: Sequence[Run], priors: Mapping[str, float | int] | None = None
) -> str:
    """A page of several runs, side by side."""
    draw = _Drawing()
    named = dict(zip(labels([run.path for run in runs]), runs, strict=True))
    models, passes = compared_models(named, priors), []
    # A chart for each problem: log Z of different ones cannot be compared.
    for problem in dict.fromkeys(run.asked.name for run in runs):
        same = {n: run for n, run in named.items() if run.asked.name == problem}
        truths = {run.truth for run in same.values()}
        rows = {n: run.main.repeats_log_normalizer for n, run in same.items()}
        truth = truths.pop() if len(truths) == 1 else None
        passes.append(charts.strips_panel(problem, rows, truth))
    training = {
        name: draw.panels(charts.training_panels(run)) for name, run in named.items()
    }
    kinds = dict.fromkeys(
        file for run in runs for file in run.pictures if file not in ON_PAGE
    )
    return _fill(
        "runs.html.j2",
        None,
        title=f"{len(runs)} {'models compared' if models else 'runs side by side'}",
        lead=", ".join(named),
        table=tables.runs_table(named),
        remarks=list(tables.runs_verdicts(named)),
        doubts=[
            Remark(f"{name}: {each.text}", each.remedy)
            for name, run in named.items()
            for each in remedies(tables.doubts(run)[0])
        ],
        headline="" if models is None else f"{models.headline()}.",
        evidence=[] if models is None else tables.evidence_tables(models),
        evidence_charts=[]
        if models is None
        else draw.panels(charts.evidence_panels(models)),
        charts=draw.panels(passes),
        training={name: found for name, found in training.items() if found},
        differences=tables.differing_settings(named),
        pictures={
            describe(kind)[0].rstrip("."): [
                _image(run.pictures[kind], name, f"{name}: {describe(kind)[1]}")
                for name, run in named.items()
                if kind in run.pictures
            ]
            for kind in kinds
        },
        commands=[line for run in runs for line in commands(run)],
    )


# Their parts.


class _Drawing:
    """Charts of one page, each with identifiers of its own."""

    def __init__(self) -> None:
        self._count = itertools.count(1)

    def figure(self, figure: Any, description: str) -> Markup:
        """A figure as SVG."""
        text = charts.svg(figure, f"c{next(self._count)}", description)
        return Markup(text)

    def panels(self, panels: Iterable[charts.Panel]) -> list[Chart]:
        """Panels as charts, one figure for each."""
        return [
            Chart(
                panel.title,
                panel.caption,
                self.figure(charts.alone(panel), f"{panel.title}. {panel.caption}"),
            )
            for panel in panels
        ]


def _fill(template: str, folder: Folder | None, **context: Any) -> str:
    if folder is not None:
        context |= {
            "name": folder.asked.name,
            "settings": tables.settings_table(folder.asked, _known(folder.asked)[1]),
            "software": tables.software_table(folder),
        }
    return environment().get_template(template).render(**context)


@functools.cache
def environment() -> jinja2.Environment:
    """Templates, which escape all that they are given."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("annealax.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = (
        resources.files(__package__).joinpath(name).read_text("utf-8")
        for name in ("style.css", "page.js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals |= {
        "generator": Markup(_GENERATOR),
        "version": annealax.__version__,
        "palette": charts.PALETTE,
        "style": Markup(style),
        "script": Markup(script),
        "script_hash": f"sha256-{digest}",
    }
    return environment


def _known(asked: MainJob) -> tuple[str, Mapping[str, str]]:
    """What the experiment says about itself and its settings, if it is one of ours."""
    cls = EXPERIMENTS.get(asked.name)
    if cls is None:
        return "", {}
    summary = (cls.__doc__ or "").partition("\n")[0].rstrip(".")
    fields = cls.model_fields.items()
    return summary, {name: each.description or "" for name, each in fields}


def _lead(run: Run) -> str:
    """One line on what was run."""
    asked, size = run.asked, run.arrays["x"][0].size
    summary = _known(asked)[0]
    if run.pooled:
        passes = len(run.main.repeats_log_normalizer)
        what = f"{passes} replicates of {run.num_particles} particles"
    else:
        what = f"{run.num_particles} particles"
    method = tables.method_text(run)
    return (
        (f"{summary}. " if summary else "")
        + f"{method[:1].upper()}{method[1:]}, {what} in {size} "
        f"dimension{'s' * (size != 1)}, seed {asked.seed}."
    )


def _numbers(run: Run) -> list[tuple[str, str, str]]:
    """The numbers that matter: name, value, note."""
    main = run.main
    count = len(main.repeats_log_normalizer)
    value = tables.estimate_text(main.log_normalizer, main.log_normalizer_stderr)
    what = "replicates" if run.pooled else "passes"
    note = f"{count} {what} pooled" if count > 1 else "one pass, its own error bar"
    cards = [("log Z", value, note)]
    if run.truth is not None:
        off = tables.off_by_text(main, run.truth)
        cards.append(("exact log Z", tables.number_text(run.truth), f"off by {off}"))
    if main.spread is not None:
        spread = f"spread from one to another {tables.number_text(main.spread)}"
        cards.append((f"mean of {count} {what}", tables.number_text(main.mean), spread))
    draws, ess, when = run.num_draws, run.ess, ""
    if run.just_resampled:  # all weights are equal, and say nothing
        ess, when = float(run.arrays["step_ess"][-1]), ", before the last resampling"
    lowest = tables.percent_text(float(main.repeats_lowest_ess.min()))
    note = f"{ess:.0f} of {draws} draws{when}; lowest on a ladder {lowest}"
    cards.append(("effective sample size", tables.percent_text(ess / draws), note))
    note = "no training"
    if run.pooled:
        evaluations = tables.count_text(main.evaluations_per_pass)
        note = f"{evaluations} density evaluations"
    elif run.training_seconds is not None:
        note = f"after {tables.duration_text(run.training_seconds)} of training"
    what = "replicate" if run.pooled else "pass"
    seconds = tables.duration_text(main.seconds_per_pass)
    cards.append((f"time of a {what}", seconds, note))
    return cards


def images(pictures: Mapping[str, Picture]) -> list[Image]:
    """Pictures that the page does not have as charts, those of the problem first."""
    names = sorted(set(pictures) - ON_PAGE, key=lambda n: (n == "temperatures.png", n))
    return [_image(pictures[name], *describe(name)) for name in names]


def _image(picture: Picture, caption: str, description: str) -> Image:
    data = base64.b64encode(picture.data).decode()
    width, height = (round(size / 1.4) for size in (picture.width, picture.height))
    return Image(caption, description, data, width, height)


def describe(name: str) -> tuple[str, str]:
    """Caption and description of a picture."""
    if name in _DESCRIPTIONS:
        return _DESCRIPTIONS[name]
    words = re.sub(r"[_-]+", " ", name.removesuffix(".png"))
    return f"{words}.", f"Picture that the run drew: {words}"


def labels(paths: Sequence[Path]) -> list[str]:
    """Short names for folders: as much of each path as tells them apart."""
    parts = [Path(os.path.abspath(path)).parts for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        found = ["/".join(part[-depth:]) for part in parts]
        if len(set(found)) == len(found):
            return found
    return [f"{path} ({index + 1})" for index, path in enumerate(paths)]


# How to do it again.


def commands(found: Run | Comparison | Decoder) -> list[list[str]]:
    """The commands that do the same again, each as its words, quoted for a shell."""
    asked = found.asked
    source = asked.source if isinstance(asked, ExperimentJob) else None
    name = source or asked.name
    if isinstance(found, Comparison):
        amount = f"{found.budget.amount:g}"
        budget = ["--evaluations", amount]
        if found.budget.unit == "seconds":
            budget = ["--budget", f"{amount}s"]
        words = ["compare", name, "--methods", asked.method, *budget]
        words += ["--repeats", str(found.num_repeats)]
    elif isinstance(found, Decoder):
        words = ["train-vae"]
        for key in ("data", "num_steps", "batch_size", "learning_rate"):
            if key in asked.settings:
                words += [f"--{key.replace('_', '-')}", str(asked.settings[key])]
    elif isinstance(asked, SampleJob):
        words = _sample_words(asked, name)
    else:
        words = ["run", name, "--method", asked.method]
    words += ["--seed", str(asked.seed)]
    for key, value in asked.overrides.items():
        words += ["--set", f"{key}={format_value(value)}"]
    lines = [words]
    if isinstance(found, Run) and found.chain_plan is not None:
        plan = found.chain_plan
        words = ["pimh", found.path.name or ".", "--num-steps", str(plan.num_steps)]
        words += ["--num-chains", str(plan.num_chains)]
        if plan.num_particles is not None:
            words += ["--num-particles", str(plan.num_particles)]
        lines.append([*words, "--seed", str(plan.seed)])
    return [[shlex.quote(word) for word in ("annealax", *line)] for line in lines]


def _again(found: Run | Comparison | Decoder) -> str:
    """Whether the same command gives the same numbers."""
    budget = found.asked.settings.get("budget")
    if isinstance(found, Comparison):
        timed = found.budget.unit == "seconds"
    else:
        # An experiment may have a setting of this name; only a time is one of ours.
        timed = bool(re.fullmatch(r"[\d.]+ *[smh]", str(budget)))
    if timed:
        return (
            "With a budget of time, how much work there is depends on the machine: "
            "numbers differ within their error bars."
        )
    more = ""
    if isinstance(found, Run) and any("same cost" in row.label for row in found.rows):
        more = ", and with them how many temperatures SMC gets for the same cost"
    return (
        "With the versions below, on the same kind of machine, it gives the same "
        f"numbers; only times differ{more}."
    )


def _sample_words(asked: SampleJob, name: str) -> list[str]:
    """The automatic mode, of a function or of an experiment."""
    settings = asked.settings
    if asked.shape is None and not asked.of_model:
        words = ["run", name, "--auto"]
    else:
        words = ["sample", name]
        for key in ("shape", "support", "region"):
            texts = str(settings.get(key) or "").split(", ")
            for text in filter(None, texts):
                words += [f"--{key}", text.removesuffix("=")]
        if settings.get("flow", "auto") != "auto":
            words += ["--flow", str(settings["flow"])]
    if settings.get("budget"):
        words += ["--budget", str(settings["budget"])]
    return words

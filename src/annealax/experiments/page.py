"""One page for one run, `report.html`: made from the files of its folder alone.

The page holds everything itself and opens offline: charts as SVG in the colours of the
page, pictures as data, no scripts.
"""

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from annealax.experiments import page_charts
from annealax.experiments._fields import fields_of, format_value
from annealax.experiments._html import (
    Html,
    breakable,
    page,
    picture,
    section,
    table,
    tag,
)
from annealax.experiments._numbers import count_text, duration_text
from annealax.experiments._run_files import Header, Picture, RunFiles, TableRow
from annealax.experiments.problems import EXPERIMENTS
from annealax.experiments.run import METHODS

_KNOWN: Mapping[str, tuple[str, str]] = {
    "temperatures.png": (
        "The first two coordinates of the particles, along the ladder of temperatures.",
        "Scatter plots of the particles at temperatures from the start to the target",
    ),
    "marginals.png": (
        "Weighted marginals of the first coordinates, with exact draws where known.",
        "Weighted histograms of the first coordinates",
    ),
    "parameters.png": (
        "Posterior of the parameters in their own space.",
        "Histograms and intervals of the parameters",
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
    "pimh_trace.png": (
        "Particle MCMC: traces of log Z and of observables.",
        "Line plots over the iterations of the chains",
    ),
    "pimh_correlator.png": (
        "Particle MCMC: correlations in time.",
        "Zero-momentum correlator and effective mass with error bars",
    ),
    "pimh_magnetisation.png": (
        "Particle MCMC: the magnetisation of the configurations.",
        "Histogram of the magnetisation, negative and positive in two colours",
    ),
    "compare.png": (
        "log Z against what was spent, a line for each repeat.",
        "Line plots of log Z for every method, in full and magnified",
    ),
}
_GENERAL = {"temperatures.png", "marginals.png"}
DRAWN_HERE = {"training.png"}
"""Pictures that the page draws itself, in its own colours."""


def run_page(files: RunFiles) -> Html:
    """The page of a run."""
    header = files.header
    chains = {n: p for n, p in files.pictures.items() if n.startswith("pimh")}
    others = {
        name: image
        for name, image in files.pictures.items()
        if name not in DRAWN_HERE and name not in chains
    }
    words, coordinates = page_charts.coordinate_charts(files)
    training = page_charts.training_charts(files)
    return page(
        f"{header.name}: log Z {estimate(files.main)}",
        tag("h1", header.name),
        tag("p", lead(header, files.num_particles), class_="lead"),
        headline(files),
        warnings_box(files),
        section(
            "Beside other samplers" if len(files.rows) > 1 else "All passes",
            comparison(files),
            page_charts.grid([page_charts.passes_chart(files.rows, files.truth)]),
        ),
        section("Training", page_charts.grid(training)) if training else None,
        section(
            "Along the ladder of temperatures",
            page_charts.grid(page_charts.ladder_charts(files)),
        ),
        section("Weights", page_charts.grid(page_charts.weight_charts(files))),
        section(
            "Coordinates",
            tag("p", words, class_="note"),
            page_charts.grid(coordinates, "small"),
        ),
        section("Pictures", *shown(others)) if others else None,
        chain_section(files, chains),
        again(header),
        settings_section(header),
        software(header),
    )


def method_label(name: str) -> str:
    """What to call a method."""
    return METHODS[name].label if name in METHODS else name


def lead(header: Header, num_particles: int) -> str:
    """One line on what was run."""
    cls = EXPERIMENTS.get(header.name)
    what = "" if cls is None else (cls.__doc__ or "").partition("\n")[0].rstrip(".")
    what = f"{what}. " if what else ""
    return (
        f"{what}{method_label(header.method)}, {num_particles} particles, "
        f"seed {header.seed}."
    )


def number(value: float | None, digits: int = 4) -> str:
    """A number with so many decimals, or a question mark."""
    if value is None or not math.isfinite(value):
        return "?"
    return f"{value:.{digits}f}".replace("-", "−")


def estimate(row: TableRow) -> str:
    """Log Z and its error bar."""
    return f"{number(row.log_normalizer)} ± {number(row.log_normalizer_stderr)}"


def off_by(row: TableRow, truth: float | None) -> str:
    """Distance from the exact value in error bars."""
    value, error = row.log_normalizer, row.log_normalizer_stderr
    if truth is None or value is None or not error:
        return "?"
    return f"{(value - truth) / error:+.1f}\u00a0σ".replace("-", "−")


def headline(files: RunFiles) -> Html:
    """The numbers that matter, first."""
    main = files.main
    count = len(main.repeats)
    cards = [("log Z", estimate(main), "one pass, with its own error bar")]
    if files.truth is not None:
        off = off_by(main, files.truth)
        cards.append(("exact log Z", number(files.truth), f"this pass is off by {off}"))
    if main.spread is not None:
        cards.append(
            (
                f"mean of {count} passes",
                number(main.mean),
                f"spread from pass to pass {number(main.spread)}",
            )
        )
    share = files.ess / files.num_particles
    just = ", just after resampling" if files.arrays["step_resampled"][-1] else ""
    cards.append(
        (
            "effective sample size",
            f"{share:.0%}",
            f"{files.ess:.0f} of {files.num_particles} particles{just}; lowest on the "
            f"ladder {main.lowest_ess[0]:.0%}",
        )
    )
    time = "no training"
    if files.training_seconds is not None:
        time = f"after {duration_text(files.training_seconds)} of training"
    cards.append(("time of a pass", duration_text(main.seconds), time))
    return tag(
        "dl",
        *(
            tag(
                "div",
                tag("dt", name),
                tag("dd", value, class_="value"),
                tag("dd", note, class_="note"),
            )
            for name, value, note in cards
        ),
        class_="numbers",
    )


def warnings_box(files: RunFiles) -> Html:
    """Reasons to doubt the numbers, those of the method itself first."""
    mine = list(files.main.warnings)
    skipped = int(np.sum(files.arrays.get("history_num_skipped", 0)))
    if skipped:
        mine.append(
            f"{skipped} flow updates were skipped because their gradient was not "
            "finite; lower learning_rate or step_sizes"
        )
    others = [
        f"{row.label}: {message}" for row in files.rows[1:] for message in row.warnings
    ]
    if not mine and not others:
        return tag("p", "No warnings.", class_="calm")
    parts: list[Html] = []
    for title, messages in (
        ("Reasons to doubt these numbers", mine),
        ("About what it is compared with", others),
    ):
        if messages:
            items = [tag("li", f"{message.rstrip('.')}.") for message in messages]
            parts += [tag("strong", title), tag("ul", *items)]
    return tag("div", *parts, class_="warnings", role="note")


def comparison(files: RunFiles) -> Html:
    """The table that the command prints."""
    headers = ["", "steps", "log Z, one pass", "off by"]
    headers += [f"mean of {len(files.main.repeats)}", "spread", "low ESS", "ESS"]
    headers += ["time", "evals"]
    rows: list[list[Any]] = []
    if files.truth is not None:
        exact = number(files.truth)
        rows.append(["exact", "", exact, "", exact, "", "", "", "", ""])
    rows += [list(_cells(row, files.truth)) for row in files.rows]
    note = (
        "steps: annealing transitions. off by: distance of the pass from exact, in its "
        "error bars. mean, spread: of log Z over passes. low ESS, ESS: lowest along a "
        "pass, and final, as a share of the particles. time, evals: seconds and "
        "density evaluations per pass."
    )
    return tag(
        "div",
        table(
            headers,
            rows,
            caption="log Z of each sampler, with its cost",
            strong=int(files.truth is not None) if len(files.rows) > 1 else None,
        ),
        tag("p", note, class_="note"),
    )


def _cells(row: TableRow, truth: float | None) -> Iterator[str]:
    yield row.label
    yield str(row.num_transitions)
    yield estimate(row)
    yield off_by(row, truth)
    yield number(row.mean)
    yield number(row.spread)
    yield f"{row.lowest_ess.mean():.0%}"
    yield f"{row.ess.mean():.0%}"
    yield duration_text(row.seconds)
    yield "?" if row.evaluations is None else count_text(row.evaluations)


def shown(pictures: Mapping[str, Picture]) -> Iterator[Html]:
    """Pictures with what is known about them; those of the problem itself first."""
    ordered = sorted(pictures.items(), key=lambda entry: entry[0] in _GENERAL)
    for name, image in ordered:
        yield picture(image, *describe(name))


def describe(name: str) -> tuple[str, str]:
    """Caption and description of a picture."""
    if name in _KNOWN:
        return _KNOWN[name]
    plain = re.sub(r"[_-]+", " ", name.removesuffix(".png"))
    return f"{plain}.", f"Picture that the run drew: {plain}"


def chain_section(files: RunFiles, pictures: Mapping[str, Picture]) -> Html | None:
    """Particle MCMC on top of the run, if there was any."""
    chain = files.chain
    if not chain and not pictures:
        return None
    rows = []
    for key, mean in chain.items():
        error = chain.get(f"stderr_{key.removeprefix('mean_')}")
        if key.startswith("mean_") and mean.ndim == 0 and error is not None:
            name = key.removeprefix("mean_").replace("_", " ")
            rows.append([name, f"{float(mean):.6g}", f"{float(error):.2g}"])
    parts: list[Any] = []
    accepted = chain.get("accepted")
    if accepted is not None and accepted.ndim == 2 and accepted.size:
        parts.append(
            tag(
                "p",
                f"{accepted.shape[0]} × {accepted.shape[1]} iterations, "
                f"{accepted.mean():.0%} of proposals accepted.",
            )
        )
    if rows:
        headers = ["expectation of", "mean", "standard error"]
        parts.append(table(headers, rows, caption="Expectations by particle MCMC"))
    return section("Particle MCMC", *parts, *shown(pictures))


def command(header: Header) -> str:
    """The command that does the same again."""
    words = ["annealax", "run", header.name, "--method", header.method]
    words += ["--seed", str(header.seed)]
    for key, value in header.overrides.items():
        words += ["--set", f"{key}={setting_text(value)}"]
    return shlex.join(words)


def setting_text(value: Any) -> str:
    """A setting as it is given on the command line."""
    return format_value(tuple(value) if isinstance(value, list) else value)


def again(header: Header) -> Html:
    """How to run it again."""
    version = header.versions.get("annealax", "?")
    return section(
        "Run it again",
        tag("pre", tag("code", command(header))),
        tag(
            "p",
            f"With annealax {version} and the versions below, on the same kind of "
            "machine, it gives the same numbers; only times differ, and with them how "
            "many temperatures “SMC, same time” gets.",
            class_="note",
        ),
    )


def settings_section(header: Header) -> Html:
    """All settings; those that were changed first."""
    cls = EXPERIMENTS.get(header.name)
    fields = {} if cls is None else fields_of(cls)
    names = sorted(header.settings, key=lambda name: name not in header.overrides)
    rows = [
        [
            tag("strong", breakable(name))
            if name in header.overrides
            else breakable(name),
            breakable(setting_text(header.settings[name])),
            fields[name].doc.text if name in fields else "",
        ]
        for name in names
    ]
    view = table(
        ["setting", "value", "meaning"], rows, caption="Settings", numeric=False
    )
    note = "Bold: changed for this run." if header.overrides else "All as they come."
    return section(
        "Settings", tag("p", note, class_="note"), tag("div", view, class_="settings")
    )


def software(header: Header) -> Html:
    """Versions, devices, and what else is known about where it ran."""
    rows = [[name, str(value)] for name, value in header.versions.items()]
    rows.append(["devices", ", ".join(header.devices)])
    rows += [[key, text] for key, text in _flat(header.environment)]
    view = table(["", "version"], rows, caption="Software", numeric=False)
    return section("Software", tag("div", view, class_="settings"))


def _flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key} ")
        else:
            entries = value if isinstance(value, list) else [value]
            yield f"{prefix}{key}", ", ".join(map(str, entries))

"""One page for one run, `report.html`: made from the files of its folder alone.

The page holds everything itself and opens offline: charts as SVG in the colours of the
page, pictures as data, no scripts.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from annealax.experiments import page_charts
from annealax.experiments._html import Html, page, section, table, tag
from annealax.experiments._numbers import count_text, duration_text, percent_text
from annealax.experiments._read import Picture
from annealax.experiments._run_files import RunFiles, TableRow
from annealax.experiments.page_parts import (
    DRAWN_HERE,
    again,
    estimate,
    method_label,
    number_text,
    off_by,
    settings_section,
    shown,
    software,
)
from annealax.experiments.registry import EXPERIMENTS


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
        tag("p", lead(files), class_="lead"),
        headline(files),
        warnings_box(files),
        section(
            "Beside other samplers" if len(files.rows) > 1 else "All passes",
            comparison(files),
            page_charts.grid(
                [
                    page_charts.passes_chart(
                        {row.label: row.repeats for row in files.rows}, files.truth
                    )
                ]
            ),
        ),
        section("Training", page_charts.grid(training)) if training else None,
        section(
            "Along the ladder of temperatures",
            page_charts.grid(page_charts.ladder_charts(files)),
        ),
        section(
            "Weights",
            tag(
                "p",
                "The last temperature resampled, so all weights are equal; what they "
                "were before shows in its effective sample size above.",
                class_="note",
            )
            if files.just_resampled
            else None,
            page_charts.grid(page_charts.weight_charts(files)),
        ),
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


def lead(files: RunFiles) -> str:
    """One line on what was run."""
    header = files.header
    cls = EXPERIMENTS.get(header.name)
    what = "" if cls is None else (cls.__doc__ or "").partition("\n")[0].rstrip(".")
    what = f"{what}. " if what else ""
    size = files.arrays["x"][0].size
    return (
        f"{what}{method_label(header.method)}, {files.num_particles} particles in "
        f"{size} dimension{'s' * (size != 1)}, seed {header.seed}."
    )


def headline(files: RunFiles) -> Html:
    """The numbers that matter, first."""
    main = files.main
    count = len(main.repeats)
    pooled = files.header.method == "sample"
    note = "all replicates pooled" if pooled else "one pass, with its own error bar"
    cards = [("log Z", estimate(main), note)]
    if files.truth is not None:
        off = off_by(main, files.truth)
        cards.append(
            ("exact log Z", number_text(files.truth), f"this pass is off by {off}")
        )
    if main.spread is not None:
        cards.append(
            (
                f"mean of {count} passes",
                number_text(main.mean),
                f"spread from pass to pass {number_text(main.spread)}",
            )
        )
    n, ess, when = files.num_particles, files.ess, ""
    if files.just_resampled:  # all weights are equal, and say nothing
        ess, when = float(files.arrays["step_ess"][-1]), ", before the last resampling"
    note = f"{ess:.0f} of {n} particles{when}; lowest on the ladder "
    note += percent_text(float(main.lowest_ess[0]))
    cards.append(("effective sample size", percent_text(ess / n), note))
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
        exact = number_text(files.truth)
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
    yield number_text(row.mean)
    yield number_text(row.spread)
    yield percent_text(float(row.lowest_ess.mean()))
    yield percent_text(float(row.ess.mean()))
    yield duration_text(row.seconds)
    yield "?" if row.evaluations is None else count_text(row.evaluations)


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

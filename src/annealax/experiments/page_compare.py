"""A page that compares several runs."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from annealax.experiments import page_charts
from annealax.experiments._html import (
    Html,
    breakable,
    page,
    picture,
    section,
    table,
    tag,
)
from annealax.experiments._numbers import duration_text, percent_text
from annealax.experiments._run_files import RunFiles
from annealax.experiments.page_parts import (
    DRAWN_HERE,
    command,
    command_box,
    describe,
    estimate,
    method_label,
    number_text,
    off_by,
    setting_text,
)


def several_runs_page(runs: Sequence[RunFiles]) -> Html:
    """A page that compares runs."""
    names = labels([run.header.path for run in runs])
    named = dict(zip(names, runs, strict=True))
    return page(
        f"{len(runs)} runs",
        tag("h1", f"{len(runs)} runs side by side"),
        tag("p", ", ".join(names), class_="lead"),
        _overview(named),
        _warnings(named),
        section("log Z of every pass", page_charts.grid(list(_passes(named)))),
        _training(named),
        _differences(named),
        *_pictures(named),
        section(
            "Run them again",
            *(command_box(command(run.header)) for run in runs),
        ),
    )


def labels(paths: Sequence[Path]) -> list[str]:
    """Short names for folders: as much of each path as tells them apart."""
    parts = [Path(os.path.abspath(path)).parts for path in paths]
    for depth in range(1, max(map(len, parts)) + 1):
        found = ["/".join(part[-depth:]) for part in parts]
        if len(set(found)) == len(found):
            return found
    return [f"{path} ({index + 1})" for index, path in enumerate(paths)]


def _overview(runs: Mapping[str, RunFiles]) -> Html:
    headers = ["run", "log Z", "off by", "mean", "spread", "ESS", "low ESS", "pass"]
    headers += ["training", "method", "steps", "particles", "seed", "problem"]

    def cells(name: str, run: RunFiles) -> Iterator[str]:
        row = run.main
        yield name
        yield estimate(row)
        yield off_by(row, run.truth)
        yield number_text(row.mean)
        yield number_text(row.spread)
        yield percent_text(float(row.ess.mean()))
        yield percent_text(float(row.lowest_ess.mean()))
        yield duration_text(row.seconds)
        seconds = run.training_seconds
        yield "" if seconds is None else duration_text(seconds)
        yield method_label(run.header.method)
        yield str(row.num_transitions)
        yield str(run.num_particles)
        yield str(run.header.seed)
        yield run.header.name

    view = table(
        headers,
        [list(cells(name, run)) for name, run in runs.items()],
        caption="log Z of each run, with its cost",
    )
    note = (
        "log Z: one pass with its own error bar; off by: its distance from exact in "
        "error bars. mean, spread: of log Z over passes. ESS, low ESS: final, and "
        "lowest along a pass. pass, training: time."
    )
    return tag("div", view, tag("p", note, class_="note"))


def _warnings(runs: Mapping[str, RunFiles]) -> Html:
    items = [
        tag("li", f"{name}: {message.rstrip('.')}.")
        for name, run in runs.items()
        for message in run.main.warnings
    ]
    if not items:
        return tag("p", "No warnings.", class_="calm")
    title = tag("strong", "Reasons to doubt some numbers")
    return tag("div", title, tag("ul", *items), class_="warnings", role="note")


def _passes(runs: Mapping[str, RunFiles]) -> Iterator[Html]:
    """A chart for each problem: log Z of different ones cannot be compared."""
    for problem in dict.fromkeys(run.header.name for run in runs.values()):
        rows = {n: r for n, r in runs.items() if r.header.name == problem}
        truths = {run.truth for run in rows.values()}
        yield page_charts.passes_chart(
            {name: run.main.repeats for name, run in rows.items()},
            truths.pop() if len(truths) == 1 else None,
            problem,
        )


def _training(runs: Mapping[str, RunFiles]) -> Html | None:
    charts = {name: page_charts.training_charts(run) for name, run in runs.items()}
    parts = [
        tag("div", tag("h3", name), page_charts.grid(found))
        for name, found in charts.items()
        if found
    ]
    return section("Training", *parts) if parts else None


def _differences(runs: Mapping[str, RunFiles]) -> Html:
    """The settings that are not the same in all runs."""
    settings = {name: dict(run.header.settings) for name, run in runs.items()}
    keys = dict.fromkeys(key for values in settings.values() for key in values)
    rows: list[list[Any]] = []
    for key in keys:
        texts = [
            setting_text(values[key]) if key in values else "–"
            for values in settings.values()
        ]
        if len(set(texts)) > 1:
            rows.append([breakable(key), *map(breakable, texts)])
    if not rows:
        return section("Settings that differ", tag("p", "None."))
    view = table(
        ["setting", *runs], rows, caption="Settings that differ", numeric=False
    )
    return section("Settings that differ", view)


def _pictures(runs: Mapping[str, RunFiles]) -> Iterator[Html]:
    """Every kind of picture, one of each run beside the other."""
    kinds = dict.fromkeys(name for run in runs.values() for name in run.pictures)
    for kind in kinds:
        if kind in DRAWN_HERE:
            continue
        caption, alt = describe(kind)
        panels = [
            picture(run.pictures[kind], name, f"{name}: {alt}")
            for name, run in runs.items()
            if kind in run.pictures
        ]
        yield section(caption.rstrip("."), page_charts.grid(panels, "several"))

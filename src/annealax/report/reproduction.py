"""What `annealax reproduce` leaves: for each figure a picture, a CSV, JSON and a page.

Everything is made from what was measured; what is not there yet is named as missing.
"""

import csv
import io
import json
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from rich.console import Console

from annealax.experiments.files import read_json, writing
from annealax.report import charts, tables
from annealax.reproduction.agreement import Compared, Estimate, Results, View
from annealax.reproduction.figures import FIGURES, Figure, Line
from annealax.reproduction.runner import Plan

INDEX = "reproduction.json"
Index = pydantic.RootModel[dict[str, Any]]
"""What it holds."""
_RAW_SECONDS = 300.0
"""The paper shows five minutes of the raw chains."""

_HEADERS = ("what", "paper", "ours", "agreement")
_PASS_COLUMNS = ("panel", "line", "at", "repeat", "pass", "log_normalizer", "ess")
_STEP_COLUMNS = (
    *("panel", "line", "repeat", "step", "seconds", "processor_seconds"),
    *("evaluations", "log_normalizer"),
)
_CHAIN_COLUMNS = (
    *("panel", "line", "repeat", "iteration", "seconds", "processor_seconds"),
    *("value", "error_of_running_mean"),
)


def write(
    folder: Path, plan: Plan, results: Results, environment: Mapping[str, Any]
) -> list[str]:
    """Write all figures of a plan; returns the names of the files.

    Args:
        folder: Where to.
        plan: What was asked for.
        results: What was measured so far.
        environment: Versions and devices.
    """
    files: list[str] = []
    index = []
    for number in plan.figures:
        figure = FIGURES[number]
        views = [
            View(panel, plan.scale, plan.repeats, results) for panel in figure.panels
        ]
        name = f"figure-{number}"
        content = _content(figure, views, plan, environment)
        made = {
            f"{name}.png": charts.png(draw(figure, views)),
            **{file: _csv(view).encode() for file, view in _tables(figure, views)},
            f"{name}.json": (json.dumps(content, indent=2) + "\n").encode(),
            f"{name}.md": _page(figure, views, plan, content).encode(),
        }
        for file, data in made.items():
            with writing(folder / file) as stream:
                stream.write(data)
        files += made
        index.append(content)
    with writing(folder / INDEX) as stream:
        stream.write((json.dumps({"figures": index}, indent=2) + "\n").encode())
    return [*files, INDEX]


def show(console: Console, folder: Path) -> None:
    """Print the tables of a folder."""
    for figure in read_json(folder / INDEX, Index).root["figures"]:
        title = f"Figure {figure['figure']}: {figure['title']} ({figure['scale']})"
        for panel in figure["panels"]:
            found = [[row[key] for key in _HEADERS] for row in panel["rows"]]
            found += [[row[key] for key in _HEADERS] for row in panel["claims"]]
            columns = tuple(
                tables.Column(name, number=False, rank=rank)
                for name, rank in zip(_HEADERS, (0, 1, 0, 0), strict=True)
            )
            rows = tuple(tuple(map(str, row)) for row in found)
            tables.print_table(
                console, tables.Table(f"{title}: {panel['title']}", columns, rows)
            )
        if figure["missing"]:
            tables.say(console, f"Missing: {', '.join(figure['missing'])}.")


# Pictures.


def draw(figure: Figure, views: Sequence[View]) -> Drawing:
    """The picture of a figure, in the paper's form."""
    panels = [panel for view in views for panel in _panels(figure, view)]
    return charts.compose(panels)


def _panels(figure: Figure, view: View) -> Iterator[charts.Panel]:
    title = textwrap.fill(view.panel.title, 44)
    if figure.raw:
        for line in view.lines:
            yield charts.Panel(f"{title}\n{line.label}", "", _raw_chain(view, line))
    elif view.panel.kind == "sweep":
        yield charts.Panel(title, "", lambda axis: _sweep(axis, view))
    elif view.panel.kind == "training":
        yield charts.Panel(title, "", lambda axis: _curves(axis, view))
    else:
        for words, close in (("detailed", True), ("wide", False)):
            yield charts.Panel(
                f"{title}\nerror, {words} view", "", _running(view, close)
            )


def _colour(view: View, line: Line) -> str:
    return charts.SERIES[view.lines.index(line) % len(charts.SERIES)]


def _gold(axis: Axes, value: float, error: float) -> None:
    axis.axhline(value, color=charts.INK, lw=1, ls="--")
    if math.isfinite(error) and error > 0:
        axis.axhspan(value - error, value + error, color=charts.INK, alpha=0.12, lw=0)


def _dashes(view: View, line: Line) -> str:
    """More lines than colours: the second round is dotted."""
    return "-" if view.lines.index(line) < len(charts.SERIES) else ":"


def _legend(axis: Axes) -> None:
    """Below the axes, where nothing is drawn."""
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=2)


def _automatic_line(axis: Axes, view: View, line: Line) -> None:
    for found in view.each(line):
        colour = _colour(view, line)
        axis.axhline(float(found["log_normalizer"]), color=colour, label=line.label)


def _sweep(axis: Axes, view: View) -> None:
    """Log Z over a setting: a line for each sampler, a dot for each repeat."""
    for line in view.lines:
        colour = _colour(view, line)
        if line.method == "sample":
            _automatic_line(axis, view, line)
            continue
        places = view.panel.places(line, view.scale)
        found = {at or 0: view.log_normalizer(line, at) for at in places}
        if line.constant:
            for estimate in found.values():
                _constant(axis, estimate, colour, line.label)
            continue
        known = {at: each for at, each in found.items() if len(each.values)}
        if not known:
            continue
        axis.plot(
            list(known),
            [each.value for each in known.values()],
            _dashes(view, line),
            color=colour,
            label=line.label,
        )
        for at, each in known.items():
            axis.plot([at] * len(each.values), each.values, "o", ms=4, color=colour)
    if (gold := view.gold) is not None:
        _gold(axis, gold.value, gold.stderr)
    words = view.panel.vary.removeprefix("num_")
    axis.set(xscale="log", xlabel=f"number of {words}", ylabel="log Z (dashed: gold)")
    values = view.panel.values[view.scale]
    axis.set_xticks(values, [str(value) for value in values])
    axis.minorticks_off()
    _legend(axis)


def _constant(axis: Axes, estimate: Estimate, colour: str, label: str) -> None:
    if len(estimate.values):
        axis.axhline(estimate.value, color=colour, label=label)


def _clock(view: View, line: Line, count: int) -> np.ndarray | None:
    """Processor seconds up to each of so many steps."""
    timing = view.timing(line)
    if timing is None:
        return None
    return float(timing["processor_seconds"]) * np.arange(1, count + 1)


_WITHOUT_CLOCK = "share of all steps (not timed)"
_CLOCK = "processor seconds"


def _axis_of(view: View, line: Line, count: int) -> np.ndarray:
    times = _clock(view, line, count)
    return np.arange(1, count + 1) / count if times is None else times


def _axis_label(view: View) -> str:
    lines = [line for line in view.lines if line.method != "sample"]
    timed = all(view.timing(line) is not None for line in lines)
    return _CLOCK if timed else _WITHOUT_CLOCK


def _curves(axis: Axes, view: View) -> None:
    """Log Z while training, every repeat."""
    ends = []
    for line in view.lines:
        if line.method == "sample":
            _automatic_line(axis, view, line)
            continue
        label: str | None = line.label
        for found in view.each(line):
            values = np.asarray(found["log_normalizer"])
            place = _axis_of(view, line, len(values))
            axis.plot(
                *charts.thin_out(place, values),
                color=_colour(view, line),
                lw=1,
                alpha=0.8,
                label=label,
            )
            ends.append(values[len(values) // 4 :])
            label = None
    if (gold := view.gold) is not None:
        _gold(axis, gold.value, gold.stderr)
        ends.append(np.array([gold.value]))
    if ends:  # untrained flows can be far off: the later steps fill the chart
        low, high = np.quantile(np.concatenate(ends), [0.05, 1.0])
        axis.set_ylim(*charts.limits([low, high], 0.15))
    axis.set(xlabel=_axis_label(view), ylabel="log Z (dashed: gold)")
    _legend(axis)


def _running(view: View, close: bool) -> Callable[[Axes], None]:
    """Error of the running mean of every repeat."""

    def draw(axis: Axes) -> None:
        ends = []
        for line in view.lines:
            if line.method == "sample":
                _automatic_mean(axis, view, line)
                continue
            label: str | None = line.label
            for error in view.errors(line):
                place = _axis_of(view, line, len(error))
                colour = _colour(view, line)
                axis.plot(
                    *charts.thin_out(place, error), color=colour, lw=0.9, label=label
                )
                if line.method in ("craft", "smc"):
                    ends.append(error[len(error) // 4 :])
                label = None
        axis.axhline(0, color=charts.INK, lw=1, ls="--")
        if close and ends:
            reach = float(np.quantile(np.abs(np.concatenate(ends)), 0.95))
            axis.set_ylim(-1.3 * reach, 1.3 * reach)
        axis.set(xlabel=_axis_label(view), ylabel="error of the mean so far")
        _legend(axis)

    return draw


def _automatic_mean(axis: Axes, view: View, line: Line) -> None:
    gold = view.gold
    for found in view.each(line):
        if gold is None:
            continue
        value = float(found[view.panel.observable]) - gold.value
        axis.axhline(value, color=_colour(view, line), label=line.label)


def _raw_chain(view: View, line: Line) -> Callable[[Axes], None]:
    """Five minutes of the first repeat, or as much as there is."""

    def draw(axis: Axes) -> None:
        for found in view.each(line)[:1]:
            values = np.asarray(found[view.panel.observable])
            timing = view.timing(line)
            count = len(values)
            if timing is not None:
                count = min(count, max(2, int(_RAW_SECONDS / timing["seconds"])))
            place = _axis_of(view, line, len(values))[:count]
            axis.plot(place, values[:count], color=_colour(view, line), lw=0.8)
        if (gold := view.gold) is not None:
            _gold(axis, gold.value, 0.0)
        words = view.panel.observable.replace("_", " ")
        traces = [
            m[view.panel.observable] for each in view.lines for m in view.each(each)
        ]
        limits = charts.limits(np.concatenate([*traces, [np.nan]]))
        axis.set(xlabel=_axis_label(view), ylabel=words, ylim=limits)

    return draw


# Files.


def _tables(figure: Figure, views: Sequence[View]) -> Iterator[tuple[str, View]]:
    """Names of CSV files: one for each panel."""
    for view in views:
        end = "" if len(views) == 1 else f"-{view.panel.name}"
        yield f"figure-{figure.number}{end}.csv", view


def _csv(view: View) -> str:
    """All that was measured; of the automatic mode its answer is in the JSON."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    columns, rows = {
        "sweep": (_PASS_COLUMNS, _pass_rows),
        "training": (_STEP_COLUMNS, _step_rows),
        "chain": (_CHAIN_COLUMNS, _chain_rows),
    }[view.panel.kind]
    writer.writerow(columns)
    writer.writerows(rows(view))
    return stream.getvalue()


def _measured_lines(view: View) -> Iterator[Line]:
    yield from (line for line in view.lines if line.method != "sample")


def _pass_rows(view: View) -> Iterator[list[Any]]:
    for line in _measured_lines(view):
        for at in view.panel.places(line, view.scale):
            for repeat, found in enumerate(view.each(line, at), 1):
                pairs = zip(found["log_normalizer"], found["ess"], strict=True)
                for index, (log_z, ess) in enumerate(pairs, 1):
                    place = "" if at is None else at
                    numbers = [f"{log_z:.9g}", f"{ess:.6g}"]
                    yield [view.panel.name, line.name, place, repeat, index, *numbers]


def _times(view: View, line: Line, step: int) -> list[str]:
    timing = view.timing(line)
    if timing is None:
        return ["", ""]
    each = (timing["seconds"], timing["processor_seconds"])
    return [f"{step * seconds:.6g}" for seconds in each]


def _step_rows(view: View) -> Iterator[list[Any]]:
    for line in _measured_lines(view):
        for repeat, found in enumerate(view.each(line), 1):
            pairs = zip(found["evaluations"], found["log_normalizer"], strict=True)
            for step, (evaluations, log_z) in enumerate(pairs, 1):
                times = _times(view, line, step)
                numbers = [f"{evaluations:.9g}", f"{log_z:.9g}"]
                yield [view.panel.name, line.name, repeat, step, *times, *numbers]


def _chain_rows(view: View) -> Iterator[list[Any]]:
    for line in _measured_lines(view):
        errors = view.errors(line)
        for repeat, found in enumerate(view.each(line), 1):
            values = np.asarray(found[view.panel.observable])
            for step, value in enumerate(values, 1):
                times = _times(view, line, step)
                error = f"{errors[repeat - 1][step - 1]:.6g}" if errors else ""
                numbers = [f"{value:.9g}", error]
                yield [view.panel.name, line.name, repeat, step, *times, *numbers]


def command(plan: Plan, number: int | None = None) -> str:
    """The command that makes a figure, or all of a plan."""
    which = ",".join(map(str, plan.figures)) if number is None else str(number)
    repeats = "" if plan.repeats is None else f" --repeats {plan.repeats}"
    return (
        f"annealax reproduce {which} --scale {plan.scale} --seed {plan.seed}{repeats} "
        "--out DIR"
    )


def _content(
    figure: Figure, views: Sequence[View], plan: Plan, environment: Mapping[str, Any]
) -> dict[str, Any]:
    """Settings, seeds, versions, and the tables of a figure."""
    return {
        "figure": figure.number,
        "title": figure.title,
        "scale": plan.scale,
        "seed": plan.seed,
        "command": command(plan, figure.number),
        "departures": list(figure.departures[plan.scale]),
        "panels": [
            {
                "name": view.panel.name,
                "title": view.panel.title,
                "source": view.panel.shown.source,
                "repeats": plan.repeats or view.panel.repeats[plan.scale],
                "lines": [_line_facts(view, line) for line in view.lines],
                "gold": _line_facts(view, view.panel.gold),
                "rows": [_row(row) for row in view.rows()],
                "claims": [_row(row) for row in view.claims()],
                "timing": _timings(view),
            }
            for view in views
        ],
        "missing": list(dict.fromkeys(m for view in views for m in view.missing)),
        "environment": dict(environment),
    }


def _row(row: Compared) -> dict[str, str]:
    cells = (row.what, row.paper, row.ours, row.words)
    return dict(zip(_HEADERS, cells, strict=True))


def _line_facts(view: View, line: Line) -> dict[str, Any]:
    facts = {
        "name": line.name,
        "label": line.label,
        "experiment": line.experiment,
        "method": line.method,
        "settings": line.changes(view.scale),
        "count": line.counts[view.scale],
    }
    if line.method == "sample":
        facts["answers"] = [
            {key: _plain(value) for key, value in found.items()}
            for found in view.each(line)
        ]
    return facts


def _timings(view: View) -> dict[str, Any]:
    found = {line.name: view.timing(line) for line in _measured_lines(view)}
    return {
        name: {key: _plain(value) for key, value in timing.items()}
        for name, timing in found.items()
        if timing is not None
    }


def _plain(value: Any) -> Any:
    """A value as JSON holds it."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, str | bool | int):
        return value
    number = float(value)
    return number if math.isfinite(number) else None


def _page(
    figure: Figure, views: Sequence[View], plan: Plan, content: Mapping[str, Any]
) -> str:
    """The Markdown page of a figure."""
    name = f"figure-{figure.number}"
    ours = " (ours)" if figure.number not in range(1, 8) else ""
    lines = [f"# Figure {figure.number}{ours}: {figure.title}", ""]
    lines += ["```", content["command"], "```"]
    lines += [f"![{figure.title}]({name}.png)", ""]
    files = ", ".join(f"[{file}]({file})" for file, _ in _tables(figure, views))
    lines += [
        f"All that was measured: {files}; settings, versions and times: "
        f"[{name}.json]({name}.json).",
        "",
    ]
    if missing := content["missing"]:
        total = len(figure.tasks(plan.scale, plan.repeats))
        lines += [
            f"**Not finished**: {len(missing)} of {total} pieces are missing: "
            f"{', '.join(missing)}.",
            "",
        ]
    for view in views:
        lines += [
            f"## {view.panel.title}",
            "",
            f"The paper: {view.panel.shown.source}.",
        ]
        lines += ["", *_table(("", "paper", "ours", "agreement"), view.rows()), ""]
        if claims := view.claims():
            header = ("the paper says", "where", "ours", "verdict")
            lines += [*_table(header, claims), ""]
    lines += ["## How", ""]
    lines += [f"- Scale `{plan.scale}`, seed {plan.seed}."]
    lines += [f"- {_repeats(view, plan)}" for view in views]
    lines += [f"- {text}" for text in figure.departures[plan.scale]]
    lines += [f"- {text}" for text in _remarks(views)]
    return "\n".join(lines) + "\n"


def _repeats(view: View, plan: Plan) -> str:
    """How often a panel was measured."""
    count = plan.repeats or view.panel.repeats[plan.scale]
    repeats = "one repeat" if count == 1 else f"{count} repeats"
    text = f"{view.panel.title}: {repeats}"
    if view.panel.kind == "sweep":
        lines = [line for line in view.lines if line.method != "sample"]
        passes = sorted({line.counts[plan.scale] for line in lines})
        text += f", {' or '.join(map(str, passes))} passes of each trained sampler"
    return f"{text}."


def _remarks(views: Sequence[View]) -> Iterator[str]:
    """How to read the numbers."""
    kinds = {view.panel.kind for view in views}
    if "sweep" in kinds:
        yield "Log Z is the median pass of each repeat; error bars are over repeats."
    if "training" in kinds:
        yield (
            "Log Z at the end is the average over the last tenth of the steps; error "
            "bars are over repeats."
        )
    timings = [t for view in views for t in _timings(view).values()]
    if timings:
        yield (
            "Time is the number of steps times that of one, measured apart without "
            "storing anything; the fastest of three counts."
        )
        loads = [timing["load"] for timing in timings]
        count = timings[0]["num_processors"]
        if max(loads) > count:
            yield (
                "The machine was shared while times were measured (load "
                f"{min(loads):.1f} to {max(loads):.1f} on {count} processors): "
                "wall-clock times are too long; processor seconds are the better "
                "measure."
            )
        else:
            yield (
                f"Load while times were measured: {max(loads):.1f} at most, on {count} "
                "processors."
            )


def _table(header: Sequence[str], rows: Sequence[Compared]) -> list[str]:
    """A table in Markdown."""
    cells = [header, ["---"] * len(header)]
    cells += [[row.what, row.paper, row.ours, row.words] for row in rows]
    return [f"| {' | '.join(row)} |" for row in cells]

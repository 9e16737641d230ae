"""The page of a folder that `annealax compare` wrote: methods with the same budget."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from annealax.experiments._html import Html, page, section, table, tag
from annealax.experiments._numbers import count_text, duration_text, percent_text
from annealax.experiments._read import (
    damaged,
    entries,
    number,
    read_json,
    read_pictures,
)
from annealax.experiments._run_files import Header, read_header
from annealax.experiments.page_parts import (
    command_box,
    method_label,
    number_text,
    setting_text,
    settings_section,
    shown,
    software,
)


def methods_page(path: Path) -> Html:
    """The page of a comparison.

    Raises:
        FileError: If a file is missing or damaged.
    """
    header, file = read_header(path), path / "compare.json"
    content = read_json(file, "the comparison did not finish")
    methods = entries(file, content, "rows")
    rows = [_method(file, row) for row in methods]
    if content.get("log_normalizer_true") is not None:
        exact = number_text(number(file, content, "log_normalizer_true"))
        rows.insert(0, ["exact", exact, *[""] * 8])
    headers = ["", "log Z", "spread", "ESS", "evals", "training", "in all", "compile"]
    headers += ["MB", "budget went to"]
    repeats = len(entries(file, methods[0], "attempts"))
    words, option = _budget(file, content)
    note = (
        "log Z: mean over repeats, each of which pools its passes. ESS: of a final "
        "population, as a share of the particles. evals: density gradients, training "
        "included. in all: training and passes, compilation apart. MB: memory of the "
        "largest program."
    )
    lead = f"{repeats} repeats of {words} for each method, seed {header.seed}."
    return page(
        f"{header.name}: methods compared",
        tag("h1", f"{header.name}: methods compared"),
        tag("p", lead, class_="lead"),
        table(headers, rows, caption="log Z of each method, with its cost"),
        tag("p", note, class_="note"),
        section("Pictures", *shown(read_pictures(path))),
        section("Run it again", command_box(_command(header, option, repeats))),
        settings_section(header),
        software(header),
    )


def _budget(file: Path, content: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The budget in words, and as an option of the command."""
    budget = content.get("budget")
    if not isinstance(budget, dict):
        raise damaged(file, "'budget' is missing or of the wrong type")
    amount = number(file, budget, "amount")
    if budget.get("unit") == "seconds":
        return f"{amount:g} s", ["--budget", f"{amount:g}s"]
    return f"{count_text(amount)} evaluations", ["--evaluations", f"{amount:g}"]


def _command(header: Header, option: list[str], repeats: int) -> str:
    """The command that does the same again."""
    words = ["annealax", "compare", header.name, "--methods", header.method, *option]
    words += ["--repeats", str(repeats), "--seed", str(header.seed)]
    for key, value in header.overrides.items():
        words += ["--set", f"{key}={setting_text(value)}"]
    return shlex.join(words)


def _method(file: Path, row: Mapping[str, Any]) -> list[str]:
    """The cells of one method."""
    attempts = entries(file, row, "attempts")

    def known(key: str) -> np.ndarray:
        return np.array(
            [number(file, a, key) for a in attempts if a.get(key) is not None]
        )

    def average(key: str) -> float:
        found = known(key)
        return float(found.mean()) if len(found) else float("nan")

    values = known("log_normalizer")
    return [
        method_label(str(row.get("method"))),
        number_text(float(values.mean())) if len(values) else "none",
        number_text(float(values.std(ddof=1))) if len(values) > 1 else "",
        percent_text(average("ess")),
        count_text(average("evaluations")),
        duration_text(average("training_seconds")),
        duration_text(average("seconds")),
        duration_text(average("compile_seconds")),
        f"{average('memory') / 1e6:.3g}",
        str(row.get("what", "")),
    ]

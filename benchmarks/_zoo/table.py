"""From rows of runs to verdicts, and from verdicts to Markdown.

A row is a dict with `name`, `group`, `dimension`, `tags`, `method`, `seed`, `seconds`,
`truth` (None if there is no integral), and either `error` or `answer`, `stderr`,
`interval` and `warnings`.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

Row = dict[str, Any]

ERRORS, SMALL = 4.0, 0.05
"""An answer is wrong if it is off by more than so many errors, and by so much."""


class Verdict(NamedTuple):
    """What to say of one run.

    Attributes:
        answered: It gave a finite answer.
        covered: Its interval holds the truth.
        wrong: The truth is far from the answer, in its own errors and at all; or there
            is no truth.
        warned: It gave a warning, or no answer.
    """

    answered: bool
    covered: bool
    wrong: bool
    warned: bool

    @property
    def silent(self) -> bool:
        """Wrong, and said nothing."""
        return self.wrong and not self.warned

    @property
    def false_alarm(self) -> bool:
        """Right, and warned."""
        return self.covered and self.warned


def verdict(row: Row) -> Verdict:
    """Judge one run."""
    if "error" in row:
        return Verdict(answered=False, covered=False, wrong=False, warned=True)
    warned = bool(row["warnings"])
    answer, stderr, truth = row["answer"], row["stderr"], row["truth"]
    if truth is None:
        answered = answer is not None
        return Verdict(answered, covered=False, wrong=answered, warned=warned)
    if answer is None or stderr is None:  # not finite, as JSON says it
        return Verdict(answered=False, covered=False, wrong=True, warned=warned)
    low, high = row["interval"] or (math.inf, -math.inf)
    # An end that is infinite excludes nothing.
    covered = (low is None or low <= truth) and (high is None or truth <= high)
    wrong = abs(answer - truth) > max(ERRORS * stderr, SMALL)
    return Verdict(answered=True, covered=covered, wrong=wrong, warned=warned)


def read(path: Path) -> list[Row]:
    """The rows of a file; none if there is no file."""
    if not path.exists():
        return []
    # A line that was cut off when the process was ended is as if it had not been.
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n") and line.strip()]


def table(rows: Iterable[Row]) -> str:
    """A line for each density and method, in Markdown."""
    by_density: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_density[row["method"], row["name"]].append(row)
    several = len({method for method, _ in by_density}) > 1
    lines = [
        f"| density |{' method |' if several else ''} log Z | answers | largest error "
        "| covered | warned | silent failures | false alarms | s |",
        f"|---|{'---|' if several else ''}---|---|---|---|---|---|---|---|",
    ]
    for (method, name), group in by_density.items():
        lines.append(_line(name, method if several else None, group))
    return "\n".join(lines)


def _line(name: str, method: str | None, rows: Sequence[Row]) -> str:
    verdicts = [verdict(row) for row in rows]
    truth, count = rows[0]["truth"], len(rows)
    answers = [
        row["answer"]
        for row, each in zip(rows, verdicts, strict=True)
        if each.answered and row["answer"] is not None
    ]
    codes = sorted({code for row in rows for code in row.get("warnings", ())})
    stopped = sum("error" in row for row in rows)
    if stopped:
        codes.append(f"no answer: {stopped}")
    largest = (
        f"{max(abs(answer - truth) for answer in answers):.3f}"
        if answers and truth is not None
        else ""
    )
    cells = [
        name + (" (hidden)" if "hidden" in rows[0]["tags"] else ""),
        *([method] if method else []),
        "none" if truth is None else f"{truth:.3f}",
        _span(answers),
        largest,
        "" if truth is None else f"{sum(v.covered for v in verdicts)} of {count}",
        f"{sum(v.warned for v in verdicts)}"
        + (f" ({', '.join(codes)})" if codes else ""),
        f"**{silent}**" if (silent := sum(v.silent for v in verdicts)) else "0",
        str(sum(v.false_alarm for v in verdicts)),
        f"{np.median([row['seconds'] for row in rows]):.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _span(answers: Sequence[float]) -> str:
    if not answers:
        return ""
    return " to ".join(dict.fromkeys(f"{f(answers):.3f}" for f in (min, max)))


def summary(rows: Sequence[Row]) -> str:
    """Silent failures by dimension, false alarms and coverage, for each method."""
    parts = []
    for method in dict.fromkeys(row["method"] for row in rows):
        of_method = [row for row in rows if row["method"] == method]
        parts.append(f"**{method}**, {len(of_method)} runs:\n\n{_summary(of_method)}")
    return "\n\n".join(parts)


def _summary(rows: Sequence[Row]) -> str:
    judged = [(row, verdict(row)) for row in rows]
    lines = []
    for label, chosen in (
        ("up to 10 dimensions", lambda row: row["dimension"] <= 10),
        (
            "above 10, of modes that a wide pass could see",
            lambda row: row["dimension"] > 10 and "hidden" not in row["tags"],
        ),
        (
            "above 10, of hidden modes",
            lambda row: row["dimension"] > 10 and "hidden" in row["tags"],
        ),
    ):
        group = [each for row, each in judged if chosen(row)]
        if group:
            count = sum(each.silent for each in group)
            lines.append(f"- silent failures {label}: {count} of {len(group)}")
    covering = [each for _, each in judged if each.covered]
    alarms = sum(each.false_alarm for each in covering)
    lines.append(f"- false alarms: {_share(alarms, len(covering))} that cover")
    quiet = [
        each for row, each in judged if not each.warned and row["truth"] is not None
    ]
    covered = sum(each.covered for each in quiet)
    lines.append(f"- coverage without a warning: {_share(covered, len(quiet))}")
    if stopped := sum("error" in row for row in rows):
        lines.append(f"- ended with an error, or without an answer in time: {stopped}")
    return "\n".join(lines)


def _share(part: int, whole: int) -> str:
    if whole == 0:
        return "none of 0"
    low, high = scipy.stats.binomtest(part, whole).proportion_ci(0.95)
    share = f"{100 * part / whole:.1f} %"
    interval = f"95 % interval {100 * low:.1f} to {100 * high:.1f} %"
    return f"{part} of {whole} ({share}, {interval})"


def interval_ends(ends: tuple[float, float]) -> list[float | None] | None:
    """An interval as JSON can say it; None if it is not one."""
    return None if any(map(math.isnan, ends)) else [finite(end) for end in ends]


def finite(number: float) -> float | None:
    """A number as JSON can say it: None if it is not finite."""
    return float(number) if math.isfinite(number) else None

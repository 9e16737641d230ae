"""Tables and sentences, made once and shown twice: on a terminal and on a page.

A `Table` is rows of text. `print_table` shows it on a terminal of any width, leaving
out the columns that matter least where there is no room for all; pages have them all.
"""

import dataclasses
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from scipy.special import stdtrit

from annealax import Chain, _words, observables
from annealax._doubts import Doubt
from annealax._estimates import log_mean
from annealax._ladder import even_betas
from annealax._words import (
    PARAMETER_HEADERS,
    brief_text,
    estimate_text,
    listed,
    parameter_cells,
)
from annealax._work.budget import Budget
from annealax.experiments.comparison import Row as Contender
from annealax.experiments.jobs import MainJob
from annealax.experiments.settings import format_value
from annealax.report.read import (
    Comparison,
    Decoder,
    Draws,
    Folder,
    Row,
    Run,
    squared_error,
)

_MOST_ROWS = 60
"""A page lists so many parameters; all are in the files."""

_WORST_RHAT = 1.05


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        header: What stands above it.
        meaning: What it is, where the header does not say it all.
        rank: The higher, the sooner it is left out where there is no room.
        number: Whether it holds numbers.
    """

    header: str
    meaning: str = ""
    rank: int = 0
    number: bool = True


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of text.

    Attributes:
        title: What the table shows.
        columns: Its columns; the first names the rows.
        rows: The cells.
        notes: Sentences under it, beside the meanings of its columns.
        strong: Index of the row that matters most.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    strong: int | None = None

    def __post_init__(self) -> None:
        """Rows have as many cells as there are columns."""
        assert all(len(row) == len(self.columns) for row in self.rows)

    @property
    def note(self) -> str:
        """How to read it."""
        words = [
            f"{each.header}: {each.meaning}." for each in self.columns if each.meaning
        ]
        return " ".join([*words, *self.notes])

    def without(self, column: int) -> "Table":
        """The table without one of its columns."""

        def keep(cells: Sequence[Any]) -> tuple[Any, ...]:
            return (*cells[:column], *cells[column + 1 :])

        rows = tuple(map(keep, self.rows))
        return dataclasses.replace(self, columns=keep(self.columns), rows=rows)


# On a terminal.

_PLAIN = str.maketrans(
    {"±": "+-", "−": "-", "×": "x", "σ": "sd", "β": "beta", "–": "-", "\u00a0": " "}
)


def print_table(console: Console, table: Table) -> None:
    """Print a table that fits, and how to read it."""
    table = _fitting(table, console.width)
    ascii_only = console.options.ascii_only
    say(console, table.title, style="bold")
    view = RichTable(
        box=None if ascii_only else box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        show_edge=False,
        padding=(0, 1),
        show_header=any(column.header for column in table.columns),
    )
    for index, column in enumerate(table.columns):
        view.add_column(
            plain(console, column.header),
            justify="right" if column.number and index else "left",
            no_wrap=column.number or index == 0,
        )
    for index, row in enumerate(table.rows):
        cells = [plain(console, cell) for cell in row]
        view.add_row(*cells, style="bold" if index == table.strong else None)
    console.print(view, highlight=False, markup=False)
    console.print()
    if table.note:
        say(console, table.note)


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print a sentence."""
    console.print(plain(console, text), style=style, highlight=False, markup=False)


def plain(console: Console, text: str) -> str:
    """Text that the terminal can show."""
    if not console.options.ascii_only:
        return text
    return text.translate(_PLAIN).encode("ascii", "replace").decode()


def _fitting(table: Table, width: int) -> Table:
    """The table without the columns that matter least, as far as there is no room."""

    def size() -> int:
        lines = [[each.header for each in table.columns], *table.rows]
        widest = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return sum(widest) + 2 * (len(widest) - 1)

    while size() > width and max(ranks := [each.rank for each in table.columns]) > 0:
        table = table.without(len(ranks) - 1 - ranks[::-1].index(max(ranks)))
    return table


def table_text(table: Table, width: int = 79) -> str:
    """A table as plain text that fits, with how to read it below."""
    rows = [
        (textwrap.shorten(first, 24, placeholder="..."), *cells)
        for first, *cells in table.rows
    ]
    table = _fitting(dataclasses.replace(table, rows=tuple(rows)), width)
    lines = [tuple(each.header for each in table.columns), *table.rows]
    widest = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = []
    for line in lines:
        cells = [
            f"{cell:>{size}}" if each.number and index else f"{cell:<{size}}"
            for index, (cell, size, each) in enumerate(
                zip(line, widest, table.columns, strict=True)
            )
        ]
        texts.append("  ".join(cells).rstrip())
    return "\n".join([*texts, *textwrap.wrap(table.note.translate(_PLAIN), width)])


# Numbers as text.


def number_text(value: float | None, digits: int = 4) -> str:
    """A number with so many decimals, or a question mark."""
    if value is None or not math.isfinite(value):
        return "?"
    return f"{value:z.{digits}f}"


def off_by_text(row: Row, truth: float | None) -> str:
    """Distance from the exact value in error bars."""
    value, error = row.log_normalizer, row.log_normalizer_stderr
    if truth is None or value is None or not error:
        return "?"
    return f"{(value - truth) / error:+.1f} σ"


def duration_text(seconds: float | None) -> str:
    """Seconds or milliseconds, three digits."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def count_text(number: float | None) -> str:
    """A count with k, M or G."""
    if number is None or not math.isfinite(number):
        return "?"
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= scale:
            return f"{number / scale:.3g}{unit}"
    return f"{number:.0f}"


def percent_text(share: float) -> str:
    """A share in percent, or a question mark if it is not a number."""
    return f"{share:.0%}" if math.isfinite(share) else "?"


def budget_text(budget: Budget) -> str:
    """A budget in words."""
    if budget.unit == "seconds":
        return f"{budget.amount:g} s"
    return f"{count_text(budget.amount)} evaluations"


def method_text(run: Run) -> str:
    """What to call the method of a run."""
    return "automatic mode" if run.pooled else run.main.label


# A run.


def run_table(run: Run) -> Table:
    """Log Z of each sampler, with its cost; the exact value first where it is known."""
    count, truth = len(run.main.repeats_log_normalizer), run.truth
    what = "replicates" if run.pooled else "passes"
    columns: dict[Column, Callable[[Row], str]] = {
        Column(""): lambda row: row.label,
        Column("steps", "annealing transitions", rank=3): lambda row: str(
            row.num_transitions
        ),
        Column(
            "log Z",
            f"all {what} pooled" if count > 1 else "one pass, with its error bar",
        ): lambda row: estimate_text(row.log_normalizer, row.log_normalizer_stderr),
        Column("off by", "distance from exact in error bars", rank=1): (
            lambda row: off_by_text(row, truth)
        ),
        Column("mean", f"of log Z over {count} {what}", rank=8): lambda row: (
            number_text(row.mean)
        ),
        Column("spread", f"of log Z from one of {count} {what} to another"): (
            lambda row: number_text(row.spread)
        ),
        Column("low ESS", "lowest along a pass", rank=7): lambda row: percent_text(
            float(row.repeats_lowest_ess.mean())
        ),
        Column(
            "ESS", "final effective sample size, of the particles", rank=5
        ): lambda row: percent_text(float(row.repeats_ess.mean())),
        Column("time", "of a pass", rank=4): lambda row: duration_text(
            row.seconds_per_pass
        ),
        Column("evals", "density evaluations of a pass", rank=6): lambda row: (
            count_text(row.evaluations_per_pass)
        ),
    }
    if truth is None:
        columns = {c: cell for c, cell in columns.items() if c.header != "off by"}
    rows = [tuple(cell(row) for cell in columns.values()) for row in run.rows]
    strong = 0 if len(run.rows) > 1 else None
    if truth is not None:
        exact = {"": "exact", "log Z": number_text(truth)}
        rows.insert(0, tuple(exact.get(each.header, "") for each in columns))
        strong = None if strong is None else 1
    return Table(
        f"{run.asked.name}, seed {run.asked.seed}: {count} {what} of "
        f"{run.num_particles} particles",
        tuple(columns),
        tuple(rows),
        strong=strong,
    )


def headline(run: Run) -> str:
    """The answer in a sentence."""
    main, reasons = run.main, len(doubts(run)[0])
    return _words.headline(main.log_normalizer, main.log_normalizer_stderr, reasons)


def run_remarks(run: Run) -> Iterator[str]:
    """What the numbers say, whichever way it went."""
    seconds = run.training_seconds
    if seconds is not None:
        compiling = run.training_compile_seconds
        more = "" if compiling is None else f" (compiling it {compiling:.1f} s more)"
        passes = seconds / max(run.main.seconds_per_pass, 1e-9)
        yield (
            f"Training took {seconds:.1f} s{more}, the time of {passes:.0f} "
            f"{run.main.label} passes."
        )
    if len(run.rows) > 1:
        ours, other = run.main, run.rows[-1]
        yield from verdict(
            {row.label if row is ours else "SMC": row for row in (ours, other)},
            run.truth,
        )
    yield from _ladder_advice(run)


def verdict(rows: Mapping[str, Row], truth: float | None) -> Iterator[str]:
    """Which of two samplers or runs is better at equal time, and by how much."""
    (mine, ours), (yours, theirs) = rows.items()
    first, second = ours.squared_error(truth), theirs.squared_error(truth)
    if not first or not second or not math.isfinite(first + second):
        return
    # Passes differ in time, and averaging passes trades time for error.
    gain = (second * theirs.seconds_per_pass) / (first * ours.seconds_per_pass)
    count = len(ours.repeats_log_normalizer)
    clear = chance_ratio(min(count, len(theirs.repeats_log_normalizer)))
    what = f"squared error of log Z at equal time, over {count} passes each"
    yield _winner(mine, yours, gain, clear, what)


def _winner(mine: str, yours: str, gain: float, clear: float, what: str) -> str:
    factor = f"{float(f'{max(gain, 1 / gain):.2g}'):g}"  # 270, not 2.7e+02
    if gain > clear:
        return f"{mine} beats {yours}: {factor} times smaller {what}."
    if gain < 1 / clear:
        return f"{yours} beats {mine}: {factor} times smaller {what}."
    return f"No clear winner, {mine} or {yours}: a factor of {factor} in {what}."


def chance_ratio(num_passes: int) -> float:
    """Ratio of two mean squared errors that chance exceeds in 2.5 % of cases.

    Each is over so many passes; their logarithms have variance 2 / (n - 1) or so.
    """
    return math.exp(1.96 * math.sqrt(4 / max(num_passes - 1, 1)))


def _ladder_advice(run: Run) -> Iterator[str]:
    """A better ladder, if one transition loses far more than the others."""
    ladder = run.ladder
    if run.pooled or not ladder.work.size:  # the automatic mode places its own
        return
    work, betas = ladder.work[0], ladder.betas
    worst, typical = int(np.argmax(work)), float(np.median(work))
    if not work[worst] >= max(1.0, 3 * typical):  # nor if it is not a number
        return
    even = even_betas(betas, work, len(work))
    yield (
        f"The transition from {betas[worst]:.3g} to {betas[worst + 1]:.3g} loses "
        f"{work[worst]:.1f} nats, the median one {typical:.1f}. This ladder is more "
        f"even: --set ladder={','.join(f'{beta:.4g}' for beta in even)}"
    )


def doubts(run: Run) -> tuple[list[str], list[str]]:
    """Reasons to doubt the sampler itself, and those about what it is beside."""
    mine = [_sentence(text) for text in (*run.main.warnings, *run.training_warnings)]
    others = [
        f"{row.label} ({row.num_transitions} steps): {_sentence(text)}"
        for row in run.rows[1:]
        for text in row.warnings
    ]
    return mine, others


def _sentence(text: str) -> str:
    """The text with a capital and a full stop, and with its code if it has one."""
    whole = f"{text[:1].upper()}{text[1:].rstrip('.')}."
    code = getattr(text, "code", None)
    return whole if code is None else Doubt(code, whole)


def parameter_table(draws: Draws) -> Table:
    """Mean, standard deviation and quantiles of each parameter."""
    total = len(draws.names)
    rows = [
        (name, *parameter_cells(column, draws.weights, draws.num_replicates))
        for name, column in list(zip(draws.names, draws.values.T, strict=True))[
            :_MOST_ROWS
        ]
    ]
    notes: tuple[str, ...] = ()
    if draws.num_replicates > 1:
        notes += ("3.702(4) means 3.702 ± 0.004, by the replicates.",)
    if total > _MOST_ROWS:
        notes += (f"The first {_MOST_ROWS} of {total}; all are in result.npz.",)
    return Table(
        "Parameters",
        (Column("parameter"), *map(Column, PARAMETER_HEADERS)),
        tuple(rows),
        notes=notes,
    )


def runs_table(runs: Mapping[str, Run]) -> Table:
    """Log Z of each run, with its cost."""
    columns: dict[Column, Callable[[str, Run], str]] = {
        Column("run"): lambda name, run: name,
        Column("problem", number=False): lambda name, run: run.asked.name,
        Column("method", number=False): lambda name, run: method_text(run),
        Column("log Z", "one pass, or replicates pooled, with its error bar"): (
            lambda name, run: estimate_text(
                run.main.log_normalizer, run.main.log_normalizer_stderr
            )
        ),
        Column("off by", "distance from exact in error bars"): (
            lambda name, run: (
                "" if run.truth is None else off_by_text(run.main, run.truth)
            )
        ),
        Column("mean", "of log Z over passes"): lambda name, run: number_text(
            run.main.mean
        ),
        Column("spread", "over passes"): lambda name, run: number_text(run.main.spread),
        Column("ESS", "final"): lambda name, run: percent_text(
            float(run.main.repeats_ess.mean())
        ),
        Column("low ESS", "lowest along a pass"): lambda name, run: percent_text(
            float(run.main.repeats_lowest_ess.mean())
        ),
        Column("pass", "time of a pass"): lambda name, run: duration_text(
            run.main.seconds_per_pass
        ),
        Column("training", "time of it"): lambda name, run: duration_text(
            run.training_seconds
        ),
        Column("steps", "annealing transitions"): lambda name, run: str(
            run.main.num_transitions
        ),
        Column("particles"): lambda name, run: str(run.num_particles),
        Column("seed"): lambda name, run: str(run.asked.seed),
    }
    if all(run.truth is None for run in runs.values()):
        columns = {c: cell for c, cell in columns.items() if c.header != "off by"}
    rows = tuple(
        tuple(cell(name, run) for cell in columns.values())
        for name, run in runs.items()
    )
    return Table("log Z of each run, with its cost", tuple(columns), rows)


def runs_verdicts(runs: Mapping[str, Run]) -> Iterator[str]:
    """Who is better, for each problem that two or more of the runs are about."""
    for problem in dict.fromkeys(run.asked.name for run in runs.values()):
        rows = {n: r.main for n, r in runs.items() if r.asked.name == problem}
        truths = {run.truth for run in runs.values() if run.asked.name == problem}
        if len(rows) < 2 or len(truths) > 1:
            continue
        (truth,) = truths

        def cost(row: Row, truth=truth) -> float:
            error = row.squared_error(truth)
            if error is None or not math.isfinite(error):
                return math.inf
            return error * row.seconds_per_pass

        best, second = sorted(rows, key=lambda name: cost(rows[name]))[:2]
        for line in verdict({best: rows[best], second: rows[second]}, truth):
            yield f"{problem}: {line}"


def differing_settings(runs: Mapping[str, Run]) -> Table:
    """The settings that are not the same in all runs."""
    settings = {name: run.asked.settings for name, run in runs.items()}
    keys = dict.fromkeys(key for values in settings.values() for key in values)
    rows = []
    for key in keys:
        texts = [
            format_value(values[key]) if key in values else "–"
            for values in settings.values()
        ]
        if len(set(texts)) > 1:
            rows.append((key, *texts))
    columns = [Column(name, number=False) for name in ("setting", *runs)]
    return Table("Settings that differ", tuple(columns), tuple(rows))


# Particle MCMC.


def chain_rows(chain: Chain) -> Iterator[tuple[str, float, float, float | None]]:
    """Name, mean, standard error and autocorrelation time of each number.

    Arrays of more than eight numbers are left to the files.
    """
    mean, stderr, times = chain.mean, chain.stderr, chain.autocorrelation_time
    for name in chain.observables:
        values = np.atleast_1d(mean[name])
        if values.ndim > 1 or values.size > 8:
            continue
        for index, value in enumerate(values):
            label = name.replace("_", " ")
            yield (
                label if mean[name].ndim == 0 else f"{label}[{index}]",
                float(value),
                float(np.atleast_1d(stderr[name])[index]),
                float(np.atleast_1d(times[name])[index]),
            )
    if {"magnetisation_squared", "magnetisation_fourth"} <= set(chain.observables):
        value, error = chain.derived(observables.binder_cumulant)
        yield "Binder cumulant", float(value), float(error), None


def chain_table(run: Run, chain: Chain) -> Table:
    """Expectations by particle MCMC, with their error bars."""
    chains, steps = chain.accepted.shape
    title = (
        f"{run.asked.name}: PIMH with {method_text(run)}, {chains} × {steps} "
        f"iterations of {run.chain_particles} particles"
    )
    return expectations_table(title, chain)


def expectations_table(title: str, chain: Chain) -> Table:
    """Expectations by particle MCMC."""
    columns = (
        Column("expectation of"),
        Column("mean"),
        Column("error", "standard error"),
        Column("time", "autocorrelation time in iterations", rank=1),
    )
    rows = []
    for name, mean, error, time in chain_rows(chain):
        value, _, bar = estimate_text(mean, error).partition(" ± ")
        rows.append((name, value, bar, "" if time is None else f"{time:.2f}"))
    return Table(title, columns, tuple(rows))


def chain_remarks(chain: Chain, num_particles: int) -> Iterator[str]:
    """Acceptance, log Z and advice on the number of particles."""
    proposals = np.asarray(chain.proposed_log_normalizer, np.float64).ravel()
    log_z = log_mean(proposals)
    relative = np.exp(proposals - log_z)
    count = len(relative)
    error = float(relative.std(ddof=1)) / math.sqrt(count) if count > 1 else math.nan
    took = ""
    if math.isfinite(chain.seconds):
        each = duration_text(chain.seconds / count)
        took = f"; {chain.seconds:.1f} s, {each} a proposal"
    yield (
        f"Accepted {chain.acceptance_rate:.0%} of proposals{took}. log Z of all "
        f"proposals together: {estimate_text(log_z, error)}."
    )
    yield _sentence(chain.advice(num_particles))


# A comparison of methods, and a decoder.


def comparison_table(comparison: Comparison) -> Table:
    """Log Z of each method, with what it spent."""
    truth = comparison.truth
    columns: dict[Column, Callable[[Contender], str]] = {
        Column(""): lambda each: each.label,
        Column("log Z", "mean over repeats, each of which pools its passes"): (
            lambda each: (
                number_text(float(each.log_normalizers.mean()))
                if len(each.log_normalizers)
                else "none"
            )
        ),
        Column("spread", "over repeats"): lambda each: (
            number_text(float(each.log_normalizers.std(ddof=1)))
            if len(each.log_normalizers) > 1
            else ""
        ),
        Column("error", "root mean square of the distance from exact"): (
            lambda each: _error_text(each, truth)
        ),
        Column("ESS", "of a final population, as a share of the particles", rank=1): (
            lambda each: percent_text(each.average("ess"))
        ),
        Column("evals", "density gradients, training included"): lambda each: (
            count_text(each.average("evaluations"))
        ),
        Column("training", "time of it", rank=2): lambda each: duration_text(
            each.average("training_seconds")
        ),
        Column("in all", "training and passes, compilation apart"): lambda each: (
            duration_text(each.average("seconds")) + _over_text(each, comparison.budget)
        ),
        Column("compile", rank=3): lambda each: duration_text(
            each.average("compile_seconds")
        ),
        Column("MB", "memory of the largest program", rank=4): lambda each: (
            f"{each.average('memory') / 1e6:.3g}"
        ),
        Column("budget went to", rank=2, number=False): lambda each: each.what,
    }
    if truth is None:
        columns = {c: cell for c, cell in columns.items() if c.header != "error"}
    rows = [
        tuple(cell(each) for cell in columns.values()) for each in _ranked(comparison)
    ]
    if truth is not None:
        exact = {"": "exact", "log Z": number_text(truth)}
        rows.insert(0, tuple(exact.get(each.header, "") for each in columns))
    return Table(
        f"{comparison.asked.name}: {comparison.num_repeats} repeats of "
        f"{budget_text(comparison.budget)} for each method",
        tuple(columns),
        tuple(rows),
    )


def comparison_remarks(comparison: Comparison) -> Iterator[str]:
    """Who won by how much, and what direct MCMC says about itself."""
    errors = {}
    truth = comparison.truth
    for each in comparison.contenders:
        error = squared_error(each.log_normalizers, truth)
        if is_wrong(each.log_normalizers, truth):
            continue
        if error is not None and error > 0 and math.isfinite(error):
            errors[each.label] = error
    if len(errors) > 1:
        best, second = sorted(errors, key=lambda name: errors[name])[:2]
        count = comparison.num_repeats
        what = "squared error of log Z" if comparison.truth is not None else "variance"
        what += f" at the same budget, over {count} repeats each"
        gain = errors[second] / errors[best]
        yield _winner(best, second, gain, chance_ratio(count), what)
    for each in comparison.contenders:
        values = each.log_normalizers
        if truth is not None and is_wrong(values, truth):
            off, spread = values.mean() - truth, values.std(ddof=1)
            yield (
                f"{each.label} is wrong: off by {off:+.2g} with a spread of "
                f"{spread:.2g}; repeats that agree are no sign of the truth."
            )
        if over := _over_text(each, comparison.budget).strip(" +"):
            yield (
                f"{each.label} took {over} more than its budget: part of it cannot be "
                "split."
            )
        if len(rhat := each.known("rhat")):
            worst = float(rhat.max())
            words = "its chains agree"
            if worst > _WORST_RHAT:
                words = "its chains disagree, they have not mixed"
            yield f"{each.label} has no log Z; R-hat is {worst:.2f}: {words}."


# Models by their evidence.


def evidence_tables(found: Any) -> list[Table]:
    """Of a comparison of models: evidence and probabilities, and what priors do."""
    best, uniform = found.best, bool(np.ptp(found.priors) < 1e-12)
    columns = [
        Column("model", number=False),
        Column("log Z"),
        Column("log B", f"logarithm of the Bayes factor against {best}"),
        Column("95 % of log B", rank=2),
        Column("Bayes factor", rank=3),
        *([] if uniform else [Column("prior")]),
        Column("probability"),
        Column("95 %", "within the errors of log Z", rank=1),
    ]
    rows = []
    order = sorted(found.names, key=lambda name: -found.probabilities[name])
    for name in order:
        index = found.names.index(name)
        value, error = found.log_normalizers[index], found.log_normalizer_stderrs[index]
        log_factor = found.log_bayes_factor(name, best)
        low, high = found.probability_intervals[name]
        rows.append(
            (
                name,
                brief_text(float(value), float(error)),
                brief_text(log_factor.value, log_factor.stderr) if name != best else "",
                f"{log_factor.low:.3g} to {log_factor.high:.3g}"
                if name != best
                else "",
                f"{found.bayes_factor(name, best).value:.3g}",
                *([] if uniform else [f"{found.priors[index]:.3g}"]),
                share_text(found.probabilities[name]),
                f"{share_text(low)} to {share_text(high)}",
            )
        )
    tables = [
        Table(
            "Models by their evidence",
            tuple(columns),
            tuple(rows),
            notes=(
                "-3.70(4) means -3.70 ± 0.04.",
                "Errors are simulated, so intervals need not be symmetric.",
                *(["All models are equally probable before."] if uniform else []),
            ),
            strong=0,
        )
    ]
    if found.sensitivities:
        tables.append(_sensitivity_table(found))
    return tables


def _sensitivity_table(found: Any) -> Table:
    """What the strength of priors does to the evidence."""
    powers = [each.power for each in next(iter(found.sensitivities.values())).scaled]
    rows = []
    for name, known in found.sensitivities.items():
        changes = [
            brief_text(each.change, each.stderr)
            if math.isfinite(each.change)
            else "not known"
            for each in known.scaled
        ]
        slope = brief_text(known.slope, known.slope_stderr)
        rows.append((name, *changes, slope))
    others = [name for name in found.names if name not in found.sensitivities]
    notes = [
        "The prior to a power, normalised again: below 1 it is weaker, above it is "
        "stronger than yours.",
        "slope: of log Z in the logarithm of the power, at 1.",
    ]
    if any("not known" in row for row in rows):
        notes.append("not known: the average it takes has too heavy a tail.")
    if others:
        notes.append(f"The prior of {listed(others)} is not known.")
    headers = [f"prior^{power:g}" for power in powers]
    columns = (Column("model", number=False), *map(Column, [*headers, "slope"]))
    return Table(
        "What log Z changes by with a weaker or stronger prior",
        columns,
        tuple(rows),
        notes=tuple(notes),
    )


def share_text(share: float) -> str:
    """A probability, also where it is nearly zero or one."""
    if 0 < share < 5e-4:
        return f"{share:.1e}"
    if 1 - 5e-4 < share < 1:
        return f"1 - {1 - share:.0e}"
    return f"{share:.3g}"


_ALARMS = 0.01
"""Share of methods without a bias that are called wrong."""

_SMALL = 0.01
"""A bias of log Z of less than 1 % of Z is nothing to speak of."""

_OVER = 1.1
"""What takes a tenth longer than its budget has over-run it."""


def is_wrong(log_normalizers: np.ndarray, truth: float | None) -> bool:
    """Whether estimates are off by more than their spread explains.

    By Student's t distribution: few repeats may agree by chance.
    """
    count = len(log_normalizers)
    if truth is None or count < 2:
        return False
    off = abs(float(np.mean(log_normalizers)) - truth)
    stderr = float(np.std(log_normalizers, ddof=1)) / math.sqrt(count)
    reach = float(stdtrit(count - 1, 1 - _ALARMS / 2)) * stderr
    return off > max(reach, _SMALL)


def _error_text(contender: Contender, truth: float | None) -> str:
    error = squared_error(contender.log_normalizers, truth)
    if error is None:
        return ""
    mark = " wrong" if is_wrong(contender.log_normalizers, truth) else ""
    return number_text(math.sqrt(error)) + mark


def _over_text(contender: Contender, budget: Budget) -> str:
    """By how much a method over-ran its budget; nothing if it did not."""
    share = contender.average(budget.unit) / budget.amount
    return f" +{share - 1:.0%}" if share > _OVER else ""


def _ranked(comparison: Comparison) -> list[Contender]:
    """By error against the truth where it is known, those without log Z last."""
    if comparison.truth is None:
        return list(comparison.contenders)

    def key(contender: Contender) -> float:
        error = squared_error(contender.log_normalizers, comparison.truth)
        return math.inf if error is None or math.isnan(error) else error

    return sorted(comparison.contenders, key=key)


def decoder_table(decoder: Decoder) -> Table:
    """What the training of a decoder reached."""
    rows = (
        ("ELBO of a test image (nats)", number_text(decoder.test_elbo, 2)),
        ("training steps", str(len(decoder.arrays["elbo"]))),
        ("images to train on", str(decoder.num_train_images)),
        ("images to test on", str(decoder.num_test_images)),
    )
    columns = (Column(""), Column(""))
    return Table("The decoder of a variational autoencoder", columns, rows)


# What was asked for, and on what it ran.


def settings_table(asked: MainJob, meanings: Mapping[str, str]) -> Table:
    """All settings, those that were changed first.

    Args:
        asked: What was asked for.
        meanings: What is known about settings, by name.
    """
    names = sorted(asked.settings, key=lambda name: name not in asked.overrides)
    rows = tuple(
        (name, format_value(asked.settings[name]), meanings.get(name, ""))
        for name in names
    )
    headers = ("setting", "value", "meaning")
    changed = len([name for name in names if name in asked.overrides])
    note = "All as they come."
    if changed:
        note = (
            f"Changed for this run: the first {changed}."
            if changed > 1
            else ("Changed for this run: the first.")
        )
    return Table(
        "Settings",
        tuple(Column(header, number=False) for header in headers),
        rows,
        notes=(note,),
    )


def software_table(folder: Folder) -> Table:
    """Versions, devices, and what else is known about where it ran."""
    columns = (Column("", number=False), Column("version", number=False))
    return Table("Software", columns, tuple(_flat(folder.environment)))


def _flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, prefix if key == "versions" else f"{prefix}{key} ")
        elif value is not None:
            yield f"{prefix}{key}", format_value(value)

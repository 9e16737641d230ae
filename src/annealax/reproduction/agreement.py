"""The paper beside ours: estimates with error bars, and in words whether they agree.

All that is said here is computed. Repeats are what error bars come from, by Student's t
with as many degrees of freedom as there are repeats, less one; a single repeat has no
error bar, and no verdict. A comparison is called decided at the 2.5 % level (one-sided,
each by itself); errors of chains are compared as variances are, by the F distribution.
"""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from scipy import special

from annealax._estimates import (
    integrated_autocorrelation_time,
    log_mean,
    pooled_stderr,
)
from annealax.reproduction.figures import Line, Panel, Scale
from annealax.reproduction.measure import Measured
from annealax.reproduction.paper import Claim, Reading

Results = Mapping[str, Measured]

_TAIL = 0.975
_PLATEAU = 0.1
"""The share of a training, at its end, that its last value is the average of."""

PAPER_SECONDS = 1000.0
"""What the values read off Figure 3 come after."""

NO_VERDICT = "not compared: a tiny problem, which only shows that everything runs"


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A value over repeats.

    Attributes:
        values: That of each repeat.
    """

    values: np.ndarray

    @property
    def value(self) -> float:
        """Mean over repeats."""
        return float(np.mean(self.values)) if len(self.values) else math.nan

    @property
    def stderr(self) -> float:
        """Its standard error; NaN for a single repeat."""
        count = len(self.values)
        if count < 2:
            return math.nan
        return float(np.std(self.values, ddof=1) / math.sqrt(count))

    @property
    def reach(self) -> float:
        """Half of its 95 % interval."""
        freedom = max(len(self.values) - 1, 1)
        return float(special.stdtrit(freedom, _TAIL)) * self.stderr


@dataclasses.dataclass(frozen=True)
class Standard:
    """Our gold standard.

    Attributes:
        value: The value.
        stderr: Its standard error.
    """

    value: float
    stderr: float


@dataclasses.dataclass(frozen=True)
class Compared:
    """A row: the paper, ours, agreement in words."""

    what: str
    paper: str
    ours: str
    words: str


class View:
    """A panel with what was measured of it.

    Args:
        panel: The panel.
        scale: The scale.
        repeats: Repeats asked for; None for those of the scale.
        results: What was measured, by the names of tasks; some may be missing.
    """

    def __init__(
        self, panel: Panel, scale: Scale, repeats: int | None, results: Results
    ):
        self.panel, self.scale = panel, scale
        self.repeats, self.results = repeats, results

    def each(self, line: Line, at: int | None = None) -> list[Measured]:
        """What was measured in the repeats of a line."""
        numbers = self.panel.numbers(line, self.scale, self.repeats)
        tasks = [self.panel.task(line, self.scale, number, at) for number in numbers]
        return [self.results[t.name] for t in tasks if t.name in self.results]

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines of the panel at this scale."""
        return self.panel.present(self.scale)

    @property
    def missing(self) -> list[str]:
        """Names of the pieces that are not there."""
        tasks = self.panel.tasks(self.scale, self.repeats)
        return [task.name for task in tasks if task.name not in self.results]

    @property
    def gold(self) -> Standard | None:
        """Our gold standard, if it was measured."""
        found = self.results.get(self.panel.gold_task(self.scale).name)
        if found is None:
            return None
        if self.panel.kind == "chain":
            trace = np.asarray(found[self.panel.observable])
            return Standard(float(trace.mean()), chain_stderr(trace))
        log_z = np.asarray(found["log_normalizer"])
        return Standard(log_mean(log_z), pooled_stderr(log_z, np.zeros(len(log_z))))

    def timing(self, line: Line) -> Measured | None:
        """How long a step of a line takes."""
        return self.results.get(self.panel.timing_task(line, self.scale).name)

    def log_normalizer(self, line: Line, at: int | None = None) -> Estimate:
        """Log Z of a line: of a sweep the median pass, of a training its end."""
        found = [np.asarray(each["log_normalizer"]) for each in self.each(line, at)]
        if self.panel.kind == "sweep":
            return Estimate(np.array([np.median(values) for values in found]))
        ends = [v[-max(1, round(_PLATEAU * len(v))) :].mean() for v in found]
        return Estimate(np.array(ends))

    def errors(self, line: Line) -> list[np.ndarray]:
        """Of each repeat, how far the running mean is from the gold standard."""
        gold = self.gold
        if gold is None:
            return []
        traces = [np.asarray(m[self.panel.observable]) for m in self.each(line)]
        steps = [np.arange(1, len(trace) + 1) for trace in traces]
        return [
            np.cumsum(trace) / step - gold.value
            for trace, step in zip(traces, steps, strict=True)
        ]

    def duration(self, line: Line, clock: str = "seconds") -> float:
        """Time that the chains of a line take, or NaN."""
        timing = self.timing(line)
        if timing is None:
            return math.nan
        return float(timing[clock]) * line.counts[self.scale]

    def readings(self) -> list[Reading]:
        """What was read off the paper's panel and is measured here."""
        names = {line.name for line in self.lines}
        return [
            each
            for each in self.panel.shown.readings
            if each.line in names
            and (
                each.at is None
                or each.at in self.panel.places(self.panel.line(each.line), self.scale)
            )
        ]

    def rows(self) -> list[Compared]:
        """The paper beside ours."""
        rows = [self._gold_row()]
        if self.panel.kind == "chain":
            return rows + [self._error_row(line) for line in self._chains()]
        rows += [self._gap_row(reading) for reading in self.readings()]
        if self.panel.kind == "training":
            rows += [self._memory_row(line) for line in self._chains()]
        return rows + [self._own_row(line) for line in self.lines if line.ours]

    def claims(self) -> list[Compared]:
        """What the paper says, and whether it is so here."""
        return [self._claim_row(claim) for claim in self.panel.claims]

    def _chains(self) -> list[Line]:
        return [line for line in self.lines if line.method != "sample"]

    def _gold_row(self) -> Compared:
        theirs, ours = self.panel.shown.gold, self.gold
        text = with_error(theirs.value, theirs.stderr)
        if ours is None:
            return Compared("gold standard", text, "not measured", "missing")
        words = "another target: compare distances from gold standards"
        if self.scale == "smoke":
            words = NO_VERDICT
        elif self.panel.kind == "chain":
            error = math.hypot(theirs.stderr, ours.stderr)
            words = agreement(ours.value - theirs.value, error, 1.96 * error)
        return Compared(
            "gold standard", text, with_error(ours.value, ours.stderr), words
        )

    def _gap_row(self, reading: Reading) -> Compared:
        """How far log Z is from the gold standard."""
        line, gold = self.panel.line(reading.line), self.gold
        place = "" if reading.at is None else f", {reading.at}"
        theirs = self.panel.shown.gold
        low, high = (end - theirs.value for end in reading.ends)
        what = f"{line.label}{place}: log Z less gold"
        paper = range_text(low, high)
        estimate = self.log_normalizer(line, reading.at)
        if gold is None or not len(estimate.values):
            return Compared(what, paper, "not measured", "missing")
        gap = estimate.value - gold.value
        error = math.hypot(estimate.stderr, gold.stderr)
        ours = with_error(gap, error)
        if self.scale == "smoke":
            return Compared(what, paper, ours, NO_VERDICT)
        away = outside(gap, low, high)
        allowed = math.hypot(estimate.reach, 1.96 * gold.stderr, 1.96 * theirs.stderr)
        words = agreement(away, error, allowed, ("nearer to gold", "further from gold"))
        return Compared(what, paper, ours, words)

    def _own_row(self, line: Line) -> Compared:
        """A line that the paper does not have, at each of its places."""
        gold, parts, words = self.gold, [], "ours only"
        for at in self.panel.places(line, self.scale):
            prefix = "" if at is None else f"{at}: "
            if line.method == "sample":
                found = self.each(line, at)
                if found and gold is not None:
                    gap = float(found[0]["log_normalizer"]) - gold.value
                    error = float(found[0]["log_normalizer_stderr"])
                    parts.append(
                        prefix + with_error(gap, math.hypot(error, gold.stderr))
                    )
                    seconds = float(found[0]["processor_seconds"])
                    words = f"ours only; {seconds:.3g} processor seconds in all"
                continue
            estimate = self.log_normalizer(line, at)
            if gold is not None and len(estimate.values):
                error = math.hypot(estimate.stderr, gold.stderr)
                parts.append(prefix + with_error(estimate.value - gold.value, error))
        what = f"{line.label}: log Z less gold"
        return Compared(what, "", "; ".join(parts) or "not measured", words)

    def _memory_row(self, line: Line) -> Compared:
        timing = self.timing(line)
        what = f"{line.label}: memory of a training step; time"
        if timing is None:
            return Compared(what, "", "not measured", "missing")
        ours = (
            f"{timing['memory'] / 2**20:.3g} MiB; {timing['seconds']:.3g} s, "
            f"{timing['processor_seconds']:.3g} processor seconds"
        )
        return Compared(what, "", ours, "no number in the paper")

    def _error_row(self, line: Line) -> Compared:
        """The error of the mean of a chain."""
        what = f"{line.label}: error"
        ranges = [r.ends for r in self.panel.shown.readings if r.line == line.name]
        paper = ""
        if ranges:
            paper = f"{range_text(*ranges[0])} after {PAPER_SECONDS:.0f} s"
        finals = np.array([error[-1] for error in self.errors(line)])
        gold, seconds = self.gold, self.duration(line)
        if gold is None or not len(finals) or not math.isfinite(seconds):
            return Compared(what, paper, "not measured", "missing")
        size = rms(finals)
        count = len(finals)
        projected = size * math.sqrt(seconds / PAPER_SECONDS)
        traces = np.stack(
            [np.asarray(m[self.panel.observable]) for m in self.each(line)]
        )
        time_ = float(integrated_autocorrelation_time(traces))
        ours = (
            f"rms {size:.2g} ± {size / math.sqrt(2 * count):.1g} over {count} repeats "
            f"of {traces.shape[1]} iterations ({seconds:.3g} s, "
            f"{self.duration(line, 'processor_seconds'):.3g} processor seconds); mean "
            f"{with_error(float(finals.mean()), Estimate(finals).stderr)}; "
            f"autocorrelation time {time_:.3g}; "
            f"as 1/sqrt(time) after {PAPER_SECONDS:.0f} s: {projected:.2g}"
        )
        if self.scale == "smoke":
            return Compared(what, paper, ours, NO_VERDICT)
        words = "no value read off the paper" if not line.ours else "ours only"
        if ranges:
            bound = max(abs(end) for end in ranges[0])
            share = projected / bound
            words = (
                f"{share:.2g} times the paper's largest after {PAPER_SECONDS:.0f} s"
                if count > 1
                else "one repeat: no verdict"
            )
        if gold.stderr > 0.5 * size:
            words += f"; gold is itself known to {gold.stderr:.2g} only"
        return Compared(what, paper, ours, words)

    def _claim_row(self, claim: Claim) -> Compared:
        what, source = claim.text, claim.source
        if self.scale == "smoke":
            evidence, _ = self._evidence(claim)
            return Compared(what, source, "; ".join(evidence), NO_VERDICT)
        evidence, verdicts = self._evidence(claim)
        return Compared(what, source, "; ".join(evidence) or "not measured", verdicts)

    def _evidence(self, claim: Claim) -> tuple[list[str], str]:
        better, worse = (self.panel.line(n) for n in (claim.better, claim.worse))
        if claim.by == "memory":
            return self._memory_evidence(better, worse)
        if claim.by == "error":
            return self._error_evidence(better, worse)
        evidence, verdicts = [], {}
        for at in dict.fromkeys(
            [
                *self.panel.places(better, self.scale),
                *self.panel.places(worse, self.scale),
            ]
        ):
            if at is None and self.panel.kind == "sweep":
                continue  # a constant line is compared at the places of the other
            one = self.log_normalizer(better, None if better.constant else at)
            two = self.log_normalizer(worse, None if worse.constant else at)
            if not (len(one.values) and len(two.values)):
                continue
            difference = one.value - two.value
            prefix = "" if at is None else f"{at}: "
            error = math.hypot(one.stderr, two.stderr)
            evidence.append(f"{prefix}{with_error(difference, error, sign=True)}")
            verdicts[at] = decided(difference, math.hypot(one.reach, two.reach))
        return evidence, verdict_text(verdicts)

    def _memory_evidence(self, better: Line, worse: Line) -> tuple[list[str], str]:
        one, two = self.timing(better), self.timing(worse)
        if one is None or two is None:
            return [], "missing"
        if not one["memory"] or not two["memory"]:
            return [], "this device does not tell"
        ratio = float(two["memory"]) / float(one["memory"])
        words = "holds" if ratio > 1 else "does not hold"
        return [f"{worse.label} takes {ratio:.3g} times that of {better.label}"], words

    def _error_evidence(self, better: Line, worse: Line) -> tuple[list[str], str]:
        """Squared errors after the same time."""
        until = min(self.duration(better), self.duration(worse))
        if not math.isfinite(until):
            return [], "missing"
        sizes = []
        for line in (better, worse):
            timing, errors = self.timing(line), self.errors(line)
            if timing is None or not errors:
                return [], "missing"
            step = min(max(int(until / timing["seconds"]), 1), line.counts[self.scale])
            sizes.append(np.array([error[step - 1] for error in errors]))
        one, two = sizes
        evidence = [
            f"rms after {until:.3g} s: {better.label} {rms(one):.2g}, "
            f"{worse.label} {rms(two):.2g}"
        ]
        if min(len(one), len(two)) < 2:
            return evidence, "one repeat: no verdict"
        ratio = float(np.mean(two**2) / max(np.mean(one**2), 1e-300))
        chance = float(special.fdtr(len(two), len(one), ratio))
        if chance > _TAIL:
            return evidence, "holds"
        if chance < 1 - _TAIL:
            return evidence, "does not hold: the other way round"
        return evidence, f"not decided with {len(one)} repeats"


def chain_stderr(trace: np.ndarray) -> float:
    """Standard error of the mean of one chain, autocorrelation included."""
    if len(trace) < 2:
        return math.nan
    time_ = float(integrated_autocorrelation_time(trace[None]))
    return float(np.sqrt(trace.var(ddof=1) * time_ / len(trace)))


def rms(values: np.ndarray) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


def outside(value: float, low: float, high: float) -> float:
    """How far a value is above (or below, negative) a range; zero within it."""
    return value - min(max(value, low), high)


def with_error(value: float, error: float, *, sign: bool = False) -> str:
    """A number with its error bar to the digits that the error leaves."""
    plus = "+" if sign else ""
    if not math.isfinite(error) or error <= 0:
        return f"{value:{plus}.4g}"
    digits = max(0, min(8, 1 - math.floor(math.log10(error))))
    return f"{value:{plus}.{digits}f} ± {error:.{digits}f}"


def range_text(low: float, high: float) -> str:
    """A value, or a range."""
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def agreement(
    away: float,
    error: float,
    allowed: float,
    sides: tuple[str, str] = ("above", "below"),
) -> str:
    """Words for a difference from the paper.

    Args:
        away: The difference, ours less the paper's.
        error: Its standard error.
        allowed: Half of its 95 % interval.
        sides: Words for a difference above and below zero.
    """
    if not math.isfinite(error):
        side = "" if away == 0 else f" ({sides[away < 0]} by {abs(away):.3g})"
        return f"one repeat: no verdict{side}"
    if abs(away) <= allowed:
        return "agrees"
    return f"{sides[away < 0]} by {with_error(abs(away), error)}"


def decided(difference: float, reach: float) -> str:
    """Whether a difference is above zero: "yes", "no", "open", "alone" (one repeat)."""
    if not math.isfinite(reach):
        return "alone"
    if abs(difference) <= reach:
        return "open"
    return "yes" if difference > 0 else "no"


def verdict_text(verdicts: Mapping[int | None, str]) -> str:
    """Verdicts at several places as a sentence."""
    if not verdicts:
        return "missing"
    if set(verdicts.values()) == {"yes"}:
        return "holds" if list(verdicts) == [None] else "holds at every place"
    words = {
        "yes": "holds",
        "no": "does not hold",
        "open": "not decided: error bars overlap",
        "alone": "one repeat: no verdict",
    }
    parts = []
    for kind, text in words.items():
        places = [str(at) for at, found in verdicts.items() if found == kind and at]
        if kind in verdicts.values():
            parts.append(f"{text} at {', '.join(places)}" if places else text)
    return "; ".join(parts)

"""The figures: one declarative configuration for each.

A figure has panels, a panel lines, a line settings: those of the paper, and what a
smaller scale changes in them. Three kinds of panels: log Z over a setting (`sweep`),
log Z while training (`training`), and averages over chains (`chain`).

Scales: "smoke" runs every part of the code on tiny problems; "cpu" takes about an hour
a figure on two cores; "paper" has the paper's settings.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from annealax._errors import InvalidInputError
from annealax.experiments.experiment import Experiment, Problem
from annealax.experiments.registry import find_experiment
from annealax.reproduction import paper

Scale = Literal["smoke", "cpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
Kind = Literal["sweep", "training", "chain"]
Stage = Literal["flows", "measurement", "timing"]
_Settings = Mapping[str, Any]

_NARROWEST = 64
"""Fewer particles at a time take about as long as so many."""

_COMPILATION = 3e5
"""Evaluations that take about as long as it does to compile a program."""


@dataclasses.dataclass(frozen=True)
class Line:
    """A sampler with its settings.

    Attributes:
        name: Short, for files and tables.
        label: What to call it.
        experiment: Name of the experiment.
        method: A name in `measure.METHODS`; or "hmc", direct Hamiltonian Monte Carlo
            with `num_particles` chains that notes the average over `num_hmc_steps`
            steps; or "sample", `annealax.sample`.
        settings: Changes to the experiment: what the paper does.
        smaller: What a scale changes in that.
        counts: Passes of a trained sampler, or iterations of a chain, by scale; a line
            with none is left out.
        ours: Whether it goes beyond the paper.
        constant: Whether what the panel varies makes no difference to it.
    """

    name: str
    label: str
    experiment: str
    method: str
    settings: _Settings = dataclasses.field(default_factory=dict)
    smaller: Mapping[str, _Settings] = dataclasses.field(default_factory=dict)
    counts: Mapping[str, int] = dataclasses.field(
        default_factory=lambda: {"smoke": 2, "cpu": 5, "paper": 20}
    )
    ours: bool = False
    constant: bool = False

    def changes(self, scale: Scale) -> dict[str, Any]:
        """Settings at a scale that are not those of the experiment."""
        return {**self.settings, **self.smaller.get(scale, {})}

    def replace(self, **changes: Any) -> "Line":
        """Another line."""
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True)
class Task:
    """A piece of a figure: what one process measures at a time, and keeps.

    Attributes:
        name: Of its own among all tasks.
        stage: Flows that chains share come first, times last.
        kind: What is measured.
        line: Of which line.
        settings: All changes to the experiment.
        repeat: Which repeat, from 1; 0 for what all repeats share.
        count: Passes or iterations.
    """

    name: str
    stage: Stage
    kind: Kind
    line: Line
    settings: _Settings
    repeat: int
    count: int

    @property
    def experiment(self) -> Experiment:
        """The experiment with its settings."""
        return find_experiment(self.line.experiment).experiment(**self.settings)

    def problem(self) -> Problem:
        """What is sampled."""
        return self.experiment.problem()

    @property
    def cost(self) -> float:
        """About how many evaluations it takes, or is worth: only for the time left."""
        return _COMPILATION + self._evaluations

    @property
    def _evaluations(self) -> float:
        settings = self.experiment
        size = float(max(settings.num_particles, _NARROWEST)) * settings.num_leapfrog
        size *= settings.num_hmc_steps
        direct = self.line.method in ("hmc", "vi")
        each = size * (1 if direct else settings.num_transitions)
        training = each * settings.num_train_steps
        if self.line.method.startswith("aft"):
            training = each + 3 * settings.num_train_steps * settings.num_particles
        if self.line.method in ("smc", "hmc"):
            training = 0.0
        if self.stage == "flows":
            return training
        if self.stage == "timing":
            return 8 * each
        if self.kind == "chain":
            return each * self.count
        return training + each * (self.count if self.kind == "sweep" else 0)


@dataclasses.dataclass(frozen=True)
class Panel:
    """A part of a figure.

    Attributes:
        name: Short, of its own among all panels.
        title: What it shows.
        kind: Which kind.
        lines: The samplers.
        gold: The sampler that gives our gold standard.
        shown: What the paper shows.
        repeats: By scale.
        claims: What the paper says about it.
        vary: Which setting a sweep varies.
        values: Its values by scale.
        observable: Which expectation the chains are for.
    """

    name: str
    title: str
    kind: Kind
    lines: tuple[Line, ...]
    gold: Line
    shown: paper.Shown
    repeats: Mapping[str, int]
    claims: tuple[paper.Claim, ...] = ()
    vary: str = ""
    values: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    observable: str = ""

    def line(self, name: str) -> Line:
        """The line of this name."""
        return next(each for each in self.lines if each.name == name)

    def present(self, scale: Scale) -> tuple[Line, ...]:
        """The lines that a scale has."""
        return tuple(line for line in self.lines if line.counts[scale])

    def places(self, line: Line, scale: Scale) -> tuple[int | None, ...]:
        """Values of what is varied that a line is measured at."""
        if self.kind != "sweep" or line.constant:
            return (None,)
        return self.values[scale]

    def task(
        self, line: Line, scale: Scale, repeat: int, at: int | None = None
    ) -> Task:
        """What measures one repeat of a line."""
        settings = line.changes(scale)
        place = ""
        if at is not None:
            settings[self.vary] = at
            place = f"-{at}"
        trains_only = self.kind == "training" and line.method != "sample"
        count = 0 if trains_only else line.counts[scale]
        name = f"{_family(line, self.kind)}-{line.name}{place}-{repeat}"
        return Task(name, "measurement", self.kind, line, settings, repeat, count)

    def gold_task(self, scale: Scale) -> Task:
        """What measures the gold standard."""
        kind: Kind = "chain" if self.kind == "chain" else "sweep"
        name = f"{_family(self.gold, kind)}-{self.gold.name}-0"
        settings = self.gold.changes(scale)
        count = self.gold.counts[scale]
        return Task(name, "measurement", kind, self.gold, settings, 0, count)

    def timing_task(self, line: Line, scale: Scale) -> Task:
        """What measures how long a step of a line takes; not for sweeps."""
        name = f"{_family(line, self.kind)}-{line.name}-timing"
        settings = line.changes(scale)
        return Task(name, "timing", self.kind, line, settings, 0, 1)

    def tasks(self, scale: Scale, repeats: int | None = None) -> Iterator[Task]:
        """All that is to be measured.

        Args:
            scale: The scale.
            repeats: None for those of the scale.
        """
        yield self.gold_task(scale)
        for line in self.present(scale):
            timed = self.kind != "sweep" and line.method != "sample"
            if self.kind == "chain" and needs_flows(line):
                yield flows_task(line, scale)
            if timed:
                yield self.timing_task(line, scale)
            for repeat in self.numbers(line, scale, repeats):
                for at in self.places(line, scale):
                    yield self.task(line, scale, repeat, at)

    def numbers(self, line: Line, scale: Scale, repeats: int | None) -> list[int]:
        """Numbers of the repeats of a line; `annealax.sample` repeats by itself."""
        if line.method == "sample":
            return [1]
        return list(range(1, 1 + (repeats or self.repeats[scale])))


def _family(line: Line, kind: Kind) -> str:
    return f"{line.experiment}-{'auto' if line.method == 'sample' else kind}"


def needs_flows(line: Line) -> bool:
    """Whether it trains."""
    return line.method not in ("smc", "hmc", "sample")


def flows_task(line: Line, scale: Scale) -> Task:
    """What trains the flows that all chains of a line share."""
    name = f"{_family(line, 'chain')}-{line.name}-flows"
    return Task(name, "flows", "chain", line, line.changes(scale), 0, 1)


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure.

    Attributes:
        number: As in the paper; 8 is ours.
        title: What it shows.
        panels: Its parts.
        departures: By scale, what is not as in the paper.
        raw: Whether the raw chains are drawn instead of the errors of their means.
    """

    number: int
    title: str
    panels: tuple[Panel, ...]
    departures: Mapping[str, tuple[str, ...]]
    raw: bool = False

    def tasks(self, scale: Scale, repeats: int | None = None) -> list[Task]:
        """All that is to be measured, each piece once."""
        found = {}
        for panel in self.panels:
            for task in panel.tasks(scale, repeats):
                found[task.name] = task
        return list(found.values())


# The Cox process.

_TINY_COX: _Settings = {
    "grid": 3,
    "num_particles": 4,
    "num_transitions": 2,
    "num_leapfrog": 2,
    "num_hmc_steps": 1,
    "num_train_steps": 4,
}
_COX: _Settings = {
    "resample_scheme": "multinomial",
    "gradient": "plain",
    "num_transitions": 10,
    "num_hmc_steps": 10,
    "learning_rate": 0.05,
    "final_learning_rate": 0.01,
    "learning_rate_schedule": "drop",
    "num_train_steps": 200,
}
_COX_AFT: _Settings = {
    **_COX,
    "learning_rate": 0.01,
    "learning_rate_schedule": "constant",
    "num_train_steps": 500,
}
_BEYOND_COX: _Settings = {
    "gradient": "path",
    "learning_rate": 0.2,
    "final_learning_rate": 5e-3,
    "learning_rate_schedule": "exponential",
}
_GOLD_COUNTS = {"smoke": 3, "cpu": 10, "paper": 30}

_CRAFT_32 = Line("craft", "CRAFT", "lgcp", "craft", _COX, {"smoke": _TINY_COX})
_AFT_32 = Line(
    "aft",
    "AFT",
    "lgcp",
    "aft-halves",
    {**_COX_AFT, "num_hmc_steps": 1000},
    {"smoke": _TINY_COX, "cpu": {"num_hmc_steps": 100}},
)
_GOLD_32 = Line(
    "gold",
    "gold standard: SMC on the whitened field",
    "lgcp",
    "smc",
    {
        "whitened": True,
        "num_particles": 2000,
        "num_transitions": 20,
        "num_hmc_steps": 2,
    },
    {
        "smoke": {**_TINY_COX, "num_particles": 50},
        "cpu": {"num_particles": 200},
    },
    _GOLD_COUNTS,
)
_SAMPLE_COUNTS = {"smoke": 2, "cpu": 8, "paper": 16}
_SAMPLE_32 = Line(
    "sample",
    "ax.sample",
    "lgcp",
    "sample",
    {},
    counts={**_SAMPLE_COUNTS, "smoke": 0},  # it compiles for longer than all others
    ours=True,
    constant=True,
)

_PARTICLES = Panel(
    "particles",
    "LGCP 32 x 32: log Z over the number of particles",
    "sweep",
    (_CRAFT_32, _AFT_32),
    _GOLD_32,
    paper.PARTICLES,
    repeats={"smoke": 2, "cpu": 3, "paper": 5},
    claims=(
        paper.Claim(
            "CRAFT outperforms AFT for all numbers of particles considered.",
            "Section 4.1",
            "craft",
            "aft",
        ),
    ),
    vary="num_particles",
    values={"smoke": (4,), "cpu": (10, 20, 40, 200), "paper": (10, 20, 40, 200, 500)},
)

_FIGURE_1 = Figure(
    1,
    "CRAFT and practical AFT on the Cox process over the number of particles",
    (_PARTICLES,),
    {
        "smoke": (
            "3 x 3 cells, four particles, two leapfrog steps, four training steps.",
        ),
        "cpu": (
            "AFT makes 10 times more HMC steps than CRAFT, in training and in the "
            "test; in the paper 100 times.",
        ),
        "paper": ("How often the paper trained and tested is not said.",),
    },
)

# Training, timed.

_VAE: _Settings = {"resample_scheme": "multinomial", "num_train_steps": 2000}
_TINY_VAE: _Settings = {
    "num_particles": 4,
    "num_hmc_steps": 1,
    "num_leapfrog": 2,
    "num_train_steps": 4,
    "flow_hidden": (8,),
}
_VAE_SCALES = {"smoke": _TINY_VAE, "cpu": {"num_train_steps": 300}}
_VAE_GOLD = Line(
    "gold",
    "gold standard: SMC",
    "vae",
    "smc",
    {"num_particles": 2000, "num_transitions": 30, "num_hmc_steps": 5},
    {"smoke": {**_TINY_VAE, "num_transitions": 2}, "cpu": {"num_particles": 500}},
    _GOLD_COUNTS,
)
_TIMED_COX: _Settings = {**_COX, "num_hmc_steps": 1, "num_particles": 2000}
_TIMED_COX_SCALES = {
    "smoke": _TINY_COX,
    "cpu": {"num_particles": 500, "num_train_steps": 150},
}
_ENDS_HIGHER = paper.Claim(
    "CRAFT converges to a better value than SNF.", "Section 4.2", "craft", "snf"
)
_TAKES_LESS = paper.Claim(
    "SNF takes significantly more memory than CRAFT.",
    "Appendix I",
    "craft",
    "snf",
    "memory",
)
_THREE = {"smoke": 2, "cpu": 3, "paper": 3}
_CRAFT_VAE = Line("craft", "CRAFT", "vae", "craft", _VAE, _VAE_SCALES)
_CRAFT_TIMED = Line("craft", "CRAFT", "lgcp", "craft", _TIMED_COX, _TIMED_COX_SCALES)
_TRAINING_VAE = Panel(
    "training-vae",
    "VAE: log Z while training",
    "training",
    (_CRAFT_VAE, _CRAFT_VAE.replace(name="snf", label="SNF", method="snf")),
    _VAE_GOLD,
    paper.TRAINING_VAE,
    repeats=_THREE,
    claims=(_ENDS_HIGHER, _TAKES_LESS),
)
_TRAINING_LGCP = Panel(
    "training-lgcp",
    "LGCP 32 x 32: log Z while training",
    "training",
    (_CRAFT_TIMED, _CRAFT_TIMED.replace(name="snf", label="SNF", method="snf")),
    _GOLD_32,
    paper.TRAINING_LGCP,
    repeats=_THREE,
    claims=(_ENDS_HIGHER, _TAKES_LESS),
)
_FIGURE_2 = Figure(
    2,
    "CRAFT and SNF over training time",
    (_TRAINING_VAE, _TRAINING_LGCP),
    {
        "smoke": ("3 x 3 cells, four particles, four training steps.",),
        "cpu": (
            "500 particles on the Cox process instead of 2000, 150 training steps; 300 "
            "on the VAE.",
            "The decoder is our own, and so is the image: compare the gaps.",
        ),
        "paper": ("The decoder is our own, and so is the image: compare the gaps.",),
    },
)

# Lattice phi^4.

_PHI4: _Settings = {"resample_scheme": "multinomial"}
_TINY_PHI4: _Settings = {
    "lattice": (4, 4),
    "num_particles": 12,
    "num_transitions": 3,
    "num_hmc_steps": 1,
    "num_leapfrog": 2,
    "num_train_steps": 4,
}
_PHI4_SCALES = {
    "smoke": _TINY_PHI4,
    "cpu": {"num_particles": 1000, "num_train_steps": 150},
}
_PHI4_CRAFT = Line(
    "craft",
    "CRAFT",
    "phi4",
    "craft",
    _PHI4,
    _PHI4_SCALES,
    {"smoke": 30, "cpu": 400, "paper": 1200},
)
_PHI4_SMC = Line(
    "smc",
    "SMC",
    "phi4",
    "smc",
    {**_PHI4, "num_transitions": 90},
    {"smoke": _TINY_PHI4, "cpu": {"num_particles": 1000}},
    {"smoke": 30, "cpu": 50, "paper": 150},
)
_PHI4_VI = Line(
    "vi",
    "VI",
    "phi4",
    "vi",
    {**_PHI4, "flow_layers": 20},
    {
        "smoke": {**_TINY_PHI4, "flow_layers": 2},
        "cpu": {"num_particles": 1000, "num_train_steps": 200},
    },
    {"smoke": 30, "cpu": 600, "paper": 4000},
)
_PHI4_HMC = Line(
    "hmc",
    "HMC",
    "phi4",
    "hmc",
    {"num_particles": 1, "num_hmc_steps": 500},
    {"smoke": {**_TINY_PHI4, "num_particles": 1, "num_hmc_steps": 5}},
    {"smoke": 30, "cpu": 4000, "paper": 20_000},
)
_PHI4_GOLD = Line(
    "gold",
    "gold standard: PIMH with SMC on the ladder of phi4-tuned, 20 transitions",
    "phi4-tuned",
    "smc",
    {"num_transitions": 20},
    {"smoke": {**_TINY_PHI4, "num_particles": 100}},
    {"smoke": 30, "cpu": 500, "paper": 5000},
)
_NEARER = (
    paper.Claim(
        "CRAFT converges the fastest, improving on SMC without flows.",
        "Section 4.3",
        "craft",
        "smc",
        "error",
    ),
    paper.Claim(
        "VI fails to cover all of the modes: its errors are much larger.",
        "Section 4.3",
        "smc",
        "vi",
        "error",
    ),
    paper.Claim(
        "HMC struggles with this density: its errors are much larger.",
        "Section 4.3",
        "smc",
        "hmc",
        "error",
    ),
)
_FIFTEEN = {"smoke": 2, "cpu": 5, "paper": 15}
_SUSCEPTIBILITY = Panel(
    "susceptibility",
    "phi^4: two-point susceptibility",
    "chain",
    (_PHI4_CRAFT, _PHI4_SMC, _PHI4_VI, _PHI4_HMC),
    _PHI4_GOLD,
    paper.SUSCEPTIBILITY,
    repeats=_FIFTEEN,
    claims=_NEARER,
    observable="two_point_susceptibility",
)
_ENERGY = dataclasses.replace(
    _SUSCEPTIBILITY,
    name="energy",
    title="phi^4: Ising energy density",
    shown=paper.ENERGY,
    observable="ising_energy_density",
)
_PHI4_DEPARTURES = {
    "smoke": ("4 x 4 sites, twelve particles, two leapfrog steps.",),
    "cpu": (
        "1000 particles in CRAFT, SMC and VI (the paper does not say how many); 150 "
        "training steps of CRAFT, 200 of VI; the paper has fifteen repeats.",
        "All repeats of a method share one training, whose time is not counted.",
        "HMC is one chain for each repeat, from a standard normal, with the step size "
        "that the annealed samplers have at the end.",
    ),
    "paper": (
        "2000 particles (the paper does not say how many); as many iterations as take "
        "about 1000 s on two cores.",
        "All repeats of a method share one training, whose time is not counted.",
        "HMC is one chain for each repeat, from a standard normal, with the step size "
        "that the annealed samplers have at the end.",
    ),
}
_FIGURE_3 = Figure(
    3,
    "Error of the two-point susceptibility over time",
    (_SUSCEPTIBILITY,),
    _PHI4_DEPARTURES,
)
_FIGURE_5 = Figure(
    5, "Error of the Ising energy density over time", (_ENERGY,), _PHI4_DEPARTURES
)


def _raw(panel: Panel, shown: paper.Shown) -> Panel:
    """The two best of a panel, as raw chains."""
    return dataclasses.replace(
        panel,
        name=f"raw-{panel.name}",
        title=panel.title,
        lines=panel.lines[:2],
        shown=shown,
        claims=(),
    )


_FIGURE_6 = Figure(
    6,
    "The raw chains of the two-point susceptibility",
    (_raw(_SUSCEPTIBILITY, paper.CHAIN),),
    _PHI4_DEPARTURES,
    raw=True,
)
_FIGURE_7 = Figure(
    7,
    "The raw chains of the Ising energy density",
    (_raw(_ENERGY, paper.ENERGY),),
    _PHI4_DEPARTURES,
    raw=True,
)

# Fewer HMC steps.

_COX_40: _Settings = {**_COX, "grid": 40, "num_hmc_steps": 2, "num_particles": 2000}
_COX_40_AFT: _Settings = {**_COX_AFT, "grid": 40, "num_hmc_steps": 2}
_FEWER = {"num_particles": 100}
_CRAFT_40 = Line(
    "craft-40",
    "CRAFT",
    "lgcp",
    "craft",
    _COX_40,
    {"smoke": _TINY_COX, "cpu": {**_FEWER, "num_train_steps": 150}},
)
_AFT_40 = Line(
    "aft-40",
    "AFT",
    "lgcp",
    "aft",
    _COX_40_AFT,
    {"smoke": _TINY_COX, "cpu": _FEWER},
)
_TRANSITIONS = Panel(
    "transitions",
    "LGCP 40 x 40: log Z over the number of transitions",
    "sweep",
    (
        _CRAFT_40,
        _AFT_40,
        _AFT_40.replace(
            name="aft-longer-40",
            label="AFT, 10 HMC steps to train",
            method="aft-longer",
        ),
        Line(
            "smc-40",
            "SMC",
            "lgcp",
            "smc",
            _COX_40,
            {"smoke": _TINY_COX, "cpu": _FEWER},
        ),
        Line(
            "vi-40",
            "VI",
            "lgcp",
            "vi",
            {**_COX_40, "num_train_steps": 2000},
            {"smoke": _TINY_COX, "cpu": _FEWER},
            constant=True,
        ),
    ),
    _GOLD_32.replace(
        name="gold-40",
        settings={**_GOLD_32.settings, "grid": 40},
    ),
    dataclasses.replace(
        paper.TRANSITIONS,
        readings=tuple(
            dataclasses.replace(each, line=f"{each.line}-40")
            for each in paper.TRANSITIONS.readings
        ),
    ),
    repeats={"smoke": 2, "cpu": 3, "paper": 5},
    claims=(
        paper.Claim(
            "With 10 and 30 transitions AFT struggles to learn a good flow; CRAFT "
            "recovers.",
            "Appendix F",
            "craft-40",
            "aft-40",
        ),
        paper.Claim(
            "Training with extra MCMC iterations restores AFT.",
            "Appendix F",
            "aft-longer-40",
            "aft-40",
        ),
        paper.Claim("CRAFT is above SMC.", "Figure 4", "craft-40", "smc-40"),
        paper.Claim("CRAFT is above VI.", "Figure 4", "craft-40", "vi-40"),
    ),
    vary="num_transitions",
    values={"smoke": (2,), "cpu": (10, 30, 100), "paper": (10, 30, 100)},
)
_FIGURE_4 = Figure(
    4,
    "CRAFT, AFT, SMC and VI over the number of transitions, with two HMC steps each",
    (_TRANSITIONS,),
    {
        "smoke": ("3 x 3 cells, four particles, two leapfrog steps.",),
        "cpu": (
            "100 particles, and 150 training steps of CRAFT; how many particles the "
            "paper takes in this figure is not said.",
            "AFT trains on as many particles as it is tested with, and stops by as "
            "many.",
        ),
        "paper": (
            "2000 particles: how many the paper takes in this figure is not said.",
            "AFT trains on as many particles as it is tested with, and stops by as "
            "many.",
        ),
    },
)

# Beyond the paper.

_TUNED = Line(
    "tuned",
    "CRAFT, phi4-tuned",
    "phi4-tuned",
    "craft",
    {},
    {"smoke": {**_TINY_PHI4, "flow_modes": False, "flow_sites": False}},
    {"smoke": 30, "cpu": 1000, "paper": 2000},
    ours=True,
)
_HMC_MANY = _PHI4_HMC.replace(
    name="hmc-many",
    label="HMC, 1000 chains",
    settings={"num_particles": 1000, "num_hmc_steps": 10},
    counts={"smoke": 30, "cpu": 1000, "paper": 20_000},
    ours=True,
)
_HMC_MANY = _HMC_MANY.replace(
    smaller={"smoke": {**_TINY_PHI4, "num_particles": 20, "num_hmc_steps": 2}}
)
_SAMPLE_PHI4 = Line(
    "sample",
    "ax.sample",
    "phi4",
    "sample",
    {},
    {"smoke": {"lattice": (2, 2), "num_particles": 30}},
    _SAMPLE_COUNTS,
    ours=True,
)


def _and(panel: Panel, *lines: Line) -> Panel:
    """A panel of the paper with lines of ours beside its own."""
    shown = tuple(each for each in panel.lines if each.method != "hmc")
    return dataclasses.replace(
        panel,
        name=f"beyond-{panel.name}",
        lines=(*shown, *lines),
        claims=(),
    )


def _path_gradients(line: Line, **more: Any) -> Line:
    return line.replace(
        name=f"{line.name}-path",
        label="CRAFT, path gradients",
        settings={**line.settings, **more},
        ours=True,
    )


_FIGURE_8 = Figure(
    8,
    "Beyond the paper: tuned ladders, path gradients, whitened fields, ax.sample",
    (
        _and(_PARTICLES, _path_gradients(_CRAFT_32, **_BEYOND_COX), _SAMPLE_32),
        _and(
            _TRAINING_VAE,
            _path_gradients(_CRAFT_VAE, gradient="path"),
        ),
        _and(_TRAINING_LGCP, _path_gradients(_CRAFT_TIMED, **_BEYOND_COX), _SAMPLE_32),
        _and(_SUSCEPTIBILITY, _TUNED, _HMC_MANY, _SAMPLE_PHI4),
        _and(
            _TRANSITIONS,
            _path_gradients(_CRAFT_40, **_BEYOND_COX),
            _CRAFT_40.replace(
                name="craft-40-whitened",
                label="CRAFT, whitened field",
                settings={**_COX_40, "whitened": True},
                ours=True,
            ),
        ),
    ),
    {
        "smoke": ("As figures 1 to 4 at this scale.",),
        "cpu": ("As figures 1 to 4 at this scale.",),
        "paper": ("As figures 1 to 4 at this scale.",),
    },
)

FIGURES: Mapping[int, Figure] = {
    each.number: each
    for each in (
        _FIGURE_1,
        _FIGURE_2,
        _FIGURE_3,
        _FIGURE_4,
        _FIGURE_5,
        _FIGURE_6,
        _FIGURE_7,
        _FIGURE_8,
    )
}
"""By number; figure 8 is ours."""


def find_figures(text: str) -> tuple[int, ...]:
    """Numbers of figures from "all", or numbers with commas between."""
    if text.strip() == "all":
        return tuple(FIGURES)
    found = []
    for part in text.split(","):
        word = part.strip().removeprefix("figure").lstrip("-_ ")
        if not word.isdecimal() or int(word) not in FIGURES:
            raise InvalidInputError(
                f"there is no figure {part.strip()!r}; give all, or one or several of "
                f"{', '.join(map(str, FIGURES))} with commas between."
            )
        found.append(int(word))
    return tuple(dict.fromkeys(found))


def all_tasks(
    numbers: tuple[int, ...], scale: Scale, repeats: int | None = None
) -> list[Task]:
    """What several figures need, each piece once, in the order in which it is done.

    Flows that chains share come first, then repeat by repeat what is cheap before what
    is dear, so that a part of all is there soon; times last, when nothing else runs.
    """
    found: dict[str, Task] = {}
    for number in numbers:
        for task in FIGURES[number].tasks(scale, repeats):
            found.setdefault(task.name, task)
    order = {"flows": 0, "measurement": 1, "timing": 2}

    def place(task: Task) -> tuple[int, int, float]:
        return order[task.stage], task.repeat, task.cost

    return sorted(found.values(), key=place)

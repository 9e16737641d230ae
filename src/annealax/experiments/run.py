"""The main job: train, deploy, and compare with plain SMC at the same cost."""

import dataclasses
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import PRNGKeyArray

from annealax._errors import InvalidInputError
from annealax._resampling import NoResampling
from annealax._sampler import Sampler
from annealax._work.checkpoint import Checkpoint
from annealax._work.drive import Callback
from annealax.experiments._names import unknown_name
from annealax.experiments._settings import Settings
from annealax.experiments.evaluate import Evaluation, evaluate
from annealax.trainers import AFT, SNF, VI, AbstractTrainer
from annealax.trainers.fit import Fit, fit

_MAX_SEED = 2**32 - 1


@dataclasses.dataclass(frozen=True)
class Method:
    """A way to sample.

    Attributes:
        label: What to call it.
        sampler: The sampler it deploys.
        trainer: How it trains flows; None if it has none.
        num_fit_steps: Steps of that training; AFT makes one, a whole pass.
    """

    label: str
    sampler: Callable[[Settings], Sampler]
    trainer: Callable[[Settings], AbstractTrainer] | None = None
    num_fit_steps: Callable[[Settings], int] = lambda s: s.num_train_steps


def _aft(settings: Settings, *, early_stopping: bool) -> AFT:
    return AFT(
        settings.sampler(),
        settings.optimizer(),
        num_iters=max(1, settings.num_train_steps),
        early_stopping=early_stopping,
        gradient=settings.gradient,
    )


def _vi(settings: Settings) -> VI:
    return VI(settings.sampler(), settings.optimizer(), settings.gradient)


METHODS: Mapping[str, Method] = {
    "craft": Method("CRAFT", lambda s: s.sampler(), lambda s: s.trainer()),
    "aft": Method(
        "AFT",
        lambda s: s.sampler(),
        lambda s: _aft(s, early_stopping=True),
        lambda s: 1,
    ),
    "aft-simple": Method(
        "simple AFT",
        lambda s: s.sampler(),
        lambda s: _aft(s, early_stopping=False),
        lambda s: 1,
    ),
    "snf": Method(
        "SNF", lambda s: s.sampler(), lambda s: SNF(s.sampler(), s.optimizer())
    ),
    "vi": Method("VI", lambda s: _vi(s).sampler, _vi),
    "smc": Method("SMC", lambda s: s.sampler()),
    "ais": Method("AIS", lambda s: s.sampler(resampler=NoResampling())),
}
"""The methods that deploy a sampler, by name."""


def find_method(name: str) -> Method:
    """The method of this name."""
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    return METHODS[name]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a run found.

    Attributes:
        name: Name of the experiment.
        settings: Its settings.
        method: Name of the method.
        seed: The seed.
        truth: Exact log Z, or None.
        fit: The training, if the method trains.
        evaluations: The method first, then what it is compared with.
    """

    name: str
    settings: Settings
    method: str
    seed: int
    truth: float | None
    fit: Fit | None
    evaluations: tuple[Evaluation, ...]

    @property
    def main(self) -> Evaluation:
        """The passes of the method itself."""
        return self.evaluations[0]


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """What is left of a run in its folder.

    Attributes:
        name: Name of the experiment.
        settings: Its settings.
        method: Name of the method.
        seed: The seed.
        flows: The trained flows; None if the method has none.
    """

    name: str
    settings: Settings
    method: str
    seed: int
    flows: AbstractBijection | None


@dataclasses.dataclass(frozen=True)
class Job:
    """A run that is ready to start: its settings were found to fit together.

    Attributes:
        name: Name of the experiment.
        settings: Its settings.
        method: Name of the method.
        seed: The seed.
        sampler: What it deploys.
        trainer: What trains its flows, if anything.
    """

    name: str
    settings: Settings
    method: str
    seed: int
    sampler: Sampler
    trainer: AbstractTrainer | None

    def run(
        self,
        *,
        progress: bool = False,
        say: Callable[[str], None] = lambda text: None,
        callbacks: Callable[[str], list[Callback]] = lambda stage: [],
        checkpoint: Checkpoint | None = None,
    ) -> Outcome:
        """Train, deploy and compare.

        Args:
            progress: Show training and passes live.
            say: Called with a line of text when a stage begins.
            callbacks: From the name of a stage to its callbacks.
            checkpoint: Where every stage saves its state; a job with the same settings
                and seed goes on from there, with the same numbers to the bit.
        """
        stages = _Stages(progress, say, callbacks, checkpoint)
        keys = jr.split(jr.key(self.seed), 4)
        key_flow, key_fit, key_deploy, key_compare = keys
        settings, method = self.settings, METHODS[self.method]
        label, fitted = method.label, None
        if self.trainer is not None:
            num_steps = method.num_fit_steps(settings)
            say(f"compiling and training, {settings.num_train_steps} steps")
            fitted = fit(
                key_fit,
                self.trainer,
                settings.flow(key_flow),
                num_steps=num_steps,
                **stages.options("training"),
            )
        say(f"deploying {label}, {settings.num_repeats} passes")
        main = evaluate(
            key_deploy,
            self.sampler,
            None if fitted is None else fitted.flows,
            label=label,
            num_repeats=settings.num_repeats,
            **stages.options("deployment"),
        )
        plain = self.method == "smc"
        others = () if plain else _compare(key_compare, settings, main, stages)
        return Outcome(
            name=self.name,
            settings=settings,
            method=self.method,
            seed=self.seed,
            truth=settings.target().log_normalizer,
            fit=fitted,
            evaluations=(main, *others),
        )


def prepare(
    name: str, settings: Settings, *, method: str = "craft", seed: int = 0
) -> Job:
    """Check everything that can be checked before a run starts.

    The same seed gives the same numbers; only how many temperatures SMC gets for the
    same cost depends on the clock (the setting `smc_transitions` fixes it).

    Args:
        name: Name of the experiment, for reports.
        settings: Its settings.
        method: A name in `METHODS`.
        seed: Seed of all that is random, from 0 to 2**32 - 1.
    """
    chosen = find_method(method)
    if not 0 <= seed <= _MAX_SEED:
        raise InvalidInputError(
            f"seed must be from 0 to {_MAX_SEED}; got {reprlib.repr(seed)}."
        )
    sampler, trainer = chosen.sampler(settings), None
    if chosen.trainer is not None:
        trainer = chosen.trainer(settings)
        settings.flow(jr.key(0))  # an impossible flow is an error now, not later
    return Job(name, settings, method, seed, sampler, trainer)


@dataclasses.dataclass(frozen=True)
class _Stages:
    """What every stage of a job is given."""

    progress: bool
    say: Callable[[str], None]
    callbacks: Callable[[str], list[Callback]]
    checkpoint: Checkpoint | None

    def options(self, stage: str) -> dict[str, Any]:
        store = None if self.checkpoint is None else self.checkpoint.child(stage)
        return {
            "progress": self.progress,
            "callback": self.callbacks(stage),
            "checkpoint": store,
        }

    def remember(self, name: str, number: int) -> int:
        """A number that depends on the clock: the one of the first time."""
        if self.checkpoint is None:
            return number
        kept = self.checkpoint.once(
            name,
            lambda: np.asarray(number),
            identity={"work": name},
            like=np.asarray(0),
        )
        return int(kept)


def _compare(
    key: PRNGKeyArray, settings: Settings, main: Evaluation, stages: _Stages
) -> tuple[Evaluation, ...]:
    """Plain SMC with the same temperatures, and with as many as take the same time."""

    def smc(count: int, label: str, stage: str) -> Evaluation:
        stages.say(f"{label}: {count} transitions")
        return evaluate(
            jr.fold_in(key, count),
            settings.sampler(num_transitions=count),
            label=label,
            num_repeats=settings.num_repeats,
            **stages.options(stage),
        )

    same_ladder = smc(settings.num_transitions, "SMC, same ladder", "smc-same-ladder")
    if main.flows is None:
        return (same_ladder,)
    count = settings.smc_transitions
    if count > 0:
        return same_ladder, smc(count, "SMC, given ladder", "smc-given-ladder")
    ratio = main.seconds / same_ladder.seconds
    count = stages.remember("smc-transitions", round(settings.num_transitions * ratio))
    if count <= settings.num_transitions:  # flows cost nothing to speak of
        return (same_ladder,)
    return same_ladder, smc(count, "SMC, same time", "smc-same-time")

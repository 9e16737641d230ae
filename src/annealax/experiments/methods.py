"""The methods: what each deploys, and how it trains."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from annealax._checks import unknown_name
from annealax._resampling import NoResampling
from annealax._sampler import Sampler
from annealax.experiments.experiment import Experiment, Problem
from annealax.trainers import AFT, CRAFT, SNF, VI, AbstractTrainer


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
    sampler: Callable[[Problem], Sampler] = Problem.sampler
    trainer: Callable[[Problem], AbstractTrainer] | None = None
    num_fit_steps: Callable[[Experiment], int] = lambda s: s.num_train_steps


def _craft(problem: Problem) -> CRAFT:
    settings = problem.settings
    return CRAFT(problem.sampler(), settings.optimizer(), settings.gradient)


def _aft(problem: Problem, *, early_stopping: bool) -> AFT:
    settings = problem.settings
    return AFT(
        problem.sampler(),
        settings.optimizer(),
        num_iters=max(1, settings.num_train_steps),
        early_stopping=early_stopping,
        gradient=settings.gradient,
    )


def _snf(problem: Problem) -> SNF:
    return SNF(problem.sampler(), problem.settings.optimizer())


def _vi(problem: Problem) -> VI:
    settings = problem.settings
    return VI(problem.sampler(), settings.optimizer(), settings.gradient)


METHODS: Mapping[str, Method] = {
    "craft": Method("CRAFT", trainer=_craft),
    "aft": Method(
        "AFT",
        trainer=lambda problem: _aft(problem, early_stopping=True),
        num_fit_steps=lambda s: 1,
    ),
    "aft-simple": Method(
        "simple AFT",
        trainer=lambda problem: _aft(problem, early_stopping=False),
        num_fit_steps=lambda s: 1,
    ),
    "snf": Method("SNF", trainer=_snf),
    "vi": Method("VI", lambda problem: _vi(problem).sampler, _vi),
    "smc": Method("SMC"),
    "ais": Method("AIS", lambda problem: problem.sampler(resampler=NoResampling())),
}
"""The methods that deploy a sampler, by name."""


def find_method(
    name: str, settings: Experiment | None = None, others: Iterable[str] = ()
) -> Method:
    """The method of this name.

    Args:
        name: Its name.
        settings: An experiment that may bring methods of its own.
        others: Names that are valid elsewhere, for the error.
    """
    known = {**METHODS, **({} if settings is None else settings.methods())}
    if name not in known:
        raise unknown_name("method", name, [*known, *others])
    return known[name]

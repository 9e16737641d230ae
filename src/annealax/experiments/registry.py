"""Experiments by name: ours, those of installed packages, and those in a file.

`find_experiment` takes

- a name of `EXPERIMENTS`, or one that an installed package registers in the entry-point
  group `annealax.experiments`;
- a file, `my_experiment.py`, or a class in it, `my_experiment.py:Mine`;
- a class in a module of this folder or of an installed package, `my_package:Mine`.
"""

import importlib
import importlib.metadata
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from annealax._checks import unknown_name
from annealax._errors import InvalidInputError
from annealax.experiments.experiment import Experiment
from annealax.experiments.problems.lgcp import LGCP
from annealax.experiments.problems.phi4 import Phi4, Phi4Small, Phi4Tuned
from annealax.experiments.problems.posteriors import (
    Brownian,
    EightSchools,
    Logistic,
    Seeds,
)
from annealax.experiments.problems.synthetic import (
    Bimodal,
    ChallengingMixture,
    FortyModes,
    Funnel,
    Gaussian,
    ManyWell,
    StudentT,
)
from annealax.experiments.problems.vae import VAE

GROUP = "annealax.experiments"
EXPERIMENTS: Mapping[str, type[Experiment]] = {
    "bimodal": Bimodal,
    "gaussian": Gaussian,
    "funnel": Funnel,
    "challenging-mixture": ChallengingMixture,
    "many-well": ManyWell,
    "forty-modes": FortyModes,
    "student-t": StudentT,
    "phi4": Phi4,
    "phi4-small": Phi4Small,
    "phi4-tuned": Phi4Tuned,
    "lgcp": LGCP,
    "vae": VAE,
    "seeds": Seeds,
    "brownian": Brownian,
    "eight-schools": EightSchools,
    "logistic": Logistic,
}


class Found(NamedTuple):
    """An experiment, and how to find it again.

    Attributes:
        name: What to call it.
        source: What `find_experiment` takes to find it from any folder; None where
            the name does.
        experiment: Its class.
    """

    name: str
    source: str | None
    experiment: type[Experiment]


def find_experiment(reference: str) -> Found:
    """The experiment that a name, a file or `module:Class` stands for.

    Raises:
        InvalidInputError: If there is none.
    """
    if reference in EXPERIMENTS:
        return Found(reference, None, EXPERIMENTS[reference])
    place, colon, name = reference.rpartition(":")
    if not colon or reference.endswith(".py"):
        place, colon, name = reference, "", ""
    if place.endswith(".py"):
        file = Path(place).resolve()
        cls = _class_in(import_file(file), name, reference)
        source = f"{file}:{name}" if name else str(file)
        return Found(name or file.stem, source, cls)
    if colon:
        cls = _class_in(import_module(place), name, reference)
        return Found(name, reference, cls)
    registered = registered_experiments()
    if reference not in registered:
        raise unknown_name("experiment", reference, [*EXPERIMENTS, *registered])
    return Found(reference, None, _registered(registered[reference]))


def find_experiments(reference: str) -> list[Found]:
    """As `find_experiment`, but all of a file that holds several."""
    if reference.endswith(".py"):
        own = _own(import_file(Path(reference).resolve()))
        if len(own) > 1:
            return [find_experiment(f"{reference}:{name}") for name in own]
    return [find_experiment(reference)]


def registered_experiments() -> dict[str, importlib.metadata.EntryPoint]:
    """What installed packages register, by name."""
    return {each.name: each for each in importlib.metadata.entry_points(group=GROUP)}


def import_module(name: str) -> ModuleType:
    """A module by its name; modules of this folder count."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f"there is no module {error.name!r} here or among the installed packages; "
            "run the command in the folder that holds it."
        ) from error
    except Exception as error:
        raise _failed(name, error) from error


def import_file(file: Path) -> ModuleType:
    """A Python file as a module, under the name that `import` would give it."""
    if not file.is_file():
        raise InvalidInputError(f"there is no file {file}.")
    name, folder = file.stem, str(file.parent)
    known = sys.modules.get(name)
    if known is not None:
        if Path(getattr(known, "__file__", None) or "").resolve() == file:
            return known
        raise InvalidInputError(
            f"{file} has the name of another module that is in use: rename it."
        )
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    if folder not in sys.path:
        sys.path.insert(0, folder)  # so that it can import its neighbours
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _failed(file, error) from error
    return module


def _class_in(module: ModuleType, name: str, reference: str) -> type[Experiment]:
    if name:
        found: Any = getattr(module, name, None)
        if _is_experiment(found):
            return found
        if callable(found) and not isinstance(found, type):
            raise InvalidInputError(
                f"{reference} is a function, not an experiment: `annealax sample "
                f"{module.__name__}:{name} --shape ...` samples a log density."
            )
    own = _own(module)
    if not name and len(own) == 1:
        return next(iter(own.values()))
    if name and own:
        raise unknown_name(f"experiment of {module.__name__}", name, own)
    if own:
        raise InvalidInputError(
            f"{reference} holds several experiments: choose one, such as "
            f"{reference}:{next(iter(own))} (of {', '.join(own)})."
        )
    raise InvalidInputError(
        f"{reference}: there is no experiment in it, a class that derives from "
        "annealax.experiments.Experiment and has a target and a flow."
    )


def _own(module: ModuleType) -> dict[str, type[Experiment]]:
    """The experiments that a module defines, by name."""
    return {
        key: each
        for key, each in vars(module).items()
        if _is_experiment(each) and each.__module__ == module.__name__
    }


def _is_experiment(value: Any) -> bool:
    return (
        isinstance(value, type)
        and issubclass(value, Experiment)
        and not inspect.isabstract(value)
    )


def _registered(entry: importlib.metadata.EntryPoint) -> type[Experiment]:
    try:
        found = entry.load()
    except Exception as error:
        raise _failed(entry.value, error) from error
    if not _is_experiment(found):
        raise InvalidInputError(
            f"{entry.value}, registered as the experiment {entry.name!r}, is not a "
            "class that derives from annealax.experiments.Experiment."
        )
    return found


def _failed(what: object, error: Exception) -> InvalidInputError:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return InvalidInputError(f"importing {what} failed: {text}")

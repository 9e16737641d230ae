"""annealax: samples from hard densities, and their normalising constants.

SMC samplers whose annealing steps are helped by normalising flows (CRAFT), on JAX.
Public names are listed in `_public`, which is imported with the first of them: JAX and
what is built on it take a second, and `annealax --help` needs none of it.
"""

from annealax import _command_start as _command_start  # signals: before all else

# isort: split

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from annealax import _compiler

if TYPE_CHECKING:
    from annealax._public import *  # noqa: F403
    from annealax.experiments.runs import Run as Run
    from annealax.experiments.runs import load_run as load_run

_OF_EXPERIMENTS = ("Run", "load_run")
"""These need all experiments, which `_public` does not."""

__version__ = "0.1.0"

_compiler.avoid_faults()


def __getattr__(name: str) -> Any:
    """A public name, or a module of this package."""
    if name == "__all__":
        return _public_names()
    if name.startswith("__"):
        raise AttributeError(f"module 'annealax' has no attribute {name!r}")
    if importlib.util.find_spec(f"annealax.{name}") is not None:
        return importlib.import_module(f"annealax.{name}")
    place = "experiments.runs" if name in _OF_EXPERIMENTS else "_public"
    module = importlib.import_module(f"annealax.{place}")
    if name not in vars(module):
        raise AttributeError(f"module 'annealax' has no attribute {name!r}")
    return vars(module)[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_public_names()})


def _public_names() -> list[str]:
    public = vars(importlib.import_module("annealax._public"))
    own = [name for name in public if not name.startswith("_")]
    return sorted([*own, *_OF_EXPERIMENTS])

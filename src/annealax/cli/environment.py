"""What a run ran on: versions, devices, commit; no path and no name of a machine."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import annealax
from annealax._layout import available_devices

_PACKAGES = (
    "jax",
    "jaxlib",
    "equinox",
    "optax",
    "flowjax",
    "paramax",
    "blackjax",
    "jaxtyping",
    "numpy",
    "scipy",
    "pydantic",
    "rich",
    "typer",
    "matplotlib",
)
_GIT_SECONDS = 5


def environment() -> dict[str, Any]:
    """Facts that the numbers of a run may depend on, as JSON holds them."""
    return {
        "versions": {
            "python": platform.python_version(),
            "annealax": annealax.__version__,
            **{name: _version(name) for name in _PACKAGES},
        },
        "platform": {"system": platform.system(), "machine": platform.machine()},
        "num_processors": os.cpu_count(),
        "devices": [str(device) for device in jax.devices()],
        "num_processes": jax.process_count(),
        "devices_for_particles": [str(device) for device in available_devices()],
        "x64": jnp.result_type(float) == jnp.float64,
        "git": {
            "annealax": _package_commit(),
            "working_folder": _commit(Path.cwd()),
        },
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _package_commit() -> dict[str, Any] | None:
    """The commit of annealax itself, if it runs from its own checkout."""
    folder = Path(annealax.__file__).parent
    tracked = _git(folder, "ls-files", "--error-unmatch", "__init__.py")
    return None if tracked is None else _commit(folder)


def _commit(folder: Path) -> dict[str, Any] | None:
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    status = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if status is None else bool(status)}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            check=True,
            text=True,
            timeout=_GIT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip()

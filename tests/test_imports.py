"""What importing costs: nothing is imported before it is needed."""

import os
import subprocess
import sys

import pytest

import annealax as ax
from annealax.experiments import METHODS

HEAVY = ("blackjax", "matplotlib", "scipy", "arviz", "numpyro", "pymc", "dask")


def imported(statement: str) -> set[str]:
    """Modules that a fresh process has after a statement."""
    script = (
        "import sys\n"
        "try:\n"
        f"    {statement}\n"
        "except SystemExit:\n"
        "    pass\n"
        "print('\\n' + ' '.join(sys.modules))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(found.stdout.splitlines()[-1].split())


def test_importing_the_package_imports_no_jax():
    found = imported("import annealax")
    assert "annealax" in found
    assert not found & {"jax", "equinox", "numpy", "pydantic", "rich", *HEAVY}


def test_help_imports_no_jax():
    found = imported(
        "import annealax.cli.main as m; sys.argv = ['annealax', '--help']; m.main()"
    )
    assert "typer" in found
    assert not found & {"jax", "equinox", "pydantic", *HEAVY}


def test_the_library_imports_only_what_it_needs():
    found = imported("import annealax; annealax.sample")
    assert "jax" in found
    assert not found & {"typer", "pydantic", "annealax.cli", "annealax.report", *HEAVY}


def test_experiments_import_no_charts():
    assert not imported("import annealax; annealax.load_run") & {"typer", *HEAVY}


def test_all_public_names_are_there():
    names = ax.__all__
    assert {"sample", "Sampler", "load_run", "CRAFT", "flows", "targets"} <= set(names)
    assert set(names) <= set(dir(ax))
    assert all(getattr(ax, name) is not None for name in names)
    assert not any(name.startswith("_") for name in names)
    with pytest.raises(AttributeError, match="no attribute 'smaple'"):
        _ = ax.smaple


def test_help_names_every_method():
    found = subprocess.run(
        [sys.executable, "-m", "annealax", "compare", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"COLUMNS": "200"},
    )
    assert all(name in found.stdout for name in [*METHODS, "hmc", "nuts"])

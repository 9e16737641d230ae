"""What importing costs: nothing is imported before it is needed; what tests import."""

import ast
import os
import subprocess
import sys
from pathlib import Path

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


TESTS = Path(__file__).parent
PRIVATE_ELSEWHERE = {
    # The loss of CRAFT, whose gradients are known.
    ("trainers/test_craft.py", "annealax._objectives"),
    # Coverage of one chain in a hundred; `Chain` pools them.
    ("test_pimh.py", "annealax._estimates"),
    # Whether two models are the same to a checkpoint.
    ("models/test_pymc.py", "annealax._work.fingerprint"),
    ("models/test_stan.py", "annealax._work.fingerprint"),
    # Threads in the place of processes.
    ("experiments/test_workers.py", "annealax._work.executors"),
    # How many processors there are to be split into devices.
    ("cli/test_devices.py", "annealax._work.executors"),
    # How many replicates a budget allows, without drawing them.
    ("auto/test_sample.py", "annealax._work.budget"),
    # Scales of a heavy tail, which no start shows by itself.
    ("auto/starts/test_student.py", "annealax.auto.adaptive_smc._scales"),
    # Texts of any kind.
    ("test_fuzz.py", "annealax._work.budget"),
    ("test_fuzz.py", "annealax.targets._csv"),
}
"""Private names that a test file uses without being the mirror of their module."""


def private_imports(file):
    """Modules or names of the package with an underscore, as `annealax.a._b`."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom | ast.Import):
            continue
        module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for name in node.names:
            parts = f"{module}{name.name}".split(".")
            if parts[0] == "annealax" and any(part[0] == "_" for part in parts):
                last = max(i for i, part in enumerate(parts) if part[0] == "_")
                least = 3 if parts[1] == "_work" else 2
                yield ".".join(parts[: max(last + 1, least)])


def mirrored(file):
    """The private module that a test file is the test of, if it is one of that."""
    folder, name = file.relative_to(TESTS).parent, file.stem.removeprefix("test_")
    if folder.name == "work":
        return f"annealax._work.{name}"
    return ".".join(("annealax", *folder.parts, f"_{name}"))


def test_tests_use_private_names_of_the_module_that_they_mirror():
    found = {
        (file.relative_to(TESTS).as_posix(), name)
        for file in TESTS.rglob("test_*.py")
        for name in private_imports(file)
        if not name.startswith(mirrored(file))
    }
    assert found == PRIVATE_ELSEWHERE

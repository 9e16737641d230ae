"""Let tests import the shared helpers beside them by a name of their own."""

import importlib.util
import sys
from pathlib import Path

import jaxtyping
import pytest

for name in ("_problems", "_exact", "_chromium", "_run_folder"):
    source = Path(__file__).parent / f"{name}.py"
    if source.exists():
        spec = importlib.util.spec_from_file_location(f"tests{name}", source)
        module = importlib.util.module_from_spec(spec)
        sys.modules[f"tests{name}"] = module
        spec.loader.exec_module(module)


@pytest.fixture
def untyped():
    """Switch run-time type checks off, to see the errors that a user sees."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)

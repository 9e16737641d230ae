"""What all tests share: helpers by a name of their own, and compiled programs."""

import gc
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

import jax
import jaxtyping
import pytest

# As many workers as cores: no need for threads within one. Most of the time of tests is
# compilation. The older emitters took 60 % of it. Without optimisation and with sums of
# products fused or not, as the compiler likes, loops of one and of several steps differ
# in their last bits, which tests compare: processors before AVX2 have none to fuse.
_XLA_FLAGS = [
    "--xla_cpu_multi_thread_eigen=false",
    "--xla_backend_optimization_level=1",
]
if platform.machine() in ("x86_64", "AMD64"):
    _XLA_FLAGS.append("--xla_cpu_max_isa=AVX")
if jax.__version_info__ < (0, 11):  # later ones do not know it, and end the process
    _XLA_FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *_XLA_FLAGS])
_CACHE, _SHORTEST = "JAX_COMPILATION_CACHE_DIR", "0.0"
_UNOPTIMISED = "JAX_DISABLE_MOST_OPTIMIZATIONS"
_ROOM = 2**30
"""Bytes that compiled programs may take before they are forgotten."""
_taken = [0.0]
"""Bytes of this process when it had forgotten all programs."""

# Traces are many small objects, and collecting them took a twentieth of the time.
gc.set_threshold(50_000, 20, 20)

for name in ("_problems", "_exact", "_chromium", "_run_folder"):
    source = Path(__file__).parent / f"{name}.py"
    if source.exists():
        spec = importlib.util.spec_from_file_location(f"tests{name}", source)
        module = importlib.util.module_from_spec(spec)
        sys.modules[f"tests{name}"] = module
        spec.loader.exec_module(module)


def pytest_configure(config):
    """Tests, workers and the processes they start compile a program only once."""
    if _CACHE in os.environ:  # of the main process, or of whoever runs the tests
        return
    folder = tempfile.mkdtemp(prefix="annealax-tests-")
    os.environ[_CACHE] = folder
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = _SHORTEST
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", float(_SHORTEST))
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_finish():
    """What is there before the first test is not looked at again: modules, types."""
    gc.collect()
    gc.freeze()


def _resident_bytes():
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:  # no Linux: as if much had been compiled
        return float("inf")
    return pages * os.sysconf("SC_PAGE_SIZE")


def _forget_programs():
    jax.clear_caches()
    gc.collect()
    _taken[0] = _resident_bytes()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Programs are not optimised at all, but where a test that runs for long says so.

    Compiling takes half the time then, and running programs up to four times as long.
    """
    plain = str(item.get_closest_marker("optimised") is None)
    if os.environ.get(_UNOPTIMISED) != plain:
        _forget_programs()
        jax.config.update(_UNOPTIMISED.lower(), plain == "True")
        os.environ[_UNOPTIMISED] = plain


@pytest.fixture(autouse=True, scope="module")
def _bounded_memory():
    """Programs are of use to other files, too, but take gigabytes by the end."""
    yield
    if not _resident_bytes() < _taken[0] + _ROOM:
        _forget_programs()


@pytest.fixture
def untyped():
    """Switch run-time type checks off, to see the errors that a user sees."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)

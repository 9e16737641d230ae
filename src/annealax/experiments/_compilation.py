"""Compile a program once, however often it is asked for."""

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache


@contextlib.contextmanager
def reuse_compiled_programs() -> Iterator[None]:
    """Keep compiled programs in a folder that goes away at the end.

    Repeats of a training compile the same program; they find it there.
    """
    names: dict[str, Any] = {
        "jax_compilation_cache_dir": None,
        "jax_persistent_cache_min_compile_time_secs": 0.5,
    }
    before = {name: getattr(jax.config, name) for name in names}
    with tempfile.TemporaryDirectory(prefix="annealax-") as folder:
        names["jax_compilation_cache_dir"] = folder
        try:
            for name, value in names.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()
            yield
        finally:
            for name, value in before.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()

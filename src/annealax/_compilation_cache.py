"""Compiled programs, kept on disk for the next process."""

import hashlib
import os
import platform
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache as _of_jax


def compilation_cache(path: str | os.PathLike | None = None) -> Path:
    """Keep what JAX compiles in a folder, so that no process compiles it again.

    One line at the top of a script: `ax.compilation_cache()`. It is JAX's persistent
    cache, with programs of any size and compile time.

    Args:
        path: The folder; None for `annealax` in the user's folder of caches. Machines
            with different processors get folders of their own inside it.

    Returns:
        The folder in use.
    """
    if path is None:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        path = Path(base) / "annealax"
    folder = Path(path).expanduser() / _processor()
    folder.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    _of_jax.reset_cache()  # one that is in use already keeps its folder
    return folder


def _processor() -> str:
    """A name for the kind of processor: programs are compiled for one kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [platform.processor()]
    kinds = ("flags", "Features", "model name")
    kept = {line for line in lines if line.startswith(kinds)} or set(lines)
    digest = hashlib.sha256("\n".join(sorted(kept)).encode()).hexdigest()[:8]
    return f"{platform.machine()}-{digest}"

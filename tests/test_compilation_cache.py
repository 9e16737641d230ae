"""The cache of compiled programs, in processes of their own."""

import subprocess
import sys

_SCRIPT = """
import sys
import jax
import jax.numpy as jnp
import annealax as ax

found = []
jax.monitoring.register_event_listener(lambda name, **_: found.append(name))
folder = ax.compilation_cache(sys.argv[1])
assert folder.parent == type(folder)(sys.argv[1])
jax.jit(lambda x: jnp.sin(x) * 3)(jnp.ones(3)).block_until_ready()
hits = sum(name.endswith("compilation_cache/cache_hits") for name in found)
misses = sum(name.endswith("compilation_cache/cache_misses") for name in found)
print(hits, misses)
"""


def _run(folder):
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(folder)],
        check=True,
        capture_output=True,
        text=True,
    )
    hits, misses = map(int, done.stdout.split())
    return hits, misses


def test_the_second_process_compiles_nothing(tmp_path):
    hits, misses = _run(tmp_path / "cache")
    assert hits == 0
    assert misses > 0
    again, missed = _run(tmp_path / "cache")
    assert again == misses
    assert missed == 0

"""Faults of the compiler that would make numbers wrong."""

import os
import subprocess
import sys

import pytest

_SCRIPT = """
import {first}
import {second}
import jax.numpy as jnp
matrix = jnp.eye(3)
points = jnp.stack([jnp.arange(40_000.0)] + 2 * [jnp.zeros(40_000)], axis=1)
norm = jax.jit(jax.vmap(lambda x: jnp.sum((matrix @ x) ** 2)))(points)
assert norm[-1] == 39_999.0**2, norm[-1]
"""


def _run(script):
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    return subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("order", [("annealax", "jax"), ("jax", "annealax")])
def test_sums_over_many_points_are_right(order):
    """jaxlib 0.10.2 alone is off by about 1 in 500 (jax issue 39103)."""
    found = _run(_SCRIPT.format(first=order[0], second=order[1]))
    assert found.returncode == 0, found.stderr
    assert "Warning" not in found.stderr

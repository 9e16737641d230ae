"""Fingerprints: the same in every process, different for different work."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import annealax as ax
from annealax._work.fingerprint import fingerprint

SCRIPT = """
import jax.numpy as jnp, optax, annealax as ax
from annealax._work.fingerprint import fingerprint
def log_density(x):
    return -jnp.sum(x**2)
path = ax.GeometricPath((2,), log_density, 3)
sampler = ax.Sampler(path, ax.kernels.HMC(0.3, 2), num_particles=8)
schedule = optax.cosine_decay_schedule(1e-2, 10)
adam = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))
for trainer in (ax.CRAFT(sampler, adam), ax.AFT(sampler, adam), ax.SNF(sampler, adam),
                ax.VI(sampler, adam), lambda key: sampler.run(key)):
    print(fingerprint(trainer))
"""


def test_the_same_in_another_process():
    found = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            check=True,
            capture_output=True,
            text=True,
            env={**__import__("os").environ, "PYTHONHASHSEED": seed},
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]
    assert len(set(found[0])) == 5


def scaled(scale):
    return lambda x: scale * x


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.ones(3), np.ones(4)),
        (np.ones(3, np.float32), np.ones(3, np.float64)),
        (jnp.zeros(2), jnp.ones(2)),
        (jr.key(0), jr.key(1)),
        (optax.adam(1e-2), optax.adam(1e-3)),
        (scaled(1.0), scaled(2.0)),
        (jax.jit(scaled(1.0)), jax.jit(scaled(2.0))),
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x: x.min(), lambda x: x.max()),
        (ax.kernels.HMC(0.1, 2), ax.kernels.HMC(0.1, 3)),
        (ax.kernels.HMC(0.1, 2), ax.kernels.HMC(0.2, 2)),
        ((1, 2), [1, 2]),
        ({"a": 1}, {"b": 1}),
        (1, 1.0),
        (None, False),
    ],
)
def test_different_work_differs(one, other):
    assert fingerprint(one) == fingerprint(one)
    assert fingerprint(one) != fingerprint(other)


def test_a_function_that_calls_itself():
    def outer():
        def loop(n):
            return loop(n - 1) if n else 0

        return loop

    assert fingerprint(outer()) == fingerprint(outer())

"""Blocks: nothing is lost or counted twice, and devices do not change a bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from tests_problems import LOPSIDED_LOG_NORMALIZER, lopsided_log_density, z_score

import annealax as ax
from annealax._layout import Layout, Mapped, choose_block_size

PROGRAM = Path(__file__).parent / "_devices.py"


@pytest.mark.parametrize(
    ("num_particles", "block_size"), [(12, 12), (12, 4), (13, 4), (7, 1), (22, 3)]
)
def test_every_particle_is_worked_on_once(num_particles, block_size):
    layout = Layout(num_particles, block_size)

    def of_block(first, x):
        counted = jnp.where(layout.valid(first), x, 0)
        return Mapped(x + 1, jnp.sum(counted), {"square": jnp.sum(counted**2)})

    x = jnp.arange(1.0, num_particles + 1)
    mapped = jax.jit(lambda x: layout.map(of_block, x))(x)
    np.testing.assert_array_equal(mapped.each, x + 1)
    assert mapped.numbers.shape == (-(-num_particles // block_size),)
    assert float(jnp.sum(mapped.numbers)) == float(jnp.sum(x))
    assert float(mapped.total["square"]) == float(jnp.sum(x**2))


@pytest.mark.parametrize("num_particles", [1, 1000, 1001, 99_991, 1_000_000])
@pytest.mark.parametrize("size", [1, 10, 16_384])
def test_blocks_are_even_and_fit(num_particles, size):
    block = choose_block_size(num_particles, size)
    count = -(-num_particles // block)
    assert block * size <= max(2**18, size)
    # Less than a third smaller than they may be, and hardly a place is empty.
    largest = min(num_particles, max(1, 2**18 // size))
    assert block >= 0.65 * largest
    assert count * block - num_particles < max(count, 1)
    assert choose_block_size(num_particles, size, 100) <= 100


def test_islands_get_the_blocks_that_were_asked_for():
    assert choose_block_size(960, 2, 60) == 60
    assert choose_block_size(1_000_000, 10, 62_500) == 62_500


def sampler(resampler, num_particles=48, **more):
    path = ax.GeometricPath((2,), lopsided_log_density, [0.0, 0.3, 0.55, 1.0])
    kernel = ax.kernels.HMC([0.3, 0.25, 0.2], num_leapfrog=2)
    return ax.Sampler(path, kernel, resampler, num_particles=num_particles, **more)


RESAMPLERS = {
    "global": ax.ESSResampling(0.9),
    "islands": ax.IslandResampling(0.9),
    "islands, apart": ax.IslandResampling(0.9, "multinomial", exchange=0.0),
}


def log_normalizers(sampler, num_runs):
    """Independent runs, with their error bars."""

    def run(key):
        result = sampler.run(key)
        return result.log_normalizer, result.log_normalizer_stderr

    keys = jr.split(jr.key(5), num_runs)
    runs = eqx.filter_jit(jax.vmap(run))(keys)
    return (np.asarray(each, np.float64) for each in runs)


class Careless(ax.IslandResampling):
    """Islands whose weights are forgotten when they resample."""

    def __call__(self, key, log_weights, population, layout=None):
        selection = super().__call__(key, log_weights, population, layout)
        even = jnp.full_like(log_weights, -np.log(log_weights.shape[0]))
        even = jnp.where(selection.resampled, even, log_weights)
        return selection._replace(log_weights=even)


# |z| < 4 for each of four: a false alarm has probability 3e-4. The standard error is
# about 0.5 %, so that an error of 2 % is caught.
@pytest.mark.parametrize(
    ("name", "count", "block_size"),
    [*((name, 48, 12) for name in RESAMPLERS), ("global", 47, 11)],
)
def test_z_is_unbiased_in_blocks_and_islands(name, count, block_size):
    blocks = sampler(RESAMPLERS[name], count, block_size=block_size)
    log_z, _ = log_normalizers(blocks, 8000)
    ratio = np.exp(log_z - LOPSIDED_LOG_NORMALIZER)
    assert abs(z_score(ratio, 1.0)) < 4
    assert ratio.std() / np.sqrt(8000) < 0.01


def test_the_test_catches_islands_that_forget_their_weights():
    careless = sampler(Careless(0.9, exchange=0.0), block_size=4)
    log_z, _ = log_normalizers(careless, 8000)
    assert abs(z_score(np.exp(log_z - LOPSIDED_LOG_NORMALIZER), 1.0)) > 4


@pytest.mark.slow
@pytest.mark.parametrize("exchange", [0.5, 0.0])
def test_error_bars_of_islands_cover(exchange):
    """As in `test_sampler`: 200 runs, the limits there, with 10 islands of 50."""
    target = ax.targets.GaussianMixture(
        means=jnp.array([[-2.0, 1.0], [2.5, 0.0]]),
        covariances=jnp.array([0.25, 0.81]),
        weights=jnp.array([0.3, 0.7]),
    )
    path = ax.GeometricPath((2,), target, jnp.linspace(0, 1, 9) ** 2)
    smc = ax.Sampler(
        path,
        ax.kernels.HMC(0.3, num_leapfrog=3),
        ax.IslandResampling(0.7, exchange=exchange),
        num_particles=500,
        block_size=50,
    )
    log_z, stderr = log_normalizers(smc, 200)
    coverage = np.mean(np.abs(log_z) < 1.96 * stderr)
    assert 0.85 <= coverage <= 0.99, (coverage, log_z.std(), stderr.mean())
    assert 0.65 < np.mean(stderr**2) / log_z.var(ddof=1) < 1.45


def test_islands_of_unequal_size_are_an_error():
    with pytest.raises(ax.InvalidInputError, match=r"blocks of 16 do not divide 47"):
        sampler(ax.IslandResampling(0.5), 47, block_size=16).run(jr.key(0))
    with pytest.raises(ax.InvalidInputError, match="share between 0 and 1"):
        ax.IslandResampling(0.5, exchange=2.0)


def test_a_mesh_without_particles_is_an_error(untyped):
    mesh = jax.make_mesh((1,), ("data",))
    with pytest.raises(ax.InvalidInputError, match=r'no axis "particles"'):
        sampler(None).run(jr.key(0), mesh=mesh)
    with pytest.raises(ax.InvalidInputError, match="jax.make_mesh"):
        sampler(None).run(jr.key(0), mesh=4)


def test_blocks_bound_memory():
    """What the compiler sets aside for a density with many intermediate numbers."""
    wide = jnp.linspace(-1.0, 1.0, 600).reshape(300, 2)

    def log_density(x):
        return -jnp.sum(x**2) + 1e-3 * jnp.sum(jnp.tanh(wide @ x))

    def temporary(block_size):
        path = ax.GeometricPath((2,), log_density, 2)
        smc = ax.Sampler(
            path, ax.kernels.HMC(0.1), num_particles=20_000, block_size=block_size
        )
        compiled = eqx.filter_jit(lambda key: smc.run(key)).lower(jr.key(0)).compile()
        return compiled.compiled.memory_analysis().temp_size_in_bytes

    assert temporary(500) < 0.2 * temporary(20_000)


@pytest.fixture(scope="module")
def on_devices(tmp_path_factory):
    """What `_devices.py` found on 1, 2, 3 and 4 virtual devices."""
    flags = os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "what",
    [
        *("run", "islands", "left over", "training", "pipeline", "networks", "pimh"),
        *("splines", "proposals", "passes", "replicates", "cached"),
    ],
)
def test_devices_do_not_change_a_bit(on_devices, what):
    found = on_devices[what]
    assert len(found) >= 2
    assert len(set(found.values())) == 1, found


def test_the_number_of_devices_in_use_is_said(on_devices):
    assert on_devices["devices"] == {"1": 1, "2": 2, "default": 4}
    # The blocks decide, and results are arrays of the process, bound to no device.
    assert on_devices["one block"] == 1
    assert on_devices["at home"]
    assert on_devices["devices, independent"] == {
        "copied": [4, 4, 4],
        "in turn": [1, 1, 1],
        "cached": [4],
    }
    assert on_devices["stays"] == [1, 1]

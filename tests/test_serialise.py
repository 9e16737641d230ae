"""Files: what is saved is loaded, and everything else is a clear error."""

import json
import os

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from tests_problems import lopsided_log_density, perturb

import annealax as ax


@pytest.fixture
def flows():
    flow = ax.flows.coupling(jr.key(0), 3, hidden=(4,))
    return perturb(jr.key(1), ax.flows.replicate(flow, 2), 0.5)


def equal(a, b):
    pairs = zip(
        jax.tree.leaves(eqx.filter(a, eqx.is_array)),
        jax.tree.leaves(eqx.filter(b, eqx.is_array)),
        strict=True,
    )
    return all(np.array_equal(x, y) and x.dtype == y.dtype for x, y in pairs)


def test_round_trip_of_flows(flows, tmp_path):
    file = tmp_path / "flows.npz"
    ax.save(file, flows)
    like = ax.flows.replicate(ax.flows.coupling(jr.key(9), 3, hidden=(4,)), 2)
    # The random splits of coordinates are structure, not arrays.
    like = eqx.tree_at(lambda f: f.bijections, like, flows.bijections)
    assert equal(ax.load(file, like), flows)
    assert [p.name for p in tmp_path.iterdir()] == ["flows.npz"]


def test_round_trip_of_a_training_state_and_keys(tmp_path):
    path = ax.GeometricPath((2,), lopsided_log_density, 3)
    sampler = ax.Sampler(path, ax.kernels.HMC(0.3, 2), num_particles=8)
    craft = ax.CRAFT(sampler, optax.adam(1e-2))
    start = craft.init(jr.key(0), ax.flows.diagonal_affine(None, 2))
    state, _ = eqx.filter_jit(craft.step)(jr.key(1), start)
    ax.save(tmp_path / "state", (state, jr.key(7)))
    loaded, key = ax.load(tmp_path / "state", (start, jr.key(0)))
    assert equal(loaded, state)
    assert np.array_equal(jr.key_data(key), jr.key_data(jr.key(7)))


def test_other_shapes_and_structures_are_named(flows, tmp_path):
    ax.save(tmp_path / "f", {"a": jnp.ones(3), "b": jnp.zeros(2)})
    with pytest.raises(ax.FileError, match=r"\['a'\].*\[3\].*\[4\]"):
        ax.load(tmp_path / "f", {"a": jnp.ones(4), "b": jnp.zeros(2)})
    with pytest.raises(ax.FileError, match="int32"):
        ax.load(tmp_path / "f", {"a": jnp.ones(3, int), "b": jnp.zeros(2)})
    with pytest.raises(ax.FileError, match="missing.*'c'"):
        ax.load(tmp_path / "f", {"a": jnp.ones(3), "c": jnp.zeros(2)})


@pytest.mark.parametrize("keep", [0, 1, 10, 0.3, 0.9, 0.999])
def test_truncated_files(flows, tmp_path, keep):
    file = tmp_path / "flows"
    ax.save(file, flows)
    size = os.path.getsize(file)
    with open(file, "r+b") as handle:
        handle.truncate(int(keep * size) if keep < 1 else keep)
    with pytest.raises(ax.FileError):
        ax.load(file, flows)


def test_flipped_bytes_are_never_silent(flows, tmp_path):
    file = tmp_path / "flows"
    ax.save(file, flows)
    content = bytearray(file.read_bytes())
    for position in range(0, len(content), max(1, len(content) // 60)):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        file.write_bytes(damaged)
        try:
            loaded = ax.load(file, flows)
        except ax.FileError:
            continue
        assert equal(loaded, flows)  # a byte that the format does not use


def test_foreign_and_newer_files(flows, tmp_path):
    (tmp_path / "text").write_text("not a flow")
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    header = {"format": "annealax", "version": 99, "arrays": {}}
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(tmp_path / "newer.npz", header=text)
    np.savez(tmp_path / "pickled.npz", header=np.array([object()], object))
    for name, message in (
        ("text", "annealax.save"),
        ("other.npz", "annealax.save"),
        ("newer.npz", "upgrade"),
        ("pickled.npz", "annealax.save"),
    ):
        with pytest.raises(ax.FileError, match=message):
            ax.load(tmp_path / name, flows)
    with pytest.raises(FileNotFoundError):
        ax.load(tmp_path / "nowhere", flows)


def test_a_failed_save_leaves_the_old_file(flows, tmp_path, monkeypatch):
    file = tmp_path / "flows"
    ax.save(file, flows)
    before = file.read_bytes()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_serialise.np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        ax.save(file, perturb(jr.key(2), flows, 1.0))
    assert file.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["flows"]

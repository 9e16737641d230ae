"""Files: what is saved is loaded, and everything else is a clear error."""

import dataclasses
import functools
import json
import os
import sys
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import paramax
import pytest
from flowjax import bijections
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
    for name, version in (("newer", 99), ("older", 2)):
        header = {"format": "annealax", "version": version, "arrays": {}}
        text = np.frombuffer(json.dumps(header).encode(), np.uint8)
        np.savez(tmp_path / f"{name}.npz", header=text)
    np.savez(tmp_path / "pickled.npz", header=np.array([object()], object))
    for name, message in (
        ("text", "annealax.save"),
        ("other.npz", "annealax.save"),
        ("newer.npz", "upgrade"),
        ("older.npz", "save it again"),
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

    monkeypatch.setattr("annealax._work.serialise.np.savez", full)
    with pytest.raises(OSError, match="No space"):
        ax.save(file, perturb(jr.key(2), flows, 1.0))
    assert file.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["flows"]


LAMBDA = lambda x: x  # noqa: E731


class Pair(NamedTuple):
    left: object
    right: object


@dataclasses.dataclass(frozen=True)
class Report:
    name: str
    numbers: tuple[float, ...]
    curve: np.ndarray


class Layer(eqx.Module):
    weight: jax.Array
    activation: object = eqx.field(static=True)
    size: tuple[int, ...] = eqx.field(static=True, default=(2, 3))


def same(a, b):  # noqa: PLR0911
    """Equal in kind, structure and bits."""
    if isinstance(a, jax.Array | np.ndarray | np.generic):
        if eqx.is_array(a) and jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jr.key_data(a), jr.key_data(b)
        same_kind = (
            isinstance(b, jax.Array)
            if isinstance(a, jax.Array)
            else (type(a) is type(b))
        )
        bits = np.asarray(a).tobytes() == np.asarray(b).tobytes()
        return same_kind and a.dtype == b.dtype and a.shape == b.shape and bits
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, functools.partial):
        return same((a.func, a.args, a.keywords), (b.func, b.args, b.keywords))
    if dataclasses.is_dataclass(a):
        names = [f.name for f in dataclasses.fields(a)]
        return all(same(getattr(a, n, None), getattr(b, n, None)) for n in names)
    return a is b or repr(a) == repr(b)


def round_trip(folder, tree):
    ax.save(folder / "tree", tree)
    return ax.load(folder / "tree")


KEY = jr.key(0)
FLOWS = {
    "diagonal affine": lambda: ax.flows.diagonal_affine(None, 4),
    "affine autoregressive": lambda: ax.flows.affine_autoregressive(
        KEY, 4, hidden=(5,)
    ),
    "spline autoregressive": lambda: ax.flows.spline_autoregressive(
        KEY, 4, hidden=(5,), activation=jnp.tanh
    ),
    "coupling": lambda: ax.flows.coupling(KEY, 4, hidden=(5,), activation=jax.nn.silu),
    "lattice coupling": lambda: ax.flows.lattice_coupling(KEY, (4, 4), channels=(2,)),
    "lattice spline": lambda: ax.flows.lattice_coupling(
        KEY, (4, 4), channels=(2,), transformer="spline", odd=True
    ),
    "lattice modes": lambda: ax.flows.lattice_modes(KEY, (4, 4)),
    "lattice sites": lambda: ax.flows.lattice_sites(KEY, (4, 4)),
    "chain": lambda: bijections.Chain(
        [
            bijections.Permute(jnp.array([1, 0, 2, 3])),
            bijections.Chain([bijections.Exp((4,)), bijections.Affine(jnp.ones(4))]),
            bijections.Vmap(bijections.Affine(), axis_size=4),
            paramax.non_trainable(bijections.Affine(jnp.zeros(4))),
        ]
    ),
}


@pytest.mark.parametrize("name", FLOWS)
def test_flows_load_by_themselves(tmp_path, name):
    flow = FLOWS[name]()
    flows = perturb(jr.key(1), ax.flows.replicate(flow, 3), 0.1)
    loaded = round_trip(tmp_path, flows)
    assert same(loaded, flows)
    assert jax.tree.structure(loaded) == jax.tree.structure(flows)
    one, other = (ax.flows.select(each, 1) for each in (flows, loaded))
    x = jr.normal(jr.key(2), flow.shape)
    assert same(
        paramax.unwrap(one).transform_and_log_det(x),
        paramax.unwrap(other).transform_and_log_det(x),
    )


@pytest.mark.parametrize(
    "tree",
    [
        None,
        True,
        -(2**80),
        [0.1, -0.0, float("nan"), float("inf"), 1e-320],
        "naïve \x00 \ud800",
        2 - 1j,
        [{"a": ()}, {3: [], 1: ()}, {("t", 1): {}}],
        {"z": 1, "a": jnp.ones(2), "m": np.float32(0.1), "k": np.arange(3, dtype="i1")},
        (jr.key(3), jr.split(jr.key(4), 2), jr.key(5, impl="rbg")),
        jnp.ones(3, jnp.bfloat16),
        [np.dtype("f4"), jnp.tanh, jax.nn.relu, jax.lax.tanh, np.exp, np.float32],
        functools.partial(jax.nn.leaky_relu, negative_slope=0.3),
        eqx.nn.MLP(2, 3, 4, 1, key=KEY),
        optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3)).init(jnp.ones(3)),
        paramax.Parameterize(jnp.exp, jnp.zeros(2)),
        paramax.WeightNormalization(jnp.ones((2, 2))),
        Pair(Report("x", (1.0, 2.0), np.eye(2)), Pair(jnp.ones(1), None)),
        Layer(jnp.ones(2), jax.nn.gelu),
        (LAMBDA, Layer),
    ],
    ids=lambda tree: type(tree).__name__,
)
def test_trees_load_by_themselves(tmp_path, tree):
    assert same(round_trip(tmp_path, tree), tree)


def test_a_run_and_a_training_state_load_by_themselves(tmp_path):
    path = ax.GeometricPath((2,), lopsided_log_density, 3)
    sampler = ax.Sampler(path, ax.kernels.HMC(0.3, 2), num_particles=8)
    craft = ax.CRAFT(sampler, optax.adam(1e-2))
    trained = ax.fit(jr.key(0), craft, ax.flows.diagonal_affine(None, 2), num_steps=2)
    result = sampler.run(jr.key(1), trained.flows)
    loaded = round_trip(tmp_path, {"state": trained.state, "result": result})
    assert same(loaded, {"state": trained.state, "result": result})
    again = sampler.run(jr.key(1), loaded["state"].flows)
    assert same(again.log_normalizer, result.log_normalizer)


def test_what_has_no_name_needs_like(tmp_path):
    tree = {"layer": Layer(jnp.arange(2.0), lambda x: 2 * x), "number": 3}
    with pytest.raises(ax.FileError, match=r"lambda.*`like`"):
        round_trip(tmp_path, tree)
    assert same(ax.load(tmp_path / "tree", tree), tree)

    class Local(NamedTuple):
        x: object

    with pytest.raises(ax.FileError, match=r"Local.*`like`"):
        round_trip(tmp_path, Local(jnp.ones(1)))


def write_header(path, structure):
    ax.save(path, jnp.ones(2))
    with np.load(path) as file:
        content = dict(file)
    header = json.loads(bytes(content["header"]).decode())
    header["structure"] = structure
    content["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with open(path, "wb") as stream:
        np.savez(stream, **content)


def named(name):
    return {"is": "name", "name": name}


@pytest.mark.parametrize(
    "structure",
    [
        *map(
            named,
            [
                "os:system",
                "builtins:eval",
                "builtins:print",
                "subprocess:Popen",
                "pickle:loads",
                "numpy:load",
                "numpy:save",
                "jax.numpy:load",
                "jax.numpy:save",
                "jax:pure_callback",
                "annealax:save",
                "annealax:Checkpoint",
                "annealax.vae:save_decoder",
                "annealax._work.serialise:os.unlink",
                "annealax._work.serialise:json",
                "annealax._work.signals:sys.exit",
                "jax.nn:relu.__class__",
                "jax.nn:nothing",
                "nowhere:nothing",
                "no module at all",
                "",
                "pytest:exit",
            ],
        ),
        {"is": "object", "class": "pathlib:Path", "fields": {}},
        {"is": "object", "class": "annealax:Checkpoint", "fields": {"folder": "x"}},
        {"is": "object", "class": "annealax:Result", "fields": {"nonsense": 1}},
        {"is": "object", "class": "annealax:Edge", "fields": {}},
        {"is": "object", "class": "jax.nn:relu", "fields": {}},
        {"is": "partial", "of": ["os:system", [], {}]},
        {"is": "array", "number": 9, "as": "jax"},
        {"is": "array", "number": 0, "as": "key nonsense"},
        {"is": "array", "number": 0, "as": "pickle"},
        {"is": "dict", "of": [[[], 1]]},
        {"is": "dict", "of": [[{"is": "list", "of": []}, 1]]},
        {"is": "dtype", "name": "nonsense"},
        {"is": "tuple"},
        [],
        {},
    ],
    ids=str,
)
def test_a_file_cannot_name_what_it_likes(tmp_path, structure):
    write_header(tmp_path / "tree", structure)
    with pytest.raises(ax.FileError, match="tree"):
        ax.load(tmp_path / "tree")


def test_a_file_imports_nothing(tmp_path, monkeypatch):
    (tmp_path / "mischief.py").write_text("import annealax\nraise SystemExit\n")
    monkeypatch.syspath_prepend(tmp_path)
    write_header(tmp_path / "tree", named("mischief:function"))
    with pytest.raises(ax.FileError, match="import the module"):
        ax.load(tmp_path / "tree")
    assert "mischief" not in sys.modules

"""Any input at all: success, or one of our own errors that names the field or file."""

import json
from pathlib import Path

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import annealax as ax
from annealax._work.budget import parse_budget
from annealax.cli.folder import RunFolder
from annealax.experiments import EXPERIMENTS
from annealax.experiments.jobs import JOBS, load_job
from annealax.experiments.settings import parse_assignments
from annealax.targets._csv import read_csv
from annealax.targets.cox import bin_points, read_points

FUZZ = settings(
    max_examples=100,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
NAMES = sorted({name for cls in EXPERIMENTS.values() for name in cls.model_fields})
NUMBERS = st.one_of(
    st.integers().map(str),
    st.floats().map(repr),
    st.sampled_from(
        ["", "1e400", "-0", "1_0", "٣", "0x10", "1,2", "(,)", "nan", "9" * 5000]
    ),
)
TEXT = st.one_of(st.text(max_size=20), NUMBERS)


@pytest.fixture(scope="module", autouse=True)
def _untyped():
    """Without the type checks that only tests have."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def outcome(call, *words):
    """The value, or None after one of our errors, which must name one of `words`."""
    try:
        return call()
    except ax.AnnealaxError as error:
        text = str(error)
    assert any(str(word) in text for word in words), text
    assert len(text) < 2000
    return None


@FUZZ
@given(st.sampled_from(sorted(EXPERIMENTS)), st.sampled_from(NAMES), TEXT)
@example("bimodal", "num_particles", "9" * 5000)
@example("bimodal", "num_particles", "1e400")
@example("bimodal", "step_sizes", "1,,2")
def test_overrides_and_settings(experiment, name, text):
    cls = EXPERIMENTS[experiment]
    outcome(lambda: cls(**parse_assignments([f"{name}={text}"])), name)


@FUZZ
@given(st.lists(st.text(max_size=30), max_size=3))
def test_any_assignment(texts):
    cls = EXPERIMENTS["bimodal"]
    outcome(lambda: cls(**parse_assignments(texts)), "setting")


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.tuples(st.integers()), st.tuples(st.text(max_size=2)), st.lists(st.floats()),
)  # fmt: skip


@FUZZ
@given(st.sampled_from(sorted(EXPERIMENTS)), st.sampled_from(NAMES), ANYTHING)
def test_values_of_any_type(experiment, name, value):
    cls = EXPERIMENTS[experiment]
    if name in cls.model_fields:
        outcome(lambda: cls(**{name: value}), name)


@FUZZ
@given(TEXT)
def test_budgets(text):
    outcome(lambda: parse_budget(text, None), "budget")


CELLS = st.one_of(
    st.sampled_from(
        ["", "a", "x", "y", "1", "2.5", "-1e3", "nan", "inf", '"', "#", "1_0"]
    ),
    st.text(max_size=4),
)
TABLES = st.lists(
    st.lists(CELLS, min_size=1, max_size=4).map(",".join), max_size=6
).map(lambda rows: "\n".join(rows).encode("utf-8", "surrogatepass"))
FILES = st.one_of(st.binary(max_size=200), TABLES)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "file.csv"


@FUZZ
@given(content=FILES)
@example(content=b"x,y\n1,2\n")
@example(content=b"\xef\xbb\xbf")
@example(content=b'"')
@example(content=b"x,y\n" + b"9" * 200_000 + b",1\n")
@example(content=b"x\0,y\n1,2\n")
def test_csv_readers(file, content):
    file.write_bytes(content)
    table = outcome(lambda: read_csv(file), file)
    if table is not None:
        outcome(lambda: table.numbers(table.names), file)
        outcome(lambda: table.numbers(table.names, missing=True), file)
    points = outcome(lambda: read_points(file, ((-3, 3), (-3, 3)), None), file)
    if points is not None:
        bin_points(points, ((-3, 3), (-3, 3)), 4)


@FUZZ
@given(content=TABLES, positive=st.one_of(st.none(), CELLS), standardize=st.booleans())
@example(content=b"x,y\n1,0\n2,1\n", positive=None, standardize=True)
@example(content=b"x,y\n1e308,0\n-1e308,1\n", positive=None, standardize=True)
@example(content=b"x,y\n1e-308,0\n2e-308,1\n", positive=None, standardize=True)
@example(content=b"intercept,y\n1,0\n2,1\n", positive=None, standardize=False)
@example(content=b"x,y\n1e300,0\n2,1\n", positive=None, standardize=False)
def test_logistic_regression(file, content, positive, standardize):
    file.write_bytes(content)
    target = outcome(
        lambda: ax.targets.LogisticRegression.from_csv(
            file, label="y", positive=positive, standardize=standardize
        ),
        file,
        "feature",
        "names of the coefficients",
    )
    if target is not None:
        assert np.all(np.isfinite(target.signed_design))


LIKE = {"a": jnp.arange(3.0), "b": (jnp.zeros((2, 2), int), np.arange(4.0))}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "tree.npz"
    ax.save(path, LIKE)
    return path, path.read_bytes()


def load(path):
    tree = outcome(lambda: ax.load(path, LIKE), path)
    if tree is not None:  # a damage that the format does not notice changes nothing
        assert np.array_equal(tree["a"], LIKE["a"])
        assert np.array_equal(tree["b"][1], LIKE["b"][1])


@FUZZ
@given(content=st.binary(max_size=300))
@example(content=b"PK\x03\x04")
@example(content=b"\x93NUMPY\x01\x00v\x00{}")
@example(content=b"\x80\x04]\x94.")
def test_files_of_random_bytes(saved, content):
    path, _ = saved
    path.write_bytes(content)
    assert outcome(lambda: ax.load(path, LIKE), path) is None


@FUZZ
@given(data=st.data())
def test_damaged_files(saved, data):
    path, content = saved
    damaged = bytearray(content[: data.draw(st.integers(0, len(content)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            place = data.draw(st.integers(0, len(damaged) - 1))
            damaged[place] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged)
    load(path)


@FUZZ
@given(header=st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["format", "version", "arrays", "checksum", "meta", "shape"]),
        inner | st.sampled_from(["annealax", 1, 2, 3]),
        max_size=5,
    ),
    max_leaves=8,
))  # fmt: skip
@example(header={"format": "annealax", "version": 3, "arrays": {"x": 3}})
@example(header={"format": "annealax", "version": "3", "arrays": {}})
@example(header={"format": "annealax", "version": 3, "arrays": {}, "checksum": 1})
@example(header={"format": "annealax", "version": 3, "arrays": [], "meta": 7})
def test_files_with_any_header(saved, header):
    path, _ = saved
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with path.open("wb") as stream:
        np.savez(stream, header=text)
    assert outcome(lambda: ax.load(path, LIKE), path) is None
    assert outcome(lambda: ax.load(path), path) is None


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.lists(st.floats(width=32, allow_nan=False)).map(np.float32),
    lambda inner: st.lists(inner, max_size=3)
    | st.lists(inner, max_size=3).map(tuple)
    | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    | st.builds(ax.Edge, inner, inner),
    max_leaves=8,
)  # fmt: skip


@FUZZ
@given(tree=TREES)
def test_any_tree_comes_back(saved, tree):
    path, _ = saved
    ax.save(path, tree)
    loaded = ax.load(path)
    assert repr(loaded) == repr(tree)  # types, and the last digit of every number


@FUZZ
@given(structure=st.recursive(
    st.none() | st.integers() | st.text(max_size=3)
    | st.sampled_from(["annealax:Edge", "jax.nn:relu", "os:system", "jax", "key x"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    | st.fixed_dictionaries(
        {"is": st.sampled_from(
            ["array", "list", "tuple", "dict", "object", "name", "partial", "dtype",
             "opaque", "complex"])},
        optional={name: inner for name in
                  ("of", "number", "as", "name", "class", "fields", "what")},
    ),
    max_leaves=8,
))  # fmt: skip
def test_files_with_any_structure(saved, structure):
    path, content = saved
    path.write_bytes(content)
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(bytes(arrays["header"]).decode())
    header["structure"] = structure
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with path.open("wb") as stream:
        np.savez(stream, **arrays)
    outcome(lambda: ax.load(path), path)


@FUZZ
@given(data=st.data())
def test_damaged_checkpoints(tmp_path_factory, data):
    store = ax.Checkpoint(tmp_path_factory.mktemp("store"))
    store.save(LIKE, identity={"work": 1}, meta={"step": 1})
    path = store.save(LIKE, identity={"work": 1}, meta={"step": 2})
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content[: data.draw(st.integers(place, len(content)))])
    with pytest.MonkeyPatch.context() as patch:
        told = []
        patch.setattr("warnings.warn", lambda text, *_, **__: told.append(text))
        found = outcome(lambda: store.latest({"work": 1}), store.folder)
    if found is None:
        return
    assert (found.meta["step"] == 1) == bool(told)
    assert np.array_equal(found.restore(LIKE)["a"], LIKE["a"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["command", "name", "method", "seed", "settings", "shape", "budget"]
            ),
            inner | st.sampled_from(["bimodal", "craft", 0, *JOBS]),
            max_size=5,
        )
    ),
    max_leaves=8,
)


@FUZZ
@given(content=JSON)
@example(content={"command": "run", "name": "bimodal", "method": "craft", "seed": 0})
@example(content={"command": "run", "name": "x" * 9000, "method": "craft", "seed": 0})
@example(content={"command": "sample", "name": "a:b", "seed": 0, "shape": [1e400]})
def test_settings_files(tmp_path_factory, content):
    folder: Path = tmp_path_factory.getbasetemp() / "settings"
    folder.mkdir(exist_ok=True)
    for name in ("settings.json", "status.json"):
        (folder / name).write_text(json.dumps(content))
    job = outcome(lambda: load_job(folder), folder)
    if isinstance(job, JOBS["run"]):
        outcome(lambda: job.experiment, "unknown", *EXPERIMENTS["bimodal"].model_fields)
    outcome(RunFolder(folder, existing=True).status, folder)

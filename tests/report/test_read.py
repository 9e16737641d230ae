"""Reading folders: whole ones, and all the ways to break them."""

import json

import numpy as np
import pytest
import tests_run_folder as made_up

from annealax import FileError, report
from annealax.report.page import render
from annealax.report.read import Comparison, Decoder, named_draws, read


def edit(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def replace_arrays(folder, **changes):
    numbers = made_up.arrays() | changes
    kept = {key: value for key, value in numbers.items() if value is not None}
    np.savez_compressed(folder / "result.npz", **kept)


def see(folder):
    found = read(folder)
    assert found.pictures  # they are read when they are asked for
    return render(found)


def test_a_whole_run(tmp_path):
    run = read(made_up.write(tmp_path))
    assert run.asked.name == "gaussian"
    assert run.truth == 1.0
    assert run.main.mean == pytest.approx(3.5 / 3)
    assert run.num_particles == 200
    weights = np.exp(run.arrays["log_weights"])
    assert run.ess == pytest.approx(1 / np.sum(weights**2))
    assert run.pictures["marginals.png"].width == 288
    assert run.environment["devices"] == ["cpu:0"]
    assert run.chain is None
    np.testing.assert_allclose(run.ladder.work[0], np.linspace(1, 0.5, 5))
    np.testing.assert_allclose(run.ladder.ess[0], np.linspace(0.2, 0.75, 5))
    assert not run.pooled


def test_what_the_automatic_mode_left(tmp_path):
    """Parameters are in the user's order, though npz files are in the alphabet's."""
    run = read(made_up.write_sample(tmp_path, ("x", "y", "s")))
    assert run.pooled
    assert run.num_particles == 50
    assert run.ladder.ess.shape == (4, 5)
    assert run.draws.names == ("x", "y", "s")
    np.testing.assert_array_equal(run.draws.values[:, 2], run.arrays["x_s"])


def test_chains_of_the_automatic_mode_have_the_same_order(tmp_path):
    made_up.write_sample(tmp_path, ("x", "y", "s"))
    numbers = made_up.chain_arrays()
    traces = {f"trace_{name}": numbers["trace_energy"] for name in ("s", "x", "y")}
    lists = {k: v for k, v in numbers.items() if not k.startswith("trace_")}
    np.savez(tmp_path / "pimh.npz", **lists, **traces)
    assert list(read(tmp_path).chain.observables) == ["x", "y", "s"]


def test_a_comparison_and_a_decoder(tmp_path):
    comparison = read(made_up.write_comparison(tmp_path / "comparison"))
    assert isinstance(comparison, Comparison)
    assert [each.label for each in comparison.contenders] == ["CRAFT", "SMC", "HMC"]
    decoder = read(made_up.write_decoder(tmp_path / "decoder"))
    assert isinstance(decoder, Decoder)
    assert decoder.test_elbo == -91.25


def test_names_of_coordinates():
    values = {"a": np.zeros(5), "b": np.zeros((5, 2)), "c": np.zeros((5, 1, 2))}
    draws = named_draws(values, np.ones(5))
    assert draws.names == ("a", "b[0]", "b[1]", "c[0,0]", "c[0,1]")
    np.testing.assert_allclose(draws.weights, 0.2)
    assert named_draws({"": np.zeros((5, 2))}, np.ones(5)).names == ("x[0]", "x[1]")


def test_warnings_are_read_by_their_text(tmp_path):
    doubt = made_up.doubt("look again")
    row = made_up.row("SMC", [1.0], warnings=[doubt])
    (found,) = read(made_up.write(tmp_path, rows=[row])).rows[-1].warnings
    assert found == "look again"


BROKEN = {
    "no settings": lambda f: (f / "settings.json").unlink(),
    "no table": lambda f: (f / "table.json").unlink(),
    "no arrays": lambda f: (f / "result.npz").unlink(),
    "not JSON": lambda f: (f / "table.json").write_text("{"),
    "a list": lambda f: (f / "table.json").write_text("[]"),
    "not text": lambda f: (f / "settings.json").write_bytes(b"\xff\xfe\x00"),
    "no seed": lambda f: edit(f / "settings.json", lambda c: c.pop("seed")),
    "seed text": lambda f: edit(f / "settings.json", lambda c: c.update(seed="1")),
    "no rows": lambda f: edit(f / "table.json", lambda c: c.update(rows=[])),
    "bad row": lambda f: edit(f / "table.json", lambda c: c.update(rows=[3])),
    "half row": lambda f: edit(f / "table.json", lambda c: c["rows"][0].pop("label")),
    "row lists": lambda f: edit(
        f / "table.json", lambda c: c["rows"][0].update(repeats_ess=["x"])
    ),
    "row lengths": lambda f: edit(
        f / "table.json", lambda c: c["rows"][0].update(repeats_ess=[0.5])
    ),
    "truth": lambda f: edit(
        f / "table.json", lambda c: c.update(log_normalizer_true="one")
    ),
    "not npz": lambda f: (f / "result.npz").write_bytes(b"PK\x03\x04 no"),
    "npy": lambda f: np.save(f / "a.npy", 1) or (f / "a.npy").replace(f / "result.npz"),
    "no x": lambda f: replace_arrays(f, x=None),
    "text": lambda f: replace_arrays(f, x=np.array(["a"] * 200)),
    "pickle": lambda f: replace_arrays(f, x=np.array([{}], object)),
    "lengths": lambda f: replace_arrays(f, x=np.zeros((3, 2))),
    "no weights": lambda f: replace_arrays(f, log_weights=np.zeros((0,))),
    "nan weights": lambda f: replace_arrays(f, log_weights=np.full(200, np.nan)),
    "dead": lambda f: replace_arrays(f, log_weights=np.full(200, -np.inf)),
    "steps": lambda f: replace_arrays(f, step_ess=np.zeros(2)),
    "betas": lambda f: replace_arrays(f, betas=np.zeros(2)),
    "picture": lambda f: (f / "a.png").write_bytes(made_up.png()[:500]),
    "picture, a bit": lambda f: (f / "a.png").write_bytes(
        made_up.png().replace(b"IDATx", b"IDATy")
    ),
    "not a picture": lambda f: (f / "a.png").write_text("hello"),
    "chain": lambda f: (f / "pimh.npz").write_bytes(b""),
    "half chain": lambda f: np.savez(f / "pimh.npz", accepted=np.ones((1, 3), bool)),
    "chain lengths": lambda f: np.savez(
        f / "pimh.npz", **made_up.chain_arrays() | {"accepted": np.ones((1, 3), bool)}
    ),
    "plan": lambda f: (f / "pimh.json").write_text('{"seed": "x"}'),
    "warning": lambda f: edit(
        f / "table.json", lambda c: c["rows"][0].update(warnings=[3])
    ),
    "parameters": lambda f: np.savez(f / "parameters.npz", x_a=np.zeros(3)),
    "exact": lambda f: np.savez(f / "parameters.npz", exact=np.zeros((9, 7))),
    "environment": lambda f: (f / "environment.json").write_text("nope"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_folder_is_one_line(tmp_path, case):
    made_up.write(tmp_path)
    BROKEN[case](tmp_path)
    with pytest.raises(FileError) as error:
        report.write_page(tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "report.html").exists()


BROKEN_COMPARISON = {
    "no rows": lambda f: edit(f / "compare.json", lambda c: c.update(rows=[])),
    "budget": lambda f: edit(f / "compare.json", lambda c: c["budget"].pop("unit")),
    "attempts": lambda f: edit(
        f / "compare.json", lambda c: c["rows"][0].update(attempts=[{}])
    ),
    "curves": lambda f: np.savez(f / "compare.npz", craft_0=np.zeros(3)),
}


@pytest.mark.parametrize("case", BROKEN_COMPARISON)
def test_a_broken_comparison_is_one_line(tmp_path, case):
    made_up.write_comparison(tmp_path)
    BROKEN_COMPARISON[case](tmp_path)
    with pytest.raises(FileError, match="is damaged"):
        report.write_page(tmp_path)


def test_a_broken_decoder_is_one_line(tmp_path):
    made_up.write_decoder(tmp_path)
    np.savez(tmp_path / "result.npz", elbo=np.zeros((2, 2)))
    with pytest.raises(FileError, match="elbo"):
        report.write_page(tmp_path)


@pytest.mark.parametrize(
    "name", ["settings.json", "table.json", "result.npz", "marginals.png"]
)
def test_cut_short_or_scrambled(tmp_path, name):
    file = made_up.write(tmp_path) / name
    whole, rng = file.read_bytes(), np.random.default_rng(0)
    for _ in range(12):
        end = int(rng.integers(0, len(whole)))
        file.write_bytes(whole[:end])
        with pytest.raises(FileError):
            see(tmp_path)
    for _ in range(25):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), 8):
            data[place] = rng.integers(0, 256)
        file.write_bytes(bytes(data))
        try:
            see(tmp_path)
        except FileError as error:
            assert str(tmp_path) in str(error)  # noqa: PT017

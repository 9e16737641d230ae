"""Reading run folders: whole ones, and all the ways to break them."""

import json

import numpy as np
import pytest
import tests_run_folder as made_up
from typer.testing import CliRunner

from annealax import FileError
from annealax.experiments._run_files import read_files
from annealax.experiments.cli import app
from annealax.experiments.page import run_page


def edit(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def replace_arrays(folder, **changes):
    numbers = made_up.arrays() | changes
    kept = {key: value for key, value in numbers.items() if value is not None}
    np.savez_compressed(folder / "result.npz", **kept)


def test_a_whole_folder(tmp_path):
    files = read_files(made_up.write(tmp_path))
    assert files.header.name == "gaussian"
    assert files.truth == 1.0
    assert files.main.mean == pytest.approx(3.5 / 3)
    assert files.num_particles == 200
    weights = np.exp(files.arrays["log_weights"])
    assert files.ess == pytest.approx(1 / np.sum(weights**2))
    assert files.pictures["marginals.png"].width == 288
    assert files.chain == {}


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
    "environment": lambda f: (f / "environment.json").write_text("nope"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_folder_is_one_line_and_exit_code_2(tmp_path, case):
    made_up.write(tmp_path)
    BROKEN[case](tmp_path)
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 2, result.output
    assert result.output.startswith("Error: ")
    assert result.output.count("\n") == 1
    assert str(tmp_path) in result.output
    assert not (tmp_path / "report.html").exists()


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
            read_files(tmp_path)
    for _ in range(25):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), 8):
            data[place] = rng.integers(0, 256)
        file.write_bytes(bytes(data))
        try:
            run_page(read_files(tmp_path))
        except FileError as error:
            assert str(tmp_path) in str(error)  # noqa: PT017

"""The arguments of `annealax sample`."""

import json
import shutil

import numpy as np
import pytest
from annealax.experiments.automatic import find_density, parse_shape, parse_support
from annealax.experiments.cli import app
from typer.testing import CliRunner

from annealax import InvalidInputError


def test_shapes():
    assert parse_shape(["10"]) == (10,)
    assert parse_shape(["8,8"]) == (8, 8)
    assert parse_shape(["8x8"]) == (8, 8)
    assert parse_shape(["mu", "tau=3"]) == {"mu": (), "tau": (3,)}
    for wrong in (["ten!"], ["3.5"], ["mu", "4"], ["tau=a"]):
        with pytest.raises(InvalidInputError):
            parse_shape(wrong)


def test_supports():
    assert parse_support([], named=False) is None
    assert parse_support(["positive"], named=False) == "positive"
    assert parse_support(["0,10"], named=False) == (0.0, 10.0)
    assert parse_support(["tau=,3"], named=True) == {"tau": (None, 3.0)}
    for wrong, named in ((["a,b"], False), (["positive"], True), (["1,2,3"], False)):
        with pytest.raises(InvalidInputError):
            parse_support(wrong, named)


def test_the_density_is_found_by_name(tmp_path, monkeypatch):
    (tmp_path / "my_density.py").write_text("def f(x):\n    return -x @ x\n")
    (tmp_path / "broken_density.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert callable(find_density("my_density:f"))
    for reference, message in (
        ("my_density:g", "no function 'g'"),
        ("my_density", "module:function"),
        ("no_such_module:f", "there is no module"),
        ("broken_density:f", "ZeroDivisionError"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            find_density(reference)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sample", "jax.numpy:sum", "--shape", "2", "--seed", "-1"], "seed"),
        (["sample", "nothing:f", "--shape", "2"], "there is no module"),
        (["run", "funnel", "--budget", "5s"], "--auto"),
        (["run", "funnel", "--auto", "--budget", "soon"], "a budget is a time"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert not list(tmp_path.rglob("result.npz"))


@pytest.mark.slow
def test_a_killed_sample_resumes_to_the_same_bits(tmp_path, monkeypatch):
    """All files are there; what is left after a kill leads to the same numbers."""
    (tmp_path / "half_normal.py").write_text(
        "def f(p):\n    return -0.5 * p['a'] ** 2 - p['b']\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    command = ["sample", "half_normal:f", "--shape", "a", "--shape", "b"]
    command += ["--support", "b=positive", "--quiet", "--out", "run"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    run = tmp_path / "run"
    for name in ("environment.json", "report.html", "result.nc", "diagnostics.png"):
        assert (run / name).stat().st_size > 0
    assert "annealax" in (run / "report.html").read_text()
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [*range(1, len(lines) + 1)]
    logged = [json.loads(line)["log_normalizer"] for line in lines]
    expected = dict(np.load(run / "result.npz"))
    np.testing.assert_allclose(logged, expected["repeats_log_normalizer"], rtol=1e-6)
    exact = 0.5 * np.log(2 * np.pi)
    error = expected["log_normalizer"] - exact
    assert abs(error) < 6 * expected["log_normalizer_stderr"]
    (run / "result.npz").unlink()
    for stage in sorted((run / "checkpoints").glob("replicate-*"))[3:]:
        shutil.rmtree(stage)
    result = CliRunner().invoke(app, ["resume", "run", "--json"])
    assert result.exit_code == 0, result.output
    resumed = dict(np.load(run / "result.npz"))
    assert set(resumed) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(resumed[name], value)

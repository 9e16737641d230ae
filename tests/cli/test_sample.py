"""The arguments of `annealax sample`."""

import json
import shutil

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import tests_run_folder as made_up
from scipy.stats import norm
from typer.testing import CliRunner

import annealax as ax
from annealax import InvalidInputError
from annealax.auto.knowledge import gather
from annealax.cli.main import app
from annealax.cli.output import Output
from annealax.cli.sample import (
    compare,
    parse_priors,
    parse_shape,
    parse_support,
    short_names,
)
from annealax.experiments.jobs import SAMPLER, SampleJob, find_density

TWO = ["sample", "jax.numpy:sum", "jax.numpy:max", "--shape", "2"]


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
    assert parse_support(["0,inf"], named=False) == (0.0, None)
    assert parse_support(["-inf,inf"], named=False) == "real"
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
        (["sample", "jax.numpy:sum", "--shape", "9" * 20], "at most 10,000,000"),
        (["sample", "jax.numpy:sum", "--shape", "1" + "0" * 12], "at most 10,000,000"),
        (["sample", "jax.numpy:sum", "--shape", "0"], "the shape of"),
        (["sample", "jax.numpy:sum", "--shape", "2", "--support", "nan,1"], "'nan,1'"),
        (["sample", "jax.numpy:sum", "--shape", "2", "--support", "inf,1"], "'inf,1'"),
        (["sample", "jax.numpy:sum", "--shape", "2", "--support", "0,1e400"], "1e400"),
        (["sample", "jax.numpy:sum", "--shape", "2", "--support", "0,1e39"], "within"),
        (["sample", "jax.numpy:sum", "--shape", "2", "--support", "1,0"], "must rise"),
        (["sample", "jax.numpy:sum", "--shape", "2", "--support", "odd"], "'odd'"),
        (["sample", "jax.numpy:sum", "--shape", "2", "--flow", "x"], "unknown flow"),
        (["sample", "jax.numpy:cumsum", "--shape", "2"], "must return one number"),
        (["sample", "jax.numpy:sum", "--shape", "2", "--seed", "9" * 30], "seed"),
        (["sample", "jax.numpy:sum", "jax.numpy:sum", "--shape", "2"], "must differ"),
        (
            [*TWO, "--prior", "small=1"],
            "one of sum, max",
        ),
        (
            [*TWO, "--prior", "sum=1"],
            "a number for each",
        ),
        (["sample", "jax.numpy:sum", "no:f", "--shape", "2"], "there is no module"),
        (["sample", "jax.numpy:sum"], "needs --shape, unless it is a model"),
        (["run", "funnel", "--budget", "5s"], "--auto"),
        (["run", "funnel", "--auto", "--budget", "soon"], "a budget is a time"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_models_are_compared_from_their_folders(tmp_path, capsys):
    """Odds of e^(1 - 0.5) times 3 : 1; warnings keep their codes and their models."""
    folders = {}
    for name, log_z in (("small", 1.0), ("large", 0.5)):
        folder = made_up.write_sample(tmp_path / name)
        for file in ("settings.json", "table.json"):
            content = json.loads((folder / file).read_text())
            if file == "settings.json":
                content["name"] = f"module:{name}"
            else:
                (row,) = content["rows"]
                row |= {"log_normalizer": log_z, "log_normalizer_stderr": 0.01}
                doubt = made_up.doubt("too <few>", "few-draws")
                row["warnings"] = [doubt] if name == "large" else []
            (folder / file).write_text(json.dumps(content))
        folders[name] = folder
    priors = parse_priors(["small=3", "large=1"], list(folders))
    compare(folders, tmp_path, priors, Output())
    odds = 3 * np.exp(0.5)
    found = json.loads((tmp_path / "evidence.json").read_text())
    probability = found["models"]["small"]["probability"]
    assert probability == pytest.approx(odds / (1 + odds))
    assert found["best"] == "small"
    assert found["warnings"] == [{"code": "few-draws", "text": "large: too <few>"}]
    said = capsys.readouterr().out
    assert "small is the most probable model" in said
    assert max(map(len, said.splitlines()[:-2])) < 80
    page = (tmp_path / "report.html").read_text()
    assert "small is the most probable model" in page
    assert "large: Too &lt;few&gt;. <span" in page
    assert "What helps: add particles" in page


def test_names_of_models():
    assert short_names(["a:f", "b:g"]) == ["f", "g"]
    assert short_names(["a:f", "b:f"]) == ["a-f", "b-f"]


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
    page = (run / "report.html").read_text()
    notes = json.loads((run / "answer.json").read_text())["notes"]
    assert {"search", "start", "steps", "flows", "cost"} <= set(notes)
    assert all(name in page for name in ("How the answer was found", *notes))
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [*range(1, len(lines) + 1)]
    logged = [json.loads(line)["log_normalizer"] for line in lines]
    expected = dict(np.load(run / "result.npz"))
    np.testing.assert_allclose(logged, expected["repeats_log_normalizer"], rtol=1e-6)
    exact_log_z = 0.5 * np.log(2 * np.pi)
    error = expected["log_normalizer"] - exact_log_z
    assert abs(error) < 6 * expected["log_normalizer_stderr"]
    (run / "result.npz").unlink()
    for stage in sorted((run / "checkpoints").glob("replicate-*"))[3:]:
        shutil.rmtree(stage)
    before = {f: f.read_bytes() for f in run.rglob("*") if f.suffix in (".npz", ".nc")}

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:  # first on a full disk: nothing gets lost
        patch.setattr("annealax._work.serialise.os.fsync", full)
        result = CliRunner().invoke(app, ["resume", "run", "--quiet"])
    assert result.exit_code == 2
    assert "No space left on device" in result.output.splitlines()[-1]
    assert all(file.read_bytes() == content for file, content in before.items())
    assert not list(run.rglob("*.part"))
    result = CliRunner().invoke(app, ["resume", "run", "--json"])
    assert result.exit_code == 0, result.output
    resumed = dict(np.load(run / "result.npz"))
    assert set(resumed) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(resumed[name], value)

    # Chains on top of it, in the space of the function.
    command = ["pimh", "run", "--num-steps", "60", "--num-particles", "30", "--quiet"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    found = ax.load_run(run)
    assert found.names == ("a", "b")
    assert found.result.mean()["b"] == pytest.approx(1.0, abs=0.05)
    chain = found.chain
    assert {k: v.shape for k, v in chain.configurations.items()} == {
        "a": (1, 60),
        "b": (1, 60),
    }
    for name, exact in (("a", 0.0), ("b", 1.0)):
        assert abs(chain.mean[name] - exact) < 6 * chain.stderr[name]
    again = found.sampler.run(jr.key(1), found.flows)
    assert again.log_normalizer == pytest.approx(exact_log_z, abs=0.3)


def test_models_need_no_shape(tmp_path, monkeypatch):
    """A model, a function that returns one, and one of PyMC."""
    (tmp_path / "my_models.py").write_text(
        "import annealax as ax, numpyro, pymc as pm\n"
        "from numpyro.distributions import Normal\n"
        "def _model(y):\n"
        "    numpyro.sample('y', Normal(numpyro.sample('m', Normal())), obs=y)\n"
        "made = ax.from_numpyro(_model, 1.0)\n"
        "def function(): return made\n"
        "with pm.Model() as theirs:\n"
        "    pm.Normal('y', pm.Normal('m'), observed=1.0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("made", "function", "theirs"):
        job = SampleJob.make(name=f"my_models:{name}", of_model=True, seed=0)
        density = job.density.free()
        right = 2 * norm.logpdf([0.5])[0]
        assert density(jnp.array([0.5])) == pytest.approx(right)
        assert job.model_dump()["of_model"]
    # A sampler that starts at the prior of a model cannot come from a file alone.
    model = job.density
    known = gather(jr.key(0), model.space, model.prior, None, None)
    ax.save(tmp_path / SAMPLER, (known.start.start, None))
    with pytest.raises(ax.FileError, match="start at the prior of my_models:theirs"):
        job.sampler(tmp_path)

"""What commands leave, read back in one call."""

import sys

import numpy as np
import pytest
import tests_run_folder as made_up
from typer.testing import CliRunner

import annealax as ax
from annealax.cli.main import app
from annealax.experiments.jobs import CompareJob, SampleJob, TrainVAEJob

COMPARE = CompareJob.model_validate_json(
    """{"seed": 0, "name": "gaussian", "method": "craft,smc,hmc", "num_repeats": 6,
    "budget": {"amount": 4.0, "unit": "seconds"}}"""
)
VAE = TrainVAEJob.make(seed=0, settings={"data": "/none", "decoder": "decoder.npz"})


def test_a_comparison(tmp_path):
    made_up.write_comparison(tmp_path)
    (tmp_path / "settings.json").write_text(COMPARE.text())
    run = ax.load_run(tmp_path)
    assert [row["method"] for row in run.table["rows"]] == ["craft", "smc", "hmc"]
    assert run.arrays["craft_0"].shape == (8, 3)
    assert (run.history, run.chain, run.names) == (None, None, ())
    assert run.settings.dim > 0
    for lacking in ("result", "sampler", "flows"):
        with pytest.raises(ax.InvalidInputError, match="made by `annealax compare`"):
            getattr(run, lacking)
    with pytest.raises(ax.InvalidInputError, match="no sampler behind"):
        run.proposal()


def test_a_decoder(tmp_path):
    made_up.write_decoder(tmp_path)
    (tmp_path / "settings.json").write_text(VAE.text())
    run = ax.load_run(tmp_path)
    assert run.table["test_elbo"] == -91.25
    assert run.arrays["elbo"].shape == (19,)
    with pytest.raises(ax.InvalidInputError, match="made by `annealax train-vae`"):
        _ = run.result
    with pytest.raises(ax.InvalidInputError, match="holds no experiment"):
        _ = run.settings


def test_a_sample(tmp_path):
    made_up.write_sample(tmp_path)
    run = ax.load_run(tmp_path)
    assert run.names == ("s", "x", "y")
    assert set(run.result.mean()) == {"s", "x", "y"}
    assert run.history is None


TWO = """
from annealax.experiments.problems.synthetic import Bimodal, Funnel

class First(Bimodal):
    "One of two."

class Second(Funnel):
    "The other."

def log_density(x):
    return -0.5 * x @ x
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file_with_two.py"
    path.write_text(TWO)
    yield path
    sys.modules.pop(path.stem, None)


def test_a_file_with_several_experiments(file):
    result = CliRunner().invoke(app, ["list", str(file)])
    assert result.exit_code == 0, result.output
    assert "One of two" in result.output
    assert "The other" in result.output
    result = CliRunner().invoke(app, ["run", str(file)])
    assert result.exit_code == 2
    assert "holds several experiments: choose one" in result.output


def test_a_density_in_a_file(file, tmp_path, monkeypatch):
    """`annealax sample file.py:function`, from any folder."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    job = SampleJob.make(seed=0, name=f"../{file.name}:log_density", shape=(2,))
    assert job.density(np.ones(2)) == -1
    result = CliRunner().invoke(app, ["sample", f"{file}:nothing", "--shape", "2"])
    assert result.exit_code == 2
    assert "no function 'nothing'" in result.output

"""The command: list, show, run, and what it leaves behind."""

import json
import re
import sys

import numpy as np
import pytest
from tests_run_folder import read_netcdf
from typer.testing import CliRunner

import annealax as ax
from annealax.cli.main import app
from annealax.experiments import EXPERIMENTS

TINY = {
    "num_particles": 64,
    "num_transitions": 2,
    "num_leapfrog": 2,
    "num_hmc_steps": 1,
    "num_train_steps": 3,
    "num_repeats": 3,
    "flow_family": "diagonal_affine",
    "smc_transitions": 3,
}


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run(folder, *arguments, **changes):
    settings = [f"--set={key}={value}" for key, value in (TINY | changes).items()]
    return invoke("run", *arguments, "--out", folder, *settings)


def load(folder):
    with np.load(folder / "result.npz", allow_pickle=False) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def craft(tmp_path_factory):
    folder = tmp_path_factory.mktemp("craft")  # there already, and empty
    return run(folder, "gaussian", "--seed", 3, dim=3), folder


def test_version():
    result = invoke("--version")
    assert result.exit_code == 0
    assert ax.__version__ in result.output


def test_list_names_every_experiment():
    result = invoke("list")
    assert result.exit_code == 0
    assert all(name in result.output for name in EXPERIMENTS)
    assert "164.6957" in result.output


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_show_lists_every_setting(name):
    result = invoke("show", name)
    assert result.exit_code == 0
    assert all(key in result.output for key in EXPERIMENTS[name]().values())
    assert "Traceback" not in result.output


def test_run_prints_the_table(craft):
    result, folder = craft
    assert result.exit_code == 0, result.output
    for text in ("CRAFT", "SMC, same ladder", "SMC, given ladder", "spread", "exact"):
        assert text in result.output
    assert "1.0000" in result.output  # the exact log Z of this Gaussian
    assert "Training took" in result.output
    assert str(folder) in result.output.replace("\n", "")


def test_run_folder_holds_the_numbers(craft):
    _, folder = craft
    result = load(folder)
    assert result["x"].shape == (64, 3)
    assert result["log_weights"].shape == (64,)
    np.testing.assert_allclose(np.exp(result["log_weights"]).sum(), 1, rtol=1e-5)
    np.testing.assert_allclose(result["betas"], [0, 0.5, 1])
    assert result["log_normalizer_true"] == 1.0
    assert result["log_normalizer"].shape == ()
    assert result["log_normalizer_stderr"] > 0
    for key in ("ess", "acceptance_rate", "resampled", "log_ratio", "num_nan"):
        assert result[f"step_{key}"].shape == (2,)
    np.testing.assert_allclose(
        result["step_log_ratio"].sum(), result["log_normalizer"], rtol=1e-4
    )
    assert result["history_loss"].shape == (3,)
    assert result["history_ess"].shape == (3, 2)
    assert result["repeats_log_normalizer"][0] == result["log_normalizer"]


def test_run_folder_says_what_was_run(craft):
    _, folder = craft
    settings = json.loads((folder / "settings.json").read_text())
    assert settings["name"] == "gaussian"
    assert settings["seed"] == 3
    assert settings["method"] == "craft"
    assert settings["overrides"] == TINY | {"dim": 3}
    assert settings["settings"]["condition_number"] == 100
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["versions"]["annealax"] == ax.__version__
    table = json.loads((folder / "table.json").read_text())
    assert [row["num_transitions"] for row in table["rows"]] == [2, 2, 3]
    assert table["log_normalizer_true"] == 1.0


def test_run_draws_pictures(craft):
    _, folder = craft
    pictures = sorted(path.name for path in folder.glob("*.png"))
    assert pictures == [
        *("diagnostics.png", "posterior.png", "temperatures.png", "training.png"),
    ]
    for name in pictures:
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    assert not list(folder.glob(".*.part"))


def test_run_folder_has_a_page_and_a_file_for_arviz(craft):
    result, folder = craft
    listed = result.output.replace("\n", " ")
    assert "result.npz, result.nc" in listed
    assert "training.png" in listed
    assert result.output.splitlines()[-1] == f"Open {folder / 'report.html'}"
    page = (folder / "report.html").read_text()
    assert "annealax run gaussian" in re.sub("<[^>]*>", "", page)
    assert page.count("<img ") == 1  # all but the temperatures are charts
    data = read_netcdf(folder / "result.nc")
    numbers = load(folder)
    attributes = data.posterior.attrs
    assert attributes["log_normalizer"] == pytest.approx(numbers["log_normalizer"])
    assert attributes["name"] == "gaussian"
    assert data.posterior.sizes["draw"] <= attributes["ess"] + 1e-6
    np.testing.assert_array_equal(data.weighted_posterior.x, numbers["x"])
    data.close()


def test_without_arviz_there_is_no_file_and_no_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    result = run(tmp_path, "gaussian", "--method", "smc", dim=3, num_repeats=1)
    assert result.exit_code == 0, result.output
    assert not (tmp_path / "result.nc").exists()
    assert (tmp_path / "report.html").exists()


def test_same_seed_same_numbers_and_nothing_is_overwritten(craft):
    _, folder = craft
    before = (folder / "result.npz").read_bytes()
    again = run(folder, "gaussian", "--seed", 3, "--quiet", dim=3)
    assert again.exit_code == 0
    second = folder.with_name(f"{folder.name}-2")
    assert str(second) in again.output.replace("\n", "")
    assert (folder / "result.npz").read_bytes() == before
    old, new = load(folder), load(second)
    assert set(old) == set(new)
    for key in old:
        np.testing.assert_array_equal(old[key], new[key], err_msg=key)
    assert "deploying" not in again.output
    assert "CRAFT" in again.output


def test_smc_alone_in_the_default_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = [f"--set={key}={value}" for key, value in (TINY | {"dim": 3}).items()]
    command = ["run", "gaussian", "--method", "smc", "--seed", 5, "--quiet", *settings]
    result = invoke(*command)
    assert result.exit_code == 0, result.output
    assert "SMC" in result.output
    assert "Training" not in result.output
    out = tmp_path / "runs" / "gaussian-seed5"
    assert "history_loss" not in load(out)
    assert len(json.loads((out / "table.json").read_text())["rows"]) == 1


def test_ais_beside_smc(tmp_path):
    out = tmp_path / "deep" / "run"
    result = run(out, "gaussian", "--method", "ais", dim=3, num_repeats=1)
    assert result.exit_code == 0, result.output
    assert "AIS" in result.output
    assert not load(out)["step_resampled"].any()
    assert len(json.loads((out / "table.json").read_text())["rows"]) == 2
    assert not (out / "training.png").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "bimodl"], ["unknown experiment", "'bimodal'", "funnel"]),
        (["show", "funel"], ["unknown experiment", "'funnel'"]),
        (["run", "--set", "num_particle=3"], ["unknown setting", "'num_particles'"]),
        (["run", "--set", "num_particles=x"], ["num_particles", "'x'", "whole number"]),
        (["run", "--set", "num_particles"], ["key=value"]),
        (["run", "--set", "gradient=pth"], ["gradient", "plain or path"]),
        (["run", "--set", "resample_threshold=2"], ["at most 1", "'2'"]),
        (["run", "--method", "crat"], ["unknown method", "'craft'", "ais"]),
        (["run", "--seed", "-1"], ["seed", "-1"]),
        (["run", "--seed", str(2**70)], ["seed"]),
        (["run", "many-well", "--set", "dim=5"], ["dim must be even"]),
        (["run", "--set", "ladder_power=500"], ["betas must rise"]),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(tmp_path, arguments, words):
    result = invoke(*arguments, *(["--out", tmp_path] if "run" in arguments else []))
    assert result.exit_code == 2
    assert result.output.startswith("Error: ")
    assert "Traceback" not in result.output
    assert all(word in result.output for word in words), result.output
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    result = run(tmp_path / "file" / "run", "--method", "smc")
    assert result.exit_code == 2
    assert result.output.startswith("Error: cannot make the run folder")

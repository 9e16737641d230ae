"""Particle MCMC on top of a run: the command, its files and its errors."""

import json
import shutil

import numpy as np
import pytest
import tests_exact
from tests_run_folder import read_netcdf
from typer.testing import CliRunner

from annealax.cli.main import app

TINY = {
    "lattice": "2,2",
    "mass_squared": -1.5,
    "coupling": 1.5,
    "num_particles": 200,
    "num_transitions": 4,
    "num_hmc_steps": 2,
    "num_leapfrog": 4,
    "step_sizes": "0.3,0.3,0.3",
    "num_train_steps": 10,
    "num_repeats": 2,
    "smc_transitions": 5,
}


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run(folder, *arguments):
    settings = [f"--set={key}={value}" for key, value in TINY.items()]
    return invoke(
        "run", "phi4-small", "--quiet", "--out", folder, *settings, *arguments
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "phi4"
    result = run(folder)
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="module")
def chain(finished):
    result = invoke("pimh", finished, "--num-steps", 250, "--seed", 1)
    assert result.exit_code == 0, result.output
    with np.load(finished / "pimh.npz", allow_pickle=False) as arrays:
        return result.output, dict(arrays)


def test_it_finds_the_exact_susceptibility(chain):
    """Four standard errors: false alarm 6e-5."""
    _, arrays = chain
    exact = tests_exact.square(TINY["mass_squared"], TINY["coupling"])
    error = arrays["stderr_two_point_susceptibility"]
    assert error < 0.03 * exact.susceptibility
    found = arrays["mean_two_point_susceptibility"]
    assert abs(found - exact.susceptibility) < 4 * error


def test_what_it_prints_and_leaves(chain, finished):
    output, arrays = chain
    assert "two point susceptibility" in output
    assert "Binder cumulant" in output
    assert "Var(log Z)" in output  # the advice
    assert "particles" in output
    for name in ("pimh", "fields", "magnetisation", "training"):
        assert (finished / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert arrays["configurations"].shape == (1, 250, 2, 2)
    assert arrays["trace_two_point_function"].shape == (1, 250, 2, 2)


def test_arviz_reads_the_chains(chain, finished):
    data = read_netcdf(finished / "pimh.nc")
    with np.load(finished / "pimh.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(data.posterior["x"], arrays["configurations"])
        np.testing.assert_array_equal(data.sample_stats["accepted"], arrays["accepted"])
        traces = {name: each for name, each in arrays.items() if "trace_" in name}
    assert traces
    for name, trace in traces.items():
        found = data.sample_stats[name.removeprefix("trace_")]
        np.testing.assert_array_equal(found, trace)
    assert list(data.posterior) == ["x"]  # expectations are not draws


def test_the_same_seed_gives_the_same_chain(finished, chain):
    _, before = chain
    assert invoke("pimh", finished, "--num-steps", 250, "--seed", 1).exit_code == 0
    with np.load(finished / "pimh.npz", allow_pickle=False) as after:
        for name in before:
            np.testing.assert_array_equal(before[name], after[name])


@pytest.mark.parametrize("method", ["smc", "vi"])
def test_other_proposals_and_other_targets_work_too(tmp_path, method):
    folder = tmp_path / "gaussian"
    settings = ["num_particles=50", "num_transitions=2", "num_repeats=2", "dim=3"]
    settings += ["num_train_steps=3", "flow_family=diagonal_affine"]
    options = [f"--set={text}" for text in settings]
    run = invoke(
        "run", "gaussian", "--method", method, "--quiet", "--out", folder, *options
    )
    assert run.exit_code == 0, run.output
    result = invoke(
        "pimh", folder, "--num-steps", 5, "--num-chains", 2, "--num-particles", 20
    )
    assert result.exit_code == 0, result.output
    assert "x[2]" in result.output
    assert "20 particles" in result.output


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "settings.json").unlink(), "not a run folder"),
        (lambda f: (f / "settings.json").write_text("{"), "damaged"),
        (lambda f: (f / "settings.json").write_text("[]"), "damaged"),
        (lambda f: (f / "flows.npz").unlink(), "did not finish"),
        (lambda f: (f / "flows.npz").write_bytes(b"PK\x03\x04"), "flows.npz"),
        (lambda f: rewrite(f, name="phi5"), "phi5"),
        (lambda f: rewrite(f, method="craftt"), "craftt"),
        (lambda f: rewrite_setting(f, coupling="strong"), "coupling"),
        (lambda f: rewrite_setting(f, colour=1), "colour"),
        (lambda f: rewrite_setting(f, flow_channels=[3]), "flows.npz"),
    ],
)
def test_damaged_runs_give_a_clear_error(finished, tmp_path, damage, message, untyped):
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    damage(folder)
    result = invoke("pimh", folder, "--num-steps", 3)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def rewrite(folder, **changes):
    content = json.loads((folder / "settings.json").read_text())
    (folder / "settings.json").write_text(json.dumps(content | changes))


def rewrite_setting(folder, **changes):
    content = json.loads((folder / "settings.json").read_text())
    rewrite(folder, settings=content["settings"] | changes)


@pytest.mark.parametrize(
    "options", [["--num-steps", 1], ["--num-chains", 0], ["--num-particles", 0]]
)
def test_bad_options(finished, options):
    result = invoke("pimh", finished, *options)
    assert result.exit_code == 2


def test_workers_give_the_same_chain(finished, tmp_path):
    """Which of them does it is no part of the answer."""
    found = []
    for name, further in (("here", []), ("there", ["--executor", "processes:1"])):
        shutil.copytree(finished, tmp_path / name)
        result = invoke("pimh", tmp_path / name, "--num-steps", 3, *further)
        assert result.exit_code == 0, result.output
        with np.load(tmp_path / name / "pimh.npz", allow_pickle=False) as arrays:
            found.append(arrays["proposed_log_normalizer"])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("name", ["threads:2", "processes:0", "dask://nowhere", ""])
def test_absurd_executors_are_one_line(finished, name):
    result = invoke("pimh", finished, "--executor", name)
    assert result.exit_code == 2
    assert len(result.output.strip().splitlines()) == 1
    assert "executor" in result.output or "scheduler" in result.output

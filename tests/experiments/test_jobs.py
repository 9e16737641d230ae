"""Descriptions of jobs: written and read by one pair; what is wrong is one line."""

import json

import pytest
from typer.testing import CliRunner

import annealax as ax
from annealax.cli.main import app
from annealax.experiments.jobs import (
    ChainJob,
    CompareJob,
    RunJob,
    SampleJob,
    TrainVAEJob,
    load_job,
)

RUN = {"command": "run", "name": "bimodal", "method": "smc", "seed": 0}
SAMPLE = {"command": "sample", "name": "jax.numpy:sum", "seed": 0, "shape": [2]}
REPRODUCE = {
    "command": "reproduce",
    "name": "reproduction",
    "method": "reproduce",
    "seed": 0,
    "figures": [1],
    "scale": "smoke",
}
CHAIN = {"command": "pimh", "seed": 0, "num_steps": 5}
VAE = {
    "command": "train-vae",
    "seed": 0,
    "settings": {"data": "/none", "decoder": "d.npz"},
}
COMPARE = {
    "command": "compare",
    "name": "bimodal",
    "method": "smc",
    "seed": 0,
    "budget": {"amount": 1e4, "unit": "evaluations"},
    "num_repeats": 1,
}


@pytest.mark.parametrize(
    "job",
    [
        RunJob.make(
            seed=1, name="bimodal", method="craft", settings={"step_sizes": (0.1,)}
        ),
        SampleJob.make(
            seed=1, name="a:b", shape=(2,), support=(0.0, None), budget="60s"
        ),
        SampleJob.make(
            seed=1, name="a:b", shape={"m": (), "t": (2,)}, support={"t": "unit"}
        ),
        SampleJob.make(seed=1, name="bimodal", overrides={"num_particles": 5}),
        CompareJob.model_validate_json(json.dumps(COMPARE)),
        TrainVAEJob.make(seed=1, settings=VAE["settings"]),
        ChainJob.make(seed=1, num_steps=5, num_particles=10),
    ],
    ids=lambda job: job.command,
)
def test_a_job_comes_back_from_its_file(tmp_path, job):
    (tmp_path / job.file).write_text(job.text())
    found = load_job(tmp_path, job.file)
    assert type(found) is type(job)
    assert found.text() == job.text()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (RUN | {"name": 5}, "name must be text; got 5"),
        (RUN | {"name": "bimodl"}, "unknown experiment 'bimodl'"),
        (RUN | {"method": "crat"}, "unknown method 'crat'"),
        (RUN | {"seed": "a"}, "seed must be a whole number"),
        (RUN | {"seed": 2**70}, "seed must be a whole number"),
        (RUN | {"seed": 1.5}, "seed must be a whole number"),
        (RUN | {"overrides": 5}, "overrides"),
        (RUN | {"overrides": {"colour": 1}}, "unknown setting 'colour'"),
        (RUN | {"settings": []}, "settings"),
        (RUN | {"settings": {"num_particles": "x"}}, "num_particles"),
        (RUN | {"settings": {"colour": 1}}, "unknown setting 'colour'"),
        (RUN | {"checkpoint_seconds": "a"}, "checkpoint_seconds must be a number"),
        (RUN | {"source": "/none.py"}, "there is no file /none.py"),
        (RUN | {"colour": 1}, "unknown setting 'colour'"),
        (SAMPLE | {"budget": {}}, "budget"),
        (SAMPLE | {"budget": "soon"}, "budget"),
        (SAMPLE | {"shape": "a"}, "shape"),
        (SAMPLE | {"shape": [10**20]}, "shape"),
        (SAMPLE | {"support": [1, 0]}, "the bounds of the density must rise"),
        (SAMPLE | {"support": 5}, "support"),
        (SAMPLE | {"flow": 4}, "flow must be text"),
        (SAMPLE | {"flow": "x"}, "unknown flow 'x'"),
        (SAMPLE | {"name": "x"}, "module:function"),
        (VAE | {"settings": 5}, "settings"),
        (VAE | {"settings": {}}, "data is missing"),
        (VAE | {"settings": VAE["settings"] | {"num_steps": "x"}}, "num_steps"),
        (VAE | {"settings": VAE["settings"] | {"num_steps": 0}}, "num_steps"),
        (VAE | {"settings": VAE["settings"] | {"colour": 1}}, "colour"),
        (VAE, "/none does not exist"),
        (COMPARE | {"budget": {}}, "budget.amount is missing"),
        (COMPARE | {"budget": {"amount": -1.0, "unit": "seconds"}}, "positive"),
        (COMPARE | {"budget": {"amount": 1.0, "unit": "years"}}, "budget.unit"),
        (COMPARE | {"num_repeats": 0}, "num_repeats"),
        (COMPARE | {"method": ""}, "at least one method"),
        (REPRODUCE | {"figures": "all"}, "figures"),
        (REPRODUCE | {"figures": [99]}, "figures"),
        (REPRODUCE | {"scale": 5}, "scale"),
        (REPRODUCE | {"repeats": 0}, "repeats"),
        (REPRODUCE | {"seed": None}, "seed must be a whole number"),
        ({"command": "pimh"}, "command must be one of"),
        ({"command": []}, "command must be one of"),
        ([], "command must be one of"),
        (None, "command must be one of"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path, content, words, untyped):
    (tmp_path / "settings.json").write_text(json.dumps(content))
    result = CliRunner().invoke(app, ["resume", str(tmp_path)])
    assert result.exit_code == 2, result.exception
    assert result.output.startswith(f"Error: {tmp_path / 'settings.json'}")
    assert words in result.output, result.output
    assert result.output.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["settings.json"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (CHAIN | {"seed": "a"}, "seed must be a whole number"),
        (CHAIN | {"num_steps": "many"}, "num_steps"),
        (CHAIN | {"num_chains": 0}, "num_chains"),
        (CHAIN | {"num_particles": {}}, "num_particles"),
        (CHAIN | {"colour": 1}, "unknown setting 'colour'"),
        (RUN, "command must be one of pimh"),
        (5, "command must be one of pimh"),
    ],
)
def test_what_is_wrong_with_a_chain_is_one_line(tmp_path, content, words, untyped):
    (tmp_path / "settings.json").write_text(json.dumps(RUN))
    (tmp_path / "pimh.json").write_text(json.dumps(content))
    (tmp_path / "status.json").write_text('{"run": "finished", "pimh": "interrupted"}')
    (tmp_path / "result.npz").touch()
    result = CliRunner().invoke(app, ["resume", str(tmp_path)])
    assert result.exit_code == 2, result.exception
    assert result.output.startswith(f"Error: {tmp_path / 'pimh.json'}")
    assert words in result.output, result.output
    assert result.output.count("\n") == 1


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[" * 99999])
def test_a_damaged_file(tmp_path, content):
    (tmp_path / "settings.json").write_bytes(content)
    with pytest.raises(ax.FileError, match=r"settings\.json is damaged"):
        load_job(tmp_path)


def test_no_file_at_all(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(ax.FileError, match="not a run folder"):
            load_job(folder)

"""The page of a run: what it says, that it is whole, and that nothing leaks in."""

import base64
import json
import re
import shlex
from html.parser import HTMLParser

import numpy as np
import pytest
import tests_run_folder as made_up
from typer.testing import CliRunner

from annealax.experiments import EXPERIMENTS, page_charts
from annealax.experiments._fields import parse_overrides
from annealax.experiments._run_files import read_files
from annealax.experiments.cli import app
from annealax.experiments.page import run_page
from annealax.experiments.page_compare import labels, several_runs_page

VOID = {"meta", "img", "wbr", "br"}


class Reader(HTMLParser):
    """Elements and text of a page; complains about tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.stack, self.found, self.words = [], [], []
        self.feed(text)
        self.close()
        assert not self.stack

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if self.stack and self.stack[-1] != "style":
            self.words.append(data)

    def all(self, tag):
        return [attrs for found, attrs in self.found if found == tag]

    @property
    def text(self):
        return " ".join("".join(self.words).split())


def page_of(folder, **options):
    return run_page(read_files(made_up.write(folder, **options)))


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_headline_numbers_come_first(tmp_path):
    text = Reader(page_of(tmp_path)).text
    order = ["1.5000 ± 0.1250", "+4.0 σ", "mean of 3 passes", "No warnings", "Training"]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert "effective sample size" in text
    assert "after 2.5 s of training" in text
    assert f"{np.std([1.5, 1.25, 0.75], ddof=1):.4f}" in text


def test_warnings_stand_above_everything_but_the_numbers(tmp_path):
    doubt = made_up.row("SMC again", [1.0], warnings=["only 3 of 200 draws survive"])
    numbers = made_up.arrays() | {"history_num_skipped": np.array([0, 4])}
    text = Reader(page_of(tmp_path, rows=[doubt], numbers=numbers)).text
    assert "No warnings" not in text
    assert text.index("4 flow updates were skipped") < text.index("Training")
    assert "SMC again: only 3 of 200 draws survive." in text


def test_every_part_is_there(tmp_path):
    found = Reader(page_of(tmp_path, pictures=["fields.png", "unheard_of.png"]))
    for title in (
        "Beside other samplers",
        "Training",
        "Along the ladder of temperatures",
        "Weights",
        "Coordinates",
        "Pictures",
        "Run it again",
        "Settings",
        "Software",
    ):
        assert title in found.text
    assert "resampled once in 5 temperatures" in found.text
    assert "unheard of." in found.text
    charts = [svg for svg in found.all("svg") if svg.get("role") == "img"]
    assert len(charts) == 1 + 3 + 2 + 2 + 3 + 3
    assert all(chart["aria-label"] for chart in charts)
    assert all(image["alt"] for image in found.all("img"))
    assert len(found.all("img")) == 2


def test_nothing_is_fetched_and_nothing_runs(tmp_path):
    text = page_of(tmp_path)
    found = Reader(text)
    assert text.startswith("<!doctype html>")
    assert found.all("html") == [{"lang": "en"}]
    assert not found.all("script")
    assert not found.all("link")
    assert "http:" not in text
    assert "https:" not in text
    assert "url(" not in text
    assert not [name for _, attrs in found.found for name in attrs if name[:2] == "on"]
    for image in found.all("img"):
        kind, _, data = image["src"].partition(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(data) == (tmp_path / "marginals.png").read_bytes()


def test_what_comes_from_files_is_escaped(tmp_path):
    evil = "<script>alert('x')</script>&\"'"
    row = made_up.row(evil, [1.0, 2.0], warnings=[evil])
    text = page_of(
        tmp_path,
        name=evil,
        method=evil,
        overrides={evil: evil},
        rows=[row],
        pictures=["<img src=x onerror=alert(1)>.png"],
    )
    found = Reader(text)
    assert not found.all("script")
    assert not [attrs for attrs in found.all("img") if attrs["src"] == "x"]
    assert found.text.count("<script>alert('x')</script>&") >= 5


def test_the_command_does_the_same_again(tmp_path):
    overrides = {"num_particles": 200, "step_sizes": [0.5, 0.25], "dim": 3}
    text = Reader(page_of(tmp_path, overrides=overrides)).text
    line = re.search(r"annealax run .*?--set dim=3", text)[0]
    words = shlex.split(line)
    assert words[:7] == [
        "annealax",
        "run",
        "gaussian",
        "--method",
        "craft",
        "--seed",
        "3",
    ]
    given = [word for word in words if "=" in word]
    read = parse_overrides(EXPERIMENTS["gaussian"], given)
    assert read == overrides | {"step_sizes": (0.5, 0.25)}


def test_a_run_that_just_resampled_shows_the_ess_before(tmp_path):
    numbers = made_up.arrays() | {"step_resampled": np.ones(5, bool)}
    numbers |= {"step_ess": np.full(5, 10.0), "log_weights": np.full(200, -5.3)}
    text = Reader(page_of(tmp_path, numbers=numbers)).text
    assert "5% 10 of 200 particles, before the last resampling" in re.sub(
        r"(?<=5%)(?=10)", " ", text
    )


@pytest.mark.parametrize("shape", [(), (1,), (2,), (30,), (6, 6)])
def test_any_shape_has_coordinates(tmp_path, shape):
    numbers = made_up.arrays(shape=shape)
    text = Reader(page_of(tmp_path, numbers=numbers)).text
    assert ("principal components" in text) == (np.prod(shape) > 10)


def test_main_coordinates_of_many_are_those_of_largest_variance():
    rng = np.random.default_rng(0)
    direction = np.ones(50) / np.sqrt(50)
    x = 0.1 * rng.normal(size=(400, 50)) + 3 * rng.normal(size=(400, 1)) * direction
    _, names, values = page_charts.main_coordinates(x, np.full(400, 1 / 400))
    assert abs(np.corrcoef(values[:, 0], x @ direction)[0, 1]) > 0.999
    assert names[0] == "direction 1, 95% of variance"


def test_odd_numbers_are_drawn_all_the_same(tmp_path):
    numbers = made_up.arrays(transitions=1, num_particles=1)
    numbers["history_loss"] = np.full(30, np.nan)
    numbers["history_log_normalizer"] = np.array([np.inf, 1.0, -np.inf])
    numbers["step_acceptance_rate"] = np.array([np.nan])
    row = made_up.row("x", [None], log_normalizer=None, log_normalizer_stderr=None)
    text = page_of(tmp_path, numbers=numbers, rows=[row], truth=None)
    assert "nan" not in re.sub(r"<style>.*?</style>|base64,[^\"]*", "", text).lower()


def test_a_method_without_training(tmp_path):
    numbers = {k: v for k, v in made_up.arrays().items() if "history" not in k}
    folder = made_up.write(tmp_path, numbers=numbers, method="smc")
    table = json.loads((folder / "table.json").read_text()) | {"training_seconds": None}
    (folder / "table.json").write_text(json.dumps(table))
    text = Reader(run_page(read_files(folder))).text
    assert "no training" in text
    assert "Loss" not in text


def test_environment_and_particle_mcmc_join(tmp_path):
    made_up.write(tmp_path, pictures=["pimh_trace.png"])
    content = {"commit": "abc123", "packages": {"optax": "0.2"}, "cores": [0, 1]}
    (tmp_path / "environment.json").write_text(json.dumps(content))
    chain = {"accepted": np.array([[True, False]]), "mean_energy": np.float64(2.5)}
    chain |= {"stderr_energy": np.float64(0.5), "mean_vector": np.zeros(3)}
    np.savez(tmp_path / "pimh.npz", **chain)
    text = Reader(run_page(read_files(tmp_path))).text
    for words in ("abc123", "packages optax", "0, 1", "Particle MCMC", "50%", "energy"):
        assert words in text


def test_several_runs(tmp_path):
    first = made_up.write(tmp_path / "a" / "run")
    second = made_up.write(tmp_path / "b" / "run", overrides={"num_particles": 50})
    third = made_up.write(tmp_path / "other", name="funnel", truth=None)
    runs = [read_files(path) for path in (first, second, third)]
    found = Reader(several_runs_page(runs))
    for words in ("3 runs", "a/run", "b/run", "Settings that differ", "log Z"):
        assert words in found.text
    assert "num_particles" in found.text
    assert "resample_threshold" not in found.text.partition("Run them again")[0]
    assert len(found.all("img")) == 3
    assert found.text.count("annealax run") == 3


def test_labels_tell_folders_apart(tmp_path):
    assert labels([tmp_path / "x", tmp_path / "y"]) == ["x", "y"]
    assert labels([tmp_path / "x" / "r", tmp_path / "y" / "r"]) == ["x/r", "y/r"]
    assert len(set(labels([tmp_path / "x", tmp_path / "x"]))) == 2


def test_the_command_rebuilds_one_page(tmp_path):
    made_up.write(tmp_path)
    result = invoke("report", tmp_path)
    assert result.exit_code == 0, result.output
    assert result.output.strip() == str(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == page_of(tmp_path)
    assert invoke("report", tmp_path).exit_code == 0  # over its own page
    assert not list(tmp_path.glob(".*"))


def test_the_command_compares_runs_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_up.write(tmp_path / "a")
    made_up.write(tmp_path / "b")
    assert invoke("report", "a", "b").exit_code == 0
    assert "2 runs" in (tmp_path / "report.html").read_text()
    assert invoke("report", "a", "b", "--out", "c.html").exit_code == 0
    assert (tmp_path / "c.html").exists()


def test_a_file_that_is_not_ours_is_left_alone(tmp_path):
    made_up.write(tmp_path)
    (tmp_path / "report.html").write_text("<h1>my own</h1>")
    result = invoke("report", tmp_path)
    assert result.exit_code == 2
    assert "choose another file with --out" in result.output
    assert (tmp_path / "report.html").read_text() == "<h1>my own</h1>"


def test_a_folder_of_a_comparison(tmp_path):
    folder = made_up.write(
        tmp_path / "cmp", method="craft,hmc", pictures=["compare.png"]
    )
    (folder / "table.json").unlink()
    attempt = dict.fromkeys(("evaluations", "training_seconds", "seconds"), 4.0)
    attempt |= {"compile_seconds": 1.0, "memory": 5e6, "ess": None}
    rows = [
        {
            "method": "craft",
            "what": "9 steps",
            "attempts": [attempt | {"log_normalizer": 0}],
        },
        {"method": "hmc", "what": "chains", "attempts": [attempt]},
    ]
    content = {"rows": rows, "log_normalizer_true": 0.5}
    content |= {"budget": {"unit": "seconds", "amount": 4.0}}
    (folder / "compare.json").write_text(json.dumps(content))
    assert invoke("report", folder).exit_code == 0
    text = Reader((folder / "report.html").read_text()).text
    for words in (
        "methods compared",
        "HMC",
        "9 steps",
        "--methods craft,hmc",
        "0.5000",
    ):
        assert words in text
    made_up.write(tmp_path / "run")
    result = invoke("report", folder, tmp_path / "run")
    assert result.exit_code == 2
    assert "alone" in result.output

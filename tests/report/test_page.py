"""Pages: what they say, that they are whole, and that nothing leaks in."""

import base64
import hashlib
import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import tests_run_folder as made_up

from annealax import FileError, InvalidInputError, report
from annealax.report import page
from annealax.report.page import labels, render, render_runs
from annealax.report.read import read

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
        if self.stack and self.stack[-1] not in ("style", "script"):
            self.words.append(data)

    def all(self, tag):
        return [attrs for found, attrs in self.found if found == tag]

    @property
    def text(self):
        return " ".join("".join(self.words).split())


def page_of(folder, **options):
    return render(read(made_up.write(folder, **options)))


def edit(file, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def in_order(text, *words):
    place = 0
    for each in words:
        assert each in text[place:], each
        place = text.index(each, place)


# A run.


def test_the_answer_comes_first(tmp_path):
    text = Reader(page_of(tmp_path)).text
    in_order(
        text,
        *("log Z = 1.50 ± 0.12; nothing to doubt", "+4.0 σ"),
        *("mean of 3 passes", "effective sample size", "Posterior"),
        *("log Z of each pass", "Weights", "log Z and what it cost"),
        *("Along the ladder", "Training", "Run it again"),
    )
    assert "after 2.5 s of training" in text
    assert f"{np.std([1.5, 1.25, 0.75], ddof=1):.4f}" in text


def test_reasons_to_doubt_stand_above_the_numbers(tmp_path):
    made_up.write(tmp_path)
    table = json.loads((tmp_path / "table.json").read_text())
    table["rows"][0]["warnings"] = [made_up.doubt("few draws survive; add particles")]
    table["rows"][1]["warnings"] = [made_up.doubt("modes may be missing")]
    table["training_warnings"] = [made_up.doubt("4 flow updates were skipped")]
    (tmp_path / "table.json").write_text(json.dumps(table))
    text = Reader(render(read(tmp_path))).text
    in_order(
        text,
        *("2 reasons to doubt it, see below", "Reasons to doubt"),
        *("Few draws survive; add particles.", "4 flow updates were skipped."),
        *("effective sample size", "About what it is compared with"),
        "SMC (5 steps): Modes may be missing.",
    )


def test_every_part_is_there(tmp_path):
    pictures = ["fields.png", "unheard_of.png", "training.png"]
    found = Reader(page_of(tmp_path, pictures=pictures))
    for words in (
        *("Beside other samplers", "How hard transitions are", "Weights", "Loss"),
        *("Resampled once in 5 transitions", "Pictures", "unheard of.", "x[2]"),
        *("Weighted marginals and pairs of all coordinates", "annealax 0.1.0"),
    ):
        assert words in found.text
    charts = [svg for svg in found.all("svg") if svg.get("role") == "img"]
    assert len(charts) == 1 + 3 + 3 + 3  # corner, log Z and weights, ladder, training
    assert all(chart["aria-label"] for chart in charts)
    assert all(image["alt"] for image in found.all("img"))
    assert len(found.all("img")) == 2  # training has its charts


def test_settings_and_software_are_folded_away_and_listed_once(tmp_path):
    text = page_of(tmp_path)
    assert len(Reader(text).all("details")) == 2
    assert text.count("0.10.2") == 1
    assert text.count("resample_threshold") == 1
    in_order(Reader(text).text, "num_particles", "resample_threshold")  # changed first


def test_nothing_is_fetched_and_nothing_but_our_script_runs(tmp_path):
    text = page_of(tmp_path)
    found = Reader(text)
    assert text.startswith("<!doctype html>")
    assert found.all("html") == [{"lang": "en"}]
    script = re.findall(r"<script>(.*?)</script>", text, re.S)
    assert found.all("script") == [{}]
    assert script == [(Path(page.__file__).parent / "page.js").read_text()]
    assert not found.all("link")
    assert "http:" not in text
    assert "https:" not in text
    assert not re.search(r"url\((?!#)", text)
    assert not [name for _, attrs in found.found for name in attrs if name[:2] == "on"]
    policies = [each.get("content", "") for each in found.all("meta")]
    (policy,) = (each for each in policies if each.startswith("default-src 'none'"))
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert policy == (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'"
    )
    for image in found.all("img"):
        kind, _, data = image["src"].partition(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(data) == (tmp_path / "marginals.png").read_bytes()


def test_identifiers_are_unique(tmp_path):
    found = Reader(page_of(tmp_path))
    ids = [attrs["id"] for _, attrs in found.found if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_what_comes_from_files_is_escaped(tmp_path):
    evil = "<script>alert('x')</script>&\"'"
    row = made_up.row(evil, [1.0, 2.0], warnings=[made_up.doubt(evil)])
    text = page_of(
        tmp_path,
        name=evil,
        method=evil,
        overrides={evil: evil},
        rows=[row],
        pictures=["<img src=x onerror=alert(1)>.png"],
    )
    found = Reader(text)
    assert found.all("script") == [{}]  # ours
    assert not [attrs for attrs in found.all("img") if attrs["src"] == "x"]
    assert found.text.count("<script>alert('x')</script>&") >= 5


def test_a_run_that_just_resampled_shows_the_ess_before(tmp_path):
    numbers = made_up.arrays() | {"step_resampled": np.ones(5, bool)}
    numbers |= {"step_ess": np.full(5, 10.0), "log_weights": np.full(200, -5.3)}
    text = Reader(page_of(tmp_path, numbers=numbers)).text
    assert "10 of 200 draws, before the last resampling" in text


@pytest.mark.parametrize("shape", [(), (1,), (2,), (10,), (6, 6)])
def test_any_shape_has_a_posterior(tmp_path, shape):
    numbers = made_up.arrays(shape=shape)
    text = Reader(page_of(tmp_path, numbers=numbers)).text
    many = np.prod(shape) > 10
    assert ("principal components" in text) == many
    assert ("95%" in text) != many  # quantiles, of all that have a place of their own


def test_odd_numbers_are_drawn_all_the_same(tmp_path):
    numbers = made_up.arrays(transitions=1, num_particles=1)
    numbers["history_loss"] = np.full(30, np.nan)
    numbers["history_log_normalizer"] = np.array([np.inf, 1.0, -np.inf])
    numbers["step_acceptance_rate"] = np.array([np.nan])
    numbers["step_free_energy"] = np.array([np.inf])
    row = made_up.row("x", [None], log_normalizer=None, log_normalizer_stderr=None)
    text = page_of(tmp_path, numbers=numbers, rows=[row], truth=None)
    assert "nan" not in re.sub(r"<style>.*?</style>|base64,[^\"]*", "", text).lower()


def test_a_method_without_training(tmp_path):
    numbers = {k: v for k, v in made_up.arrays().items() if "history" not in k}
    folder = made_up.write(tmp_path, numbers=numbers, method="smc")
    edit(folder / "table.json", training_seconds=None)
    text = Reader(render(read(folder))).text
    assert "no training" in text
    assert "Loss" not in text


def test_the_environment_is_shown(tmp_path):
    made_up.write(tmp_path)
    content = {"commit": "abc123", "packages": {"optax": "0.2"}, "cores": [0, 1]}
    (tmp_path / "environment.json").write_text(json.dumps(content))
    text = Reader(render(read(tmp_path))).text
    for words in ("abc123", "packages optax", "0,1"):
        assert words in text


# Other kinds of folders.


def test_particle_mcmc_comes_before_the_ladder(tmp_path):
    made_up.write(tmp_path)
    np.savez(tmp_path / "pimh.npz", **made_up.chain_arrays(2, 30))
    plan = {
        "command": "pimh",
        "num_steps": 30,
        "num_chains": 2,
        "num_particles": 50,
        "seed": 5,
    }
    (tmp_path / "pimh.json").write_text(json.dumps(plan))
    text = Reader(render(read(tmp_path))).text
    in_order(
        text,
        *("Particle MCMC", "Accepted", "energy", "Trace of log Z", "Effective mass"),
        *("Along the ladder", "Run it again", f"annealax pimh {tmp_path.name}"),
        "--num-steps 30 --num-chains 2 --num-particles 50 --seed 5",
    )


def test_the_automatic_mode_says_pooled_and_names_parameters(tmp_path):
    text = Reader(render(read(made_up.write_sample(tmp_path)))).text
    in_order(text, "4 replicates pooled", "Posterior", "parameter", "mean", "95%")
    assert "one pass" not in text
    table = text[text.index("95%") :]
    in_order(table, "x", "y", "s", "log Z of each replicate", "Along the ladder")
    in_order(text, "How the answer was found", "search", "second opinion", "0 ± 0.1")
    assert "what it cost" not in text  # a single row says nothing new
    assert "annealax sample model:density --shape x --shape y --shape s --seed" in text


def test_what_was_given_is_in_the_command(tmp_path):
    folder = made_up.write_sample(tmp_path)
    given = {"shape": "x=, y=, s=", "support": "s=-2,3", "region": "x=-5,5, y=-9,9"}
    edit(folder / "settings.json", settings=given | {"flow": "coupling"})
    line = re.search(r"annealax sample .*?--seed 3", Reader(render(read(folder))).text)
    assert shlex.split(line[0])[3:] == [
        *("--shape", "x", "--shape", "y", "--shape", "s", "--support", "s=-2,3"),
        *("--region", "x=-5,5", "--region", "y=-9,9", "--flow", "coupling"),
        *("--seed", "3"),
    ]


def test_a_comparison_says_who_won(tmp_path):
    text = Reader(render(read(made_up.write_comparison(tmp_path)))).text
    in_order(
        text,
        *(
            "methods compared",
            "CRAFT beats SMC: 2500 times smaller",
            "HMC has no log Z",
        ),
        *("exact", "0.5000", "crafting", "log Z against what was spent", "Magnified"),
        "annealax compare gaussian --methods craft,smc,hmc --budget 4s --repeats 6",
    )


def test_a_decoder(tmp_path):
    folder = made_up.write_decoder(tmp_path)
    edit(folder / "settings.json", settings={"data": "d.npz", "num_steps": 19})
    text = Reader(render(read(folder))).text
    in_order(text, "vae-decoder", "-91.25", "images to train on", "Training")
    assert "annealax train-vae --data d.npz --num-steps 19 --seed 3" in text


def test_several_runs(tmp_path):
    first = made_up.write(tmp_path / "a" / "run")
    second = made_up.write(tmp_path / "b" / "run", overrides={"num_particles": 50})
    third = made_up.write(tmp_path / "other", name="funnel", truth=None)
    found = Reader(render_runs([read(path) for path in (first, second, third)]))
    for words in ("3 runs", "a/run", "b/run", "Settings that differ", "log Z"):
        assert words in found.text
    assert "gaussian: No clear winner" in found.text
    assert "num_particles" in found.text
    assert "resample_threshold" not in found.text.partition("Run them again")[0]
    assert len(found.all("img")) == 3
    assert found.text.count("annealax run") == 3


def test_labels_tell_folders_apart(tmp_path):
    assert labels([tmp_path / "x", tmp_path / "y"]) == ["x", "y"]
    assert labels([tmp_path / "x" / "r", tmp_path / "y" / "r"]) == ["x/r", "y/r"]
    assert len(set(labels([tmp_path / "x", tmp_path / "x"]))) == 2


# Commands and files.


def test_the_command_does_the_same_again(tmp_path):
    overrides = {"num_particles": 200, "step_sizes": [0.5, 0.25], "name": "a b"}
    text = Reader(page_of(tmp_path, overrides=overrides)).text
    line = re.search(r"annealax run .*?'name=a b'", text)[0]
    assert shlex.split(line) == [
        *("annealax", "run", "gaussian", "--method", "craft", "--seed", "3"),
        *("--set", "num_particles=200", "--set", "step_sizes=0.5,0.25"),
        *("--set", "name=a b"),
    ]


def test_an_experiment_of_ones_own_is_found_again(tmp_path):
    folder = made_up.write(tmp_path, name="Mine")
    edit(folder / "settings.json", source="/some/where/mine.py:Mine")
    assert "annealax run /some/where/mine.py:Mine" in Reader(render(read(folder))).text


def test_it_says_whether_numbers_will_be_the_same(tmp_path):
    same = Reader(page_of(tmp_path / "same")).text
    assert "it gives the same numbers; only times differ." in same
    row = made_up.row("SMC, same cost", [1.0])
    clock = Reader(page_of(tmp_path / "clock", rows=[row])).text
    assert "how many temperatures SMC gets for the same cost" in clock
    made_up.write_sample(tmp_path / "timed")
    edit(tmp_path / "timed" / "settings.json", settings={"budget": "20s"})
    timed = Reader(render(read(tmp_path / "timed"))).text
    assert "With a budget of time, how much work there is depends on" in timed


def test_one_page_is_written_again(tmp_path):
    made_up.write(tmp_path)
    assert report.write_page(tmp_path) == ["report.html"]
    file = tmp_path / "report.html"
    assert file.read_text(encoding="utf-8") == render(read(tmp_path))
    assert report.write_comparison([tmp_path]) == file  # over its own page
    assert not list(tmp_path.glob(".*"))


def test_runs_are_compared_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [made_up.write(tmp_path / name) for name in "ab"]
    report.write_comparison(runs)
    assert "2 runs" in (tmp_path / "report.html").read_text(encoding="utf-8")
    out = tmp_path / "c.html"
    assert report.write_comparison(runs, out) == out
    assert out.exists()


def test_a_file_that_is_not_ours_is_left_alone(tmp_path):
    made_up.write(tmp_path)
    (tmp_path / "report.html").write_text("<h1>my own</h1>")
    with pytest.raises(InvalidInputError, match="choose another file with --out"):
        report.write_page(tmp_path)
    assert (tmp_path / "report.html").read_text() == "<h1>my own</h1>"


def test_only_runs_stand_side_by_side(tmp_path):
    folders = [
        made_up.write_comparison(tmp_path / "comparison"),
        made_up.write(tmp_path / "run"),
    ]
    with pytest.raises(FileError, match="alone"):
        report.write_comparison(folders, tmp_path)

"""Experiments from outside: files, modules and installed packages."""

import importlib.metadata
import sys

import pytest
from typer.testing import CliRunner

import annealax as ax
from annealax.cli.main import app
from annealax.experiments import EXPERIMENTS, find_experiment
from annealax.experiments.registry import GROUP

MINE = '''
from annealax.experiments import VectorExperiment
from annealax.targets import Funnel

class Mine(VectorExperiment):
    """A problem of my own."""

    num_transitions = 3

    def target(self):
        return Funnel(3)

def density(x):
    return -x @ x
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of its own, with modules that are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_a_file_or_a_class_in_it_or_in_a_module(folder):
    (folder / "mine_alone.py").write_text(MINE)
    found = find_experiment("mine_alone.py")
    assert (found.name, found.source) == ("mine_alone", str(folder / "mine_alone.py"))
    assert found.experiment().num_transitions == 3
    by_class = find_experiment("mine_alone.py:Mine")
    assert by_class.experiment is found.experiment
    assert find_experiment(by_class.source).name == by_class.name == "Mine"
    assert find_experiment("mine_alone:Mine").experiment is found.experiment


def test_one_of_several_must_be_named(folder):
    (folder / "mine_twice.py").write_text(MINE + "\nclass Other(Mine): pass\n")
    with pytest.raises(ax.InvalidInputError, match=r"mine_twice\.py:Mine"):
        find_experiment("mine_twice.py")
    assert find_experiment("mine_twice.py:Other").name == "Other"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("mine_wrong.py:Mne", "Did you mean 'Mine'"),
        ("mine_wrong:density", "`annealax sample mine_wrong:density --shape"),
        ("mine_none.py", "there is no file"),
        ("mine_none:Mine", "there is no module 'mine_none'"),
        ("mine_empty.py", "there is no experiment in it"),
        ("mine_broken.py", "ZeroDivisionError: division by zero"),
        ("json.py", "the name of another module"),
        ("bimodl", "Did you mean 'bimodal'"),
    ],
)
def test_what_cannot_be_found_is_one_line(folder, reference, message):
    (folder / "mine_wrong.py").write_text(MINE)
    (folder / "mine_empty.py").write_text("x = 1\n")
    (folder / "mine_broken.py").write_text("1 / 0\n")
    (folder / "json.py").write_text(MINE)
    with pytest.raises(ax.InvalidInputError) as error:
        find_experiment(reference)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_installed_packages_register_theirs(folder, monkeypatch):
    (folder / "mine_installed.py").write_text(MINE)
    entries = [
        importlib.metadata.EntryPoint("mine", "mine_installed:Mine", GROUP),
        importlib.metadata.EntryPoint("broken", "mine_none:Mine", GROUP),
    ]
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda *, group: entries * (group == GROUP)
    )
    assert find_experiment("mine").experiment.__name__ == "Mine"
    with pytest.raises(ax.InvalidInputError, match="mine_none"):
        find_experiment("broken")
    result = CliRunner().invoke(app, ["list"])
    assert result.exit_code == 0, result.output
    for word in (*EXPERIMENTS, "A problem of my own", "broken"):
        assert word in result.output
    assert "A problem of my own" in CliRunner().invoke(app, ["show", "mine"]).output

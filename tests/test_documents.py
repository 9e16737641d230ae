"""Documents name what is there: the map of the tree, and the parts of the library."""

import re
from pathlib import Path

import pytest

import annealax as ax

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "annealax"
MAP = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_map_names_every_folder_and_top_level_module():
    folders = {f"{path.parent.name}/" for path in SOURCE.glob("*/__init__.py")}
    modules = {path.name for path in SOURCE.glob("*.py")}
    assert {name for name in folders | modules if f"`{name}" not in MAP} == set()


@pytest.mark.parametrize(
    "folder", ["auto", "cli", "experiments", "report", "reproduction", "_work"]
)
def test_map_names_every_module_of_the_larger_folders(folder):
    commands = {
        *("compare.py", "pimh.py", "reproduce.py", "run.py", "sample.py", "vae.py"),
    }
    skipped = {"__init__.py"} | (commands if folder == "cli" else set())
    modules = {path.name for path in (SOURCE / folder).glob("*.py")} - skipped
    assert {name for name in modules if name not in MAP} == set()


def test_every_path_that_the_map_names_is_there():
    """Below the root or the package, or, where a folder is meant already, anywhere."""
    named = set(re.findall(r"`((?:\w[\w-]*/|\.ci/)*[\w.]+(?:/|\.py|\.css|\.j2))`", MAP))
    tree = [f"/{path.relative_to(ROOT).as_posix()}" for path in SOURCE.rglob("*")]
    made = {"my_experiment.py", "checkpoints/"}  # by users, and by runs

    def is_there(name):
        end = f"/{name.rstrip('/')}"
        return (ROOT / name).exists() or any(each.endswith(end) for each in tree)

    wanted = {name for name in named - made if "NAME" not in name}
    assert len(wanted) > 50
    assert {name for name in wanted if not is_there(name)} == set()


def test_readme_names_public_parts():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in set(re.findall(r"\bax\.([a-zA-Z_]+(?:\.[a-zA-Z_]+)*)", text)):
        found = ax
        for part in name.split("."):
            found = getattr(found, part)

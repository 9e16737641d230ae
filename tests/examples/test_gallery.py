"""The scripts of the gallery run as notebooks, and each leaves a picture."""

import importlib.util
import re
from pathlib import Path

import jupytext
import pytest
from matplotlib import image

ROOT = Path(__file__).parents[2]


def gallery():
    source = ROOT / "docs" / "make_gallery.py"
    spec = importlib.util.spec_from_file_location("make_gallery", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GALLERY = gallery()


@pytest.mark.slow
@pytest.mark.optimised
@pytest.mark.parametrize("name", sorted(GALLERY.SCRIPTS))
def test_script_runs_as_a_notebook(name, tmp_path):
    notebook, picture = GALLERY.run(name, tmp_path)
    assert notebook.stat().st_size > 1000
    # Neither empty nor of one colour.
    assert image.imread(picture)[..., :3].std() > 0.02


def test_scripts_are_short_and_on_the_page():
    assert len(GALLERY.SCRIPTS) >= 10
    for name, path in GALLERY.SCRIPTS.items():
        assert len(path.read_text(encoding="utf-8").splitlines()) < 60, name
    committed = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert committed == GALLERY.page()


def test_notebooks_to_download_are_the_scripts():
    """`python docs/make_gallery.py NAME` runs one again."""
    for name, path in GALLERY.SCRIPTS.items():
        kept = jupytext.read(ROOT / "docs" / "gallery" / f"{name}.ipynb")
        texts = [cell.source for cell in jupytext.read(path).cells]
        assert [cell.source for cell in kept.cells] == texts, name


def test_pictures_of_the_page_are_there():
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    named = re.findall(r"\]\(((?:images/)?gallery/[^)]+)\)", text)
    assert len(named) == 2 * len(GALLERY.SCRIPTS)
    assert [each for each in named if not (ROOT / "docs" / each).exists()] == []

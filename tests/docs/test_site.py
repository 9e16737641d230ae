"""The site builds strictly and offline, and its API pages name all that is public."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import annealax as ax

ROOT = Path(__file__).parents[2]
API = "\n".join(
    path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "api").glob("*.md")
)
DOCUMENTED = set(re.findall(r"^::: annealax\.([\w.]+)$", API, re.MULTILINE))


def public(module, prefix=""):
    """Names of functions and classes that a user reaches without an underscore."""
    for name in dir(module):
        value = getattr(module, name)
        is_ours = getattr(value, "__module__", "").startswith("annealax")
        if name.startswith("_") or not is_ours:
            continue
        if inspect.isclass(value) or inspect.isfunction(value):
            yield prefix + name


@pytest.mark.parametrize("part", ["", "kernels", "flows", "targets"])
def test_every_public_name_is_documented(part):
    module = getattr(ax, part) if part else ax
    names = set(public(module, f"{part}." if part else ""))
    assert len(names) > (5 if part else 40)
    assert names - DOCUMENTED == set()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as by hand."""
    folder = tmp_path_factory.mktemp("site")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(
        [ROOT / "docs" / "build", folder],
        env={**os.environ, "PATH": path},
        check=True,
        timeout=300,
    )
    return folder


def test_pages_ask_no_other_server(site):
    """A page opens without network: what it loads lies beside it."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*\ssrc="([^"]+)"', text)
        links = r'<link[^>]*rel="(?:stylesheet|preload)"[^>]*href="([^"]+)"'
        loaded += re.findall(links, text)
        away = ("http:", "https:", "//")
        assert [each for each in loaded if each.startswith(away)] == []


def test_each_reader_finds_a_page_from_the_front(site):
    """At most two clicks away: models, lattices, parts of one's own."""
    front = (site / "index.html").read_text(encoding="utf-8")
    for page in ("quickstart", "lattices", "own_parts", "warnings", "api/index"):
        assert f'href="{page}.html"' in front


def test_formulas_are_marked_for_the_renderer(site):
    assert 'class="arithmatex"' in (site / "paper.html").read_text(encoding="utf-8")

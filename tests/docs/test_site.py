"""The site builds strictly and offline, and its API pages name all that is public."""

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tests_chromium

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


def build(root, folder):
    """Build the site as by hand."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        [root / "docs" / "build", folder],
        env={**os.environ, "PATH": path},
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site."""
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_link_that_leads_nowhere_is_an_error(tmp_path):
    (tmp_path / "docs").mkdir()
    for name in ("mkdocs.yml", "docs/build"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "docs" / "index.md").write_text("# All\n[gone](nowhere.md)\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert "nowhere.md" in done.stderr


def test_pages_ask_no_other_server(site):
    """A page opens without network: what it loads lies beside it."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*\ssrc="([^"]+)"', text)
        links = r'<link[^>]*rel="(?:stylesheet|preload)"[^>]*href="([^"]+)"'
        loaded += re.findall(links, text)
        away = ("http:", "https:", "//")
        assert [each for each in loaded if each.startswith(away)] == []


LOOSE = """
    [...document.querySelectorAll('main *')].filter(element => {
        if (element.getBoundingClientRect().right <= 361) return false;
        // What is not drawn, and what readers of a screen hear of a formula.
        if (!element.getClientRects().length) return false;
        if (element.closest('.katex-mathml')) return false;
        for (let each = element; each; each = each.parentElement)
            if (/auto|scroll/.test(getComputedStyle(each).overflowX)) return false;
        return true;
    }).map(element => element.outerHTML.slice(0, 80))
"""
"""What reaches beyond the window, and is in no box that scrolls."""


@pytest.mark.skipif(tests_chromium.find() is None, reason="no browser found")
def test_pages_fit_a_phone_and_nothing_complains(site, tmp_path):
    browser = tests_chromium.Browser(tests_chromium.find(), tmp_path)
    # 404.html is for a server: its addresses begin at the root.
    pages = [each for each in site.rglob("*.html") if each.name != "404.html"]
    assert len(pages) > 30
    wrong = {}
    try:
        for page in pages:
            browser.open(page.as_uri(), width=360)
            found = [browser.complaints(), browser.evaluate(LOOSE)]
            found.append(
                browser.evaluate("document.querySelectorAll('.katex-error').length")
            )
            width = browser.evaluate("document.documentElement.scrollWidth")
            if any(found) or width > 360:
                wrong[page.name] = (width, *found)
        formulas = (site / "paper.html").as_uri()
        browser.open(formulas, width=360)
        assert browser.evaluate("document.querySelectorAll('.katex').length") > 10
    finally:
        browser.close()
    assert wrong == {}


def test_each_reader_finds_a_page_from_the_front(site):
    """One click away, in the page itself: models, lattices, parts of one's own."""
    front = (site / "index.html").read_text(encoding="utf-8")
    _, _, article = front.partition("<article")
    for page in ("models", "elsewhere", "lattices", "own_parts", "warnings"):
        assert f'href="{page}.html"' in article


def test_formulas_are_marked_for_the_renderer(site):
    assert 'class="arithmatex"' in (site / "paper.html").read_text(encoding="utf-8")

"""Every Python block of the README and the pages runs, from top to bottom.

The blocks of a page share their names, as in a notebook. One that stands behind the
comment `<!-- not run: REASON -->` is only compiled.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^>]+ -->\n)?^```python\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def blocks(page):
    """Pairs of a block and whether it runs."""
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [(each["code"], not each["skip"]) for each in found]


WITH_BLOCKS = [page for page in PAGES if blocks(page)]
LONG = ("README.md",)
"""They run for longer than they are compiled."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=page.name,
            marks=[pytest.mark.optimised] if page.name in LONG else [],
        )
        for page in WITH_BLOCKS
    ],
)
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for index, (code, runs) in enumerate(blocks(page)):
        program = compile(code, f"{page.name}, block {index + 1}", "exec")
        if runs:
            exec(program, names)


def test_every_block_is_found():
    """None is hidden by a fence that the pattern does not know."""
    for page in PAGES:
        fences = re.findall(r"^```python$", page.read_text(encoding="utf-8"), re.M)
        assert len(fences) == len(blocks(page)), page.name

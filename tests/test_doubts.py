"""Doubts: sentences with codes, and one list of all codes."""

import ast
import json
import re
from pathlib import Path

import pytest

import annealax as ax


def test_a_doubt_is_a_sentence_with_a_code():
    doubt = ax.Doubt("heavy-tail", "a few draws dominate")
    assert doubt == "a few draws dominate"
    assert doubt.code == "heavy-tail"
    assert json.dumps([doubt]) == '["a few draws dominate"]'


def test_codes_are_words_that_say_what_to_do():
    for code, (meaning, remedy) in ax.Doubt.CODES.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
        assert meaning
        assert remedy
    with pytest.raises(ValueError, match="heavy-tial.*heavy-tail"):
        ax.Doubt("heavy-tial", "a typing error")


def test_every_code_in_the_package_is_in_the_list():
    """Most doubts are rare: their code must be right before they are needed."""
    used = set()
    for file in Path(ax.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Doubt":
                code = node.args[0]
                if isinstance(code, ast.Constant):
                    used.add(code.value)
    assert len(used) > 5
    assert used <= set(ax.Doubt.CODES)


def test_the_page_on_warnings_has_them_all():
    page = Path(__file__).parents[1] / "docs" / "warnings.md"
    rows = page.read_text(encoding="utf-8").splitlines()
    for code, (meaning, remedy) in ax.Doubt.CODES.items():
        assert f"| `{code}` | {meaning} | {remedy} |" in rows

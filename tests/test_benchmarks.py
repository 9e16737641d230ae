"""Benchmarks run by hand and seldom: at least they start, and know all their names."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(FOLDER.glob("[!_]*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_script_starts(script, monkeypatch, capsys):
    monkeypatch.syspath_prepend(FOLDER)  # as it is for `python benchmarks/...`
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    before = set(sys.modules)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    for name in set(sys.modules) - before:
        if (FOLDER / f"{name}.py").exists():
            del sys.modules[name]
    assert ended.value.code == 0
    assert "usage:" in capsys.readouterr().out


def test_no_name_is_missing():
    """Within functions too; the package itself is checked by mypy."""
    ruff = shutil.which("ruff", path=Path(sys.executable).parent)
    assert ruff is not None
    command = [ruff, "check", "--isolated", "--no-cache", "--select", "F821", FOLDER]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_script_is_in_the_readme():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [script.name for script in SCRIPTS if script.name not in text] == []

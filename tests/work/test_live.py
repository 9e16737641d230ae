"""The live line of work in stages."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from annealax._work.live import Live, with_live_line


def console(terminal):
    return Console(file=io.StringIO(), force_terminal=terminal, width=79)


def made(live):
    """What is shown of two stages."""
    with live:
        live.stage("start")
        live("looking <for> [a] start")
        live.stage("answer")
        live.watch(SimpleNamespace(step=3, num_steps=16, seconds=1.0, metrics=dict))
        live._bar and live._bar.refresh()


def test_a_terminal_has_a_line_of_the_stage_and_what_is_left():
    place = console(True)
    made(Live(console=place))
    shown = place.file.getvalue()
    for words in ("looking <for> [a] start", "independent replicates", "3 of 16"):
        assert words in shown
    assert "time left" in shown


@pytest.mark.parametrize(("enabled", "shown"), [(True, "looking"), (None, "")])
def test_elsewhere_there_are_lines_if_asked_for(enabled, shown):
    place, heard = console(False), []
    made(Live(enabled, place, also=heard.append))
    text = place.file.getvalue()
    assert text.startswith(shown)
    assert bool(text) == bool(shown)
    assert "replicates" not in text
    assert heard == ["looking <for> [a] start"]


def test_a_function_is_given_a_live_line(capsys):
    @with_live_line
    def work(*, progress=None, callback=None):
        progress("a line")
        assert len(list(callback or [])) == (2 if callback else 0)

    work(progress=True, callback=[print])
    assert "a line" in capsys.readouterr().err
    work(progress=False, callback=print)
    assert capsys.readouterr().err == ""
    lines = []
    work(progress=lines.append)
    assert lines == ["a line"]

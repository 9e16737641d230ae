"""The loop under all long work: it goes on, tells, saves, and stops when asked."""

import dataclasses
import io
import os
import re
import signal

import numpy as np
import pytest
from rich.console import Console
from rich.text import Text

import annealax as ax
from annealax._work import drive as drive_module
from annealax._work.drive import Lines, Work, as_callbacks, drive


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counting(Work):
    seen: tuple[int, ...] = ()
    length: int = 0

    def compact(self):
        return dataclasses.replace(self, length=len(self.seen))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Snapshot:
    step: int
    num_steps: int
    seconds: float

    def metrics(self):
        return {"step": np.array([self.step])}


def advance(work):
    """Two steps at a time."""
    new = range(work.done, min(work.done + 2, work.total))
    work = dataclasses.replace(
        work, seen=(*work.seen, *new), done=new.stop, seconds=work.seconds + 1
    )
    return work, Snapshot(step=work.done, num_steps=work.total, seconds=work.seconds)


def run(*callbacks, total=5, **options):
    return drive(
        advance,
        Counting(total=total),
        label="counting",
        unit="numbers",
        describe=lambda snapshot: f"at {snapshot.step}",
        callbacks=callbacks,
        identity=lambda: {"work": "counting", "total": total},
        **options,
    )


@pytest.fixture
def store(tmp_path):
    return ax.Checkpoint(tmp_path, every_seconds=None)


@pytest.fixture(autouse=True)
def _default_signals():
    """A job in the background of a shell is started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_it_makes_all_and_tells(capsys):
    steps = []
    work = run(lambda snapshot: steps.append(snapshot.step), progress=True)
    assert work.seen == (0, 1, 2, 3, 4)
    assert (work.seconds, steps) == (3.0, [2, 4, 5])
    assert "counting 5/5  at 5" in capsys.readouterr().err


def test_nothing_to_do():
    assert run(total=0).seen == ()


def test_a_callback_stops_it_and_it_stays_stopped(store):
    work = run(lambda snapshot: snapshot.step == 4, store=store)
    assert (work.seen, work.finished) == ((0, 1, 2, 3), True)
    assert run(store=store).seen == (0, 1, 2, 3)


def test_a_callback_that_must_not_stop_it():
    assert run(lambda snapshot: True, may_stop=False).seen == (0, 1, 2, 3, 4)


def test_what_is_done_is_not_done_again(store):
    whole = run(store=store)
    assert whole.length == 5
    steps = []
    assert run(lambda snapshot: steps.append(snapshot.step), store=store) == whole
    assert steps == []


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_where(store, signum):
    def send(snapshot):
        if snapshot.step == 2:
            os.kill(os.getpid(), signum)

    with pytest.raises(ax.Interrupted, match="counting stopped after 2 of 5 numbers"):
        run(send, store=store)
    assert store.latest().restore().seen == (0, 1)
    assert run(store=store) == run().compact()


def test_an_interrupt_of_somebody_else_saves(store):
    def interrupt(snapshot):
        if snapshot.step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(interrupt, store=store)
    assert store.latest().restore().seen == (0, 1, 2, 3)


def test_errors_pass_through_and_leave_the_checkpoint_before(tmp_path):
    store = ax.Checkpoint(tmp_path, every_steps=2)

    def fail(snapshot):
        if snapshot.step == 4:
            raise OSError("the disk of a logger")

    with pytest.raises(OSError, match="logger"):
        run(fail, store=store)
    assert store.latest().restore().seen == (0, 1)


def test_other_work_in_the_store(store):
    run(store=store)
    with pytest.raises(ax.InvalidInputError, match=r"total \(5 there, 6 here\)"):
        run(store=store, total=6)
    store.save([1], identity={"work": "counting", "total": 5})
    with pytest.raises(ax.FileError, match="not this work"):
        run(store=store)


def test_callbacks_that_cannot_be_called(untyped):
    with pytest.raises(ax.InvalidInputError, match="callback.*7"):
        as_callbacks([7])


@pytest.mark.parametrize("width", [80, 50])
def test_a_terminal_line_has_the_count_and_the_time_left_whole(monkeypatch, width):
    screen = io.StringIO()
    options = {"file": screen, "width": width, "force_terminal": True}
    monkeypatch.setattr(drive_module, "Console", lambda **_: Console(**options))
    numbers = "loss -123.456  log Z -1234.5678  acceptance 0.87  skipped 0"
    with Lines("training flows", 4000, enabled=None) as line:
        line.update(1000, numbers)
        line.update(2000, numbers)
    frames = [Text.from_ansi(each).plain for each in screen.getvalue().split("\r")]
    last = [each for each in frames if "2000" in each][-1].rstrip("\n")
    assert len(last) <= width
    assert "training flows" in last
    assert "2000/4000" in last
    assert "…" not in last
    assert re.search(r"\d:\d\d:\d\d", last)

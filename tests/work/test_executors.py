"""Tasks on workers: every outcome once, whoever dies on the way."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

import annealax as ax
from annealax._work.executors import Workers, check_sendable


@pytest.mark.parametrize("make", [lambda: ThreadPoolExecutor(2), lambda: 2])
def test_every_outcome_comes_once(make):
    with Workers(make()) as workers:
        assert workers.count == 2
        found = list(workers.each(pow, [(n, 2) for n in range(7)]))
        again = list(workers.each(divmod, [(7, 2)]))  # the same workers
    assert sorted(found) == [(n, n * n) for n in range(7)]
    assert again == [(0, (3, 1))]


def test_what_dead_workers_had_is_done_again(tmp_path):
    """Three of ten tasks kill their process the first time."""

    def deadly(n, folder):
        marker = f"{folder}/{n}"
        if n % 4 == 1 and not os.path.exists(marker):
            with open(marker, "w"):
                os.kill(os.getpid(), signal.SIGKILL)
        return n

    with Workers(2) as workers:
        tasks = [(n, str(tmp_path)) for n in range(10)]
        found = sorted(workers.each(deadly, tasks))
    assert found == [(n, n) for n in range(10)]
    assert len(os.listdir(tmp_path)) == 3


def test_a_task_that_always_kills_its_worker_is_an_error():
    with Workers(1) as workers:
        with pytest.raises(ax.SamplingError, match="died 5 times in a row"):
            list(workers.each(os._exit, [(1,)]))
        assert list(workers.each(abs, [(-1,)])) == [(0, 1)]  # others are not harmed


def test_an_error_of_a_task_is_that_of_the_caller():
    with Workers(1) as workers, pytest.raises(ZeroDivisionError):
        list(workers.each(divmod, [(1, 0)]))


def test_a_pool_that_would_fork_is_replaced(recwarn):
    """Forked copies of a process that runs JAX hang."""
    import multiprocessing

    pool = ProcessPoolExecutor(1, multiprocessing.get_context("fork"))
    with Workers(pool) as workers:
        (found,) = workers.each(os.getppid, [()])
    assert found == (0, os.getpid())
    assert not recwarn.list
    assert not pool._processes


def test_what_cannot_be_sent_is_an_error_that_says_why():
    lock = threading.Lock()
    with pytest.raises(ax.InvalidInputError, match="lock"):
        check_sendable(lambda: lock)


def test_workers_end_with_the_process_that_started_them():
    """However it went: here by kill -9 while one of them works."""
    program = (
        "import os, time; from annealax._work.executors import Workers\n"
        "workers = Workers(1)\n"
        "print(next(workers.each(os.getpid, [()]))[1], flush=True)\n"
        "list(workers.each(time.sleep, [(60,)]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    )
    worker = int(process.stdout.readline())
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 20
    while os.path.exists(f"/proc/{worker}"):
        assert time.monotonic() < deadline
        time.sleep(0.05)

"""Replicates on workers: the answer of one process, to the bit, whatever happens."""

import os
import signal
import threading

import jax.numpy as jnp
import numpy as np
import pytest

import annealax as ax


def sample(scale, **options):
    """A normal whose width is data: its log Z is log(scale sqrt(2 pi))."""
    # Not a name of this module: a worker need not be able to import it.
    return ax.sample(
        lambda x, scale: -0.5 * jnp.sum((x / scale) ** 2),
        (1,),
        args=(np.asarray([scale]),),
        seed=3,
        num_particles=100,
        num_replicates=3,
        **options,
    )


@pytest.fixture(scope="module")
def alone():
    return sample(2.0)


def same(one, other):
    np.testing.assert_array_equal(one.vectors, other.vectors)
    np.testing.assert_array_equal(one.log_weights, other.log_weights)
    np.testing.assert_array_equal(
        one.replicate_log_normalizers, other.replicate_log_normalizers
    )


def test_two_processes_give_the_same_bits_and_fill_the_checkpoint(alone, tmp_path):
    same(alone, sample(2.0, executor=2, checkpoint=tmp_path))
    kept = list(tmp_path.glob("replicate-*/checkpoint-*.npz"))
    assert len(kept) == 3
    # One is lost; the others are not made again.
    before = {path: path.stat().st_mtime_ns for path in kept[1:]}
    kept[0].unlink()
    same(alone, sample(2.0, executor=2, checkpoint=tmp_path))
    assert {path: path.stat().st_mtime_ns for path in kept[1:]} == before
    assert kept[0].exists()


def test_what_is_not_an_executor_is_an_error():
    with pytest.raises(ax.InvalidInputError, match="executor"):
        sample(2.0, executor="many")


def test_a_worker_of_dask_that_is_killed_changes_nothing(alone):
    """By kill -9 in the middle of a replicate: another makes it, with the same bits."""
    distributed = pytest.importorskip("distributed")
    killed = []

    def kill(client, workers, done):
        while not done.wait(0.05):
            busy = [name for name, tasks in client.processing().items() if tasks]
            if busy:
                killed.append(busy[0])
                os.kill(workers[busy[0]], signal.SIGKILL)
                return

    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        done = threading.Event()
        workers = client.run(os.getpid)
        thread = threading.Thread(target=kill, args=(client, workers, done))
        thread.start()
        try:
            found = sample(2.0, executor=client)
        finally:
            done.set()
            thread.join()
        assert killed
        assert killed[0] not in client.scheduler_info()["workers"]
    same(alone, found)

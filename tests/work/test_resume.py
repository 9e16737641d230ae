"""Fits and chains that were interrupted go on with the same numbers to the bit."""

import _thread
import os
import signal
import threading

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import optax
import pytest
from tests_problems import lopsided_log_density

import annealax as ax

FLOW = ax.flows.diagonal_affine(None, 2)
ADAM = optax.adam(1e-2)


@pytest.fixture(autouse=True)
def _default_signals():
    """A job in the background of a shell is started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def sampler(num_particles=10):
    path = ax.GeometricPath((2,), lopsided_log_density, 2)
    kernel = ax.kernels.RandomWalk(0.3)
    return ax.Sampler(path, kernel, num_particles=num_particles)


def identical(one, other):
    leaves = [jax.tree.leaves(eqx.filter(t, eqx.is_array_like)) for t in (one, other)]
    return len(leaves[0]) == len(leaves[1]) and all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes()
        for a, b in zip(*leaves, strict=True)
    )


def same_fit(one, other):
    return identical((one.state, one.history), (other.state, other.history)) and (
        one.rollback == other.rollback
    )


def crash(folder, kept):
    """Leave the files that a crash after so many checkpoints would have left."""
    for path in sorted(folder.iterdir())[kept:]:
        path.unlink()


@pytest.mark.parametrize(
    "make",
    [
        lambda: ax.CRAFT(sampler(), ADAM),
        lambda: ax.AFT(sampler(), ADAM, num_iters=2),
        lambda: ax.AFT(sampler(), ADAM, num_iters=2, early_stopping=False),
        lambda: ax.SNF(sampler(), ADAM),
        lambda: ax.VI(sampler(), ADAM),
    ],
    ids=["craft", "aft", "aft-simple", "snf", "vi"],
)
def test_every_trainer_resumes_bit_identically(tmp_path, make):
    def fit(checkpoint=None):
        return ax.fit(jr.key(3), make(), FLOW, num_steps=5, checkpoint=checkpoint)

    store = ax.Checkpoint(tmp_path, every_steps=1, keep=99)
    whole = fit(store)
    assert len(list(tmp_path.iterdir())) >= 2
    crash(tmp_path, 1)
    assert same_fit(fit(tmp_path), whole)
    assert same_fit(fit(tmp_path), whole)  # finished: nothing is trained again


@pytest.fixture
def craft():
    return ax.CRAFT(sampler(), ADAM)


def test_checkpoints_do_not_change_the_numbers(tmp_path, craft):
    plain = ax.fit(jr.key(3), craft, FLOW, num_steps=5)
    kept = ax.fit(jr.key(3), craft, FLOW, num_steps=5, checkpoint=tmp_path)
    assert same_fit(plain, kept)


def test_an_interrupt_saves_first(tmp_path, craft):
    def fit(callback=None, **options):
        return ax.fit(
            jr.key(3),
            craft,
            FLOW,
            num_steps=5,
            steps_per_call=1,
            callback=callback,
            **options,
        )

    def interrupt(snapshot):
        if snapshot.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(interrupt, checkpoint=tmp_path)
    seen = []
    resumed = fit(lambda snapshot: seen.append(snapshot.step), checkpoint=tmp_path)
    assert seen == [4, 5]
    assert same_fit(resumed, fit())


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_after_the_step_and_say_how_to_go_on(tmp_path, craft, signum):
    def send(snapshot):
        if snapshot.step == 2:
            os.kill(os.getpid(), signum)

    before = signal.getsignal(signum)
    with pytest.raises(ax.Interrupted, match="stopped after 2 of 5 steps") as caught:
        ax.fit(
            jr.key(3),
            craft,
            FLOW,
            num_steps=5,
            steps_per_call=1,
            callback=send,
            checkpoint=tmp_path,
        )
    assert caught.value.exit_code == 128 + signum
    assert signal.getsignal(signum) is before
    assert ax.Checkpoint(tmp_path).latest().meta["step"] == 2


def test_other_threads_leave_signals_alone(tmp_path, craft):
    found = []
    thread = threading.Thread(
        target=lambda: found.append(
            ax.fit(jr.key(3), craft, FLOW, num_steps=2, checkpoint=tmp_path)
        )
    )
    thread.start()
    thread.join()
    assert len(found[0].history.loss) == 2
    assert _thread.get_ident() == threading.main_thread().ident


def test_a_checkpoint_of_another_fit_is_refused(tmp_path, craft):
    ax.fit(jr.key(3), craft, FLOW, num_steps=2, checkpoint=tmp_path)
    for key, trainer, steps, word in (
        (jr.key(4), craft, 2, "key"),
        (jr.key(3), craft, 3, "num_steps"),
        (jr.key(3), ax.CRAFT(sampler(11), ADAM), 2, "trainer"),
        (jr.key(3), ax.CRAFT(sampler(), optax.adam(2e-2)), 2, "trainer"),
    ):
        with pytest.raises(ax.InvalidInputError, match=f"differ: {word}"):
            ax.fit(key, trainer, FLOW, num_steps=steps, checkpoint=tmp_path)


def test_training_goes_on_when_the_disk_is_full(tmp_path, craft, monkeypatch):
    store = ax.Checkpoint(tmp_path, every_steps=1, keep=99)
    whole = ax.fit(
        jr.key(3), craft, FLOW, num_steps=4, steps_per_call=1, checkpoint=store
    )
    crash(tmp_path, 2)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    def full(file, **arrays):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("annealax._work.serialise.np.savez", full)
    with pytest.warns(ax.CheckpointWarning, match="No space left"):
        resumed = ax.fit(
            jr.key(3), craft, FLOW, num_steps=4, steps_per_call=1, checkpoint=store
        )
    assert same_fit(resumed, whole)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_pimh_resumes_bit_identically(tmp_path):
    smc = sampler()

    def chain(checkpoint=None, num_steps=6):
        return ax.pimh(
            jr.key(0),
            lambda key: smc.run(key),
            num_steps=num_steps,
            num_chains=2,
            configurations=True,
            checkpoint=checkpoint,
        )

    whole = chain(ax.Checkpoint(tmp_path, every_steps=1, keep=99))
    crash(tmp_path, 1)
    resumed = chain(tmp_path)
    assert identical(resumed._replace(seconds=0.0), whole._replace(seconds=0.0))
    assert identical(chain()._replace(seconds=0.0), whole._replace(seconds=0.0))
    with pytest.raises(ax.InvalidInputError, match="num_steps"):
        chain(tmp_path, num_steps=7)

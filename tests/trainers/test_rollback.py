"""Training that diverges is stopped and undone; noisy training is left alone."""

import types

import jax.random as jr
import numpy as np
import optax
import pytest
from tests_problems import lopsided_log_density

import annealax as ax
from annealax.trainers.rollback import Watch, block_length, judge

FLOW = ax.flows.diagonal_affine(None, 2)


def history(losses, skipped=0):
    losses = np.asarray(losses, np.float32)
    return types.SimpleNamespace(
        loss=losses,
        num_skipped=np.full(len(losses), skipped),
        steps=types.SimpleNamespace(ess=np.ones((len(losses), 3))),
    )


@pytest.fixture(autouse=True)
def _untyped(untyped):
    """The histories here are stand-ins."""


def falling(count, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    return 50 * np.exp(-np.arange(count) / 30) + noise * rng.standard_t(2, count)


@pytest.mark.parametrize("noise", [0, 0.1, 5, 100])
def test_noise_is_no_divergence(noise):
    for seed in range(20):
        losses = falling(400, noise, seed)
        for end in range(20, 401, 20):
            assert judge(history(losses[:end]), 20) is None


def test_a_spike_is_no_divergence():
    losses = falling(100)
    losses[[45, 60, 61, 62]] = 1e6
    losses[70] = np.nan
    assert all(judge(history(losses[:end]), 20) is None for end in range(20, 101, 20))


@pytest.mark.parametrize(
    ("tail", "word"),
    [(np.full(20, np.nan), "not finite"), (np.full(20, 1e4), "rose to 1e")],
)
def test_blocks_that_went_wrong(tail, word):
    losses = np.concatenate([falling(40), tail])
    assert word in judge(history(losses), 20)
    assert judge(history(losses[:40]), 20) is None


def test_most_updates_skipped():
    assert "60 of 60 updates" in judge(history(np.ones(40), 3), 20)
    assert judge(history(np.ones(40), 1), 20) is None


def test_where_it_goes_back_to():
    losses = [*falling(20), *[np.nan] * 20]
    watch = Watch(10, "start", "start")
    found = None
    for step, state in ((10, "ten"), (20, "twenty"), (30, "thirty"), (40, "forty")):
        assert found is None
        watch, found = watch.after_block(
            step, state, history(losses[:step]), is_last=False
        )
    # The block that began at ten was good; what twenty held broke the next one.
    assert (watch.good, found.step, found.detected) == ("ten", 10, 40)


def test_blocks_are_whole_device_calls():
    assert block_length(200, None) == 20
    assert block_length(100_000, None) == 100
    assert block_length(12, 7) == 21


def craft(rate, log_density=lopsided_log_density):
    path = ax.GeometricPath((2,), log_density, 2)
    sampler = ax.Sampler(path, ax.kernels.RandomWalk(0.3), num_particles=20)
    return ax.CRAFT(sampler, optax.sgd(rate))


def test_a_diverging_fit_is_rolled_back_and_reported(tmp_path):
    """Plain gradient descent with a rate that is far too large."""

    def fit(checkpoint=None):
        return ax.fit(jr.key(0), craft(3.0), FLOW, num_steps=100, checkpoint=checkpoint)

    found = fit(ax.Checkpoint(tmp_path, every_steps=1, keep=99))
    assert found.rollback is not None
    assert found.rollback.step < found.rollback.detected <= 100
    assert found.warnings()[0].code == "diverged"
    assert all(np.all(np.isfinite(leaf)) for leaf in (found.flows.loc,))
    for path in sorted(tmp_path.iterdir())[3:]:  # the same after a crash
        path.unlink()
    again = fit(tmp_path)
    assert again.rollback == found.rollback
    assert np.array_equal(again.flows.loc, found.flows.loc)
    result = craft(3.0).sampler.run(jr.key(1), found.flows)
    assert np.isfinite(result.log_normalizer)


def test_healthy_fits_say_nothing():
    found = ax.fit(jr.key(0), craft(0.05), FLOW, num_steps=60)
    assert found.rollback is None
    assert found.warnings() == []

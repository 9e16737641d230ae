"""The training loop: grouping of steps, history, callbacks, progress."""

import jax
import jax.random as jr
import numpy as np
import optax
import pytest
from tests_problems import lopsided_log_density

import annealax as ax

FLOW = ax.flows.diagonal_affine(None, 2)


@pytest.fixture(scope="module")
def craft():
    path = ax.GeometricPath((2,), lopsided_log_density, 3)
    sampler = ax.Sampler(path, ax.kernels.HMC(0.3, 2), num_particles=30)
    return ax.CRAFT(sampler, optax.adam(1e-2))


def test_grouping_of_steps_does_not_change_the_numbers(craft):
    one = ax.fit(jr.key(0), craft, FLOW, num_steps=11, steps_per_call=1)
    four = ax.fit(jr.key(0), craft, FLOW, num_steps=11, steps_per_call=4)
    auto = ax.fit(jr.key(0), craft, FLOW, num_steps=11)
    for other in (four, auto):
        for a, b in zip(
            jax.tree.leaves(one.flows), jax.tree.leaves(other.flows), strict=True
        ):
            assert np.array_equal(a, b)
        assert np.array_equal(one.history.loss, other.history.loss)
    assert one.history.steps.ess.shape == (11, 3)


def test_callback_sees_every_call_and_can_stop(craft):
    seen = []

    def callback(snapshot):
        seen.append((snapshot.step, len(snapshot.info.loss)))
        return snapshot.step >= 6

    fit = ax.fit(
        jr.key(0), craft, FLOW, num_steps=20, steps_per_call=3, callback=callback
    )
    assert seen == [(3, 3), (6, 3)]
    assert fit.history.loss.shape == (6,)


def test_no_steps_return_the_start(craft):
    fit = ax.fit(jr.key(0), craft, FLOW, num_steps=0)
    assert fit.history.loss.shape == (0,)
    assert np.all(fit.flows.loc == 0)


def test_progress_lines_off_a_terminal(craft, capsys):
    ax.fit(jr.key(0), craft, FLOW, num_steps=3, progress=True)
    text = capsys.readouterr().err
    assert "training 3/3" in text
    assert "log Z" in text


@pytest.mark.parametrize(
    "arguments", [{"num_steps": -1}, {"num_steps": 5, "steps_per_call": 0}]
)
def test_bad_arguments(craft, arguments):
    with pytest.raises(ax.InvalidInputError, match="num_steps|steps_per_call"):
        ax.fit(jr.key(0), craft, FLOW, **arguments)

"""Replicates on workers: the answer of one process, to the bit, whatever happens."""

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

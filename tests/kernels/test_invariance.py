"""Every kernel leaves its target invariant: exact rank tests (Gandy and Scott 2020).

A chain of length L is grown forwards and backwards from a point drawn exactly from the
target, placed at a random index. If the kernel leaves the target invariant, the rank of
that point among the chain is exactly uniform, however badly the chain mixes.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats
from tests_problems import skewed_log_density, skewed_sample

import annealax as ax
from annealax.kernels import (
    HMC,
    MALA,
    NUTS,
    Composition,
    EnsembleWalk,
    NoMove,
    Point,
    RandomWalk,
)

LENGTH = 8
CHAINS = 6000
# Three statistics for each of nine kernels: false alarm below 27e-5.
LEVEL = 1e-5

WALK, JUMP = RandomWalk(0.6, num_steps=2), HMC(0.35, num_leapfrog=4)
# Not of the density itself, and few: invariance is owed to neither.
MEMBERS = np.random.default_rng(0).normal([0.5, 0], [0.5, 1.5], (12, 2))
KERNELS = {
    # name: (kernel, its time reversal)
    "hmc": (HMC(0.45, num_leapfrog=5, num_steps=2),) * 2,
    "hmc_scaled": (HMC(0.45, 3, scale=jnp.array([0.6, 1.7])),) * 2,
    "hmc_interpolated": (
        HMC(ax.kernels.InterpolatedStepSize([0.0, 1.0], [9.0, 0.5]), 4),
    )
    * 2,
    "mala": (MALA(0.8, num_steps=3),) * 2,
    "random_walk": (RandomWalk(0.9, num_steps=4),) * 2,
    "ensemble_walk": (EnsembleWalk(MEMBERS, 0.8, num_steps=4),) * 2,
    "nuts": (NUTS(0.5, max_doublings=4),) * 2,
    "composition": (Composition(WALK, JUMP), Composition(JUMP, WALK)),
    "no_move": (NoMove(), NoMove()),
}


def rank_p_values(forward, backward):
    """One p value for each of three statistics."""

    def chain(key):
        key_start, key_index, key_fwd, key_bwd, key_ties = jr.split(key, 5)
        start = skewed_sample(key_start, 1)[0]
        index = jr.randint(key_index, (), 0, LENGTH)

        def grow(kernel):
            def step(x, key):
                x, _ = kernel(key, x, skewed_log_density, 1.0)
                return x, x

            return step

        # Grow both ways to full length, then use index steps back and the rest on.
        _, after = jax.lax.scan(grow(forward), start, jr.split(key_fwd, LENGTH - 1))
        _, before = jax.lax.scan(grow(backward), start, jr.split(key_bwd, LENGTH - 1))
        steps = jnp.arange(LENGTH - 1)
        used = jnp.concatenate([steps < index, steps < LENGTH - 1 - index])
        others = jnp.concatenate([before, after])

        def rank(statistic):
            here, there = statistic(start), jax.vmap(statistic)(others)
            lower = jnp.sum(used & (there < here))
            ties = jnp.sum(used & (there == here))
            return lower + jr.randint(key_ties, (), 0, ties + 1)

        functions = (lambda x: x[0], lambda x: x[1], lambda x: x[0] - 0.3 * x[1] ** 2)
        return jnp.stack([rank(f) for f in functions])

    ranks = np.asarray(jax.jit(jax.vmap(chain))(jr.split(jr.key(11), CHAINS)))
    return [
        stats.chisquare(np.bincount(column, minlength=LENGTH)).pvalue
        for column in ranks.T
    ]


@pytest.mark.parametrize("name", KERNELS)
def test_leaves_its_target_invariant(name):
    p_values = rank_p_values(*KERNELS[name])
    assert min(p_values) > LEVEL, p_values


class Uncorrected(ax.kernels.AbstractKernel):
    """Langevin without Metropolis: what the test must catch."""

    step: float = 0.45

    def move(self, key, point, log_density, beta):
        noise = jr.normal(key, point.x.shape)
        x = point.x + 0.5 * self.step**2 * point.gradient + self.step * noise
        one = jnp.ones(())
        return ax.kernels.point_at(log_density, x), ax.kernels.KernelInfo(one, one)


def test_the_test_catches_a_missing_correction():
    assert min(rank_p_values(Uncorrected(), Uncorrected())) < LEVEL


@pytest.mark.parametrize("name", ["hmc", "hmc_scaled", "mala", "composition"])
def test_moving_all_leaves_the_target_invariant(name):
    """Particles that start exact stay exact, and those that start alike move apart.

    Three Kolmogorov-Smirnov tests for each of four kernels: false alarm below 12e-5.
    """
    kernel, count = KERNELS[name][0], 20_000
    x = skewed_sample(jr.key(1), count)
    value, gradient = jax.vmap(jax.value_and_grad(skewed_log_density))(x)
    move = jax.jit(lambda key, p: kernel.move_all(key, p, skewed_log_density, 1.0)[0])
    points = Point(x, value, gradient)
    for step in range(3):
        points = move(jr.key(step), points)
    fresh = skewed_sample(jr.key(2), count)
    for statistic in (
        lambda x: x[:, 0],
        lambda x: x[:, 1],
        lambda x: x[:, 0] - 0.3 * x[:, 1] ** 2,
    ):
        ours, exact = np.asarray(statistic(points.x)), np.asarray(statistic(fresh))
        assert stats.ks_2samp(ours, exact).pvalue > LEVEL

    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), points)
    moved = np.asarray(move(jr.key(9), same).x)
    assert len(np.unique(moved, axis=0)) > 0.5 * count

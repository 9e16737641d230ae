"""The particles at every temperature of a pass, which `Sampler.run` does not keep."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection, Identity
from jaxtyping import Array, PRNGKeyArray

from annealax._particles import Particles
from annealax._path import Edge
from annealax._sampler import Sampler
from annealax.flows.base import select


class Population(NamedTuple):
    """The particles at one temperature, configurations flattened.

    Attributes:
        beta: Inverse temperature.
        moved: Where the flow put them, before reweighting.
        moved_weights: Their weights then.
        x: Where they are after reweighting, resampling and the kernel.
        weights: Their weights now.
    """

    beta: float
    moved: np.ndarray
    moved_weights: np.ndarray
    x: np.ndarray
    weights: np.ndarray


def populations(
    key: PRNGKeyArray,
    sampler: Sampler,
    flows: AbstractBijection | None,
    indices: list[int],
) -> list[Population]:
    """The particles of one pass at the temperatures of these indices (0: the start)."""
    key_init, key_steps = jr.split(key)
    particles = sampler.init(key_init)
    betas = np.asarray(sampler.path.betas)
    kept: dict[int, Population] = {}
    if 0 in indices:
        kept[0] = _population(0.0, particles.x, particles.weights, particles)
    identity = Identity(sampler.path.shape)  # type: ignore[call-arg]
    for k in range(sampler.path.num_transitions):
        flow = identity if flows is None else select(flows, k)
        edge = jax.tree.map(lambda leaf, k=k: leaf[k], sampler.path.edges)
        before = particles.weights
        particles, moved = _step(
            sampler, jr.fold_in(key_steps, k), particles, flow, edge
        )
        if k + 1 in indices:
            kept[k + 1] = _population(betas[k + 1], moved, before, particles)
    return [kept[index] for index in sorted(kept)]


@eqx.filter_jit
def _step(
    sampler: Sampler,
    key: PRNGKeyArray,
    particles: Particles,
    flow: AbstractBijection,
    edge: Edge,
) -> tuple[Particles, Array]:
    moved = sampler.transport(flow, particles, edge)
    particles, _ = sampler.correct(key, particles, moved, edge)
    return particles, moved.point.x


def _population(beta, moved, moved_weights, particles: Particles) -> Population:
    return Population(
        float(beta),
        flatten(moved),
        np.asarray(moved_weights),
        flatten(particles.x),
        np.asarray(particles.weights),
    )


def flatten(x: Array) -> np.ndarray:
    """One row per particle."""
    return np.asarray(x, np.float64).reshape(x.shape[0], -1)

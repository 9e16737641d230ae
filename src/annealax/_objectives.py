r"""The loss that trains a flow at one transition (equations 5 to 8).

$$\mathcal L_k = \sum_i W_{k-1}^i D_k(X_{k-1}^i), \qquad D_k = -\log G_k .$$

Its gradient in the flow's parameters comes in two estimators with the same expectation
when the particles follow $\pi_{k-1}$:

- plain (eq. 8): differentiate $D_k$;
- path: differentiate only through the moved particle $y = T(x)$,

$$\sum_i W^i \big[\nabla_y \log q(y) - \nabla_y \log \gamma_k(y)\big]^\top
    \partial_\theta T_\theta(x^i), \qquad q = T_\# \gamma_{k-1},$$

  which drops a term of mean zero. Its noise vanishes when the flow is exact. It needs
  the inverse of the flow.

The evidence lower bound of a whole pass (eq. 2) trains all flows at once:

$$\mathbb E[\log w_K], \qquad \log w_K = \sum_k \log G_k(X_{k-1}).$$
"""

from typing import Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Bool, Float, PyTree

from annealax._checks import unknown_name
from annealax._layout import Mapped, with_true_quotients
from annealax._particles import Particles
from annealax._path import Edge
from annealax._sampler import Moved, Sampler

Estimator = Literal["plain", "path"]


def check_estimator(estimator: str) -> None:
    """Raise an error that names the estimators unless it is one of them."""
    if estimator not in get_args(Estimator):
        raise unknown_name("gradient estimator", estimator, get_args(Estimator))


def free_energy(
    flow: AbstractBijection,
    sampler: Sampler,
    particles: Particles,
    edge: Edge,
    estimator: Estimator = "plain",
) -> tuple[Float[Array, ""], Moved]:
    """The loss, and the transported particles for `Sampler.correct`.

    Particles at which the new density is zero are left out: they would make the loss
    infinite, and they have no gradient.
    """
    layout = sampler.layout_of(particles)

    def of_block(first, block):
        counts = layout.valid(first)
        value, moved = _of_block(flow, sampler, counts, block, edge, estimator)
        return Mapped(moved, value)

    mapped = layout.map(of_block, _Block.of(particles))
    return jnp.sum(mapped.numbers), mapped.each


class Descent(NamedTuple):
    """The loss with its gradient.

    Attributes:
        loss: The loss.
        gradient: Its derivative with respect to the trainable leaves of the flow.
        moved: The transported particles, for `Sampler.correct`.
    """

    loss: Float[Array, ""]
    gradient: PyTree
    moved: Moved


def free_energy_gradient(
    params: PyTree,
    rest: PyTree,
    sampler: Sampler,
    particles: Particles,
    edge: Edge,
    estimator: Estimator = "plain",
) -> Descent:
    """`free_energy` with its gradient, block by block.

    Args:
        params: Trainable leaves of the flow.
        rest: Its other leaves.
        sampler: The sampler to be helped.
        particles: The particles that arrive.
        edge: The transition.
        estimator: "plain" or "path".
    """
    layout = sampler.layout_of(particles)

    def of_block(first, block):
        def loss(params):
            flow, counts = eqx.combine(params, rest), layout.valid(first)
            return _of_block(flow, sampler, counts, block, edge, estimator)

        (value, moved), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        return Mapped(moved, value, gradient)

    def exactly(first, block):
        if layout.num_blocks == 1:
            return of_block(first, block)
        # Splines divide by sums; the gradient is the same however blocks are spread.
        zero = (first < 0).astype(jnp.int32)
        return with_true_quotients(of_block, zero, first, block)

    mapped = layout.map(exactly, _Block.of(particles))
    return Descent(jnp.sum(mapped.numbers), mapped.total, mapped.each)


class _Block(NamedTuple):
    """What the loss needs of particles."""

    x: Float[Array, "particles *shape"]
    log_density: Float[Array, " particles"]
    log_weights: Float[Array, " particles"]

    @classmethod
    def of(cls, particles: Particles) -> "_Block":
        return cls(particles.x, particles.log_density, particles.log_weights)


def _of_block(
    flow: AbstractBijection,
    sampler: Sampler,
    counts: Bool[Array, " particles"],
    block: _Block,
    edge: Edge,
    estimator: Estimator,
) -> tuple[Float[Array, ""], Moved]:
    """A block's share in the loss, and its transported particles."""
    moved = sampler.transport_block(
        flow, block.x, block.log_density, edge, first_order=True
    )
    work = -moved.log_increment
    if estimator == "path":
        term = _path_term(flow, sampler, block.x, moved, edge)
        work = jax.lax.stop_gradient(work) + term
    counts &= block.log_weights > -jnp.inf
    counts &= moved.log_increment > -jnp.inf
    return jnp.sum(jnp.where(counts, jnp.exp(block.log_weights) * work, 0)), moved


def _path_term(
    flow: AbstractBijection,
    sampler: Sampler,
    x: Float[Array, "particles *shape"],
    moved: Moved,
    edge: Edge,
) -> Float[Array, " particles"]:
    """Zero, with the path gradient as its derivative."""
    arrays, static = eqx.partition(flow, eqx.is_inexact_array)
    frozen = eqx.combine(jax.lax.stop_gradient(arrays), static)

    def term(x, point):
        def log_pushforward(y):
            x, log_det = frozen.inverse_and_log_det(y)
            return sampler.path.log_density(edge.start, x) + log_det

        force = jax.grad(log_pushforward)(point.x) - point.gradient
        y = flow.transform(x)
        return jnp.sum(jax.lax.stop_gradient(force) * (y - jax.lax.stop_gradient(y)))

    return jax.vmap(term)(x, moved.point)


def evidence_lower_bound(particles: Particles) -> Float[Array, ""]:
    r"""A lower bound on log Z, on average, from the particles at the end of a pass.

    Without resampling this is the mean of $\log w_K$ over the particles. With
    it, the weights since the last resampling are averaged so, and the factors of Z
    before it enter as they are. Both are below log Z by Jensen's inequality. Particles
    of weight zero are left out.
    """
    alive = particles.log_weights > -jnp.inf
    total = jnp.sum(jnp.where(alive, particles.log_weights, 0))
    mean = total / jnp.maximum(jnp.sum(alive), 1)
    return particles.log_normalizer + mean + jnp.log(particles.num_particles)


def choice_score(particles: Particles, moved: Moved) -> Float[Array, ""]:
    r"""A transition's share in the score term of Proposition 1, to be differentiated.

    The term is $\log w_K \nabla \log p(a)$ with the decisions $a$ to accept
    or reject. A decision has no influence on increments before it, so the increment
    $\log G_k$ need only meet the decisions that came first; and the mean of the
    other particles' increments, independent of this particle's decisions, is
    subtracted. Neither changes the expectation, and without them the noise would grow
    with log Z.
    """
    alive = (particles.log_weights > -jnp.inf) & (moved.log_increment > -jnp.inf)
    count = jnp.maximum(jnp.sum(alive), 2)
    increment = jnp.where(alive, jax.lax.stop_gradient(moved.log_increment), 0)
    centred = (increment - jnp.sum(increment) / count) * count / (count - 1)
    if particles.num_particles == 1:  # nobody else to compare with
        centred = increment
    terms = jnp.where(alive, centred * particles.log_choices, 0)
    return jnp.sum(terms) / particles.num_particles

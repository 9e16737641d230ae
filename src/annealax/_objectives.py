r"""The loss that trains a flow at one transition (equations 5 to 8).

$$\mathcal L_k = \sum_i W_{k-1}^i D_k(X_{k-1}^i), \qquad D_k = -\log G_k .$$

Its gradient in the flow's parameters comes in two estimators with the same expectation
when the particles follow :math:`\pi_{k-1}`:

- plain (eq. 8): differentiate :math:`D_k`;
- path: differentiate only through the moved particle :math:`y = T(x)`,

$$\sum_i W^i \big[\nabla_y \log q(y) - \nabla_y \log \gamma_k(y)\big]^\top
    \partial_\theta T_\theta(x^i), \qquad q = T_\# \gamma_{k-1},$$

  which drops a term of mean zero. Its noise vanishes when the flow is exact. It needs
  the inverse of the flow.

The evidence lower bound of a whole pass (eq. 2) trains all flows at once:

$$\mathbb E[\log w_K], \qquad \log w_K = \sum_k \log G_k(X_{k-1}).$$
"""

from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Float

from annealax._checks import unknown_name
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
    moved = sampler.transport(flow, particles, edge, first_order=True)
    work = -moved.log_increment
    if estimator == "path":
        work = jax.lax.stop_gradient(work) + _path_term(
            flow, sampler, particles, moved, edge
        )
    counts = (particles.log_weights > -jnp.inf) & (moved.log_increment > -jnp.inf)
    return jnp.sum(jnp.where(counts, particles.weights * work, 0)), moved


def _path_term(
    flow: AbstractBijection,
    sampler: Sampler,
    particles: Particles,
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

    return jax.vmap(term)(particles.x, moved.point)


def evidence_lower_bound(particles: Particles) -> Float[Array, ""]:
    r"""A lower bound on log Z, on average, from the particles at the end of a pass.

    Without resampling this is the mean of :math:`\log w_K` over the particles. With
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

    The term is :math:`\log w_K \nabla \log p(a)` with the decisions :math:`a` to accept
    or reject. A decision has no influence on increments before it, so the increment
    :math:`\log G_k` need only meet the decisions that came first; and the mean of the
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

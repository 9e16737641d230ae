"""The bare pieces of a pass, each compiled by itself with nothing else around it.

They make exactly as many evaluations, draws and flow passes as the sampler does.
Leapfrogs and random numbers come in two forms: as jax gives them (`vmap` over
particles, `jax.random`), and in the fastest way that we know (particles along the last
axis, our own random numbers), which is harder to come near to.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from flowjax.bijections import AbstractBijection

import annealax as ax
from _timing import Compiled, compile_ahead
from annealax._noise import Noise, noise
from annealax.flows.base import partition

# Keeps the points where they are, up to rounding, without the compiler knowing.
_TINY = 1e-9


def num_evaluations(sampler: ax.Sampler) -> tuple[int, int]:
    """Gradients alone and gradients with the value, per transition of a pass."""
    hmc = sampler.kernel
    assert isinstance(hmc, ax.kernels.HMC)
    # One with the value where the flow leads, and one at the end of each trajectory.
    return hmc.num_steps * (hmc.num_leapfrog - 1), 1 + hmc.num_steps


def gradients(sampler: ax.Sampler, x: jax.Array) -> Callable[[], Any]:
    """The gradient evaluations of a pass, each at the point the last one gave."""
    plain, with_value = num_evaluations(sampler)

    def run(path, tiny, x):
        def transition(x, beta):
            density = partial(path.log_density, beta)

            def move(_, x):
                return x + tiny * jax.vmap(jax.grad(density), -1, -1)(x)

            def move_with_value(_, carry):
                x, total = carry
                value, gradient = _value_and_gradient(density)(x)
                return x + tiny * gradient, total + value

            x = jax.lax.fori_loop(0, plain, move, x)
            return jax.lax.fori_loop(
                0, with_value, move_with_value, (x, jnp.zeros(x.shape[-1]))
            )

        return jax.lax.scan(transition, x, path.betas[1:])

    return _bind(run, sampler.path, jnp.asarray(_TINY), jnp.moveaxis(x, 0, -1))


def _value_and_gradient(density: Callable, axis: int = -1) -> Callable:
    return jax.vmap(jax.value_and_grad(density), axis, (0, axis))


def leapfrogs(
    sampler: ax.Sampler, x: jax.Array, *, axis: int = -1
) -> Callable[[], Any]:
    """The same evaluations inside leapfrog steps: momenta are kept and updated too.

    Args:
        sampler: The sampler.
        x: Particles, along the first axis.
        axis: Where they are put: -1, as the sampler has them, or 0.
    """
    plain, with_value = num_evaluations(sampler)

    def run(path, tiny, x, momentum):
        def transition(carry, beta):
            density = partial(path.log_density, beta)

            def leap(_, carry):
                x, momentum = carry
                x = x + tiny * momentum
                return x, momentum + tiny * jax.vmap(jax.grad(density), axis, axis)(x)

            def leap_with_value(_, carry):
                (x, momentum), total = carry
                x = x + tiny * momentum
                value, gradient = _value_and_gradient(density, axis)(x)
                return (x, momentum + tiny * gradient), total + value

            carry = jax.lax.fori_loop(0, plain, leap, carry)
            return jax.lax.fori_loop(
                0, with_value, leap_with_value, (carry, jnp.zeros(x.shape[axis]))
            )

        return jax.lax.scan(transition, (x, momentum), path.betas[1:])

    x, momentum = (jnp.moveaxis(start, 0, axis) for start in (x, x[::-1]))
    return _bind(run, sampler.path, jnp.asarray(_TINY), x, momentum)


def random_numbers(sampler: ax.Sampler, *, plain: bool = False) -> Callable[[], Any]:
    """Initial particles, and momenta and exponentials for every trajectory.

    Args:
        sampler: The sampler.
        plain: By `jax.random` instead of our own function.
    """
    hmc = sampler.kernel
    assert isinstance(hmc, ax.kernels.HMC)
    draws = sampler.path.num_transitions * hmc.num_steps
    shape, count = sampler.path.shape, sampler.num_particles

    def make(key):
        if not plain:
            return noise(key, shape, count, jnp.float32)
        key_normal, key_exponential = jr.split(key)
        return Noise(
            jr.normal(key_normal, (count, *shape)),
            jr.exponential(key_exponential, (count,)),
        )

    def run(key):
        def draw(total, key):
            drawn = make(key)
            return total + drawn.normal, drawn.exponential

        first, *rest = jr.split(key, draws + 1)
        start = make(first).normal
        return jax.lax.scan(draw, start, jnp.stack(rest))

    return _bind(run, jr.key(0))


def flow_gradients(flows: AbstractBijection, x: jax.Array) -> Callable[[], Any]:
    """Value of the flow and gradient in its parameters, once per transition."""
    params, fixed = partition(flows)
    fixed_arrays, static = eqx.partition(fixed, eqx.is_array)

    def run(params, fixed_arrays, x, slope):
        def loss(params, fixed):
            flow = eqx.combine(params, fixed, static)
            y, log_det = jax.vmap(flow.transform_and_log_det)(x)
            return jnp.sum(y * slope) + jnp.sum(log_det), y

        def transition(_, inputs):
            (value, y), gradient = jax.value_and_grad(loss, has_aux=True)(*inputs)
            return y, (value, gradient)

        return jax.lax.scan(transition, x, (params, fixed_arrays))

    return _bind(run, params, fixed_arrays, x, x[::-1])


def flow_values(flows: AbstractBijection, x: jax.Array) -> Callable[[], Any]:
    """Value of the flow, once per transition."""
    arrays, static = eqx.partition(flows, eqx.is_array)

    def run(arrays, x):
        def transition(_, arrays):
            flow = eqx.combine(arrays, static)
            return jax.vmap(flow.transform_and_log_det)(x), None

        return jax.lax.scan(transition, (x, jnp.zeros(x.shape[0])), arrays)

    return _bind(run, arrays, x)


def _bind(function: Callable, *args: Any) -> Callable[[], Any]:
    compiled: Compiled = compile_ahead(function, *args)
    return lambda: compiled.call(*args)

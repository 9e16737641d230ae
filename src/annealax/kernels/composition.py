"""Kernels made of kernels, and the kernel that does nothing."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import jax.random as jr

from annealax._errors import InvalidInputError
from annealax.kernels.base import AbstractKernel, KernelInfo


class Composition(AbstractKernel):
    """Apply several kernels in turn; acceptance is their average.

    Args:
        *kernels: At least one kernel.
    """

    kernels: tuple[AbstractKernel, ...]

    def __init__(self, *kernels: AbstractKernel):
        if not kernels:
            raise InvalidInputError("Composition needs at least one kernel")
        for kernel in kernels:
            if not isinstance(kernel, AbstractKernel):
                raise InvalidInputError(
                    f"Composition takes kernels, got {type(kernel).__name__}"
                )
        self.kernels = kernels

    def move(self, key, point, log_density, beta):
        """Apply them in the order given."""
        moves = [kernel.move for kernel in self.kernels]
        return _in_turn(moves, key, point, log_density, beta)

    def move_all(self, key, points, log_density, beta):
        """Apply them in the order given."""
        moves = [kernel.move_all for kernel in self.kernels]
        return _in_turn(moves, key, points, log_density, beta)


def _in_turn(moves: Sequence[Callable], key, point, log_density, beta):
    infos = []
    for move, subkey in zip(moves, jr.split(key, len(moves)), strict=True):
        point, info = move(subkey, point, log_density, beta)
        infos.append(info)
    acceptance = jnp.mean(jnp.stack([info.acceptance_rate for info in infos]), 0)
    evaluations = jnp.sum(jnp.stack([info.num_evaluations for info in infos]), 0)
    choices = jnp.sum(jnp.stack([info.log_probability for info in infos]), 0)
    return point, KernelInfo(acceptance, evaluations, choices)


class NoMove(AbstractKernel):
    """Leave every particle where it is: importance sampling between temperatures."""

    def move(self, key, point, log_density, beta):
        """Do nothing."""
        one = jnp.ones((), point.log_density.dtype)
        return point, KernelInfo(one, 0 * one, 0 * one)

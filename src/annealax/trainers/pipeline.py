r"""CRAFT as a pipeline: temperatures over devices (the paper's appendix on scale).

A flow is trained on the particles that arrive at its temperature, and on nothing else.
So the next pass may enter before the last has left, as long as every temperature makes
its update before the particles of the next pass arrive. Of :math:`K` temperatures each
of :math:`D` devices has a group of :math:`\lceil K / D \rceil` neighbours, and in tick
:math:`t` pass :math:`s` meets group :math:`g = t - s`. Every flow sees the passes in
order, each with the parameters that the pass before left: the staleness is zero, and
what is computed is what one pass after the other computes.

Two things can travel between ticks, for the same numbers: the particles, from a device
to the next, while groups stay; or the groups (parameters and optimiser states), around
the ring of devices, while the particles of a pass stay to its end.

:math:`S` passes take :math:`S + D - 1` ticks: each device is idle in :math:`D - 1` of
them, while the first pass comes and after the last has gone.
"""

import dataclasses
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from annealax._errors import InvalidInputError
from annealax._layout import Spread, available_devices
from annealax.trainers.base import AbstractTrainer, TrainInfo, TrainState
from annealax.trainers.craft import CRAFT, stacked

TEMPERATURES = "temperatures"
"""The axis of a mesh that temperatures are spread over."""

Traveller = Literal["particles", "flows"]


class Pipeline(AbstractTrainer):
    """CRAFT with its temperatures spread over devices; the same numbers.

        mesh = jax.make_mesh((4,), ("temperatures",))
        fit(key, Pipeline(CRAFT(sampler, optimizer), mesh), flow, num_steps=1000)

    Passes flow through the steps of one device call (`fit(steps_per_call=)`): with
    few of them, devices wait.

    Args:
        craft: How flows are trained; its sampler has no mesh of its own.
        mesh: The devices: a mesh with the one axis "temperatures"; None for all
            devices of this process.
        travels: "particles" or "flows": what moves from device to device. None for
            what is smaller.
    """

    craft: CRAFT
    mesh: Mesh | None = eqx.field(static=True, default=None)
    travels: Traveller | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        """Validate."""
        if not isinstance(self.craft, CRAFT):
            raise InvalidInputError(
                f"a pipeline is of a CRAFT trainer, got {type(self.craft).__name__}: "
                "the temperatures of the others are not trained apart"
            )
        if self.craft.sampler.mesh is not None:
            raise InvalidInputError(
                "the sampler has a mesh, but in a pipeline all particles of a pass are "
                "on one device: leave it out, and give the mesh to the pipeline"
            )
        if self.travels not in ("particles", "flows", None):
            raise InvalidInputError(
                f'travels must be "particles", "flows" or None, got {self.travels!r}'
            )
        if self.mesh is None:
            return
        if not isinstance(self.mesh, Mesh) or self.mesh.axis_names != (TEMPERATURES,):
            raise InvalidInputError(
                f'mesh must be a jax.sharding.Mesh with the one axis "{TEMPERATURES}", '
                f'got {self.mesh}; make one with jax.make_mesh((4,), ("{TEMPERATURES}"'
                ",))"
            )

    def init(self, key: PRNGKeyArray, flow: AbstractBijection) -> TrainState:
        """Every transition starts at `flow`."""
        return self.craft.init(key, flow)

    def step(
        self, key: PRNGKeyArray, state: TrainState
    ) -> tuple[TrainState, TrainInfo]:
        """One pass by itself: nothing to overlap with."""
        return self.craft.step(key, state)

    def steps(
        self,
        key: PRNGKeyArray,
        state: TrainState,
        start: Int[Array, ""],
        count: Int[Array, ""],
        capacity: int,
    ) -> tuple[TrainState, TrainInfo]:
        """Several passes, overlapping."""
        mesh = self.devices
        arguments = (self.craft, key, state, start, count)
        arrays, static = eqx.partition(arguments, eqx.is_array)
        kept = []

        def on_device(arrays):
            craft, key, state, start, count = eqx.combine(arrays, static)
            sampler = dataclasses.replace(craft.sampler, mesh=Spread(1))
            craft = dataclasses.replace(craft, sampler=sampler)
            size, travels = mesh.size, self.travels
            result = _passes(craft, key, state, start, count, capacity, size, travels)
            arrays, other = eqx.partition(result, eqx.is_array)
            kept.append(other)
            return arrays

        # Replicated by construction: gathered at the end.
        arrays = jax.shard_map(
            on_device, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False
        )(arrays)
        return eqx.combine(arrays, kept[-1])

    @property
    def devices(self) -> Mesh:
        """Those that are used: no more than get a temperature."""
        mesh = self.mesh
        if mesh is None:
            mesh = Mesh(np.asarray(available_devices()), (TEMPERATURES,))
        if len({device.process_index for device in mesh.devices}) > 1:
            return mesh  # or a process would be left out of what it waits for
        count = self.craft.sampler.path.num_transitions
        share = -(-count // mesh.size)
        return Mesh(mesh.devices[: -(-count // share)], mesh.axis_names)


def _passes(
    craft: CRAFT,
    key: PRNGKeyArray,
    state: TrainState,
    start: Int[Array, ""],
    count: Int[Array, ""],
    capacity: int,
    size: int,
    travels: Traveller | None,
) -> tuple[TrainState, TrainInfo]:
    """Several passes, as one of `size` devices sees them."""
    sampler = craft.sampler
    number = sampler.path.num_transitions
    share = -(-number // size)
    all_learning, sites, static = craft.unstacked(state)
    here = jax.lax.axis_index(TEMPERATURES)

    def transition(particles, key, site, learning):
        return craft.transition(sampler, static, particles, key, site, learning)

    # Traced here, once: the loops replay what was traced.
    particles = sampler.init(key)
    inputs = (particles, key, _at(sites, 0), _at(all_learning, 0))
    transition = eqx.filter_closure_convert(transition, *inputs)
    shown = jax.tree.map(
        lambda leaf: jnp.zeros((capacity, number, *leaf.shape), leaf.dtype),
        transition.out_struct[2],  # type: ignore[attr-defined]
    )
    if travels is None:
        group_bytes = share * _num_bytes(_at(all_learning, 0))
        travels = "particles" if _num_bytes(particles) <= group_bytes else "flows"
    stays = travels == "particles"

    def group_at(tick):
        """Which temperatures are here."""
        return here if stays else (tick - here) % size

    def tick(index, carry):
        particles, learning, shown = carry
        group = group_at(index)
        step = index - group
        is_busy = (step >= 0) & (step < count)
        key_init, key_steps = jr.split(jr.fold_in(key, start + step))
        keys, first = jr.split(key_steps, number), group * share
        particles = jax.lax.cond(
            is_busy & (group == 0), lambda: sampler.init(key_init), lambda: particles
        )

        def turn(place, carry):
            particles, learning, shown = carry
            k = first + place
            inputs = (particles, keys[k], _at(sites, k), _at(learning, place))
            particles, new, one = transition(*inputs)
            learning = jax.tree.map(
                lambda all, each: all.at[place].set(each), learning, new
            )
            shown = jax.tree.map(
                lambda all, each: all.at[step, k].set(each), shown, one
            )
            return particles, learning, shown

        turns = jnp.where(is_busy, jnp.clip(number - first, 0, share), 0)
        particles, learning, shown = jax.lax.fori_loop(
            0, turns, turn, (particles, learning, shown)
        )
        following = [(i, (i + 1) % size) for i in range(size)]
        if stays:
            particles = jax.lax.ppermute(particles, TEMPERATURES, following[:-1])
        else:
            learning = jax.lax.ppermute(learning, TEMPERATURES, following)
        return particles, learning, shown

    ticks = count + size - 1
    if not stays:  # on until every group is where it began
        ticks = -(-ticks // size) * size
    learning = jax.tree.map(
        lambda leaf: _share(leaf, group_at(0) * share, share, size), all_learning
    )
    _, learning, shown = jax.lax.fori_loop(0, ticks, tick, (particles, learning, shown))
    places = np.arange(size) if stays else -np.arange(size) % size
    learning = jax.tree.map(
        lambda leaf: jax.lax.all_gather(leaf, TEMPERATURES)[places].reshape(
            size * share, *leaf.shape[1:]
        )[:number],
        learning,
    )
    # Every temperature of every pass was on one device; elsewhere there are zeros.
    shown = jax.tree.map(_from_all, shown)
    info = jax.lax.map(lambda each: each.together(), shown)
    return stacked(learning, sites, static), info


def _at(tree: PyTree, index: Array | int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _share(leaf: Array, first: Array | int, share: int, size: int) -> Array:
    """Those of some temperatures; those beyond the last do not matter."""
    missing = jnp.zeros((share * size - leaf.shape[0], *leaf.shape[1:]), leaf.dtype)
    padded = jnp.concatenate([leaf, missing])
    return jax.lax.dynamic_slice_in_dim(padded, first, share)


def _from_all(leaf: Array) -> Array:
    number = leaf.astype(jnp.int32) if leaf.dtype == bool else leaf
    return jax.lax.psum(number, TEMPERATURES).astype(leaf.dtype)


def _num_bytes(tree: PyTree) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))

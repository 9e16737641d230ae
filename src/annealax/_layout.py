r"""Particles in blocks: one mechanism for cache, memory, devices and islands.

The N particles of a population lie in blocks of a fixed size. Blocks are worked on one
after the other on a device, and spread over devices and processes. What a particle does
depends on its block alone; what the population does is made of numbers of each block,
gathered in order, or of arrays of each block, added in an order that is fixed. So
results depend on the size of the blocks, never on the number of devices, to the bit.

Two things see to the bits. The loop over blocks has a number of turns that the compiler
does not know wherever it may be one: a loop of one turn would be taken apart and its
body compiled together with what is around it, with sums in another order. And barriers
keep what is inside a block, what is made of its numbers and what is around both apart.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Int, PyTree

from annealax._errors import InvalidInputError

AXIS = "particles"
"""The axis of a mesh that particles are spread over."""

CACHED_NUMBERS = 2**18
"""Coordinates in a block, at most, if nobody says otherwise."""

_DIGITS = 4
"""Binary digits of numbers of blocks, so that trees over them are nearly full."""


class Mapped(NamedTuple):
    """What a function of a block gives, and what comes of it for the population.

    Attributes:
        each: Arrays with an entry for each particle; those of the particles here.
        numbers: Arrays, small ones; of the population, stacked over its blocks.
        total: Arrays of any size; of the population, added up.
    """

    each: PyTree = ()
    numbers: PyTree = ()
    total: PyTree = ()


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the particles of a population are.

    Attributes:
        num_particles: Number of particles.
        block_size: Particles in a block; the last block may have fewer.
        num_devices: Devices that they are spread over. Above one this is the layout
            as one of them sees it, under `jax.shard_map`: it has whole blocks, and
            those beyond the last are empty.
    """

    num_particles: int
    block_size: int
    num_devices: int = 1

    @property
    def num_blocks(self) -> int:
        """Blocks of the population."""
        return -(-self.num_particles // self.block_size)

    @property
    def blocks_here(self) -> int:
        """Blocks on each device, empty ones included."""
        if self.num_devices == 1:
            return self.num_blocks
        return rounded_up(-(-self.num_blocks // self.num_devices))

    @property
    def num_here(self) -> int:
        """Places for particles on each device."""
        if self.num_devices == 1:
            return self.num_particles
        return self.blocks_here * self.block_size

    @property
    def first_here(self) -> Int[Array, ""] | int:
        """Index of the first particle here among all of them."""
        if self.num_devices == 1:
            return 0
        return jax.lax.axis_index(AXIS) * self.num_here

    @property
    def index(self) -> Int[Array, " here"]:
        """Index of each particle here among all of them."""
        return self.first_here + jnp.arange(self.num_here)

    def valid(self, first: Int[Array, ""] | int) -> Bool[Array, " block"]:
        """Which places of the block that begins with this particle are taken."""
        return first + jnp.arange(self.block_size) < self.num_particles

    def map(self, function: Callable[..., Mapped], *trees: PyTree) -> Mapped:
        """Apply a function to every block.

        Args:
            function: From the index of the first particle and the block of each tree.
                Places beyond the last particle hold copies of others or nothing at
                all: `valid` tells what must not be counted.
            *trees: Arrays of the particles here.
        """
        if self.num_blocks == 1:
            mapped = function(0, *trees)
            return mapped._replace(
                numbers=jax.tree.map(lambda leaf: leaf[None], mapped.numbers)
            )
        padded = self._is_padded
        if padded:
            missing = self.num_blocks * self.block_size - self.num_particles
            trees = jax.tree.map(
                lambda leaf: jnp.concatenate(
                    [leaf, jnp.broadcast_to(leaf[-1:], (missing, *leaf.shape[1:]))]
                ),
                trees,
            )
        mapped = self._loop(function, trees)
        each = mapped.each
        if padded:
            each = jax.tree.map(lambda leaf: leaf[: self.num_particles], each)
        numbers, lanes = self._everywhere((mapped.numbers, mapped.total))
        numbers = jax.tree.map(lambda leaf: leaf[: self.num_blocks], numbers)
        used = -(-self.num_blocks // self._lane)
        total = jax.tree.map(lambda leaf: _pairwise(list(leaf[:used])), lanes)
        each, numbers, total = jax.lax.optimization_barrier((each, numbers, total))
        return Mapped(each, numbers, total)

    def gather(self, tree: PyTree) -> PyTree:
        """Arrays of the whole population, on every device."""
        if self.num_blocks == 1:
            return tree
        whole = jax.tree.map(
            lambda leaf: leaf[: self.num_particles], self._everywhere(tree)
        )
        return jax.lax.optimization_barrier(whole)

    def take(self, tree: PyTree, indices: Int[Array, " particles"]) -> PyTree:
        """Particles of the population, by index, at the places here.

        The particles of each device go around all of them, and every device picks what
        it needs: at no time does a device hold more than twice its share.

        Args:
            tree: Arrays of the particles here.
            indices: For every place of the population, which particle comes there.
        """
        if self.num_devices == 1:
            return jax.tree.map(lambda leaf: leaf[indices], tree)
        here, count = self.num_here, self.num_devices
        places = jnp.minimum(self.index, self.num_particles - 1)
        device, place = indices[places] // here, indices[places] % here
        me = jax.lax.axis_index(AXIS)
        following = [(i, (i + 1) % count) for i in range(count)]

        def pick(step, taken, passing):
            found = device == (me - step) % count
            return jax.tree.map(
                lambda old, new: jnp.where(_expand(found, old), new[place], old),
                taken,
                passing,
            )

        def turn(step, carry):
            taken, passing = carry
            passing = jax.tree.map(
                lambda leaf: jax.lax.ppermute(leaf, AXIS, following), passing
            )
            return pick(step, taken, passing), passing

        taken = pick(0, jax.tree.map(jnp.zeros_like, tree), tree)
        return jax.lax.fori_loop(1, count, turn, (taken, tree))[0]

    def pass_on(self, tree: PyTree, share: float) -> PyTree:
        """Move a share of each block on to the same places of the next, around a ring.

        Args:
            tree: Arrays of the particles here; blocks are full.
            share: How many of a block, between 0 and 1, evenly spread over it.
        """
        size, count = self.block_size, self.num_blocks
        ticks = np.floor(np.arange(size + 1) * share)
        moving = np.flatnonzero(np.diff(ticks))
        if count == 1 or not moving.size:
            return tree
        here = self.blocks_here
        used = -(-count // here)
        following = [(i, (i + 1) % used) for i in range(used)]

        def move(leaf):
            blocks = leaf.reshape(here, size, *leaf.shape[1:])
            leaving = blocks[:, moving]
            last = leaving[-1]
            if self.num_devices > 1:
                # The ring closes behind the last block: empty places may follow.
                is_end = jax.lax.axis_index(AXIS) == used - 1
                last = leaving[jnp.where(is_end, (count - 1) % here, here - 1)]
                last = jax.lax.ppermute(last, AXIS, following)
            arriving = jnp.concatenate([last[None], leaving[:-1]])
            return blocks.at[:, moving].set(arriving).reshape(leaf.shape)

        return jax.tree.map(move, tree)

    @property
    def _is_padded(self) -> bool:
        whole = self.num_blocks * self.block_size
        return self.num_devices == 1 and whole != self.num_particles

    def _everywhere(self, tree: PyTree) -> PyTree:
        """Arrays of all devices in order, on each of them."""
        if self.num_devices == 1:
            return tree
        return jax.lax.all_gather(tree, AXIS, tiled=True)

    @property
    def _lane(self) -> int:
        """Blocks whose total is complete in itself: a power of two, at its multiples.

        On one device all of them. On several, what the number of blocks on each allows,
        so that no lane is shared.
        """
        here = self.blocks_here
        if self.num_devices == 1:
            return 1 << (here - 1).bit_length()
        return here & -here

    def _loop(self, function: Callable[..., Mapped], trees: PyTree) -> Mapped:
        """The blocks here, one after the other; `total` has an entry for each lane."""
        size, here, lane = self.block_size, self.blocks_here, self._lane
        # Room for two at least: a block that is all there is would not be cut out of
        # anything, and the compiler would lay its arrays out in another way.
        room = max(2, here)
        levels = max(2, lane.bit_length())
        if room > here:
            trees = jax.tree.map(lambda leaf: _with_zeros(leaf, size), trees)
        first_here: Array | int = self.first_here
        count: Array | int = here
        if self.num_devices > 1:
            # Empty blocks come last.
            before = jax.lax.axis_index(AXIS) * here
            count = jnp.clip(self.num_blocks - before, 0, here)

        def of_block(index, trees):
            pieces = jax.tree.map(
                lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, index * size, size),
                trees,
            )
            inputs = jax.lax.optimization_barrier((first_here + index * size, pieces))
            return jax.lax.optimization_barrier(function(inputs[0], *inputs[1]))

        # Traced here, once: the loop replays what was traced.
        of_block = eqx.filter_closure_convert(of_block, jnp.asarray(0), trees)
        like: Mapped = of_block.out_struct  # type: ignore[attr-defined]

        def zeros(count: int, tree: PyTree) -> PyTree:
            return jax.tree.map(
                lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), tree
            )

        each = jax.tree.map(
            lambda leaf: jnp.zeros((room * size, *leaf.shape[1:]), leaf.dtype),
            like.each,
        )
        num_lanes = -(-here // lane)
        sums, lanes = zeros(levels, like.total), zeros(max(2, num_lanes), like.total)

        def turn(index, carry):
            each, numbers, sums, lanes = carry
            mapped = of_block(index, trees)
            each = jax.tree.map(
                lambda all, new: jax.lax.dynamic_update_slice_in_dim(
                    all, new, index * size, 0
                ),
                each,
                mapped.each,
            )
            numbers = _put(numbers, index, mapped.numbers)
            # A binary counter: two sums of the same level make one of the next.
            level = _trailing_ones(index % lane)
            total = jax.lax.fori_loop(
                0, level, lambda at, total: _add(_at(sums, at), total), mapped.total
            )
            sums = _put(sums, level, total)
            lanes = _put(lanes, index // lane, total)
            return each, numbers, sums, lanes

        carry = (each, zeros(room, like.numbers), sums, lanes)
        each, numbers, sums, lanes = jax.lax.fori_loop(0, count, turn, carry)
        if jax.tree.leaves(like.total):
            # A lane that is not full: the sums that are there, the last blocks first.
            total, is_empty = _at(sums, 0), jnp.asarray(True)
            for level in range(levels):
                there = (count % lane) >> level & 1 == 1
                total = jax.tree.map(
                    lambda a, b, there=there, is_empty=is_empty: jnp.where(
                        there, jnp.where(is_empty, a, a + b), b
                    ),
                    _at(sums, level),
                    total,
                )
                is_empty &= ~there
            last = jnp.minimum(count // lane, num_lanes - 1)
            kept = jax.tree.map(
                lambda a, b: jnp.where(count % lane > 0, a, b), total, _at(lanes, last)
            )
            lanes = _put(lanes, last, kept)
        return Mapped(
            jax.tree.map(lambda leaf: leaf[: here * size], each),
            jax.tree.map(lambda leaf: leaf[:here], numbers),
            jax.tree.map(lambda leaf: leaf[:num_lanes], lanes),
        )


@dataclasses.dataclass(frozen=True)
class Spread:
    """Stands for a mesh inside of `jax.shard_map`.

    Attributes:
        num_devices: Devices that the particles are spread over.
    """

    num_devices: int


def check_mesh(mesh: Any) -> Any:
    """The mesh, if particles can be spread over it."""
    if mesh is None or isinstance(mesh, Spread):
        return mesh
    if not isinstance(mesh, Mesh):
        raise InvalidInputError(
            f"mesh must be a jax.sharding.Mesh, got {type(mesh).__name__}; make one "
            f'with jax.make_mesh((4,), ("{AXIS}",))'
        )
    if AXIS not in mesh.axis_names:
        raise InvalidInputError(
            f'the mesh has no axis "{AXIS}", only {mesh.axis_names}: make it with '
            f'jax.make_mesh((4,), ("{AXIS}",))'
        )
    return mesh


def mesh_for(layout: Layout, mesh: Mesh | Spread | None) -> Mesh | None:
    """The devices to use: no more than there are blocks; None for one.

    Args:
        layout: Where the particles are.
        mesh: What was asked for; None for the default.
    """
    if isinstance(mesh, Spread):
        return None
    if mesh is None:
        devices = available_devices()
    else:
        axis = mesh.axis_names.index(AXIS)
        devices = list(np.moveaxis(mesh.devices, axis, 0).reshape(mesh.shape[AXIS], -1))
        devices = [each[0] for each in devices]
    if layout.num_blocks == 1 or len(devices) == 1:
        return None
    if len({device.process_index for device in devices}) == 1:
        here = rounded_up(-(-layout.num_blocks // len(devices)))
        devices = devices[: -(-layout.num_blocks // here)]
    # Otherwise all of them, or a process would be left out of what it waits for.
    return Mesh(np.asarray(devices), (AXIS,)) if len(devices) > 1 else None


_default: list[Any] = []


def use_devices(devices: Sequence[Any]) -> None:
    """Spread particles over these devices wherever no mesh is given.

    For commands: programs that were compiled before are forgotten.
    """
    _default[:] = devices
    jax.clear_caches()


def available_devices() -> list[Any]:
    """Those that particles are spread over, as far as there are blocks for them.

    All devices of this process, unless JAX or a command was told to use others.
    """
    chosen = jax.config.jax_default_device  # type: ignore[attr-defined]
    if chosen is not None:
        return [chosen]
    return _default or jax.local_devices()


def pinned(tree: PyTree) -> Mesh | None:
    """The one device that somebody has put arrays on; None if it does not matter."""
    if len(available_devices()) == 1:
        return None
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.core.Tracer) or not isinstance(leaf, jax.Array):
            continue
        if leaf.committed and len(leaf.devices()) == 1:
            return Mesh(np.asarray(list(leaf.devices())), (AXIS,))
    return None


def brought_home(tree: PyTree) -> PyTree:
    """Arrays that every device has a copy of, as arrays of this process alone."""

    def bring(leaf):
        if isinstance(leaf, jax.core.Tracer) or not isinstance(leaf, jax.Array):
            return leaf
        if len(leaf.sharding.device_set) == 1:
            return leaf
        # By way of the host, so that it is bound to no device.
        return jnp.asarray(np.asarray(leaf.addressable_data(0)))

    return jax.tree.map(bring, tree)


_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
"""Operations that call a function, and which of their parameters it is."""


def with_true_quotients(
    function: Callable[..., PyTree], zero: Int[Array, ""], *arguments: PyTree
) -> PyTree:
    """Call a function of arrays so that the compiler divides where it divides.

    It may write division by one number as a product with its reciprocal, and whether it
    does so depends on what is around: Adam's parameters differed in the last bit
    between one device and two. A divisor that seems to differ from entry to entry is
    left alone.

    Args:
        function: The function.
        zero: The number 0, as something that the compiler cannot know.
        *arguments: Its arguments, nothing but arrays.
    """
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    leaves = jax.tree.leaves(arguments)
    results = _divided(closed.jaxpr, closed.consts, leaves, zero)
    return jax.tree.unflatten(jax.tree.structure(shapes), results)


def _divided(
    jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any], zero: Array
) -> list[Any]:
    values = dict(zip(jaxpr.constvars, consts, strict=True))
    values |= dict(zip(jaxpr.invars, inputs, strict=True))

    def value(atom: Any) -> Any:
        return atom.val if hasattr(atom, "val") else values[atom]

    for equation in jaxpr.eqns:
        operands = [value(atom) for atom in equation.invars]
        name, parameters = equation.primitive.name, equation.params
        if name in _CALLS and (inner := parameters.get(_CALLS[name])) is not None:
            results = _divided(inner.jaxpr, inner.consts, operands, zero)
        else:
            if name == "div":
                dividend, divisor = operands
                operands = [dividend, _disguised(dividend, divisor, zero)]
            results = equation.primitive.bind(*operands, **parameters)
            if not equation.primitive.multiple_results:
                results = [results]
        values |= dict(zip(equation.outvars, results, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def _disguised(dividend: Any, divisor: Any, zero: Array) -> Array:
    """The divisor; the compiler sees another one in every place."""
    divisor = jnp.broadcast_to(divisor, jnp.shape(dividend))
    whole = {4: jnp.int32, 8: jnp.int64}.get(divisor.dtype.itemsize)
    if not divisor.ndim or whole is None or divisor.dtype.kind != "f":
        return divisor
    # Along all axes: it looks for what is the same along one of them, too.
    axes = range(divisor.ndim)
    places = sum(jax.lax.broadcasted_iota(whole, divisor.shape, axis) for axis in axes)
    flipped = jax.lax.bitcast_convert_type(divisor, whole) ^ places * zero.astype(whole)
    return jax.lax.bitcast_convert_type(flipped, divisor.dtype)


def choose_block_size(num_particles: int, size: int, largest: int | None = None) -> int:
    """Particles in a block.

    Blocks are of even size, and none is left over if the number of particles allows.

    Args:
        num_particles: Number of particles.
        size: Coordinates of a particle.
        largest: The most in a block; None for as many as fit the cache.
    """
    if largest is None:
        largest = max(1, CACHED_NUMBERS // size)
    count = rounded_up(-(-num_particles // largest))
    more = count
    while more <= 1.25 * count:
        if num_particles % more == 0:
            count = more
            break
        more = rounded_up(more + 1)
    return -(-num_particles // count)


def rounded_up(count: int) -> int:
    """To a number of few binary digits."""
    step = 1 << max(0, count.bit_length() - _DIGITS)
    return -(-count // step) * step


def _with_zeros(leaf: Array, count: int) -> Array:
    more = jnp.zeros((count, *leaf.shape[1:]), leaf.dtype)
    return jnp.concatenate([leaf, more])


def _trailing_ones(number: Array) -> Array:
    lowest_zero = ~number & (number + 1)
    return jax.lax.population_count(lowest_zero - 1)


def _at(tree: PyTree, index: Array | int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _put(tree: PyTree, index: Array, new: PyTree) -> PyTree:
    return jax.tree.map(lambda all, one: all.at[index].set(one), tree, new)


def _add(a: PyTree, b: PyTree) -> PyTree:
    return jax.tree.map(jnp.add, a, b)


def _pairwise(terms: list[Any]) -> Any:
    """The sum of neighbours, then of these sums, and so on."""
    while len(terms) > 1:
        alone = terms[-1:] if len(terms) % 2 else []
        pairs = zip(terms[::2], terms[1::2], strict=False)
        terms = [a + b for a, b in pairs] + alone
    return terms[0]


def _expand(mask: Array, like: Array) -> Array:
    return mask.reshape(mask.shape + (1,) * (like.ndim - mask.ndim))

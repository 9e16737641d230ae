"""Normal and exponential numbers for Markov kernels, fast on a processor.

Every particle has numbers of its own: word `j` of particle `i` is the Threefry-2x32
hash of the counters `(i, j)`, so it does not matter in which block, on which device or
beside how many others a particle is moved. Particle 0 has the numbers of `jax.random`.

Two things make them several times faster where jax runs on a CPU: all rounds of the
hash are written out, so that they fuse into one vectorised loop (jax rolls them into a
loop over memory), and particles are the last axis, so that the vectorised loop is long
(a field of 14 x 14 has rows too short for it).
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, DTypeLike, Float, Int, PRNGKeyArray, UInt32

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


class Noise(NamedTuple):
    """What a Metropolis step of many particles needs.

    Attributes:
        normal: Standard normal numbers, particles along the last axis.
        exponential: Standard exponential numbers, one per particle.
    """

    normal: Float[Array, "*shape particles"]
    exponential: Float[Array, " particles"]


def noise(
    key: PRNGKeyArray,
    shape: tuple[int, ...],
    num_particles: int,
    dtype: DTypeLike,
    first: Int[Array, ""] | int = 0,
) -> Noise:
    """Independent noise for a step of every particle, from one key.

    Args:
        key: Random key.
        shape: Shape of one configuration.
        num_particles: How many particles.
        dtype: Kind of the numbers.
        first: Index of the first of these particles among all that share the key.
    """
    count = math.prod(shape)
    if jnp.dtype(dtype) not in (jnp.float32, jnp.float64) or not _is_threefry(key):
        # Numbers of the block that begins with this particle.
        key_normal, key_exponential = jr.split(jr.fold_in(key, first))
        return Noise(
            jr.normal(key_normal, (*shape, num_particles), dtype),
            jr.exponential(key_exponential, (num_particles,), dtype),
        )
    hashed = hashes(key, count + 1, num_particles, first)
    # The barrier keeps the short rows of `shape` out of the long loop.
    normal = jax.lax.optimization_barrier(
        _to_normal(_to_unit(tuple(word[:count] for word in hashed), dtype))
    )
    last = _to_unit(tuple(word[count] for word in hashed), dtype)
    return Noise(normal.reshape(*shape, num_particles), -jnp.log1p(-last))


def normals(
    key: PRNGKeyArray, sample_shape: tuple[int, ...], size: int, dtype: DTypeLike
) -> Float[Array, "*sample_shape size"]:
    """Standard normal vectors.

    Compiled in a fifth of the time that `jax.random.normal` needs for short rows.
    """
    drawn = noise(key, (size,), math.prod(sample_shape), dtype)
    return drawn.normal.T.reshape(*sample_shape, size)


_Words = UInt32[Array, "words particles"]


def hashes(
    key: PRNGKeyArray, num_words: int, num_particles: int, first: Int[Array, ""] | int
) -> tuple[_Words, _Words]:
    """Both words of the Threefry hash of the counters (particle, word)."""
    words = jr.key_data(key)
    keys = (words[0], words[1], words[0] ^ words[1] ^ _PARITY)
    shape = (num_words, num_particles)
    particle = jax.lax.broadcasted_iota(jnp.uint32, shape, 1)
    one = particle + jnp.asarray(first).astype(jnp.uint32) + keys[0]
    two = jax.lax.broadcasted_iota(jnp.uint32, shape, 0) + keys[1]
    for block in range(5):
        for distance in _ROTATIONS[block % 2]:
            one = one + two
            two = one ^ _rotate(two, distance)
        one = one + keys[(block + 1) % 3]
        two = two + keys[(block + 2) % 3] + np.uint32(block + 1)
    return one, two


def _is_threefry(key: PRNGKeyArray) -> bool:
    # Without partitionable counters jax numbers its words differently; the numbers
    # would be as good, but no longer those that its documentation promises.
    return (
        jr.key_impl(key) == "threefry2x32" and jax.config.jax_threefry_partitionable  # type: ignore[attr-defined]
    )


def _rotate(x: Array, distance: int) -> Array:
    return (x << np.uint32(distance)) | (x >> np.uint32(32 - distance))


def _to_unit(hashed: tuple[Array, ...], dtype: DTypeLike) -> Array:
    """Uniform in [0, 1), as `jax.random.uniform` makes it: upper bits as a mantissa."""
    one, two = hashed
    if jnp.dtype(dtype) == jnp.float32:
        mantissa = ((one ^ two) >> np.uint32(9)) | np.uint32(0x3F800000)
        return jax.lax.bitcast_convert_type(mantissa, jnp.float32) - 1
    word = (one.astype(jnp.uint64) << np.uint64(32)) | two.astype(jnp.uint64)
    mantissa = (word >> np.uint64(12)) | np.uint64(0x3FF0000000000000)
    return jax.lax.bitcast_convert_type(mantissa, jnp.float64) - 1


def _to_normal(unit: Array) -> Array:
    kind = unit.dtype.type
    low = np.nextafter(kind(-1), kind(0))
    uniform = jnp.maximum(low, unit * (1 - low) + low)
    return kind(math.sqrt(2)) * jax.lax.erf_inv(uniform)

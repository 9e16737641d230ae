"""Normal and exponential numbers for Markov kernels, fast on a processor.

They are the numbers of `jax.random`: the hash is Threefry-2x32 on the same counters.
Two things make them several times faster where jax runs on a CPU: all rounds of the
hash are written out, so that they fuse into one vectorised loop (jax rolls them into a
loop over memory), and the numbers are made in one flat array, so that the vectorised
loop is long (a field of 14 x 14 has rows too short for it).
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, DTypeLike, Float, PRNGKeyArray, UInt32

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
    key: PRNGKeyArray, shape: tuple[int, ...], num_particles: int, dtype: DTypeLike
) -> Noise:
    """Independent noise for a step of every particle, from one key."""
    full_shape = (*shape, num_particles)
    if jnp.dtype(dtype) != jnp.float32 or not _is_threefry(key):
        key_normal, key_exponential = jr.split(key)
        return Noise(
            jr.normal(key_normal, full_shape, dtype),
            jr.exponential(key_exponential, (num_particles,), dtype),
        )
    count = math.prod(full_shape)
    words = bits(key, count + num_particles)
    # The barrier keeps the short rows of `shape` out of the long loop.
    normal = jax.lax.optimization_barrier(_to_normal(words[:count]))
    return Noise(normal.reshape(full_shape), -jnp.log1p(-_to_unit(words[count:])))


def normals(
    key: PRNGKeyArray, sample_shape: tuple[int, ...], size: int, dtype: DTypeLike
) -> Float[Array, "*sample_shape size"]:
    """Standard normal vectors.

    Compiled in a fifth of the time that `jax.random.normal` needs for short rows.
    """
    drawn = noise(key, (size,), math.prod(sample_shape), dtype)
    return drawn.normal.T.reshape(*sample_shape, size)


def bits(key: PRNGKeyArray, count: int) -> UInt32[Array, " count"]:
    """`jax.random.bits(key, (count,))` of a Threefry key."""
    words = jr.key_data(key)
    keys = (words[0], words[1], words[0] ^ words[1] ^ _PARITY)
    first = jnp.full(count, keys[0])
    second = jax.lax.iota(jnp.uint32, count) + keys[1]
    for block in range(5):
        for distance in _ROTATIONS[block % 2]:
            first = first + second
            second = first ^ _rotate(second, distance)
        first = first + keys[(block + 1) % 3]
        second = second + keys[(block + 2) % 3] + np.uint32(block + 1)
    return first ^ second


def _is_threefry(key: PRNGKeyArray) -> bool:
    # Without partitionable counters jax numbers its words differently; the numbers
    # would be as good, but no longer those that its documentation promises.
    return (
        jr.key_impl(key) == "threefry2x32" and jax.config.jax_threefry_partitionable  # type: ignore[attr-defined]
    )


def _rotate(x: Array, distance: int) -> Array:
    return (x << np.uint32(distance)) | (x >> np.uint32(32 - distance))


def _to_unit(words: Array) -> Array:
    """Uniform in [0, 1): the upper 23 bits as a mantissa."""
    mantissa = (words >> np.uint32(9)) | np.uint32(0x3F800000)
    return jax.lax.bitcast_convert_type(mantissa, jnp.float32) - 1


def _to_normal(words: Array) -> Array:
    low = np.nextafter(np.float32(-1), np.float32(0))
    uniform = jnp.maximum(low, _to_unit(words) * (1 - low) + low)
    return np.float32(math.sqrt(2)) * jax.lax.erf_inv(uniform)

"""Random keys by name.

A key that belongs to a name stays the same when another piece of work comes before it,
or is left out: random numbers depend on what they are for, not on when they were drawn.
All of this is done by the host: nothing is compiled for it.
"""

import hashlib

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray


def root_key(seed: int) -> PRNGKeyArray:
    """`jax.random.key(seed)`, of the generator that JAX uses unless told otherwise."""
    words = np.asarray([seed >> 32, seed & 0xFFFFFFFF], np.uint32)
    return jr.wrap_key_data(jax.device_put(words), impl="threefry2x32")


def named_key(key: PRNGKeyArray, *names: str | int) -> PRNGKeyArray:
    """The key of a piece of work.

    Args:
        key: The key of the whole.
        names: What the piece is, from the largest part to the smallest: words, or
            numbers for the members of a series.
    """
    words = np.asarray(jr.key_data(key))
    for name in names:
        label = f"{type(name).__name__} {name}".encode()
        digest = hashlib.sha256(words.tobytes() + label).digest()
        words = np.frombuffer(digest[: words.nbytes], words.dtype)
    return jr.wrap_key_data(jax.device_put(words), impl=jr.key_impl(key))


def key_message(key: PRNGKeyArray) -> tuple[np.ndarray, str | None]:
    """A key as something that can be sent: its numbers, and of which generator."""
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return np.asarray(key), None
    return np.asarray(jr.key_data(key)), str(jr.key_impl(key))


def read_key(message: tuple[np.ndarray, str | None]) -> PRNGKeyArray:
    """The key that `key_message` took apart."""
    words, kind = message
    key = jnp.asarray(words)
    return jr.wrap_key_data(key, impl=kind) if kind else key


def generator(key: PRNGKeyArray) -> np.random.Generator:
    """Random numbers of the host, for choices that need no device."""
    return np.random.default_rng(np.asarray(jr.key_data(key)).tolist())

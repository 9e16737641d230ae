"""Random keys by name.

A key that belongs to a name stays the same when another piece of work comes before it,
or is left out: random numbers depend on what they are for, not on when they were drawn.
"""

import zlib

import jax.random as jr
from jaxtyping import PRNGKeyArray


def named_key(key: PRNGKeyArray, *names: str | int) -> PRNGKeyArray:
    """The key of a piece of work.

    Args:
        key: The key of the whole.
        names: What the piece is, from the largest part to the smallest: words, or
            numbers for the members of a series.
    """
    for name in names:
        number = name if isinstance(name, int) else zlib.crc32(name.encode())
        key = jr.fold_in(key, number)
    return key

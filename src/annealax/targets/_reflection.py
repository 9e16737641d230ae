r"""Matrices on a grid that commute with its reflections, in a quarter of the work.

A stationary, isotropic covariance $K$ between the cells of a grid does not change
when the grid is mirrored left-right or up-down. Sums and differences of mirrored cells,

$$ (F x)_{\pm} = x_i \pm x_{n - 1 - i} \quad \text{along each axis}, $$

therefore split it exactly into four blocks, one for each pair of signs, and with
$C = F K F^\top$ (block diagonal)

$$ K^{-1} = F^\top C^{-1} F, \qquad
   \log |K| = \log |C| - 2 \log |\det F|, \qquad
   |\det F| = 2^{\text{number of mirrored pairs}} . $$

A product with $K^{-1}$ then costs a quarter of the dense one and a factorisation
a sixteenth, without approximation. `fold` is $F$ and `unfold` is
$F^\top$.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Blocks = tuple[Array, Array, Array, Array]


def fold(x: Float[Array, "rows columns"]) -> Blocks:
    """Sums and differences of mirrored cells along both axes: four arrays."""
    even, odd = _fold(x, 0)
    return *_fold(even, 1), *_fold(odd, 1)


def unfold(parts: Sequence[Array]) -> Array:
    """The transpose of `fold`."""
    even = _unfold(parts[0], parts[1], axis=1)
    odd = _unfold(parts[2], parts[3], axis=1)
    return _unfold(even, odd, axis=0)


def covariance_blocks(covariance: Any) -> tuple[Any, ...]:
    """The four diagonal blocks of the folded covariance.

    Args:
        covariance: NumPy array (for set-up in float64) or JAX array (to learn its
            parameters), of shape (rows, columns, rows, columns).
    """
    blocks = []
    for i, half in enumerate(_fold(covariance, 0)):
        quarter = _fold(half, 2)[i]
        for j, part in enumerate(_fold(quarter, 1)):
            block = _fold(part, 3)[j]
            size = math.prod(block.shape[:2])
            blocks.append(block.reshape(size, size))
    return tuple(blocks)


def log_det_fold(rows: int, columns: int) -> float:
    """Log |det F| for a grid of `rows` times `columns` cells."""
    return math.log(2.0) * ((rows // 2) * columns + (columns // 2) * rows)


@jax.custom_jvp
def half_square(blocks: Blocks, x: Float[Array, "rows columns"]) -> Float[Array, ""]:
    r"""The quadratic form $\tfrac12 x^\top F^\top B F x$, B symmetric blocks.

    Value and gradient share the one product with `blocks`, to any order of
    differentiation in `x`, forwards and backwards. The blocks count as constants.
    """
    parts = fold(x)
    return _half_dot(parts, _multiply(blocks, parts))


@half_square.defjvp
def _half_square_jvp(primals, tangents):
    blocks, x = primals
    parts = fold(x)
    products = _multiply(blocks, parts)
    return _half_dot(parts, products), jnp.sum(unfold(products) * tangents[1])


def _multiply(blocks, parts):
    # Vector times matrix, not matrix times vector: under vmap this is one product
    # (particles, m) x (m, m) for each block, with no transpose of the result.
    return tuple(
        jnp.matmul(part.reshape(-1), block, precision="highest").reshape(part.shape)
        for block, part in zip(blocks, parts, strict=True)
    )


def _half_dot(parts, products):
    dots = [jnp.sum(a * b) for a, b in zip(parts, products, strict=True)]
    return 0.5 * jnp.asarray(sum(dots))


def _fold(x: Any, axis: int) -> tuple[Any, Any]:
    xp = np if isinstance(x, np.ndarray) else jnp
    size = x.shape[axis]
    low, middle, high = (
        x[(slice(None),) * axis + (part,)] for part in _thirds(size // 2, size)
    )
    high = xp.flip(high, axis)
    even = low + high
    if size % 2:
        even = xp.concatenate([even, middle], axis)
    return even, low - high


def _unfold(even: Array, odd: Array, axis: int) -> Array:
    half = odd.shape[axis]
    pairs, middle = jnp.split(even, [half], axis)
    parts = [pairs + odd, middle, jnp.flip(pairs - odd, axis)]
    return jnp.concatenate(parts if middle.size else parts[::2], axis)


def _thirds(half: int, size: int) -> tuple[slice, slice, slice]:
    return slice(0, half), slice(half, size - half), slice(size - half, size)

r"""Convolutions on half a lattice, as shifts of rows and small products.

Arrays have axes (channels, sites). Under `jax.vmap` these operations put the particle
axis last, so that a shift copies long rows, and the sum over channels is one product
of a small matrix with a very wide one: at paper scale several times faster than a
convolution, and than the same sums with the particle axis first. They are primitives
because nothing else lets a function choose where its batch axis goes, and because
their adjoints, left to automatic differentiation, would scatter and transpose:

- `spread` stacks permuted copies of the sites; `collect`, its adjoint, permutes back
  and adds up;
- `mix` is a product along the channels; its adjoints are a `mix`, and one product over
  sites and particles at once.

Both modes of differentiation work to any order.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float


class Permutations:
    """A stack of permutations of the sites; compared by identity, so keep it.

    Args:
        forward: Row t holds, for each site, the site that copy t takes it from.
    """

    def __init__(self, forward: np.ndarray):
        self.forward = forward

    @property
    def count(self) -> int:
        """Number of copies."""
        return self.forward.shape[0]

    @functools.cached_property
    def inverse(self) -> "Permutations":
        """The inverse of each."""
        return Permutations(np.argsort(self.forward, axis=1))


def spread(
    x: Float[Array, "channels sites"], permutations: Permutations
) -> Float[Array, "copied sites"]:
    """Stack the permuted copies of all channels: copy is the slower index."""
    return _spread.bind(x, permutations=permutations)


def collect(
    x: Float[Array, "copied sites"], permutations: Permutations
) -> Float[Array, "channels sites"]:
    """Undo the permutation of each copy, and add them up: the adjoint of `spread`."""
    return _collect.bind(x, permutations=permutations)


def mix(
    weight: Float[Array, "out channels"], x: Float[Array, "channels sites"]
) -> Float[Array, "out sites"]:
    """Product along the channels."""
    dtype = jnp.result_type(weight, x)
    return _mix.bind(weight.astype(dtype), x.astype(dtype))


def append_ones(x: Float[Array, "channels sites"]) -> Float[Array, "more sites"]:
    """A further channel of ones, which turns a bias into a weight.

    Adding a bias would broadcast, and that moves the particle axis to the front.
    """
    return jax.lax.pad(x, jnp.ones((), x.dtype), ((0, 1, 0), (0, 0, 0)))


def materialise(x: Float[Array, "1 sites"]) -> Float[Array, "1 sites"]:
    """The same values, computed once and stored: a product that changes nothing.

    XLA would repeat the computation for every shifted copy that reads them (on CPU it
    drops `jax.lax.optimization_barrier` before it decides).
    """
    return mix(jnp.array([[1.0, 0.0]], x.dtype), append_ones(x))


def _define(name: str, rows: Callable, implementation: Callable, **static) -> Primitive:
    """A primitive that maps (channels, sites, *batch) to (rows, sites, *batch)."""
    primitive = Primitive(name)
    primitive.def_impl(jax.jit(implementation, **static))
    primitive.def_abstract_eval(
        lambda *args, **params: args[-1].update(
            shape=(rows(*args, **params), *args[-1].shape[1:])
        )
    )
    mlir.register_lowering(
        primitive, mlir.lower_fun(implementation, multiple_results=False)
    )
    return primitive


def _gather(x: Array, index: np.ndarray) -> Array:
    """Rows of (channels, sites) by their position in the flattened pair."""
    flat = x.reshape(-1, *x.shape[2:])
    return flat.at[index.reshape(-1)].get(mode="promise_in_bounds")


def _spread_rows(x: Array, *, permutations: Permutations) -> Array:
    channels, sites = x.shape[:2]
    index = np.arange(channels)[:, None] * sites + permutations.forward[:, None]
    return _gather(x, index).reshape(-1, *x.shape[1:])


def _collect_rows(x: Array, *, permutations: Permutations) -> Array:
    count, (rows, sites) = permutations.count, x.shape[:2]
    start = np.arange(rows).reshape(count, -1, 1) * sites
    copies = _gather(x, start + permutations.inverse.forward[:, None])
    if count == 1:
        return copies.reshape(x.shape)
    # As a product: XLA would repeat a sum of slices in every loop that reads it, and
    # its reduction over a leading axis is slow.
    ones, stacked = jnp.ones(count, x.dtype), copies.reshape(count, -1)
    total = jnp.matmul(ones, stacked, precision="highest")
    return total.reshape(-1, *x.shape[1:])


def _mix_rows(weight: Array, x: Array) -> Array:
    product = jnp.matmul(weight, x.reshape(x.shape[0], -1), precision="highest")
    return product.reshape(-1, *x.shape[1:])


_spread = _define(
    "spread",
    lambda x, permutations: x.shape[0] * permutations.count,
    _spread_rows,
    static_argnames="permutations",
)
_collect = _define(
    "collect",
    lambda x, permutations: x.shape[0] // permutations.count,
    _collect_rows,
    static_argnames="permutations",
)
_mix = _define("mix", lambda weight, x: weight.shape[0], _mix_rows)


def _batch_last(primitive: Primitive, args, axes, **params) -> tuple[Array, int]:
    *rest, x = args
    out: Any = primitive.bind(*rest, jnp.moveaxis(x, axes[-1], -1), **params)
    return out, out.ndim - 1


def _batch_mix(args, axes) -> tuple[Array, int]:
    if axes[0] is None:
        return _batch_last(_mix, args, axes)
    return jax.vmap(_mix_rows, axes)(*args), 0


batching.primitive_batchers[_spread] = functools.partial(_batch_last, _spread)
batching.primitive_batchers[_collect] = functools.partial(_batch_last, _collect)
batching.primitive_batchers[_mix] = _batch_mix

ad.deflinear2(_spread, lambda ct, _, **params: [_collect.bind(ct, **params)])
ad.deflinear2(_collect, lambda ct, _, **params: [_spread.bind(ct, **params)])
ad.defbilinear(
    _mix,
    lambda ct, _, x: ct.reshape(ct.shape[0], -1) @ x.reshape(x.shape[0], -1).T,
    lambda ct, weight, _: _mix.bind(weight.T, ct),
)

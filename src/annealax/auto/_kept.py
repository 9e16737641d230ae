"""Pieces of a call that are kept, for a call that goes on with it."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from annealax._work.checkpoint import Checkpoint


class Kept:
    """Pieces by name.

    Args:
        store: Where they are kept; None to keep nothing.
        identity: What the work is: pieces of other work are an error.
    """

    def __init__(self, store: Checkpoint | None, identity: Mapping[str, Any]):
        self._store = store
        self._identity = identity

    def saved(self, name: str, like: Any) -> Any:
        """What an earlier call left under this name, or None."""
        if self._store is None:
            return None
        saved = self._store.child(name).latest(self._identity)
        return None if saved is None else saved.restore(like)

    def once(self, name: str, compute: Callable[[], Any], like: Any = None) -> Any:
        """What `compute()` gives, computed only if it was not kept before.

        Args:
            name: Name of the piece.
            compute: Makes it.
            like: A piece of the same structure; None to find it by tracing `compute`.
        """
        if self._store is None:
            return compute()
        if like is None:
            like = eqx.filter_eval_shape(compute)
            like = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
        return self._store.once(name, compute, identity=self._identity, like=like)

"""Derivatives of discarded numbers do not come through."""

import jax
import jax.numpy as jnp
import numpy as np

from annealax._cotangents import gate, shield


def test_the_shield_hides_only_what_was_discarded():
    def root(x, discarded):
        x, token = shield(x)
        return jnp.where(discarded, 0, gate(jnp.sqrt(x), token, discarded))

    zero = jnp.zeros(())
    assert float(jax.grad(root)(zero, jnp.asarray(True))) == 0
    assert float(jax.grad(root)(zero, jnp.asarray(False))) == np.inf
    assert float(jax.grad(root)(jnp.asarray(4.0), jnp.asarray(False))) == 0.25

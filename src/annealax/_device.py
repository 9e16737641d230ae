"""Arrays of the host, brought to the device without compiling anything.

`jnp.asarray` of an array that has another type, or is seen with its shape for the first
time, compiles a small program; there would be tens of them.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, DTypeLike


def to_device(values: Any, dtype: DTypeLike | None = None) -> Array:
    """Numbers in the precision in use, unless a type is given."""
    wanted = jnp.result_type(float) if dtype is None else dtype
    return jax.device_put(np.asarray(values, wanted))

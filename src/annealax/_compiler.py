"""Keeps JAX's compiler from a fault that makes numbers wrong.

jaxlib 0.10.2, the newest for Python 3.11, computes `sum((A @ x)**2)` of many points
wrongly on the CPU, from the 16 385th on in double and the 32 769th on in single
precision (jax issue 39103; 0.10.1 and 0.12 are right). The fault lies in one kind of
fused operation, which is switched off here; no number of ours changes by that.
"""

import os
import sys
import warnings

import jaxlib

_FAULTY = ("0.10.2",)
_SWITCH = "--xla_cpu_experimental_ynn_fusion_type"


def avoid_faults() -> None:
    """Switch faulty operations off, before the first program is compiled."""
    flags = os.environ.get("XLA_FLAGS", "")
    if jaxlib.__version__ not in _FAULTY or _SWITCH in flags:
        return
    os.environ["XLA_FLAGS"] = f"{flags} {_SWITCH}=".strip()
    bridge = sys.modules.get("jax._src.xla_bridge")  # JAX takes a second to import
    if bridge is not None and bridge.backends_are_initialized():
        warnings.warn(
            f"jaxlib {jaxlib.__version__} computes some sums over more than 16 384 "
            "points wrongly, and JAX was in use before annealax was imported: import "
            f"annealax first, set XLA_FLAGS={_SWITCH}= or install jax 0.10.1",
            stacklevel=3,
        )

"""What a compiled program needs, as the compiler says."""

from typing import Any


def peak_memory(compiled: Any) -> int:
    """Bytes for inputs, outputs and intermediate results of a compiled program.

    Args:
        compiled: What `eqx.filter_jit(...).lower(...).compile()` returns.
    """
    analysis = compiled.compiled.memory_analysis()
    if analysis is None:  # some backends do not tell
        return 0
    return int(
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        + analysis.temp_size_in_bytes
        - analysis.alias_size_in_bytes
    )

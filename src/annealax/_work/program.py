"""Programs compiled ahead of their first call, and what that took."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple


class Program(NamedTuple):
    """A compiled program.

    Attributes:
        run: The program, as a function of what it was compiled for.
        compile_seconds: Time to trace and compile it.
        memory: Bytes for its inputs, outputs and intermediate results.
    """

    run: Callable[..., Any]
    compile_seconds: float
    memory: int


def compile_ahead(function: Any, *arguments: Any) -> Program:
    """Compile a function that `eqx.filter_jit` made, for arguments like these."""
    began = time.perf_counter()
    compiled = function.lower(*arguments).compile()
    return Program(compiled, time.perf_counter() - began, _peak_memory(compiled))


def _peak_memory(compiled: Any) -> int:
    analysis = compiled.compiled.memory_analysis()
    if analysis is None:  # some backends do not tell
        return 0
    return int(
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        + analysis.temp_size_in_bytes
        - analysis.alias_size_in_bytes
    )

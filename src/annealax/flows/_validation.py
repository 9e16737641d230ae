"""Checks shared by the flow builders."""

from collections.abc import Sequence

from annealax._errors import InvalidInputError


def check_shape(shape: Sequence[int] | int) -> tuple[int, ...]:
    """A shape as a tuple; a number is the length of a vector."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if not sizes or not all(isinstance(n, int) and n > 0 for n in sizes):
        raise InvalidInputError(
            f"the shape of a flow must be positive whole numbers, got {shape}"
        )
    return sizes


def check_widths(name: str, widths: Sequence[int]) -> tuple[int, ...]:
    """Widths of the hidden layers as a tuple."""
    sizes = tuple(widths)
    if not all(isinstance(n, int) and n > 0 for n in sizes):
        raise InvalidInputError(
            f"{name} must be positive whole numbers, one per hidden layer, got {widths}"
        )
    return sizes

r"""A density whose sums of exponentials are taken in logarithms.

$$\log(0.3\, e^{a(x)} + 0.7\, e^{b(x)})$$

as many write it is zero and has no gradient wherever both exponentials underflow, and
does not show what its terms are. Its program says what to compute instead: what is an
exponential, or a product or a sum of such, has a logarithm that needs no exponential.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp
from jaxtyping import Array, Float

_CALLS = ("jit", "pjit", "closed_call")
"""Steps that run a program once."""

_MOVES = (
    "broadcast_in_dim", "reshape", "squeeze", "slice", "transpose", "dynamic_slice",
    "gather", "rev", "convert_element_type", "copy",
)  # fmt: skip
"""Steps that move numbers and leave them as they are."""


class InLogarithms(eqx.Module):
    """The same log density, by a program in which nothing underflows on the way.

    Attributes:
        log_density: A function of one vector.
    """

    log_density: Callable[[Array], Array]

    def __call__(self, x: Float[Array, " size"]) -> Float[Array, ""]:
        """Log density of one vector."""
        closed = jax.make_jaxpr(self.log_density)(x)
        ((value, _),) = _run(closed.jaxpr, closed.consts, [(x, None)])
        return value


def _run(program: Any, constants: Any, inputs: list[Any]) -> list[Any]:
    """Values of what a program returns, each with its logarithm if that is known."""
    known = {
        variable: (value, None)
        for variable, value in zip(program.constvars, constants, strict=True)
    }
    known.update(zip(program.invars, inputs, strict=True))

    def read(variable: Any) -> Any:
        return (variable.val, None) if hasattr(variable, "val") else known[variable]

    for step in program.eqns:
        given = [read(each) for each in step.invars]
        body = step.params.get("jaxpr") if step.primitive.name in _CALLS else None
        if body is not None:
            results = _run(body.jaxpr, body.consts, given)
        elif step.primitive.name == "log" and given[0][1] is not None:
            results = [(given[0][1], None)]
        elif step.primitive.name == "log1p" and given[0][1] is not None:
            results = [(jnp.logaddexp(given[0][1], 0.0), None)]
        else:
            first, *others = _bind(step, [value for value, _ in given])
            results = [(first, _logarithm(step, given))]
            results += [(other, None) for other in others]
        known.update(zip(step.outvars, results, strict=True))
    return [read(each) for each in program.outvars]


def _bind(step: Any, values: list[Any]) -> list[Any]:
    options = step.primitive.get_bind_params(step.params)
    results = step.primitive.bind(*values, **options)
    return results if step.primitive.multiple_results else [results]


def _logarithm(step: Any, given: list[Any]) -> Any:
    """The logarithm of what a step makes, from those of what it takes; or None."""
    name = step.primitive.name
    if name == "exp":
        return given[0][0]
    if all(logarithm is None for _, logarithm in given):
        return None
    if name in _MOVES and given[0][1] is not None:
        return _bind(step, [given[0][1], *(value for value, _ in given[1:])])[0]
    rule = _RULES.get(name)
    return None if rule is None else rule([_log(*each) for each in given], step.params)


def _log(value: Any, logarithm: Any) -> Any:
    """It is taken of a factor or a term that comes without; on the host of a number."""
    if logarithm is not None:
        return logarithm
    with np.errstate(divide="ignore", invalid="ignore"):
        return jnp.log(value) if isinstance(value, jax.Array) else np.log(value)


def _of_sum(logs: list[Any], options: dict) -> Any:
    """Python's `sum` begins with zero."""
    del options
    one, two = logs
    if _is_log_of_zero(one):
        return two
    return one if _is_log_of_zero(two) else jnp.logaddexp(one, two)


def _is_log_of_zero(value: Any) -> bool:
    constant = not isinstance(value, jax.core.Tracer)
    return constant and bool(np.all(np.asarray(value) == -np.inf))


def _of_products(logs: list[Any], options: dict) -> Any:
    """Weights times terms, added up along one axis."""
    one, two = logs
    (left, right), batched = options["dimension_numbers"]
    if min(one.ndim, two.ndim) != 1 or any(batched) or len(left) != 1:
        return None
    factors = jnp.moveaxis(one, left[0], -1) + jnp.moveaxis(two, right[0], -1)
    return logsumexp(factors, axis=-1)


_RULES: dict[str, Callable[[list[Any], dict], Any]] = {
    "mul": lambda logs, options: logs[0] + logs[1],
    "div": lambda logs, options: logs[0] - logs[1],
    "integer_pow": lambda logs, options: options["y"] * logs[0],
    "square": lambda logs, options: 2 * logs[0],
    "sqrt": lambda logs, options: 0.5 * logs[0],
    "reduce_prod": lambda logs, options: jnp.sum(logs[0], options["axes"]),
    "reduce_sum": lambda logs, options: logsumexp(logs[0], options["axes"]),
    "concatenate": lambda logs, options: jnp.concatenate(logs, options["dimension"]),
    "add": _of_sum,
    "dot_general": _of_products,
}
"""From logarithms of what a step takes, and its options, that of what it makes."""

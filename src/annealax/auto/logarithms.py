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

from annealax._device import to_device
from annealax._jit import quick_jit
from annealax.auto.density import FreeDensity
from annealax.auto.sums import bind
from annealax.auto.terms import terms_of

_CALLS = ("jit", "pjit", "closed_call")
"""Steps that run a program once."""

_MOVES = (
    "broadcast_in_dim", "reshape", "squeeze", "slice", "transpose", "dynamic_slice",
    "gather", "rev", "convert_element_type", "copy",
)  # fmt: skip
"""Steps that move numbers and leave them as they are."""

_SLACK = 1e-4
"""Two forms of a density agree up to this share, and a hundred times this in nats."""


class InLogarithms(eqx.Module):
    """The same log density, by a program in which nothing underflows on the way.

    Attributes:
        log_density: A function of one point.
    """

    log_density: Callable[[Any], Array]

    def __call__(self, point: Any) -> Float[Array, ""]:
        """Log density of one point."""
        value, _ = self._value(point)
        return value

    def changes(self, point: Any) -> bool:
        """Whether there is a logarithm of exponentials.

        Args:
            point: Shapes and types of a point.
        """
        counts: list[int] = []
        jax.eval_shape(lambda point: counts.append(self._value(point)[1]), point)
        return counts[0] > 0

    def _value(self, point: Any) -> tuple[Array, int]:
        closed = jax.make_jaxpr(self.log_density)(point)
        inputs = [(leaf, None) for leaf in jax.tree.leaves(point)]
        taken: list[str] = []
        ((value, _),) = _run(closed.jaxpr, closed.consts, inputs, taken)
        return value, len(taken)


def without_underflow(free: FreeDensity, points: np.ndarray) -> FreeDensity:
    """The density with its sums of exponentials in logarithms, if it has any.

    And if that is the same density wherever the first form is not zero: a negative
    factor, say, has no logarithm.

    Args:
        free: The density.
        points: Vectors at which the two are compared.
    """
    form = InLogarithms(free.log_density)
    other = eqx.tree_at(lambda each: each.log_density, free, form)
    vector: Any = jax.ShapeDtypeStruct(points.shape[1:], jnp.result_type(float))
    value, _ = eqx.filter_eval_shape(free.space.constrain, vector)
    if not form.changes(value) or terms_of(free, points) is not None:
        return free
    if terms_of(other, points) is None:
        return free
    one, two = jax.device_get(_both(free, other, to_device(points)))
    seen = np.isfinite(one)
    agree = np.allclose(two[seen], one[seen], _SLACK, 100 * _SLACK)
    return other if agree and not np.isnan(two).any() else free


@quick_jit
def _both(one: FreeDensity, two: FreeDensity, points: Array) -> tuple[Array, Array]:
    return jax.vmap(one)(points), jax.vmap(two)(points)


def _run(
    program: Any, constants: Any, inputs: list[Any], taken: list[str]
) -> list[Any]:
    """Values of what a program returns, each with its logarithm if that is known.

    Args:
        program: A program (a jaxpr).
        constants: Its constants.
        inputs: Its inputs, each with its logarithm or None.
        taken: Steps that take a known logarithm are added here.
    """
    known = {
        variable: (value, None)
        for variable, value in zip(program.constvars, constants, strict=True)
    }
    known.update(zip(program.invars, inputs, strict=True))

    def read(variable: Any) -> Any:
        return (variable.val, None) if hasattr(variable, "val") else known[variable]

    for step in program.eqns:
        given = [read(each) for each in step.invars]
        name = step.primitive.name
        body = step.params.get("jaxpr") if name in _CALLS else None
        if body is not None:
            results = _run(body.jaxpr, body.consts, given, taken)
        elif name in ("log", "log1p") and given[0][1] is not None:
            taken.append(name)
            logarithm = given[0][1]
            if name == "log1p":
                logarithm = jnp.logaddexp(logarithm, 0.0)
            results = [(logarithm, None)]
        else:
            first, *others = bind(step, [value for value, _ in given])
            results = [(first, _logarithm(step, given))]
            results += [(other, None) for other in others]
        known.update(zip(step.outvars, results, strict=True))
    return [read(each) for each in program.outvars]


def _logarithm(step: Any, given: list[Any]) -> Any:
    """The logarithm of what a step makes, from those of what it takes; or None."""
    name = step.primitive.name
    if name == "exp":
        return given[0][0]
    if all(logarithm is None for _, logarithm in given):
        return None
    if name in _MOVES and given[0][1] is not None:
        return bind(step, [given[0][1], *(value for value, _ in given[1:])])[0]
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

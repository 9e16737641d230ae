"""Sums in a traced program, and how to run it with some of their terms left out.

Looked for are `log(sum(exp(terms)))` along one axis, with or without the largest term
taken out, and JAX's `logaddexp`; in programs that a program calls once, not in loops.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

ALL = -1
"""A choice: every term."""

_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call")
"""Steps of a program that run another once."""


@dataclasses.dataclass(frozen=True)
class Sum:
    """A sum in a program.

    Attributes:
        path: Steps that lead to the program that it is in, from outside.
        readers: Steps there that read the logarithms of its terms.
        log: The step that takes the logarithm.
        axis: Along which the terms lie; None for the two operands of `logaddexp`.
        rows: Shape of the sums: several that are alike.
        num_terms: How many each has.
    """

    path: tuple[int, ...]
    readers: tuple[int, ...]
    log: int
    axis: int | None
    rows: tuple[int, ...]
    num_terms: int

    @property
    def num_rows(self) -> int:
        """How many sums."""
        return math.prod(self.rows)

    @property
    def num_ways(self) -> int:
        """In how many ways one term of each can be chosen."""
        return self.num_terms**self.num_rows


class Rule(NamedTuple):
    """What to make of a sum: which terms, and what is added to its logarithm."""

    choice: Int[Array, "*rows"]
    shift: Float[Array, "*rows"]


class _Stage(NamedTuple):
    """How far a variable is on the way from terms to the logarithm of their sum."""

    kind: str
    source: Any
    axis: int | None
    readers: tuple[int, ...]


_NEXT = {
    ("largest", "max"): "largest",
    ("largest", "select_n"): "largest",
    ("largest", "stop_gradient"): "largest",
    ("largest", "broadcast_in_dim"): "largest",
    ("largest", "reshape"): "largest",
    ("shifted", "exp"): "exponential",
    ("exponential", "mul"): "exponential",
    ("exponential", "reduce_sum"): "sum",
    ("sum", "abs"): "sum",
    ("sum", "broadcast_in_dim"): "sum",
    ("sum", "reshape"): "sum",
    ("sum", "log"): "logarithm",
}
"""What a step makes of a variable: the kind of its result."""


def sums_in(program: Any) -> Iterator[Sum]:
    """Sums whose terms depend on the inputs of a program (a jaxpr)."""
    yield from _sums(program, [True] * len(program.invars), ())


def _sums(program: Any, moves: list[bool], path: tuple[int, ...]) -> Iterator[Sum]:
    moving = {each for each, does in zip(program.invars, moves, strict=True) if does}
    stages: dict[Any, _Stage] = {}
    for index, step in enumerate(program.eqns):
        inputs = [None if _is_literal(each) else each for each in step.invars]
        if moving.isdisjoint(inputs):
            continue
        moving.update(step.outvars)
        out = step.outvars[0]
        if _is_logaddexp(step):
            yield Sum(path, (index,), index, None, out.aval.shape, 2)
        elif (body := _body(step)) is not None:
            inner = [each in moving for each in inputs]
            yield from _sums(body.jaxpr, inner, (*path, index))
        elif (stage := _next(step, index, inputs, stages)) is not None:
            stages[out] = stage
            if stage.kind == "logarithm" and stage.axis is not None:
                shape = stage.source.aval.shape
                rows = shape[: stage.axis] + shape[stage.axis + 1 :]
                if math.prod(rows) == math.prod(out.aval.shape):
                    count = shape[stage.axis]
                    yield Sum(path, stage.readers, index, stage.axis, rows, count)


def _next(  # noqa: PLR0911 (a kind of step a line)
    step: Any, index: int, inputs: list[Any], stages: dict[Any, _Stage]
) -> _Stage | None:
    """What a step makes of terms, their largest, or their sum; None of others."""
    name = step.primitive.name
    known = [stages[each] for each in inputs if each in stages]
    axes = step.params.get("axes", ())
    axis = axes[0] if len(axes) == 1 else None
    if name == "reduce_max" and axis is not None:
        return _Stage("largest", inputs[0], axis, (index,))
    if name == "exp" and not known:
        return _Stage("exponential", inputs[0], None, (index,))
    if not known:
        return None
    stage = known[-1] if name == "sub" else known[0]
    if name == "sub" and stage.kind == "largest" and stage.source is inputs[0]:
        return stage._replace(kind="shifted", readers=(*stage.readers, index))
    if name == "reduce_sum" and (axis is None or stage.axis not in (None, axis)):
        return None
    kind = _NEXT.get((stage.kind, name))
    if kind is None:
        return None
    return stage._replace(kind=kind, axis=axis if name == "reduce_sum" else stage.axis)


def _is_literal(variable: Any) -> bool:
    return hasattr(variable, "val")


def _is_logaddexp(step: Any) -> bool:
    """Whether it is that of JAX, by what it does."""
    if step.primitive.name != "custom_jvp_call" or len(step.invars) != 2:
        return False
    body = _body(step)
    steps = {each.primitive.name for each in body.jaxpr.eqns} if body else set()
    return {"max", "sub", "abs", "exp", "log1p"} <= steps


def _body(step: Any) -> Any:
    """The program that a step runs once, with its constants; None for other steps."""
    if step.primitive.name not in _CALLS:
        return None
    body = step.params.get("jaxpr", step.params.get("call_jaxpr"))
    return body if hasattr(body, "consts") else None


def run(closed: Any, inputs: Any, rules: Mapping[Sum, Rule]) -> list[Any]:
    """Run a program (a closed jaxpr) by rules for some of its sums."""
    return _run(closed, inputs, rules, ())


def _run(
    closed: Any, inputs: Any, rules: Mapping[Sum, Rule], path: tuple[int, ...]
) -> list[Any]:
    program = closed.jaxpr
    values = dict(zip(program.constvars, closed.consts, strict=True))
    values.update(zip(program.invars, inputs, strict=True))

    def read(variables: Any) -> list[Any]:
        return [each.val if _is_literal(each) else values[each] for each in variables]

    for index, step in enumerate(program.eqns):
        below, given = (*path, index), read(step.invars)
        if any(each.path[: len(below)] == below for each in rules):
            results = _run(_body(step), given, rules, below)
        else:
            results = _step(step, given, index, _here(rules, path))
        values.update(zip(step.outvars, results, strict=True))
    return read(program.outvars)


def bind(step: Any, given: list[Any]) -> list[Any]:
    """The results of a step as it stands."""
    options = step.primitive.get_bind_params(step.params)
    results = step.primitive.bind(*given, **options)
    return results if step.primitive.multiple_results else [results]


def _here(rules: Mapping[Sum, Rule], path: tuple[int, ...]) -> dict[Sum, Rule]:
    return {each: rule for each, rule in rules.items() if each.path == path}


def _step(
    step: Any, given: list[Any], index: int, rules: Mapping[Sum, Rule]
) -> list[Any]:
    """The results of one step that calls no sum."""
    for each, rule in rules.items():
        if index not in each.readers:
            continue
        if each.axis is None:
            both = jnp.logaddexp(*given)
            which = [rule.choice == 0, rule.choice == 1]
            return [jnp.select(which, given, both) + rule.shift]
        given = [_masked(given[0], rule.choice, each.axis), *given[1:]]
    results = bind(step, given)
    for each, rule in rules.items():
        if index == each.log:
            results = [results[0] + rule.shift.reshape(results[0].shape)]
    return results


def _masked(terms: Array, choice: Array, axis: int) -> Array:
    """Logarithms of terms, of which those not chosen are zero."""
    chosen = jnp.expand_dims(choice, axis)
    shape = [1] * terms.ndim
    shape[axis] = terms.shape[axis]
    numbers = np.arange(terms.shape[axis]).reshape(shape)
    return jnp.where((chosen == ALL) | (numbers == chosen), terms, -jnp.inf)

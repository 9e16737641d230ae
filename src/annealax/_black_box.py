"""Densities that are not written in JAX: NumPy, SciPy, C, a program.

`black_box` makes of such a function one that JAX can call. A whole population is
evaluated per call, in few and large tasks, here or on workers; points that were
evaluated lately are not evaluated again. There is no gradient.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from annealax._errors import InvalidInputError
from annealax._work.executors import Workers, as_workers, check_sendable
from annealax._work.rows import Rows

_TASKS_EACH = 4
"""Tasks for each worker of a population: points take unlike times."""

_REMEMBERED = 50_000
"""Points whose values are kept: a population and its proposals, several times."""

_SURELY_WRONG = 8
"""A function that raises at so many points and has never worked is a mistake."""

_TELL_EVERY = 5.0
"""Seconds between lines of progress."""


class Calls(NamedTuple):
    """What became of the calls of a black box.

    Attributes:
        made: Calls of the function.
        failed: Those that raised an exception; they count as density zero.
        nan: Those that gave NaN; so do they.
        error: The first exception, in words.
    """

    made: int = 0
    failed: int = 0
    nan: int = 0
    error: str = ""

    def since(self, before: "Calls") -> "Calls":
        """Those after what was counted before."""
        return Calls(
            self.made - before.made,
            self.failed - before.failed,
            self.nan - before.nan,
            self.error,
        )

    def __str__(self) -> str:
        """In words."""
        failed = f", {self.failed} of which failed" if self.failed else ""
        return f"{self.made} calls of the density{failed}"


class BlackBox(eqx.Module):
    """A function of one point that JAX can call but not differentiate.

    Attributes:
        function: The function.
        names: Names of the parameters; empty if there is only one, without a name.
        shapes: Their shapes.
        support: Where parameters may lie, as in `annealax.sample`.
        vectorised: Whether the function takes many points at once.
    """

    function: Callable[[Any], Any] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    support: Any
    vectorised: bool = eqx.field(static=True)
    _caller: "_Caller" = eqx.field(static=True)

    def __call__(self, value: Any) -> Float[jax.Array, ""]:
        """Log density of one point."""
        dtype = jnp.result_type(float)
        leaves = [value[name] for name in self.names] if self.names else [value]
        parts = [jnp.asarray(leaf, dtype).reshape(-1) for leaf in leaves]
        return _call(self._caller, jnp.concatenate(parts))

    @property
    def shape(self) -> Any:
        """Shape of a point, or shapes by name."""
        if not self.names:
            return self.shapes[0]
        return dict(zip(self.names, self.shapes, strict=True))

    @property
    def calls(self) -> Calls:
        """What became of all calls so far."""
        return self._caller.calls

    def close(self) -> None:
        """End worker processes that were started; another call starts new ones."""
        self._caller.close()

    def listen(self, tell: Callable[[str], None] | None) -> None:
        """Be told now and then how many calls were made; None to stop that."""
        self._caller.tell = tell

    def failure(self) -> Exception | None:
        """What made a call give up, once; JAX shows it as an error of its own."""
        error, self._caller.error = self._caller.error, None
        return error


def black_box(
    function: Callable[[Any], Any],
    shape: int | Sequence[int] | Mapping[str, int | Sequence[int]],
    executor: Any = None,
    *,
    support: Any = None,
    vectorised: bool = False,
) -> BlackBox:
    """Make a density of any Python function, without JAX and without gradient.

    `annealax.sample` takes it as it is. In a `Sampler` of your own it needs kernels
    without gradient: `kernels.RandomWalk` or `kernels.EnsembleWalk`.

    Args:
        function: The log density (with `prior=` of `annealax.sample`, the log
            likelihood) of one point: a NumPy array of the shape given, in double
            precision, or a dict of them. It must always give the same value at the
            same point. Where it raises or gives NaN the density counts as zero, and
            `warnings()` says how often.
        shape: Shape of a point such as `(3,)`, or a dict of shapes by name.
        executor: Where it is evaluated: None for this process; a number of processes;
            "dask"; or anything with the interface of `concurrent.futures`, such as
            `dask.distributed.Client` (docs/executors.md).
        support: Where parameters may lie, as in `annealax.sample`.
        vectorised: The function takes many points along a first axis, and gives as
            many values.

    Raises:
        InvalidInputError: If the function cannot be called or sent to workers.
    """
    if not callable(function):
        raise InvalidInputError(
            f"the density must be a function of one point; got {function!r}"
        )
    shapes: Any = (
        {str(name): _sizes(each) for name, each in shape.items()}
        if isinstance(shape, Mapping)
        else _sizes(shape)
    )
    rows = Rows(function, shapes, vectorised)
    caller = _Caller(rows, as_workers(executor))
    named = isinstance(shapes, dict)
    names, sizes = (tuple(shapes), tuple(shapes.values())) if named else ((), (shapes,))
    return BlackBox(function, names, sizes, support, vectorised, caller)


def _sizes(shape: int | Sequence[int]) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if not all(isinstance(each, int) and each >= 0 for each in sizes):
        raise InvalidInputError(f"shape must be a tuple such as (3,), got {shape!r}")
    return sizes


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _call(caller: "_Caller", vector: Float[jax.Array, " size"]) -> Float[jax.Array, ""]:
    # As words: callbacks run in a thread of their own, where `jax.enable_x64` does not
    # hold and double precision would be lost on the way.
    words = jax.lax.bitcast_convert_type(vector, jnp.uint32)
    out = jax.ShapeDtypeStruct(words.shape[1:], jnp.uint32)
    evaluate = caller.in_double if vector.dtype == jnp.float64 else caller.in_single
    value = jax.pure_callback(evaluate, out, words, vmap_method="expand_dims")
    return jax.lax.bitcast_convert_type(value, vector.dtype)


@_call.defjvp
def _no_gradient(caller, primals, tangents):
    raise InvalidInputError(
        "this density is a black box and has no gradient, but one was asked for: use "
        "kernels.RandomWalk or kernels.EnsembleWalk, and no flows; or write it in JAX"
    )


class _Caller:
    """Evaluates populations; what JAX calls back.

    In another process it evaluates by itself, without workers of its own.
    """

    __slots__ = ("_known", "_rows", "_told", "_workers", "calls", "error",
                 "tell")  # fmt: skip

    def __init__(self, rows: Rows, workers: Workers | None = None):
        self._rows, self._workers = rows, workers
        if workers is not None:
            check_sendable(rows)
        self._known: dict[bytes, float] = {}
        self._told = time.monotonic()
        self.calls = Calls()
        self.error: Exception | None = None
        self.tell: Callable[[str], None] | None = None

    def __reduce__(self):
        return _Caller, (self._rows,)

    def in_single(self, words: Any) -> np.ndarray:
        """Log densities of points along the leading axes, numbers being words."""
        vectors = np.ascontiguousarray(words).view(np.float32)
        return self._log_densities(vectors).view(np.uint32)

    def in_double(self, words: Any) -> np.ndarray:
        """The same, numbers being pairs of words along a last axis."""
        vectors = np.ascontiguousarray(words).view(np.float64)[..., 0]
        return self._log_densities(vectors)[..., None].view(np.uint32)

    def _log_densities(self, vectors: np.ndarray) -> np.ndarray:
        """Values in the precision of the points."""
        rows = vectors.reshape(-1, vectors.shape[-1]).astype(np.float64)
        try:
            values = self._values(rows)
        except Exception as error:
            self.error = error
            raise
        with np.errstate(over="ignore"):
            return values.reshape(vectors.shape[:-1]).astype(vectors.dtype)

    def close(self) -> None:
        """End workers that were started."""
        if self._workers is not None:
            self._workers.close()

    def _values(self, rows: np.ndarray) -> np.ndarray:
        """Values of points, each place evaluated once."""
        names = [row.tobytes() for row in rows]
        new = {
            name: row
            for name, row in zip(names, rows, strict=True)
            if name not in self._known
        }
        if new:
            found = self._evaluate(np.stack(list(new.values())))
            self._known.update(zip(new, found, strict=True))
        values = np.asarray([self._known[name] for name in names])
        for name in list(self._known)[: max(0, len(self._known) - _REMEMBERED)]:
            del self._known[name]
        return values

    def _evaluate(self, matrix: np.ndarray) -> np.ndarray:
        """Values of new points, here or on workers."""
        if self._workers is None:
            outcomes = {0: self._rows(matrix)}
        else:
            count = min(len(matrix), _TASKS_EACH * self._workers.count)
            tasks = [(chunk,) for chunk in np.array_split(matrix, count)]
            outcomes = dict(self._workers.each(self._rows, tasks))
        parts = [outcomes[index] for index in range(len(outcomes))]
        values = np.concatenate([part for part, _, _ in parts])
        failed = sum(count for _, count, _ in parts)
        reason = next((text for _, _, text in parts if text), "")
        if self.calls.made == 0 and failed == len(matrix) >= _SURELY_WRONG:
            raise InvalidInputError(
                f"the density raised an exception at all of the first {failed} points, "
                f"{reason}; it takes a NumPy array of the shape given, or a dict of "
                "them, and gives one number"
            )
        self.calls = Calls(
            made=self.calls.made + len(matrix),
            failed=self.calls.failed + failed,
            nan=self.calls.nan + int(np.isnan(values).sum()) - failed,
            error=self.calls.error or reason,
        )
        self._say()
        return values

    def _say(self) -> None:
        now = time.monotonic()
        if self.tell is not None and now - self._told > _TELL_EVERY:
            self._told = now
            self.tell(str(self.calls))

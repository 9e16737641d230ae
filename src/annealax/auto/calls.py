"""What `sample` says of a black box: progress, calls that failed, workers that died."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec

import jax

from annealax._black_box import BlackBox, Calls
from annealax._doubts import Doubt
from annealax._work.drive import as_teller
from annealax.auto.result import Sample

_Arguments = ParamSpec("_Arguments")


def counting_calls(
    function: Callable[_Arguments, Sample],
) -> Callable[_Arguments, Sample]:
    """`sample`, where its first argument may be a black box."""

    @functools.wraps(function)
    def wrapped(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Sample:
        box: Any = args[0] if args else kwargs.get("log_density")
        if not isinstance(box, BlackBox):
            return function(*args, **kwargs)
        before = box.calls
        progress: Any = kwargs.get("progress")
        box.listen(as_teller(progress) if progress else None)
        try:
            answer = function(*args, **kwargs)
        except jax.errors.JaxRuntimeError as error:
            cause = box.failure()
            raise error if cause is None else cause from None
        finally:
            box.listen(None)
            box.close()
        calls = box.calls.since(before)
        return dataclasses.replace(
            answer,
            choices={**answer.choices, "calls": str(calls)},
            messages=(*answer.messages, *_doubts(calls)),
        )

    return wrapped


def _doubts(calls: Calls) -> Iterator[Doubt]:
    if calls.failed:
        yield Doubt(
            "failed-calls",
            f"the density raised exceptions in {calls.failed} of {calls.made} calls, "
            f"which count as density zero; the first: {calls.error}",
        )
    if calls.nan:
        yield Doubt(
            "nan-density",
            f"the density was NaN in {calls.nan} of {calls.made} calls, which count as "
            "density zero",
        )

"""A model of plain functions: what is made of the arguments of `annealax.sample`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Array

from annealax._black_box import BlackBox
from annealax._errors import InvalidInputError
from annealax.auto.density import FreeDensity
from annealax.auto.knowledge import Posterior, Prior
from annealax.auto.parameters import Space
from annealax.models.base import Model


class PlainModel(Model):
    """A function of one point and further arguments, and perhaps a prior."""

    function: Callable[..., Array]
    args: tuple[Any, ...]
    space: Space
    prior: Prior | None
    why_no_prior: str
    observed: Mapping[str, Any]
    dims: Mapping[str, tuple[str, ...]]
    coords: Mapping[str, np.ndarray]

    def __init__(
        self,
        function: Callable[..., Array],
        space: Space,
        prior: Prior | None = None,
        args: tuple[Any, ...] = (),
    ):
        self.function, self.args = function, args
        self.space, self.prior = space, prior
        self.why_no_prior = "" if prior else "none was given"
        self.observed, self.dims, self.coords = {}, {}, {}

    def log_likelihood(self, parameters):
        """The function."""
        return self.function(parameters, *self.args)

    def free(self):
        """As a program of which the further arguments are inputs."""
        whole = self.function
        if self.prior is not None:
            whole = Posterior(self.prior, whole)
        return FreeDensity.of(whole, self.space, self.args)


def as_model(
    log_density: Any,
    shape: Any,
    support: Any,
    prior: Prior | None = None,
    args: Sequence[Any] = (),
) -> Model:
    """What the arguments of `sample` say, or the model that is its first argument.

    Raises:
        InvalidInputError: If they do not fit together.
    """
    if isinstance(log_density, Model):
        given = {
            "shape": shape,
            "support": support,
            "prior": prior,
            "args": args or None,
        }
        if named := [name for name, each in given.items() if each is not None]:
            raise InvalidInputError(
                f"a model has {', '.join(named)} of its own: leave out "
                f"{' and '.join(f'{name}=' for name in named)}"
            )
        return log_density.prepared()
    if isinstance(log_density, BlackBox) and support is None and prior is None:
        support = log_density.support
    if not callable(log_density):
        raise InvalidInputError(
            "log_density must be a function of one point, or a model such as "
            f"annealax.from_numpyro(...); got {log_density!r}"
        )
    if prior is not None:
        shape = prior.shapes() if shape is None else shape
        support = prior.supports() if support is None else support
    if shape is None:
        shape = getattr(log_density, "shape", None)
    if shape is None:
        raise InvalidInputError(
            "shape is needed: the shape of one point such as (2,), or a dict of "
            "shapes by name"
        )
    if not isinstance(args, tuple | list):
        raise InvalidInputError(
            "args must be a tuple of further arguments of the density, such as "
            f"(data,); got {type(args).__name__}"
        )
    return PlainModel(log_density, Space(shape, support), prior, tuple(args))

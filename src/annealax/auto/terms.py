r"""Terms of a density that is written as a sum.

Where the program of a log density computes

$$\log p(x) = g(x) + \log \sum_j e^{a_j(x)},$$

it says more than its values do: each term $g + a_j$ is a log density of its own, whose
ascents lead to a mode however narrow, also where the gradient of the sum does not. All
of the mass is in the terms.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from annealax._device import to_device
from annealax._jit import quick_jit
from annealax._path import sanitise
from annealax.auto.starts.parts import AbstractDivision
from annealax.auto.sums import ALL, Rule, Sum, run, sums_in

MAX_TERMS = 32
"""More terms are not climbed one by one: a mixture likelihood has one for each way to
assign its data."""

_SLACK = 1e-4
"""A sum enters the log density with a factor of one, up to rounding."""


class Chosen(eqx.Module):
    """A log density of which some of the terms are chosen.

    Attributes:
        log_density: The whole.
        choice: For each sum a term, or minus one for all.
    """

    log_density: Callable[[Array], Array]
    choice: Int[Array, " sums"]
    sums: tuple[Sum, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, log_density: Callable[[Array], Array], sums: Sequence[Sum]) -> "Chosen":
        """All of the terms."""
        every = np.full(sum(each.num_rows for each in sums), ALL)
        return cls(log_density, to_device(every, np.int32), tuple(sums))

    def __call__(self, x: Float[Array, " size"]) -> Float[Array, ""]:
        """Log density of what is chosen."""
        return self.shifted(x, jnp.zeros(self.choice.shape, x.dtype))

    def shifted(self, x: Float[Array, " size"], shift: Float[Array, " sums"]) -> Array:
        """The same with a number added to the logarithm of each sum."""
        closed = jax.make_jaxpr(self.log_density)(x)
        bounds = np.cumsum([each.num_rows for each in self.sums])[:-1]
        rules = {
            each: Rule(choice.reshape(each.rows), more.reshape(each.rows))
            for each, choice, more in zip(
                self.sums,
                jnp.split(self.choice, bounds),
                jnp.split(shift, bounds),
                strict=True,
            )
        }
        (value,) = run(closed, (x,), rules)
        return value


class Terms(NamedTuple):
    """The terms of a density.

    Attributes:
        whole: The density with all of them.
        choices: A row for each term: what is chosen of each sum.
    """

    whole: Chosen
    choices: Int[np.ndarray, "terms sums"]

    def each(self) -> Iterator[Chosen]:
        """The terms, one by one; all have the same program."""
        for choice in self.choices:
            yield eqx.tree_at(
                lambda one: one.choice, self.whole, to_device(choice, np.int32)
            )


def terms_of(
    log_density: Callable[[Array], Array], points: Float[np.ndarray, "points size"]
) -> Terms | None:
    """The terms that a density is the sum of; None if it is not written as one.

    Args:
        log_density: A function of one vector.
        points: Where it is looked whether the sums add up to the density.
    """
    point = jax.ShapeDtypeStruct(points.shape[1:], jnp.result_type(float))
    program = eqx.filter_make_jaxpr(cast(Any, log_density))(cast(Any, point))[0].jaxpr
    found = [
        each
        for each in sums_in(program)
        if 1 < each.num_terms <= MAX_TERMS and each.num_rows <= MAX_TERMS
    ]
    if not found or sum(each.num_rows for each in found) > MAX_TERMS:
        return None
    # The smaller ones first, as long as there are not too many ways to choose.
    kept: list[Sum] = []
    number = 1
    pairs = zip(found, _add_up(Chosen.of(log_density, found), points), strict=True)
    for each, adds_up in sorted(pairs, key=lambda pair: pair[0].num_ways):
        if adds_up and number * each.num_ways <= MAX_TERMS:
            kept.append(each)
            number *= each.num_ways
    if not kept:
        return None
    whole = Chosen.of(log_density, kept)
    choices = _ways(kept)
    # A term of a sum in another is chosen in several ways.
    chosen = np.repeat(choices[:, None], len(points), axis=1)
    values = [
        _values(whole, to_device(points), to_device(each, np.int32)) for each in chosen
    ]
    _, first = np.unique(np.stack(values), axis=0, return_index=True)
    return Terms(whole, choices[np.sort(first)])


def _ways(sums: Sequence[Sum]) -> np.ndarray:
    """All ways to choose one term of each sum."""
    ranges = [range(each.num_terms) for each in sums for _ in range(each.num_rows)]
    return np.asarray(list(itertools.product(*ranges)))


def _add_up(whole: Chosen, points: np.ndarray) -> list[bool]:
    """Which sums enter the log density with a factor of one, wherever that is finite.

    A normaliser of probabilities, say, enters with a factor of minus one. Terms of all
    other sums are chosen at random, since a sum may be a term of another: then the
    factor is zero where that term is not chosen.
    """
    rng = np.random.default_rng(0)
    rows = [row for row in whole.sums for _ in range(row.num_rows)]
    choices = rng.integers(0, [row.num_terms for row in rows], (len(points), len(rows)))
    right = []
    for row in range(len(rows)):
        choices_of_others = choices.copy()
        choices_of_others[:, row] = ALL
        values, slopes = jax.device_get(
            _slopes(whole, to_device(points), to_device(choices_of_others, np.int32))
        )
        factor = slopes[np.isfinite(values), row]
        is_one = np.abs(factor - 1) < _SLACK
        right.append(bool(np.any(is_one) and np.all(is_one | (factor == 0))))
    bounds = np.cumsum([each.num_rows for each in whole.sums])[:-1]
    return [bool(np.all(part)) for part in np.split(right, bounds)]


@quick_jit
def _slopes(whole: Chosen, points: Array, choices: Array) -> tuple[Array, Array]:
    def slope(x: Array, choice: Array) -> tuple[Array, Array]:
        chosen = eqx.tree_at(lambda one: one.choice, whole, choice)
        return jax.value_and_grad(lambda shift: chosen.shifted(x, shift))(
            jnp.zeros(choice.shape, x.dtype)
        )

    values, slopes = jax.vmap(slope)(points, choices)
    return sanitise(values), slopes


def _values(whole: Chosen, points: Array, choices: Array) -> np.ndarray:
    return np.asarray(_slopes(whole, points, choices)[0])


class OneByOne(AbstractDivision):
    """The terms of a density as its parts.

    Args:
        terms: The terms.
    """

    num_parts: int = eqx.field(static=True)
    choices: Int[Array, "terms sums"]
    sums: tuple[Sum, ...] = eqx.field(static=True)

    def __init__(self, terms: Terms):
        self.num_parts = len(terms.choices)
        self.choices = to_device(terms.choices, np.int32)
        self.sums = terms.whole.sums

    def log_part(self, log_density, x, index):
        """Log density of a term."""
        return Chosen(log_density, self.choices[index], self.sums)(x)

r"""Resampling: when, and which particles survive (Algorithm 1, lines 7 to 9).

Every scheme draws `N` ancestors such that particle `i` has $N W_i$ offspring on
average. The schemes differ in the noise around it, and each knows its own: the chance
$c = \sum_i \mathrm{Var}(O_i) / N^2$ that two particles merge by that noise alone,
which the error bar of log Z needs (`annealax._particles`).

With islands every block resamples by itself, when the population as a whole needs it,
and its survivors keep the block's weight: their total W is unchanged, so that Z stays
unbiased, and blocks agree on one number alone. Two particles of a block of weight
$W_b$ merge by its noise $c_b$, two of different blocks never, so that
$c = \sum_b W_b^2 c_b$.

The draws are inversions of the cumulative weights. They are written here rather than
taken from blackjax because its versions may select a particle of weight zero, at
either end, when float32 sums do not reach one.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from annealax._checks import unknown_name
from annealax._errors import InvalidInputError
from annealax._layout import Layout, Mapped
from annealax._particles import effective_sample_size

_Weights = Float[Array, " particles"]
_Indices = Int[Array, " particles"]


class Scheme(NamedTuple):
    """A resampling scheme.

    Attributes:
        draw: Indices of the ancestors, given normalised weights.
        noise: Sum over particles of the variance of their offspring, over N^2.
    """

    draw: Callable[[PRNGKeyArray, _Weights], _Indices]
    noise: Callable[[_Weights], Float[Array, ""]]


def _invert(weights: _Weights, positions: Array) -> _Indices:
    cumulative = jnp.cumsum(weights)
    cumulative = cumulative / cumulative[-1]
    below_one = jnp.asarray(1 - np.finfo(weights.dtype).epsneg, weights.dtype)
    # side="right" skips particles of weight zero wherever they stand.
    positions = jnp.minimum(positions, below_one)
    return jnp.searchsorted(cumulative, positions, side="right").astype(jnp.int32)


def _multinomial(key: PRNGKeyArray, weights: _Weights) -> _Indices:
    # Sorted uniforms as normalised sums of exponentials: sorted ancestors, O(N).
    spacings = jnp.cumsum(jr.exponential(key, (weights.shape[0] + 1,), weights.dtype))
    return _invert(weights, spacings[:-1] / spacings[-1])


def _multinomial_noise(weights: _Weights) -> Float[Array, ""]:
    return jnp.full((), 1 / weights.shape[0], weights.dtype)


def _stratified(key: PRNGKeyArray, weights: _Weights) -> _Indices:
    n = weights.shape[0]
    return _invert(weights, (jnp.arange(n) + jr.uniform(key, (n,), weights.dtype)) / n)


def _stratified_noise(weights: _Weights) -> Float[Array, ""]:
    # Offspring = whole strata + up to two partly covered ones, each a coin toss.
    n = weights.shape[0]
    right = n * jnp.cumsum(weights)
    left = jnp.concatenate([jnp.zeros(1, weights.dtype), right[:-1]])
    same = jnp.floor(left) == jnp.floor(right)
    inside = right - left
    first, last = jnp.ceil(left) - left, right - jnp.floor(right)
    apart = first * (1 - first) + last * (1 - last)
    return jnp.sum(jnp.where(same, inside * (1 - inside), apart)) / float(n) ** 2


def _systematic(key: PRNGKeyArray, weights: _Weights) -> _Indices:
    n = weights.shape[0]
    return _invert(weights, (jnp.arange(n) + jr.uniform(key, (), weights.dtype)) / n)


def _systematic_noise(weights: _Weights) -> Float[Array, ""]:
    n = weights.shape[0]
    part = n * weights - jnp.floor(n * weights)
    return jnp.sum(part * (1 - part)) / float(n) ** 2


def _residual(key: PRNGKeyArray, weights: _Weights) -> _Indices:
    n = weights.shape[0]
    slots = jnp.arange(n)
    copies = jnp.floor(n * weights)
    kept = jnp.cumsum(copies.astype(jnp.int32))
    certain = jnp.searchsorted(kept, slots, side="right").astype(jnp.int32)
    rest = n * weights - copies
    # If float32 leaves no remainder at all, any distribution will do: use the weights.
    rest = jnp.where(jnp.sum(rest) > 0, rest, weights)
    drawn = _invert(rest, jr.uniform(key, (n,), weights.dtype))
    return jnp.where(slots < kept[-1], certain, drawn)


def _residual_noise(weights: _Weights) -> Float[Array, ""]:
    n = weights.shape[0]
    part = n * weights - jnp.floor(n * weights)
    total = jnp.sum(part)
    return (total - jnp.sum(part * part) / jnp.maximum(total, 1)) / float(n) ** 2


SCHEMES: Mapping[str, Scheme] = {
    "multinomial": Scheme(_multinomial, _multinomial_noise),
    "stratified": Scheme(_stratified, _stratified_noise),
    "systematic": Scheme(_systematic, _systematic_noise),
    "residual": Scheme(_residual, _residual_noise),
}


class Selection(NamedTuple):
    """What is left after the decision.

    Attributes:
        survivors: The pytree that was given, its leaves indexed by the ancestors.
        log_weights: Normalised log weights of the survivors.
        resampled: Whether resampling took place.
        log_selection: log(1 - c) of the noise of this selection; 0 if there was none.
    """

    survivors: PyTree
    log_weights: _Weights
    resampled: Bool[Array, ""]
    log_selection: Float[Array, ""]


class AbstractResampler(eqx.Module):
    """Decides when to resample, and how."""

    @abstractmethod
    def __call__(
        self,
        key: PRNGKeyArray,
        log_weights: _Weights,
        population: PyTree,
        layout: Layout | None = None,
    ) -> Selection:
        """Select from a population.

        Args:
            key: Random key.
            log_weights: Normalised log weights.
            population: A pytree whose leaves have a particle axis.
            layout: Where the particles are; None for all in one block.
        """


class ESSResampling(AbstractResampler):
    """Resample when the effective sample size is at most `threshold` times N.

    Args:
        threshold: Between 0 and 1; 1 resamples at every temperature. The paper uses
            0.3.
        scheme: "systematic" (the default: least noise), "stratified", "residual" or
            "multinomial" (the paper's).
    """

    threshold: float = eqx.field(static=True)
    scheme: str = eqx.field(static=True)

    def __init__(self, threshold: float = 0.3, scheme: str = "systematic"):
        if not 0 < threshold <= 1:
            raise InvalidInputError(
                f"threshold must be above 0 and at most 1, got {threshold}; use "
                "NoResampling() to never resample"
            )
        if scheme not in SCHEMES:
            raise unknown_name("resampling scheme", scheme, SCHEMES)
        self.threshold = float(threshold)
        self.scheme = scheme

    def __call__(self, key, log_weights, population, layout=None):
        """Select if the effective sample size is low."""
        layout = layout or _one_block(log_weights)

        def select():
            weights = jnp.exp(layout.gather(log_weights))
            scheme = SCHEMES[self.scheme]
            survivors = layout.take(population, scheme.draw(key, weights))
            there = layout.index < layout.num_particles
            level = jnp.asarray(-np.log(layout.num_particles), log_weights.dtype)
            uniform = jnp.where(there, level, -jnp.inf)
            return survivors, uniform, jnp.log1p(-scheme.noise(weights))

        return _if_low(self.threshold, layout, log_weights, population, select)


class IslandResampling(ESSResampling):
    """Resample within blocks, when the whole population needs it.

    The islands are the blocks of the sampler: `Sampler(..., block_size=...)`, which has
    to divide the number of particles. Of all that happens at a temperature only a few
    numbers of each block travel between devices, and some neighbours.

    Args:
        threshold: As for `ESSResampling`, of the whole population.
        scheme: As for `ESSResampling`.
        exchange: Share of each island's particles that move on to the next one, around
            a ring, after a resampling. Without it the weights of islands drift apart.
    """

    exchange: float = eqx.field(static=True)

    def __init__(
        self,
        threshold: float = 0.3,
        scheme: str = "systematic",
        *,
        exchange: float = 0.5,
    ):
        super().__init__(threshold, scheme)
        if not 0 <= exchange <= 1:
            raise InvalidInputError(
                f"exchange is a share between 0 and 1, got {exchange}"
            )
        self.exchange = float(exchange)

    def __call__(self, key, log_weights, population, layout=None):
        """Select within every block if the effective sample size is low."""
        layout = layout or _one_block(log_weights)
        size = layout.block_size
        if layout.num_particles % size:
            raise InvalidInputError(
                f"islands are blocks of the same size, but blocks of {size} do not "
                f"divide {layout.num_particles} particles: give the sampler a "
                "block_size that does"
            )
        scheme = SCHEMES[self.scheme]

        def of_island(first, log_weights, population):
            log_weight = jax.nn.logsumexp(log_weights)
            # Of an island that is dead anybody may survive: its weight stays zero.
            weights = jnp.where(
                log_weight > -jnp.inf, jnp.exp(log_weights - log_weight), 1 / size
            )
            ancestors = scheme.draw(jr.fold_in(key, first), weights)
            survivors = jax.tree.map(lambda leaf: leaf[ancestors], population)
            even = jnp.full_like(log_weights, log_weight - np.log(size))
            noise = jnp.exp(2 * log_weight) * scheme.noise(weights)
            return Mapped((survivors, even), noise)

        def select():
            selected = layout.map(of_island, log_weights, population)
            survivors, even = layout.pass_on(selected.each, self.exchange)
            return survivors, even, jnp.log1p(-jnp.sum(selected.numbers))

        return _if_low(self.threshold, layout, log_weights, population, select)


def _one_block(log_weights: _Weights) -> Layout:
    return Layout(log_weights.shape[0], log_weights.shape[0])


def _if_low(
    threshold: float,
    layout: Layout,
    log_weights: _Weights,
    population: PyTree,
    select: Callable[[], tuple[PyTree, Array, Array]],
) -> Selection:
    """The selection if the effective sample size is low, else everything as it is."""
    # At 1 always, whatever the rounding of the effective sample size.
    low = (
        effective_sample_size(log_weights, layout) <= threshold * layout.num_particles
    ) | (threshold == 1)
    zero = jnp.zeros((), log_weights.dtype)
    survivors, log_weights, log_selection = jax.lax.cond(
        low, select, lambda: (population, log_weights, zero)
    )
    return Selection(survivors, log_weights, low, log_selection)


class NoResampling(AbstractResampler):
    """Never resample: SMC becomes annealed importance sampling."""

    def __call__(self, key, log_weights, population, layout=None):
        """Keep everything."""
        zero = jnp.zeros((), log_weights.dtype)
        return Selection(population, log_weights, jnp.asarray(False), zero)

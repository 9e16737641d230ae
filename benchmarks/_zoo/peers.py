"""Other samplers of log Z on the zoo, with its regions as their prior boxes.

Each is imported when it is asked for, and none is a dependency:

    pip install dynesty nautilus-sampler pocomc

They run in double precision, as their users would, until they stop by their own rule; a
run that takes longer than allowed is a row without an answer. Blackjax's tempered SMC
has no rule: it is repeated for the time allowed and the repeats are pooled.

None of these has warnings, so each wrong answer is a silent one.
"""

import contextlib
import importlib
import math
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from _zoo.densities import Density
from _zoo.table import Row, finite, interval_ends

_PACKAGES = {
    "dynesty": "dynesty",
    "nautilus": "nautilus-sampler",
    "pocomc": "pocomc",
    "blackjax-smc": "blackjax",
}
METHODS = tuple(_PACKAGES)

_NOWHERE = -1e30  # log likelihood where the density is zero; all take it, unlike -inf


class OutOfTimeError(Exception):
    """The time that was allowed is over."""


class Problem(NamedTuple):
    """A density over a box, as nested samplers take it.

    Attributes:
        size: How many numbers are free.
        low: Lowest corner.
        width: Widths of the box.
        likelihood: Log likelihoods of points, one in a row. The prior is uniform, so
            the evidence is Z.
    """

    size: int
    low: np.ndarray
    width: np.ndarray
    likelihood: Callable[[np.ndarray], np.ndarray]


def _log_likelihood(density: Density) -> Callable[[Any], Any]:
    """That of one vector of free numbers, under the uniform prior on the box."""
    low, high = density.box()
    log_volume = np.log(high - low).sum()

    def log_likelihood(vector):
        value = density.log_density(density.point(vector)) + log_volume
        usable = density.inside(vector) & (value > _NOWHERE)  # nan is not, either
        return jnp.where(usable, value, _NOWHERE)

    return log_likelihood


def _problem(density: Density, seconds: float | None, calls: list[int]) -> Problem:
    low, high = density.box()
    function = jax.jit(jax.vmap(_log_likelihood(density)))
    began = time.perf_counter()

    def likelihood(points):
        if seconds is not None and time.perf_counter() - began > seconds:
            raise OutOfTimeError(f"no answer in {seconds:g} s")
        points = np.atleast_2d(points)
        calls[0] += len(points)
        # Batches of powers of two: few programs to compile.
        padded = np.empty((1 << (len(points) - 1).bit_length(), len(low)))
        padded[:] = points[0]
        padded[: len(points)] = points
        return np.asarray(function(padded))[: len(points)]

    return Problem(len(low), low, high - low, likelihood)


def _load(method: str) -> ModuleType:
    package = _PACKAGES[method]
    try:
        return importlib.import_module(method.split("-", maxsplit=1)[0])
    except ImportError as error:
        raise SystemExit(
            f"{method} needs {package}, which is not a dependency of annealax: "
            f"pip install {package} ({error})"
        ) from None


def _dynesty(problem: Problem, seed: int) -> tuple[float, float]:
    dynesty = _load("dynesty")
    sampler = dynesty.DynamicNestedSampler(
        lambda x: float(problem.likelihood(x)[0]),
        lambda unit: problem.low + problem.width * unit,
        problem.size,
        rstate=np.random.default_rng(seed),
    )
    sampler.run_nested(print_progress=False)
    return float(sampler.results.logz[-1]), float(sampler.results.logzerr[-1])


def _nautilus(problem: Problem, seed: int) -> tuple[float, float]:
    nautilus = _load("nautilus")
    sampler = nautilus.Sampler(
        lambda unit: problem.low + problem.width * unit,
        problem.likelihood,
        n_dim=problem.size,
        vectorized=True,
        pass_dict=False,
        seed=seed,
    )
    sampler.run(verbose=False)
    # Its documentation gives this as the error of log Z.
    return float(sampler.log_z), float(sampler.n_eff) ** -0.5


def _pocomc(problem: Problem, seed: int) -> tuple[float, float]:
    pocomc = _load("pocomc")
    uniform = importlib.import_module("scipy.stats").uniform
    prior = pocomc.Prior(
        [uniform(a, w) for a, w in zip(problem.low, problem.width, strict=True)]
    )
    sampler = pocomc.Sampler(
        prior, problem.likelihood, vectorize=True, random_state=seed
    )
    sampler.run(progress=False)
    log_z, error = sampler.evidence()
    return float(log_z), float(error)


class _OnNormal:
    """A density over the box as one of normals: x = low + width * Phi(z)."""

    def __init__(self, density: Density):
        low, high = density.box()
        likelihood = _log_likelihood(density)
        self.shape = low.shape

        def log_density(z):
            x = low + (high - low) * jax.scipy.stats.norm.cdf(z)
            return likelihood(x) + jnp.sum(jax.scipy.stats.norm.logpdf(z))

        self._log_density = log_density

    def __call__(self, z):
        return self._log_density(z)


def _blackjax(density: Density, seed: int, seconds: float) -> Row:
    """As many runs as fit into the time, at least four, pooled."""
    _load("blackjax-smc")
    from annealax._estimates import log_mean  # noqa: PLC0415
    from automatic import blackjax_runner  # noqa: PLC0415 (needs blackjax)

    run = blackjax_runner(_OnNormal(density), 1.0)
    run(jr.key(0), limit=1)  # compile before the clock runs
    values: list[float] = []
    began = time.perf_counter()
    while len(values) < 4 or time.perf_counter() - began < seconds:
        left = 2 * seconds - (time.perf_counter() - began)
        value, reached = run(jr.key(10_000 * (seed + 1) + len(values)), seconds=left)
        if reached < 1:
            break
        values.append(value)
    if len(values) < 2:
        raise OutOfTimeError(f"fewer than two runs in {2 * seconds:g} s")
    z = np.exp(np.asarray(values) - max(values))
    error = z.std(ddof=1) / z.mean() / math.sqrt(len(z))
    return _answer(float(log_mean(np.asarray(values))), float(error)) | {
        "runs": len(values)
    }


def _answer(log_z: float, stderr: float) -> Row:
    interval = interval_ends((log_z - 1.96 * stderr, log_z + 1.96 * stderr))
    return {
        "answer": finite(log_z),
        "stderr": finite(stderr),
        "interval": interval,
        "warnings": [],
    }


class Peer:
    """Another method, on the densities that have a region.

    Args:
        method: One of `METHODS`.
        seconds: Time allowed; None to let it stop by itself.
    """

    def __init__(self, method: str, seconds: float | None):
        self.method, self.seconds = method, seconds
        _load(method)

    def can(self, density: Density) -> bool:
        """Whether there is a box to start from."""
        return density.region is not None

    def __call__(self, density: Density, seed: int) -> Row:
        """Run."""
        with jax.enable_x64(True), contextlib.ExitStack() as stack:
            stack.enter_context(np.errstate(all="ignore"))
            if self.method == "blackjax-smc":
                return _blackjax(density, seed, self.seconds or 60.0)
            calls = [0]
            problem = _problem(density, self.seconds, calls)
            run = {"dynesty": _dynesty, "nautilus": _nautilus, "pocomc": _pocomc}
            return _answer(*run[self.method](problem, seed)) | {"evaluations": calls[0]}

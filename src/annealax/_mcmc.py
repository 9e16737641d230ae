"""Direct Markov chain Monte Carlo on the target: what annealing is compared with.

Many chains at once, each with its own warm-up: Stan's windows adapt the step size and
a diagonal mass matrix, then both are fixed and the draws count. Kernels and adaptation
are blackjax's.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from annealax._checks import unknown_name, whole_number
from annealax._errors import InvalidInputError
from annealax._estimates import ByName, integrated_autocorrelation_time
from annealax._path import AbstractPath, GeometricPath
from annealax._work.drive import compile_ahead

Method = Literal["hmc", "nuts"]


class MarkovChains(NamedTuple):
    """What direct MCMC gave; dictionaries are by observable.

    Attributes:
        mean: Averages over chains and draws.
        stderr: Their standard errors, autocorrelation included.
        rhat: Rank-normalised split R-hat; far from one if chains disagree.
        ess: Bulk effective sample size.
        draws: All draws, (chains, draws, ...), or None.
        acceptance_rate: Mean acceptance probability after warm-up.
        num_divergent: Trajectories after warm-up whose energy ran away.
        num_evaluations: Gradients of the log density, over all chains.
        num_warmup_evaluations: Those of them that warm-up took.
        step_size: Step size of each chain.
        seconds: Time of warm-up and draws, compilation apart.
        compile_seconds: Time to compile.
        memory: Bytes that all chains need together.
    """

    mean: ByName
    stderr: ByName
    rhat: ByName
    ess: ByName
    draws: np.ndarray | None
    acceptance_rate: float
    num_divergent: int
    num_evaluations: float
    num_warmup_evaluations: float
    step_size: np.ndarray
    seconds: float
    compile_seconds: float
    memory: int


class _Trace(NamedTuple):
    """What the device returns: arrays over chains, then draws."""

    observables: dict[str, Array]
    draws: Array | None
    acceptance_rate: Array
    is_divergent: Array
    num_gradients: Array
    num_warmup_gradients: Array
    step_size: Array


def mcmc(
    key: PRNGKeyArray,
    target: AbstractPath | Callable[[Array], Array],
    *,
    method: Method = "hmc",
    num_chains: int = 16,
    num_warmup: int = 500,
    num_samples: int = 500,
    observables: Mapping[str, Callable[[Array], Array]] | None = None,
    initial: Float[Array, "chains *shape"] | None = None,
    num_leapfrog: int = 10,
    target_acceptance_rate: float = 0.8,
    keep_draws: bool = False,
) -> MarkovChains:
    """Run HMC or NUTS on the target itself.

    Args:
        key: Random key.
        target: A path, whose last density is sampled and whose initial distribution
            starts the chains; or a target with a `shape` (standard normal start); or
            any function of one configuration, together with `initial`.
        method: "hmc" or "nuts".
        num_chains: Number of chains.
        num_warmup: Warm-up iterations per chain.
        num_samples: Iterations per chain after warm-up.
        observables: Functions of one configuration, by name; the configuration itself
            if left out.
        initial: Where the chains start.
        num_leapfrog: Leapfrog steps per iteration of HMC; NUTS chooses its own.
        target_acceptance_rate: What warm-up tunes the step size to.
        keep_draws: Return the draws too.
    """
    if method not in get_args(Method):
        raise unknown_name("method", method, get_args(Method))
    num_chains = whole_number("num_chains", num_chains)
    num_warmup = whole_number("num_warmup", num_warmup)
    # Fewer cannot be split into halves to judge convergence.
    num_samples = whole_number("num_samples", num_samples, at_least=4)
    key_init, key_run = jr.split(key)
    path = _as_path(target, initial)
    if initial is None:
        initial, _ = path.sample(key_init, num_chains)
    elif initial.shape != (num_chains, *path.shape):
        raise InvalidInputError(
            f"initial must have shape {(num_chains, *path.shape)}, one configuration "
            f"per chain, got {initial.shape}"
        )
    options = (
        {"num_integration_steps": whole_number("num_leapfrog", num_leapfrog)}
        if method == "hmc"
        else {}
    )
    chain = _Chain(
        dict(observables) if observables is not None else {"x": lambda x: x},
        method,
        num_warmup,
        num_samples,
        tuple(options.items()),
        target_acceptance_rate,
        keep_draws,
    )
    keys = jr.split(key_run, num_chains)
    program = compile_ahead(_run, chain, path, keys, initial)
    began = time.perf_counter()
    trace = jax.block_until_ready(program.run(chain, path, keys, initial))
    seconds = time.perf_counter() - began
    return _summarise(trace, seconds, program.compile_seconds, program.memory)


class _Chain(NamedTuple):
    """Settings of a chain: all static."""

    observables: dict[str, Callable[[Array], Array]]
    method: str
    num_warmup: int
    num_samples: int
    options: tuple[tuple[str, int], ...]
    target_acceptance_rate: float
    keep_draws: bool


@eqx.filter_jit
def _run(chain: _Chain, path: AbstractPath, keys: Array, initial: Array) -> _Trace:
    return jax.vmap(lambda key, x: _one_chain(chain, path, key, x))(keys, initial)


def _one_chain(
    chain: _Chain, path: AbstractPath, key: PRNGKeyArray, x: Array
) -> _Trace:
    import blackjax  # noqa: PLC0415 (importing it takes half a second)

    key_warmup, key_draws = jr.split(key)
    algorithm = {"hmc": blackjax.hmc, "nuts": blackjax.nuts}[chain.method]
    log_density = path.at(1.0)
    options = dict(chain.options)
    warmup = blackjax.window_adaptation(
        algorithm,
        log_density,
        target_acceptance_rate=chain.target_acceptance_rate,
        adaptation_info_fn=lambda _state, info, _adaptation: info.num_integration_steps,
        **options,
    )
    (state, parameters), lengths = warmup.run(key_warmup, x, chain.num_warmup)
    kernel = algorithm.build_kernel()

    def iterate(state, key):
        state, info = kernel(
            key,
            state,
            log_density,
            parameters["step_size"],
            parameters["inverse_mass_matrix"],
            **options,
        )
        values = {
            name: each(state.position) for name, each in chain.observables.items()
        }
        kept = state.position if chain.keep_draws else None
        numbers = (info.acceptance_rate, info.is_divergent, info.num_integration_steps)
        return state, (values, kept, numbers)

    _, (values, kept, (acceptance, divergent, gradients)) = jax.lax.scan(
        iterate, state, jr.split(key_draws, chain.num_samples)
    )
    return _Trace(
        values,
        kept,
        acceptance,
        divergent,
        jnp.sum(gradients),
        1 + jnp.sum(lengths),  # one where the chain starts
        parameters["step_size"],
    )


def _as_path(
    target: AbstractPath | Callable[[Array], Array], initial: Array | None
) -> AbstractPath:
    if isinstance(target, AbstractPath):
        return target
    if initial is not None:
        return GeometricPath(initial.shape[1:], target, 1)
    return GeometricPath(None, target, 1)


def _summarise(
    trace: PyTree, seconds: float, compile_seconds: float, memory: int
) -> MarkovChains:
    from blackjax.diagnostics import ess_bulk, rhat  # noqa: PLC0415

    trace = jax.tree.map(np.asarray, trace)
    observables = trace.observables
    errors = {}
    for name, values in observables.items():
        count = values.shape[0] * values.shape[1]
        variance = values.var(axis=(0, 1), ddof=1, dtype=np.float64)
        time_ = integrated_autocorrelation_time(values)
        errors[name] = np.asarray(np.sqrt(variance * time_ / count))
    warmup = float(np.asarray(trace.num_warmup_gradients, np.float64).sum())
    draws = float(np.asarray(trace.num_gradients, np.float64).sum())
    return MarkovChains(
        mean=_by_name(lambda v: v.mean(axis=(0, 1), dtype=np.float64), observables),
        stderr=ByName(errors),
        rhat=_by_name(rhat, observables),
        ess=_by_name(ess_bulk, observables),
        draws=trace.draws,
        acceptance_rate=float(np.mean(trace.acceptance_rate)),
        num_divergent=int(np.sum(trace.is_divergent)),
        num_evaluations=warmup + draws,
        num_warmup_evaluations=warmup,
        step_size=trace.step_size,
        seconds=seconds,
        compile_seconds=compile_seconds,
        memory=memory,
    )


def _by_name(
    statistic: Callable[[np.ndarray], Any], observables: Mapping[str, np.ndarray]
) -> ByName:
    return ByName(
        {name: np.asarray(statistic(value)) for name, value in observables.items()}
    )

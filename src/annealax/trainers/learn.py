r"""Learning parameters of a target by maximising its evidence (Appendix E).

With $\gamma^\phi$ the target and $(X^i, W^i)$ the particles that a pass of CRAFT ends
with, Fisher's identity gives the gradient of the evidence,

$$ \nabla_\phi \log Z^\phi = \mathbb{E}_{\pi^\phi}[\nabla_\phi \log \gamma^\phi(X)]
   \approx \sum_i W^i \nabla_\phi \log \gamma^\phi(X^i) . $$

No derivative goes through the sampler. The parameters move after the pass, so each
estimate of Z is unbiased at the parameters it is reported with.

Fresh particles make the noise of each gradient $g_t$ independent of the others, so near
the maximum $\phi^*$, where the evidence has the curvature $H = -\nabla^2 \log Z$,

$$ g_t = -H (\phi_t - \phi^*) + \varepsilon_t
   \quad\Longrightarrow\quad
   \bar\phi - \phi^* = H^{-1} (\bar\varepsilon - \bar g) $$

for the average $\bar\phi$ over the last steps, whatever the optimiser. The reported
standard error adds the two terms in squares: the noise,
$H^{-1} \mathrm{Cov}(\varepsilon) H^{-1} / n$, and what the optimiser has left to go,
$H^{-1} \bar g$. The curvature is Louis' (1982),

$$ \nabla^2 \log Z = \mathbb{E}[\nabla^2 \log\gamma]
   + \mathrm{Cov}[\nabla \log\gamma] , $$

on the particles of a last pass at $\bar\phi$.
"""

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from flowjax.bijections import AbstractBijection
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from annealax._checks import whole_number
from annealax._errors import InvalidInputError, SamplingError
from annealax._estimates import integrated_autocorrelation_time
from annealax._particles import Particles
from annealax._path import GeometricPath
from annealax._result import Result
from annealax._work.checkpoint import Checkpoint
from annealax._work.drive import Callback
from annealax.trainers.base import (
    AbstractTrainer,
    TrainInfo,
    TrainState,
    guarded_update,
)
from annealax.trainers.craft import CRAFT
from annealax.trainers.fit import fit

Model = Callable[[PyTree], Callable[[Array], Array]]


class EvidenceState(NamedTuple):
    """What is carried beside the flows.

    Attributes:
        craft: Optimiser state of the flows.
        parameters: The parameters of the target.
        optimizer: Optimiser state of the parameters.
    """

    craft: PyTree
    parameters: PyTree
    optimizer: PyTree


class EvidenceInfo(NamedTuple):
    """What a step shows beside the training (`TrainInfo.extra`).

    Attributes:
        parameters: The parameters during the pass.
        gradient: The estimated gradient of log Z there.
        num_skipped: 1 if the parameters stayed because it was not finite.
    """

    parameters: PyTree
    gradient: PyTree
    num_skipped: Int[Array, "*iterations"]


class EvidenceAscent(AbstractTrainer):
    """Train flows and parameters of the target together.

    Args:
        craft: How the flows are trained; the target of its path is replaced.
        model: From parameters to a target. What it computes before it returns, such
            as a factorisation, is done once in a pass.
        parameters: Where the parameters start: a pytree of floating-point arrays.
        optimizer: Optimiser of the parameters.
    """

    craft: CRAFT
    model: Model
    parameters: PyTree
    optimizer: optax.GradientTransformation = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, flow: AbstractBijection) -> TrainState:
        """Every transition starts at `flow`."""
        state = self.craft.init(key, flow)
        carried = EvidenceState(
            state.optimizer_state,
            self.parameters,
            self.optimizer.init(self.parameters),
        )
        return TrainState(state.flows, carried)

    def step(
        self, key: PRNGKeyArray, state: TrainState
    ) -> tuple[TrainState, TrainInfo]:
        """One pass of CRAFT, then one step of the parameters."""
        carried: EvidenceState = state.optimizer_state
        craft = self.at(carried.parameters)
        sweep = craft.sweep(key, TrainState(state.flows, carried.craft))
        trained = sweep.state
        gradient = jax.grad(weighted_log_density, argnums=1)(
            self.model, carried.parameters, sweep.particles
        )
        parameters, optimizer, skipped = guarded_update(
            self.optimizer,
            jax.tree.map(jnp.negative, gradient),  # optimisers descend
            carried.optimizer,
            carried.parameters,
        )
        state = TrainState(
            trained.flows, EvidenceState(trained.optimizer_state, parameters, optimizer)
        )
        extra = EvidenceInfo(carried.parameters, gradient, skipped)
        return state, sweep.info._replace(extra=extra)

    def at(self, parameters: PyTree) -> CRAFT:
        """CRAFT on the target with these parameters."""
        return eqx.tree_at(
            lambda craft: craft.sampler.path.target, self.craft, self.model(parameters)
        )


def weighted_log_density(
    model: Model, parameters: PyTree, particles: Particles
) -> Float[Array, ""]:
    """Average of the target's log density over particles, to differentiate."""
    return jnp.sum(particles.weights * log_densities(model, parameters, particles))


def log_densities(
    model: Model, parameters: PyTree, particles: Particles
) -> Float[Array, " particles"]:
    """The target's log density at each particle, as a function of the parameters.

    Particles of zero weight stand where the heaviest does: a derivative that is not
    finite would spoil the sum even with weight zero.
    """
    alive = particles.log_weights > -jnp.inf
    heaviest = particles.x[jnp.argmax(particles.log_weights)]
    shape = alive.shape + (1,) * (particles.x.ndim - 1)
    x = jnp.where(alive.reshape(shape), particles.x, heaviest)
    return jax.vmap(model(parameters))(x)


_MAX_CURVATURE = 300  # parameters; more would need as many passes over the particles


class Learnt(NamedTuple):
    """Learnt parameters.

    Attributes:
        parameters: Average of the path over the last steps.
        stderr: Monte Carlo standard error of each as an estimate of the maximiser:
            noise of the gradients and what the optimiser has left to go. It leaves out
            the bias of order 1 / particles. Infinite where the evidence is not
            curved downwards. With more than 300 parameters the curvature is not
            computed, and this is the error of the average of an autocorrelated
            sequence: too small if the optimiser has not arrived.
        data_stderr: How far the data determine the parameters: square roots of the
            diagonal of the inverse observed information. None without curvature.
        path: The parameters at each step, with a leading axis over steps.
        log_normalizer: Estimate of log Z at each of them.
        flows: The trained flows.
        result: A pass with those flows at `parameters`: log Z there, particles.
        history: What each training step showed.
        seconds: Time of the steps, compilation apart.
    """

    parameters: PyTree
    stderr: PyTree
    data_stderr: PyTree
    path: PyTree
    log_normalizer: Float[np.ndarray, " steps"]
    flows: AbstractBijection
    result: Result
    history: TrainInfo
    seconds: float


def learn(
    key: PRNGKeyArray,
    trainer: CRAFT,
    model: Model,
    parameters: PyTree,
    flow: AbstractBijection,
    *,
    num_steps: int,
    optimizer: optax.GradientTransformation | None = None,
    average: float = 0.5,
    steps_per_call: int | None = None,
    callback: Callback | Iterable[Callback] | None = None,
    progress: bool | None = None,
    checkpoint: str | os.PathLike | Checkpoint | None = None,
) -> Learnt:
    """Maximise the evidence in parameters of the target while CRAFT trains.

    Args:
        key: Random key.
        trainer: CRAFT on a geometric path; in each step its target is replaced by
            `model(parameters)`.
        model: From parameters to a log density of one configuration. Work that does
            not depend on the configuration, such as a factorisation, belongs before
            the density is returned: it is then done once in a pass.
        parameters: Where to start: a pytree of numbers or arrays. Give positive
            parameters by their logarithm.
        flow: Where every transition's flow starts.
        num_steps: Number of steps, each one training pass and one step of parameters.
        optimizer: Optimiser of the parameters; None is Adam with a learning rate that
            falls from 0.05 to 0.005.
        average: The last share of the steps over which parameters are averaged.
        steps_per_call: As in `fit`.
        callback: As in `fit`.
        progress: As in `fit`.
        checkpoint: As in `fit`.

    Raises:
        SamplingError: If the training diverged before it got anywhere.
    """
    parameters = _check_parameters(parameters)
    _check(trainer, model, parameters, num_steps, average)
    if optimizer is None:
        optimizer = optax.adam(optax.cosine_decay_schedule(0.05, num_steps, 0.1))
    ascent = EvidenceAscent(trainer, model, parameters, optimizer)
    key_fit, key_run = jr.split(key)
    trained = fit(
        key_fit,
        ascent,
        flow,
        num_steps=num_steps,
        steps_per_call=steps_per_call,
        callback=callback,
        progress=progress,
        checkpoint=checkpoint,
    )
    history = trained.history
    if trained.rollback is not None:  # what came after is no part of the result
        kept = trained.rollback.step
        if kept < 2:
            raise SamplingError("; ".join(trained.warnings()))
        history = jax.tree.map(lambda leaf: leaf[:kept], history)
    extra = history.extra
    _, unravel = ravel_pytree(parameters)
    path, gradients = _flatten(extra.parameters), _flatten(extra.gradient)
    first = min(int(len(path) * (1 - average)), len(path) - 1)
    path, gradients = path[first:], gradients[first:]
    mean = unravel(jnp.asarray(path.mean(axis=0), jnp.result_type(float)))
    result = _deploy(ascent, mean, key_run, trained.flows)
    result.check(trainer.sampler.path)
    curvature = None
    if path.shape[1] <= _MAX_CURVATURE:
        curvature = -np.asarray(hessian(model, mean, result.particles), np.float64)
    errors = _standard_errors(curvature, path, gradients)
    return Learnt(
        parameters=mean,
        stderr=unravel(jnp.asarray(errors.average, jnp.result_type(float))),
        data_stderr=None
        if errors.data is None
        else unravel(jnp.asarray(errors.data, jnp.result_type(float))),
        path=extra.parameters,
        log_normalizer=np.asarray(history.log_normalizer),
        flows=trained.flows,
        result=result,
        history=history,
        seconds=trained.seconds,
    )


@eqx.filter_jit
def _deploy(
    ascent: EvidenceAscent,
    parameters: PyTree,
    key: PRNGKeyArray,
    flows: AbstractBijection,
) -> Result:
    # Compiled with the parameters as arrays, so that it can be used again.
    return ascent.at(parameters).sampler.run(key, flows)


class _Errors(NamedTuple):
    average: np.ndarray  # of the averaged path, as an estimate of the maximiser
    data: np.ndarray | None  # of the maximiser, as an estimate of the truth


def _standard_errors(
    curvature: np.ndarray | None, path: np.ndarray, gradients: np.ndarray
) -> _Errors:
    """Standard errors of the average of a path (see the head of this module)."""
    usable = np.isfinite(gradients).all(axis=1)  # the others did not move anything
    path, gradients = path[usable], gradients[usable]
    count, dim = path.shape
    infinite = np.full(dim, np.inf)
    if count < 2:
        return _Errors(infinite, None if curvature is None else infinite)
    if curvature is None:
        time = integrated_autocorrelation_time(path[None])
        return _Errors(np.sqrt(path.var(axis=0, ddof=1) * time / count), None)
    if not np.isfinite(curvature).all() or np.linalg.eigvalsh(curvature).min() <= 0:
        return _Errors(infinite, infinite)
    inverse = np.linalg.inv(curvature)
    slope = gradients.mean(axis=0)
    noise = gradients - slope + (path - path.mean(axis=0)) @ curvature
    covariance = inverse @ (noise.T @ noise) @ inverse / (count * (count - 1))
    variance = np.diagonal(covariance) + (inverse @ slope) ** 2
    return _Errors(np.sqrt(variance), np.sqrt(np.diagonal(inverse)))


@eqx.filter_jit
def hessian(
    model: Model, parameters: PyTree, particles: Particles
) -> Float[Array, "parameters parameters"]:
    """Second derivatives of log Z in the flattened parameters, by Louis' identity."""
    flat, unravel = ravel_pytree(parameters)
    basis = jnp.eye(flat.size, dtype=flat.dtype)

    def scores(direction):  # the derivative along one direction, for each particle
        function = lambda flat: log_densities(model, unravel(flat), particles)  # noqa: E731
        return jax.jvp(function, (flat,), (direction,))[1]

    def curvature(direction):
        slope = jax.grad(
            lambda flat: weighted_log_density(model, unravel(flat), particles)
        )
        return jax.jvp(slope, (flat,), (direction,))[1]

    # One direction after the other: memory does not grow with their number.
    each = jax.lax.map(scores, basis)
    each = each - (each @ particles.weights)[:, None]
    inner = jax.lax.map(curvature, basis)
    return 0.5 * (inner + inner.T) + (each * particles.weights) @ each.T


def _flatten(tree: PyTree) -> np.ndarray:
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def _check_parameters(parameters: PyTree) -> PyTree:
    dtype = jnp.result_type(float)
    try:
        parameters = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), parameters)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"parameters must be a pytree of numbers or arrays: {error}"
        ) from error
    leaves = jax.tree.leaves(parameters)
    if not leaves:
        raise InvalidInputError("there are no parameters to learn")
    if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in leaves):
        raise InvalidInputError(f"parameters must start at finite values: {parameters}")
    return parameters


def _check(
    trainer: CRAFT, model: Model, parameters: PyTree, num_steps: int, average: float
) -> None:
    if not isinstance(trainer, CRAFT):
        raise InvalidInputError(
            f"learn needs a CRAFT trainer, got {type(trainer).__name__}"
        )
    path = trainer.sampler.path
    if not isinstance(path, GeometricPath):
        raise InvalidInputError(
            f"learn replaces the target of a GeometricPath, got {type(path).__name__}"
        )
    whole_number("num_steps", num_steps, at_least=2)
    if not 0 < average <= 1:
        raise InvalidInputError(f"average must be above 0, at most 1; got {average}")
    GeometricPath(path.initial, model(parameters), path.betas)  # raises if unfit

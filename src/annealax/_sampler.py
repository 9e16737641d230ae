r"""The SMC-NF step (Algorithm 1) and the sampler that repeats it (Algorithm 3).

The step is written once, in two halves, and every method goes through it:

- `transport` moves one particle with the flow and gives its incremental weight

$$\log G_k(x) = \log\gamma_k(T_k(x)) - \log\gamma_{k-1}(x)
    + \log\lvert\nabla T_k(x)\rvert$$

- `correct` reweights, updates log Z, resamples and moves with the Markov kernel.

No density is evaluated twice: particles carry the log density of where they stand, and
the gradient that comes with the transported density is where the kernel starts. Kernels
that need no gradient get none, so that the density need not have one.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from flowjax.bijections import AbstractBijection, Identity
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from annealax._checks import whole_number
from annealax._cotangents import gate, shield
from annealax._errors import InvalidInputError
from annealax._particles import Particles, effective_sample_size, weighted_mean
from annealax._path import AbstractPath, Edge, sanitise
from annealax._resampling import AbstractResampler, ESSResampling
from annealax._result import Result, StepInfo
from annealax.flows.base import check_stacked
from annealax.kernels import AbstractKernel, NoMove, Point, bind


class Moved(NamedTuple):
    """A particle after transport.

    Attributes:
        point: Where it is now, with log density and gradient at the new temperature.
        log_increment: log G, the logarithm of its incremental weight; -inf where the
            density is zero or not a number.
        is_nan: The density or the flow gave something that is not a number.
        is_infinite: The density is +inf.
    """

    point: Point
    log_increment: Float[Array, "*particles"]
    is_nan: Bool[Array, "*particles"]
    is_infinite: Bool[Array, "*particles"]


def transport(
    path: AbstractPath,
    flow: AbstractBijection,
    x: Float[Array, "*shape"],
    log_density: Float[Array, ""],
    edge: Edge,
    *,
    first_order: bool = False,
    with_gradient: bool = True,
) -> Moved:
    """Apply the flow to one particle (Algorithm 1, line 3, and eq. 1b).

    Args:
        path: Annealing path.
        flow: Flow of this transition.
        x: The particle.
        log_density: Its log density at the start of the edge.
        edge: The transition.
        first_order: For training a flow: `log_increment` can be differentiated once,
            reusing the one evaluation of the target's gradient; nothing else can.
        with_gradient: Whether the kernel that comes next starts from the gradient.
    """
    y, log_det = flow.transform_and_log_det(x)
    # Otherwise every order is there, for gradients through a whole pass, and the
    # derivatives of a density that is zero are kept out of them.
    safe, token = shield(jax.lax.stop_gradient(y) if first_order else y)
    point, raw = _evaluate(path, edge.end, safe, first_order or with_gradient)
    point = gate(point, token, ~jnp.isfinite(point.log_density))
    end = point.log_density
    if first_order:
        usable = jnp.isfinite(end) & jnp.isfinite(point.gradient)
        slope = jax.lax.stop_gradient(jnp.where(usable, point.gradient, 0))
        end = jax.lax.stop_gradient(end) + jnp.sum(slope * (y - point.x))
    increment = end + log_det - log_density
    return Moved(
        point=point,
        log_increment=sanitise(increment),
        is_nan=jnp.isnan(raw) | jnp.isnan(log_det),
        is_infinite=raw == jnp.inf,
    )


def _evaluate(
    path: AbstractPath, beta: Array, x: Array, with_gradient: bool
) -> tuple[Point, Array]:
    def log_density(x):
        raw = path.log_density(beta, x)
        return sanitise(raw), raw

    if not with_gradient:
        value, raw = log_density(x)
        return Point(x, value, None), raw
    (value, raw), gradient = jax.value_and_grad(log_density, has_aux=True)(x)
    return Point(x, value, gradient), raw


def correct(
    key: PRNGKeyArray,
    path: AbstractPath,
    kernel: AbstractKernel,
    resampler: AbstractResampler,
    particles: Particles,
    moved: Moved,
    edge: Edge,
) -> tuple[Particles, StepInfo]:
    """Reweight, resample and move (Algorithm 1, lines 4 to 10)."""
    key_resample, key_move = jr.split(key)
    n = particles.num_particles

    # Lines 4 and 5. If every particle is dead the weights stay as they were and
    # log Z is -inf, which `Result.check` turns into an error.
    log_weights = particles.log_weights + moved.log_increment
    log_sum = jax.nn.logsumexp(log_weights)
    alive = log_sum > -jnp.inf
    log_weights = jnp.where(alive, log_weights - log_sum, particles.log_weights)

    # Lines 6 to 9.
    ess = effective_sample_size(log_weights)
    selection = resampler(
        key_resample,
        log_weights,
        (moved.point, particles.roots, particles.log_choices),
    )
    point, roots, log_choices = selection.survivors

    # Line 10.
    point, kernel_info = kernel.move_all(key_move, point, path.at(edge.end), edge.end)

    info = StepInfo(
        free_energy=-weighted_mean(particles.weights, moved.log_increment),
        log_ratio=log_sum,
        ess=ess,
        resampled=selection.resampled,
        acceptance_rate=jnp.mean(kernel_info.acceptance_rate),
        num_nan=jnp.sum(moved.is_nan),
        num_infinite=jnp.sum(moved.is_infinite),
        num_zero=jnp.sum(moved.log_increment == -jnp.inf),
        num_evaluations=n * (1 + jnp.mean(kernel_info.num_evaluations)),
    )
    particles = Particles(
        x=point.x,
        log_density=point.log_density,
        log_weights=selection.log_weights,
        log_normalizer=particles.log_normalizer + log_sum,
        roots=roots,
        log_selection=particles.log_selection + selection.log_selection,
        log_choices=log_choices + kernel_info.log_probability,
    )
    return particles, info


class Sampler(eqx.Module):
    """An SMC sampler whose transitions may be helped by flows.

    Args:
        path: From initial distribution to target, with the temperatures.
        kernel: Markov kernel applied after each transition.
        resampler: When and how to resample. `NoResampling()` gives annealed
            importance sampling.
        num_particles: Number of particles.
    """

    path: AbstractPath
    kernel: AbstractKernel
    resampler: AbstractResampler
    num_particles: int = eqx.field(static=True)

    def __init__(
        self,
        path: AbstractPath,
        kernel: AbstractKernel | None = None,
        resampler: AbstractResampler | None = None,
        *,
        num_particles: int = 1000,
    ):
        for name, value, kind in (
            ("path", path, AbstractPath),
            ("kernel", kernel, AbstractKernel | None),
            ("resampler", resampler, AbstractResampler | None),
        ):
            if not isinstance(value, kind):
                raise InvalidInputError(
                    f"{name} must be a {kind}, got {type(value).__name__}"
                )
        self.path = path
        self.kernel = bind(NoMove() if kernel is None else kernel, path.betas)
        self.resampler = ESSResampling() if resampler is None else resampler
        self.num_particles = whole_number("num_particles", num_particles)

    def init(self, key: PRNGKeyArray) -> Particles:
        """Draw the initial particles (Algorithm 3, line 3)."""
        return Particles.uniform(*self.path.sample(key, self.num_particles))

    def transport(
        self,
        flow: AbstractBijection,
        particles: Particles,
        edge: Edge,
        *,
        first_order: bool = False,
    ) -> Moved:
        """`transport` for all particles."""
        return jax.vmap(
            lambda x, value: transport(
                self.path,
                flow,
                x,
                value,
                edge,
                first_order=first_order,
                with_gradient=self.kernel.needs_gradient,
            )
        )(particles.x, particles.log_density)

    def correct(
        self, key: PRNGKeyArray, particles: Particles, moved: Moved, edge: Edge
    ) -> tuple[Particles, StepInfo]:
        """`correct` with this sampler's path, kernel and resampler."""
        return correct(
            key, self.path, self.kernel, self.resampler, particles, moved, edge
        )

    def step(
        self,
        key: PRNGKeyArray,
        particles: Particles,
        flow: AbstractBijection,
        edge: Edge,
    ) -> tuple[Particles, StepInfo]:
        """The SMC-NF step (Algorithm 1)."""
        return self.correct(key, particles, self.transport(flow, particles, edge), edge)

    def run(self, key: PRNGKeyArray, flows: AbstractBijection | None = None) -> Result:
        """Run the sampler (Algorithm 3).

        Args:
            key: Random key.
            flows: One flow per transition, stacked along a leading axis as trainers
                return them; None for plain SMC.

        Raises:
            InvalidInputError: If the flows do not fit the path.
            SamplingError: If every particle died, or the density was +inf somewhere.
        """
        result = jitted_pass(*pass_arguments(self, key, flows))
        result.check(self.path)
        return result


def pass_arguments(
    sampler: Sampler, key: PRNGKeyArray, flows: AbstractBijection | None
) -> tuple[Sampler, PRNGKeyArray, AbstractBijection]:
    """What the compiled pass takes, checked."""
    if flows is None:
        return sampler, key, Identity(sampler.path.shape)  # type: ignore[call-arg]
    check_stacked(flows, sampler.path)
    return sampler, key, flows


@eqx.filter_jit
def jitted_pass(
    sampler: Sampler, key: PRNGKeyArray, flows: AbstractBijection
) -> Result:
    """A pass (Algorithm 3), unchecked."""
    key_init, key_steps = jr.split(key)
    arrays, static = eqx.partition(flows, eqx.is_array)

    def step(particles, inputs):
        key, edge, arrays = inputs
        return sampler.step(key, particles, eqx.combine(arrays, static), edge)

    keys = jr.split(key_steps, sampler.path.num_transitions)
    particles, steps = jax.lax.scan(
        step, sampler.init(key_init), (keys, sampler.path.edges, arrays)
    )
    return Result(particles, steps)

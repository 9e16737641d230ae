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

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from flowjax.bijections import AbstractBijection, Identity
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from annealax._checks import whole_number
from annealax._cotangents import gate, shield
from annealax._errors import InvalidInputError
from annealax._layout import (
    AXIS,
    Layout,
    Mapped,
    Spread,
    brought_home,
    check_mesh,
    choose_block_size,
    mesh_for,
    pinned,
)
from annealax._particles import Particles, Sums, weighted_mean
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
    layout: Layout | None = None,
) -> tuple[Particles, StepInfo]:
    """Reweight, resample and move (Algorithm 1, lines 4 to 10).

    Args:
        key: Random key.
        path: Annealing path.
        kernel: Markov kernel.
        resampler: When and how to resample.
        particles: The particles before the transition.
        moved: What `transport` made of them.
        edge: The transition.
        layout: Where the particles are; None for all in one block.
    """
    key_resample, key_move = jr.split(key)
    if layout is None:
        layout = Layout(particles.num_particles, particles.num_particles)
    n = layout.num_particles

    # Lines 4 and 5. If every particle is dead the weights stay as they were and
    # log Z is -inf, which `Result.check` turns into an error.
    found = layout.map(
        functools.partial(_reweigh, layout), particles.log_weights, moved
    ).numbers
    sums, log_sum = found.sums.together(), found.sums.together().log_sum
    alive = log_sum > -jnp.inf
    log_weights = particles.log_weights + moved.log_increment - log_sum
    log_weights = jnp.where(alive, log_weights, particles.log_weights)

    # Lines 6 to 9.
    selection = resampler(
        key_resample,
        log_weights,
        (moved.point, particles.roots, particles.log_choices),
        layout,
    )
    point, roots, log_choices = selection.survivors

    # Line 10.
    def move(first, point):
        point, info = kernel.move_all(
            key_move, point, path.at(edge.end), edge.end, first
        )
        counts = layout.valid(first)
        sums = tuple(
            jnp.sum(jnp.where(counts, value, 0))
            for value in (info.acceptance_rate, info.num_evaluations)
        )
        choices = jnp.broadcast_to(info.log_probability, point.log_density.shape)
        return Mapped((point.x, point.log_density, choices), sums)

    made = layout.map(move, point)
    x, log_density, choices = made.each
    acceptance, evaluations = map(jnp.sum, made.numbers)

    info = StepInfo(
        free_energy=jnp.sum(found.free_energy),
        log_ratio=log_sum,
        ess=jnp.where(alive, sums.effective_sample_size, 0),
        resampled=selection.resampled,
        acceptance_rate=acceptance / n,
        num_nan=jnp.sum(found.num_nan),
        num_infinite=jnp.sum(found.num_infinite),
        num_zero=jnp.sum(found.num_zero),
        num_evaluations=n + evaluations,
    )
    particles = Particles(
        x=x,
        log_density=log_density,
        log_weights=selection.log_weights,
        log_normalizer=particles.log_normalizer + log_sum,
        roots=roots,
        log_selection=particles.log_selection + selection.log_selection,
        log_choices=log_choices + choices,
    )
    return particles, info


class Sampler(eqx.Module):
    """An SMC sampler whose transitions may be helped by flows.

    Particles are worked on in blocks (`annealax._layout`). Results depend on their size
    and never on the devices that they are spread over.

    Args:
        path: From initial distribution to target, with the temperatures.
        kernel: Markov kernel applied after each transition.
        resampler: When and how to resample. `NoResampling()` gives annealed
            importance sampling.
        num_particles: Number of particles.
        block_size: Particles that are worked on at once, at most: this bounds memory.
            None for as many as fit a processor's cache, which depends on the number of
            coordinates alone.
        mesh: Devices to spread the blocks over: a mesh with an axis "particles", such
            as `jax.make_mesh((4,), ("particles",))`. None for all devices of this
            process, as far as there are blocks for them.
    """

    path: AbstractPath
    kernel: AbstractKernel
    resampler: AbstractResampler
    num_particles: int = eqx.field(static=True)
    block_size: int | None = eqx.field(static=True)
    mesh: Mesh | Spread | None = eqx.field(static=True)

    def __init__(
        self,
        path: AbstractPath,
        kernel: AbstractKernel | None = None,
        resampler: AbstractResampler | None = None,
        *,
        num_particles: int = 1000,
        block_size: int | None = None,
        mesh: Mesh | Spread | None = None,
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
        self.block_size = (
            None if block_size is None else whole_number("block_size", block_size)
        )
        self.mesh = check_mesh(mesh)

    @property
    def layout(self) -> Layout:
        """Where the particles are."""
        size = math.prod(self.path.shape)
        block = choose_block_size(self.num_particles, size, self.block_size)
        spread = self.mesh if isinstance(self.mesh, Spread) else Spread(1)
        return Layout(self.num_particles, block, spread.num_devices)

    def layout_of(self, particles: Particles) -> Layout:
        """Where these particles are: on one device there may be any number of them."""
        layout, count = self.layout, particles.num_particles
        if count == layout.num_here:
            return layout
        return dataclasses.replace(self, num_particles=count).layout

    def init(self, key: PRNGKeyArray) -> Particles:
        """Draw the initial particles (Algorithm 3, line 3)."""
        layout = self.layout
        if layout.num_blocks == 1:
            return Particles.uniform(*self.path.sample(key, self.num_particles))

        def draw(first):
            return Mapped(self.path.sample(jr.fold_in(key, first), layout.block_size))

        x, log_density = layout.map(draw).each
        return Particles.uniform(x, log_density, layout)

    def transport(
        self, flow: AbstractBijection, particles: Particles, edge: Edge
    ) -> Moved:
        """`transport` for all particles."""

        def move(_, x, log_density):
            return Mapped(self.transport_block(flow, x, log_density, edge))

        layout = self.layout_of(particles)
        return layout.map(move, particles.x, particles.log_density).each

    def transport_block(
        self,
        flow: AbstractBijection,
        x: Float[Array, "particles *shape"],
        log_density: Float[Array, " particles"],
        edge: Edge,
        *,
        first_order: bool = False,
    ) -> Moved:
        """`transport` for the particles of a block, all at once."""
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
        )(x, log_density)

    def correct(
        self, key: PRNGKeyArray, particles: Particles, moved: Moved, edge: Edge
    ) -> tuple[Particles, StepInfo]:
        """`correct` with this sampler's path, kernel, resampler and layout."""
        parts = (self.path, self.kernel, self.resampler)
        layout = self.layout_of(particles)
        return correct(key, *parts, particles, moved, edge, layout)

    def step(
        self,
        key: PRNGKeyArray,
        particles: Particles,
        flow: AbstractBijection,
        edge: Edge,
    ) -> tuple[Particles, StepInfo]:
        """The SMC-NF step (Algorithm 1)."""
        return self.correct(key, particles, self.transport(flow, particles, edge), edge)

    def run(
        self,
        key: PRNGKeyArray,
        flows: AbstractBijection | None = None,
        *,
        mesh: Mesh | None = None,
    ) -> Result:
        """Run the sampler (Algorithm 3).

        Args:
            key: Random key.
            flows: One flow per transition, stacked along a leading axis as trainers
                return them; None for plain SMC.
            mesh: Devices to spread the particles over; None for the sampler's own.

        Raises:
            InvalidInputError: If the flows do not fit the path.
            SamplingError: If every particle died, or the density was +inf somewhere.
        """
        sampler = self if mesh is None else dataclasses.replace(self, mesh=mesh)
        result = brought_home(jitted_pass(*pass_arguments(sampler, key, flows)))
        result.check(self.path)
        return result


class _Reweighed(NamedTuple):
    """What the population needs to know of a block after reweighting."""

    sums: Sums
    free_energy: Float[Array, "*blocks"]
    num_nan: Int[Array, "*blocks"]
    num_infinite: Int[Array, "*blocks"]
    num_zero: Int[Array, "*blocks"]


def _reweigh(
    layout: Layout, first: Int[Array, ""] | int, log_weights: Array, moved: Moved
) -> Mapped:
    """A block after transport (Algorithm 1, lines 4 and 5)."""
    counts = layout.valid(first)
    increment = moved.log_increment
    old = jnp.where(counts, log_weights, -jnp.inf)
    numbers = _Reweighed(
        sums=Sums.of_block(old + increment),
        free_energy=-weighted_mean(jnp.exp(old), increment),
        num_nan=jnp.sum(counts & moved.is_nan),
        num_infinite=jnp.sum(counts & moved.is_infinite),
        num_zero=jnp.sum(counts & (increment == -jnp.inf)),
    )
    return Mapped(numbers=numbers)


def pass_arguments(
    sampler: Sampler, key: PRNGKeyArray, flows: AbstractBijection | None
) -> tuple[Sampler, PRNGKeyArray, AbstractBijection]:
    """What the compiled pass takes, checked."""
    if sampler.mesh is None and (mesh := pinned((key, flows))) is not None:
        sampler = dataclasses.replace(sampler, mesh=mesh)
    if flows is None:
        return sampler, key, Identity(sampler.path.shape)  # type: ignore[call-arg]
    check_stacked(flows, sampler.path)
    return sampler, key, flows


@eqx.filter_jit
def jitted_pass(
    sampler: Sampler, key: PRNGKeyArray, flows: AbstractBijection
) -> Result:
    """A pass (Algorithm 3), unchecked."""
    return spread(_pass, sampler, key, flows)


def _pass(sampler: Sampler, key: PRNGKeyArray, flows: AbstractBijection) -> Result:
    key_init, key_steps = jr.split(key)
    arrays, static = eqx.partition(flows, eqx.is_array)

    def step(particles, inputs):
        key, edge, arrays = inputs
        return sampler.step(key, particles, eqx.combine(arrays, static), edge)

    keys = jr.split(key_steps, sampler.path.num_transitions)
    particles, steps = jax.lax.scan(
        step, sampler.init(key_init), (keys, sampler.path.edges, arrays)
    )
    layout = sampler.layout
    return Result(particles.everywhere(layout), steps, layout.num_devices)


def spread(function: Callable[..., Any], sampler: Sampler, *arguments: Any) -> Any:
    """Call a function of a sampler with its particles spread over devices.

    Args:
        function: Is given the sampler as one device sees it, and the arguments; what it
            returns has to be the same on all of them.
        sampler: The sampler.
        *arguments: Anything.
    """
    mesh = mesh_for(sampler.layout, sampler.mesh)
    if mesh is None:
        return function(sampler, *arguments)
    arrays, static = eqx.partition((sampler, arguments), eqx.is_array)
    kept = []

    def on_device(arrays):
        sampler, arguments = eqx.combine(arrays, static)
        here = dataclasses.replace(sampler, mesh=Spread(mesh.shape[AXIS]))
        arrays, rest = eqx.partition(function(here, *arguments), eqx.is_array)
        kept.append(rest)
        return arrays

    # Replicated by construction: gathered, or computed everywhere from what was.
    arrays = jax.shard_map(
        on_device, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False
    )(arrays)
    return eqx.combine(arrays, kept[-1])

"""CRAFT as a pipeline; that it gives the bits of CRAFT is in `test_layout`."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
import pytest

import annealax as ax

MESH = jax.make_mesh((1,), ("temperatures",))


def craft(num_particles=5, **more):
    path = ax.GeometricPath((4,), ax.targets.Normal(jnp.ones(4)), 3)
    sampler = ax.Sampler(path, num_particles=num_particles, **more)
    return ax.CRAFT(sampler, optax.adam(1e-2))


@pytest.mark.parametrize(
    ("num_particles", "travelling"),
    # Positions of particles; or two parameters with two moments each.
    [(5, {"f32[5,4]": 1, "f32[3,4]": 0}), (500, {"f32[500,4]": 0, "f32[3,4]": 6})],
)
def test_what_is_smaller_travels(num_particles, travelling):
    trainer = ax.Pipeline(craft(num_particles), MESH)
    state = trainer.init(jr.key(0), ax.flows.diagonal_affine(None, 4))
    numbers = (jnp.asarray(0), jnp.asarray(2))
    made = eqx.filter_make_jaxpr(trainer.steps)(jr.key(0), state, *numbers, 2)
    moved = re.findall(r":(\S+) = ppermute\[", str(made[0]))
    assert {shape: moved.count(shape) for shape in travelling} == travelling


def test_what_does_not_fit_is_an_error(untyped):
    particles = jax.make_mesh((1,), ("particles",))
    for mesh in (particles, 4):
        with pytest.raises(ax.InvalidInputError, match='one axis "temperatures"'):
            ax.Pipeline(craft(), mesh)
    with pytest.raises(ax.InvalidInputError, match="of a CRAFT trainer, got AFT"):
        ax.Pipeline(ax.AFT(craft().sampler, optax.adam(1e-2)), MESH)
    with pytest.raises(ax.InvalidInputError, match="the sampler has a mesh"):
        ax.Pipeline(craft(mesh=particles), MESH)
    with pytest.raises(ax.InvalidInputError, match="or None, got 'all'"):
        ax.Pipeline(craft(), MESH, "all")

"""Runs on several virtual devices, in a process of its own: digests as JSON."""

import hashlib
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

import annealax as ax


def log_density(x):
    """Two unequal modes."""
    left = -0.5 * jnp.sum(((x - jnp.array([-1.0, 0.5])) / 0.4) ** 2)
    right = -0.5 * jnp.sum(((x - jnp.array([0.8, -0.4])) / 0.5) ** 2)
    return jnp.logaddexp(left, right + 0.5)


def digest(tree):
    """Of all bits."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array)):
        found.update(np.asarray(leaf).tobytes())
    return found.hexdigest()[:12]


def mesh(count):
    """The first devices."""
    return jax.sharding.Mesh(np.asarray(jax.devices()[:count]), ("particles",))


def sampler(resampler, num_particles=64, block_size=16, count=None):
    """Few particles, four blocks."""
    path = ax.GeometricPath((2,), log_density, [0.0, 0.3, 0.6, 1.0])
    return ax.Sampler(
        path,
        ax.kernels.HMC(0.3, num_leapfrog=2),
        resampler,
        num_particles=num_particles,
        block_size=block_size,
        mesh=None if count is None else mesh(count),
    )


def train(trainer):
    """50 iterations, in two calls of the devices."""
    flow = ax.flows.diagonal_affine(None, 2)
    return ax.fit(jr.key(2), trainer, flow, num_steps=50, steps_per_call=25)


def pipeline(count, travels):
    """Three temperatures on two devices, or one on each of three."""
    craft = ax.CRAFT(sampler(ax.ESSResampling(0.95)), optax.adam(1e-2))
    devices = jax.sharding.Mesh(np.asarray(jax.devices()[:count]), ("temperatures",))
    return train(ax.Pipeline(craft, devices, travels))


def main():
    """Print what the tests want to know."""
    smc = sampler(ax.ESSResampling(0.95))
    islands = sampler(ax.IslandResampling(0.95))
    left_over = sampler(ax.ESSResampling(0.95, "residual"), 71, 11)
    key = jr.key(1)
    results = {count: smc.run(key, mesh=mesh(count)) for count in (1, 2, 4)}
    results["default"] = smc.run(key)

    fits = {}
    for count in (1, 2, 4):
        placed = sampler(ax.ESSResampling(0.95), count=count)
        fits[count] = train(ax.CRAFT(placed, optax.adam(1e-2)))
    pipelines = {
        "one after the other": fits[1],
        "particles travel": pipeline(2, "particles"),
        "flows travel": pipeline(3, "flows"),
    }
    chains = {
        count: ax.pimh(
            jr.key(3),
            lambda k, count=count: smc.run(k, fits[count].flows, mesh=mesh(count)),
            num_steps=5,
        )
        for count in (1, 2, 4)
    }
    found = {
        "run": {count: digest(result) for count, result in results.items()},
        "devices": {count: result.num_devices for count, result in results.items()},
        "islands": {n: digest(islands.run(key, mesh=mesh(n))) for n in (1, 3, 4)},
        "left over": {n: digest(left_over.run(key, mesh=mesh(n))) for n in (1, 2, 4)},
        "training": {n: digest((fit.flows, fit.history)) for n, fit in fits.items()},
        "pipeline": {
            name: digest((fit.flows, fit.state, fit.history))
            for name, fit in pipelines.items()
        },
        "pimh": {n: digest(chain.log_normalizer) for n, chain in chains.items()},
        "one block": sampler(None, 64, 64).run(key, mesh=mesh(4)).num_devices,
        "at home": all(
            len(leaf.devices()) == 1 for leaf in jax.tree.leaves(results[4])
        ),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()

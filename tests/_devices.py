"""Runs on several virtual devices, in a process of its own: digests as JSON."""

import hashlib
import json
import tempfile

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.experimental.compilation_cache.compilation_cache import reset_cache

import annealax as ax
from annealax.experiments.evaluation import evaluate


def log_density(x):
    """Two unequal modes."""
    left = -0.5 * jnp.sum(((x - jnp.array([-1.0, 0.5])) / 0.4) ** 2)
    right = -0.5 * jnp.sum(((x - jnp.array([0.8, -0.4])) / 0.5) ** 2)
    return jnp.logaddexp(left, right + 0.5)


def digest(tree):
    """Of all bits."""
    found = hashlib.sha256()
    leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_array_like))
    assert leaves
    for leaf in leaves:
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


FLOW = ax.flows.diagonal_affine(None, 2)
NETWORKS = ax.flows.coupling(jr.key(0), 2, num_layers=2, hidden=(8,))
SPLINES = ax.flows.spline_autoregressive(jr.key(0), (2,), hidden=(8,), num_bins=4)


def train(trainer, flow=FLOW):
    """50 iterations, in two calls of the devices."""
    return ax.fit(jr.key(2), trainer, flow, num_steps=50, steps_per_call=25)


def craft(count=None):
    """CRAFT, as a pipeline if no number of devices is given."""
    placed = sampler(ax.ESSResampling(0.95), count=count)
    return ax.CRAFT(placed, optax.adam(1e-2))


def pipeline(count, travels):
    """Three temperatures on two devices, or one on each of three."""
    devices = jax.sharding.Mesh(np.asarray(jax.devices()[:count]), ("temperatures",))
    return ax.Pipeline(craft(), devices, travels)


def proposals(smc):
    """More than there are devices: how many of these were used, and what came out."""
    chain = ax.pimh(jr.key(3), smc.run, num_steps=5, configurations=True)
    return chain.num_devices, (chain.observables, chain.configurations)


def stays(smc):
    """Devices of proposals that call Python, or whose key was put on a device."""

    def python(x):
        return np.float32(-0.5 * np.sum(np.square(x)))

    def density(x):
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(python, shape, x, vmap_method="sequential")

    path = ax.GeometricPath((1,), density, 1)
    walk = ax.Sampler(path, ax.kernels.RandomWalk(0.5), num_particles=4)
    placed = jax.device_put(jr.key(3), jax.devices()[1])
    chains = (
        ax.pimh(jr.key(3), walk.run, num_steps=4),
        ax.pimh(placed, smc.run, num_steps=4),
    )
    return [chain.num_devices for chain in chains]


def independent(smc):
    """The same of proposals, passes and replicates."""
    passes = evaluate(jr.key(5), smc, label="", num_repeats=5)
    sample = ax.sample(
        lambda x: -0.5 * jnp.sum(x**2),
        (1,),
        seed=6,
        num_particles=100,
        num_replicates=4,
        dtype="float64",
    )
    return {
        "proposals": proposals(smc),
        "passes": (passes.num_devices, (passes.log_normalizers, passes.result)),
        "replicates": (sample.num_devices, (sample.vectors, sample.log_weights)),
    }


def digest_of(fit):
    """Of all that was trained, and of what it showed."""
    return digest((fit.flows, fit.state, fit.history))


def main():
    """Print what the tests want to know."""
    smc = sampler(ax.ESSResampling(0.95))
    islands = sampler(ax.IslandResampling(0.95))
    left_over = sampler(ax.ESSResampling(0.95, "residual"), 71, 11)
    key = jr.key(1)
    results = {count: smc.run(key, mesh=mesh(count)) for count in (1, 2)}
    results["default"] = smc.run(key)
    fits = {count: train(craft(count)) for count in (1, 2, 4)}
    pipelines = {
        "one after the other": fits[1],
        "flows travel": train(pipeline(3, "flows")),
    }
    networks = {
        1: train(craft(1), NETWORKS),
        2: train(craft(2), NETWORKS),
        "particles travel": train(pipeline(2, "particles"), NETWORKS),
    }
    splines = {count: train(craft(count), SPLINES) for count in (1, 4)}
    chains = {
        count: ax.pimh(
            jr.key(3),
            lambda k, count=count: smc.run(k, fits[count].flows, mesh=mesh(count)),
            num_steps=5,
        )
        for count in (1, 4)
    }
    # Whatever is independent goes over all devices, unless JAX is told to use one.
    # Programs that are in a cache on disk are not copied, but compiled for each.
    jax.config.update("jax_compilation_cache_dir", None)
    reset_cache()
    ways = {"copied": independent(smc)}
    with jax.default_device(jax.devices()[0]):
        ways["in turn"] = independent(smc)
    with tempfile.TemporaryDirectory() as folder:
        ax.compilation_cache(folder)
        ways["cached"] = {"proposals": proposals(smc)}
    found = {
        "run": {count: digest(result) for count, result in results.items()},
        "devices": {count: result.num_devices for count, result in results.items()},
        "islands": {n: digest(islands.run(key, mesh=mesh(n))) for n in (1, 3)},
        "left over": {n: digest(left_over.run(key, mesh=mesh(n))) for n in (1, 4)},
        "training": {n: digest_of(fit) for n, fit in fits.items()},
        "pipeline": {n: digest_of(fit) for n, fit in pipelines.items()},
        "networks": {n: digest_of(fit) for n, fit in networks.items()},
        "splines": {n: digest_of(fit) for n, fit in splines.items()},
        **{
            what: {way: digest(ways[way][what][1]) for way in ("copied", "in turn")}
            for what in ways["copied"]
        },
        "cached": {way: digest(made["proposals"][1]) for way, made in ways.items()},
        "devices, independent": {
            way: sorted(used for used, _ in made.values()) for way, made in ways.items()
        },
        "stays": stays(sampler(None, 16, 16)),
        "pimh": {n: digest(chain.log_normalizer) for n, chain in chains.items()},
        "one block": sampler(None, 64, 64).run(key, mesh=mesh(4)).num_devices,
        "at home": all(
            len(leaf.devices()) == 1 for leaf in jax.tree.leaves(results["default"])
        ),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()

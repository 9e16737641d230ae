"""Time the gradient of the VAE posterior against a bare product, in one process.

Run: python benchmarks/vae_pieces.py [--particles 2000] [--repeats 10]
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from annealax.targets import VAE
from annealax.vae import _decoder
from cox_pieces import best_of


def xla_upsample(maps, kernel, bias):
    """The same layer by XLA's own convolution."""
    flipped = kernel[::-1, ::-1]
    out = jax.lax.conv_general_dilated(
        maps[None],
        flipped,
        (1, 1),
        [(2, 2), (2, 2)],
        lhs_dilation=(2, 2),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return out[0] + bias


def main(particles, repeats):
    target = VAE()
    z = jr.normal(jr.key(0), (particles, 30))
    x, matrix = jr.normal(jr.key(1), (2000, 1024)), jr.normal(jr.key(2), (1024, 1024))

    def gradient(upsample):
        def run(z):
            _decoder.upsample = upsample  # seen when it is traced
            return jax.vmap(jax.value_and_grad(target))(z)

        return eqx.filter_jit(run)

    ours = _decoder.upsample
    maps = jr.normal(jr.key(3), (7, 7, 32))
    gap = jnp.abs(
        ours(maps, *target.decoder.first) - xla_upsample(maps, *target.decoder.first)
    )
    assert float(gap.max()) < 1e-3, gap.max()
    times = best_of(
        repeats,
        {
            "gemm": (jax.jit(lambda x: x @ matrix), x),
            "value and gradient": (gradient(ours), z),
            "value and gradient, XLA convolution": (gradient(xla_upsample), z),
        },
    )
    for name, milliseconds in times.items():
        print(
            f"{name:40} {milliseconds:8.1f} ms {milliseconds / times['gemm']:6.1f} gemm"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--particles", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    main(options.particles, options.repeats)

"""Time the pieces of the Cox density against a bare product, in one process.

The goal: one value and gradient at 2000 particles costs at most 1.5 times one float32
product of 2000 x 1024 by 1024 x 1024 plus one pass of the exponential.

Run: python benchmarks/cox_pieces.py [--grid 32] [--particles 2000] [--repeats 20]
"""

import argparse
import time

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from annealax.targets import LogGaussianCoxPines


def best_of(repeats, functions):
    """Best time of each function, the rounds interleaved, in milliseconds."""
    for function, x in functions.values():
        jax.block_until_ready(function(x))
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, (function, x) in functions.items():
            start = time.perf_counter()
            jax.block_until_ready(function(x))
            best[name] = min(best[name], 1e3 * (time.perf_counter() - start))
    return best


def pieces(grid, particles):
    target, white = (LogGaussianCoxPines(grid, whitened=w) for w in (False, True))
    x = jr.normal(jr.key(0), (particles, grid**2))
    matrix = jr.normal(jr.key(1), (grid**2, grid**2))

    def batch(function):
        return jax.jit(jax.vmap(function))

    def shifted(x):
        return white(x - 3.9)

    def learnt(x, parameters):
        return jax.vmap(lambda x: target.log_density(x, *parameters))(x).mean()

    return {
        "product": (jax.jit(lambda x: x @ matrix), x),
        "exponential": (jax.jit(jnp.exp), x),
        "value": (batch(target), x),
        "gradient": (batch(jax.grad(target)), x),
        "value and gradient": (batch(jax.value_and_grad(target)), x),
        "Hessian times vector": (
            batch(lambda x: jax.jvp(jax.grad(target), (x,), (x,))),
            x,
        ),
        "whitened value": (batch(shifted), x),
        "whitened value and gradient": (batch(jax.value_and_grad(shifted)), x),
        "gradient in the parameters": (
            jax.jit(lambda x: jax.grad(learnt, 1)(x, (1.91, 1 / 33))),
            x,
        ),
    }


def float32_errors(grid, particles=200):
    """Largest errors of the float32 value and gradient at draws from the prior."""
    with jax.enable_x64(True):
        exact = LogGaussianCoxPines(grid)
        white = LogGaussianCoxPines(grid, whitened=True)
        noise = jr.normal(jr.key(2), (particles, grid**2))
        x = jax.vmap(white.log_intensity)(noise).reshape(particles, -1)
        # The same points for both precisions.
        x = np.asarray(x.astype(jnp.float32))
        value, gradient = jax.vmap(jax.value_and_grad(exact))(x.astype(np.float64))
        value, gradient = np.asarray(value), np.asarray(gradient)
    single = jax.vmap(jax.value_and_grad(LogGaussianCoxPines(grid)))(jnp.asarray(x))
    return [
        np.abs(np.asarray(a, np.float64) - b).max()
        for a, b in zip(single, (value, gradient), strict=True)
    ] + [np.abs(value).max(), np.abs(gradient).max()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grid", type=int, default=32)
    parser.add_argument("--particles", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    times = best_of(options.repeats, pieces(options.grid, options.particles))
    unit = times["product"] + times["exponential"]
    print(f"{options.grid} x {options.grid} cells, {options.particles} particles")
    print(f"{'':28} {'ms':>8} {'/ (product + exp)':>18}")
    for name, milliseconds in times.items():
        print(f"{name:28} {milliseconds:8.2f} {milliseconds / unit:18.2f}")
    value, gradient, size, slope = float32_errors(options.grid)
    print(f"float32 error of the value {value:.1e} (values up to {size:.0f})")
    print(f"float32 error of the gradient {gradient:.1e} (entries up to {slope:.1f})")


if __name__ == "__main__":
    main()

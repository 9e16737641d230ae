"""Time the pieces of a phi^4 run at paper scale, in one process.

- 100 leapfrog steps: gradient of the library, and by automatic differentiation through
  `jnp.roll`; particle axis first (`vmap` around the loop) and last (`vmap` in it).
- Coupling layers: forward, value and gradient, each alone and, as in a run, repeated
  within one compiled loop. A lone call pays for fresh memory from the system (about a
  third of the time), a loop does so once.

The goals: two affine layers forward in 1.6 gemm, value and gradient in 4.

Run: python benchmarks/lattice_pieces.py [--side 14] [--particles 2000] [--rounds 10]
"""

import argparse
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

import _timing
from annealax import flows, observables
from annealax.targets import Phi4

MASS_SQUARED, COUPLING = -4.75, 5.1
NUM_LEAPFROG, STEP_SIZE, REPEATS = 100, 0.01, 10
FLOWS: dict[str, dict] = {
    "affine": {},
    "affine, odd": {"odd": True},
    "spline": {"transformer": "spline"},
}


def plain_log_density(x):
    shifts = sum(jnp.roll(x, s, a) for s in (1, -1) for a in (0, 1))
    return -jnp.sum(x * (4 * x - shifts) + MASS_SQUARED * x**2 + COUPLING * x**4)


def leapfrog(gradient: Callable, x, momentum):
    def step(_, state):
        x, momentum = state
        x = x + STEP_SIZE * momentum
        return x, momentum + STEP_SIZE * gradient(x)

    return jax.lax.fori_loop(0, NUM_LEAPFROG, step, (x, momentum))


def leapfrog_first(log_density, x, momentum):
    gradient = jax.grad(log_density)
    return jax.vmap(lambda x, p: leapfrog(gradient, x, p))(x, momentum)


def leapfrog_last(log_density, x, momentum):
    """Particle axis last inside the loop, first outside."""
    gradient = jax.vmap(jax.grad(log_density), -1, -1)
    out = leapfrog(gradient, jnp.moveaxis(x, 0, -1), jnp.moveaxis(momentum, 0, -1))
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), out)


def forward(params, static, x):
    return jax.vmap(eqx.combine(params, static).transform_and_log_det)(x)


def loss(params, static, x):
    y, log_det = forward(params, static, x)
    return jnp.mean(0.5 * jnp.sum(y * y, axis=(1, 2)) - log_det)


def repeated_forward(params, static, x):
    def step(_, x):
        y, log_det = forward(params, static, x)
        return 0.5 * y + 0 * log_det[:, None, None]

    return jax.lax.fori_loop(0, REPEATS, step, x)


def repeated_gradient(params, static, x):
    def step(_, params):
        gradient = jax.grad(loss)(params, static, x)
        return jax.tree.map(lambda p, g: p - 1e-6 * g, params, gradient)

    return jax.lax.fori_loop(0, REPEATS, step, params)


def compiled(function: Callable, *args) -> Callable:
    call = _timing.compile_ahead(function, *args).call
    return lambda: call(*args)


def pieces(side: int, particles: int) -> tuple[dict[str, Callable], dict[str, int]]:
    """The calls by name, and how often each repeats its piece."""
    shape = (particles, side, side)
    x, momentum = 0.5 * jr.normal(jr.key(0), shape), jr.normal(jr.key(1), shape)
    target = Phi4((side, side), MASS_SQUARED, COUPLING)
    calls = {
        "gemm": _timing.gemm_call(),
        "leapfrogs, plain": compiled(
            lambda x, p: leapfrog_first(plain_log_density, x, p), x, momentum
        ),
        "leapfrogs": compiled(lambda x, p: leapfrog_first(target, x, p), x, momentum),
        "leapfrogs, particles last": compiled(
            lambda x, p: leapfrog_last(target, x, p), x, momentum
        ),
        "all observables": compiled(
            lambda x: observables.expectation(target.observables, x), x
        ),
    }
    repeats = {}
    for name, options in FLOWS.items():
        flow = flows.lattice_coupling(jr.key(2), (side, side), **options)
        params, static = eqx.partition(flow, eqx.is_inexact_array)
        args = params, static, x
        calls[f"{name}: forward"] = compiled(repeated_forward, *args)
        calls[f"{name}: value and gradient"] = compiled(repeated_gradient, *args)
        calls[f"{name}: forward, alone"] = compiled(forward, *args)
        calls[f"{name}: value and gradient, alone"] = compiled(
            jax.value_and_grad(loss), *args
        )
        repeats[f"{name}: forward"] = repeats[f"{name}: value and gradient"] = REPEATS
    return calls, repeats


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=14)
    parser.add_argument("--particles", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    calls, repeats = pieces(options.side, options.particles)
    times = _timing.measure(calls, rounds=options.rounds)
    unit, rows = times["gemm"], []
    for name, (wall, cpu) in times.items():
        count = repeats.get(name, 1)
        in_units = wall / count / unit.wall, cpu / count / unit.cpu
        rows.append(
            [name, f"{1e3 * wall / count:.1f}", *map("{:.2f}".format, in_units)]
        )
    _timing.print_table(
        f"phi^4, {options.side} x {options.side}, {options.particles} particles; load "
        f"{_timing.load():.1f} per processor",
        ["piece", "ms", "gemm", "gemm (cpu)"],
        rows,
    )


if __name__ == "__main__":
    main()

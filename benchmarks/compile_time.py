"""Compile time against the number of temperatures, and how often a fit traces the flow.

    python benchmarks/compile_time.py            100 against 10 temperatures
    python benchmarks/compile_time.py --quick    20 against 10, small networks

Both the training step and the run scan over the temperatures, so that the times should
agree, and the flow is traced as often whatever their number.
"""

import argparse
import time

import equinox as eqx
import jax.random as jr
import optax
from flowjax.bijections import AbstractBijection
from jaxtyping import Array

import annealax as ax
from _timing import compile_ahead, print_table


class Counting(AbstractBijection):
    """A bijection that counts, in Python, how often it is traced."""

    bijection: AbstractBijection
    count: list[int] = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: None = eqx.field(static=True)

    def __init__(self, bijection: AbstractBijection):
        self.bijection, self.count = bijection, _Count([0])
        self.shape, self.cond_shape = bijection.shape, None

    def transform_and_log_det(
        self, x: Array, condition: Array | None = None
    ) -> tuple[Array, Array]:
        """Count and pass on."""
        self.count[0] += 1
        return self.bijection.transform_and_log_det(x, condition)

    def inverse_and_log_det(
        self, y: Array, condition: Array | None = None
    ) -> tuple[Array, Array]:
        """Pass on."""
        return self.bijection.inverse_and_log_det(y, condition)


class _Count(list):
    """A counter that can be a static field: it is hashed and compared by identity."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


def flows(*, quick: bool) -> dict[str, AbstractBijection]:
    hidden = (64, 64) if quick else (960, 960, 960)
    return {
        "diagonal affine": ax.flows.diagonal_affine(None, (32,)),
        "spline autoregressive": ax.flows.spline_autoregressive(
            jr.key(0), (32,), hidden=hidden, num_bins=10
        ),
    }


def trainer(num_transitions: int, num_particles: int) -> ax.CRAFT:
    path = ax.GeometricPath((32,), ax.targets.ManyWell(32), num_transitions)
    sampler = ax.Sampler(path, ax.kernels.HMC(0.1, 10), num_particles=num_particles)
    return ax.CRAFT(sampler, optax.adam(1e-3))


def compile_row(name: str, flow: AbstractBijection, num_transitions: int) -> list[str]:
    craft = trainer(num_transitions, 2000)
    state = craft.init(jr.key(0), flow)
    step = compile_ahead(craft.step, jr.key(0), state)
    run = compile_ahead(craft.sampler.run, jr.key(0), state.flows)
    return [
        name,
        str(num_transitions),
        *(f"{c.trace_seconds:.1f} + {c.compile_seconds:.1f}" for c in (step, run)),
        *(f"{c.cpu_seconds:.1f}" for c in (step, run)),
    ]


def trace_row(name: str, flow: AbstractBijection, num_steps: int) -> list[str]:
    counting = Counting(flow)
    began = time.perf_counter()
    fit = ax.fit(jr.key(0), trainer(10, 100), counting, num_steps=num_steps)
    seconds = time.perf_counter() - began
    return [
        name,
        str(num_steps),
        str(counting.count[0]),
        f"{fit.compile_seconds:.1f}",
        f"{seconds:.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="smaller, for a smoke test"
    )
    args = parser.parse_args()
    kinds = flows(quick=args.quick)
    ladders = (10, 20) if args.quick else (10, 100)
    # The first compilation of a process also loads the compiler.
    compile_row("warm-up", kinds["diagonal affine"], 2)
    print_table(
        "Compile time in seconds (trace + compile), and processor time",
        ["flow", "temperatures", "training step", "run", "step, CPU", "run, CPU"],
        [compile_row(name, flow, k) for name, flow in kinds.items() for k in ladders],
    )
    print_table(
        "Traces of the flow in a fit: it must not depend on the number of steps",
        ["flow", "steps", "traces", "compile (s)", "fit (s)"],
        [trace_row(name, flow, k) for name, flow in kinds.items() for k in (1, 5)],
    )


if __name__ == "__main__":
    main()

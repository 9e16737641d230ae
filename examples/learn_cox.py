"""Learn variance and length scale of the pine saplings' Cox process (Appendix E).

The evidence of the counts is maximised in the two covariance parameters with gradients
from the particles, while CRAFT trains the flows. Run:

    python examples/learn_cox.py
"""

import argparse

import jax
import jax.numpy as jnp
import jax.random as jr
import optax

import annealax as ax


def main(grid: int = 8, num_steps: int = 200, num_particles: int = 300) -> ax.Learnt:
    """Learn, and print what was learnt."""
    cox = ax.targets.LogGaussianCoxPines(grid, whitened=True)

    def model(parameters):
        # The factorisation happens here, once in a pass, not in every evaluation.
        return cox.with_prior(
            jnp.exp(parameters["log_variance"]), jnp.exp(parameters["log_length_scale"])
        )

    start = {"log_variance": jnp.log(1.0), "log_length_scale": jnp.log(0.05)}
    sampler = ax.Sampler(
        ax.GeometricPath(None, cox, 4),
        ax.kernels.HMC(0.25, 6),
        num_particles=num_particles,
    )
    learnt = ax.learn(
        jr.key(0),
        ax.CRAFT(sampler, optax.adam(1e-2)),
        model,
        start,
        ax.flows.diagonal_affine(None, cox.shape),
        num_steps=num_steps,
        progress=True,
    )
    print(f"log Z: {learnt.log_normalizer[:10].mean():.2f} at the start, "
          f"{learnt.log_normalizer[-10:].mean():.2f} at the end")  # fmt: skip
    rows = jax.tree.map(
        lambda *row: tuple(float(v) for v in row),
        learnt.parameters,
        learnt.stderr,
        learnt.data_stderr,
    )
    for name, (value, error, data) in rows.items():
        print(f"{name} = {value:.3f} +- {error:.3f} (Monte Carlo), the data leave "
              f"+- {data:.2f} open; started at {float(start[name]):.3f}")  # fmt: skip
    return learnt


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--grid", type=int, default=8)
    parser.add_argument("--num-steps", type=int, default=200)
    options = parser.parse_args()
    main(options.grid, options.num_steps)

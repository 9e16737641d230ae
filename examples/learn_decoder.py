"""Learn the last layer of a VAE's decoder from the exact evidence of an image.

A VAE is trained on a lower bound; here the evidence of one test digit itself rises,
with gradients from the particles (Appendix E). Run:

    python examples/learn_decoder.py
"""

import argparse

import equinox as eqx
import jax.random as jr
import numpy as np
import optax

import annealax as ax


def main(digit: int = 3, num_steps: int = 60, num_particles: int = 100) -> ax.Learnt:
    """Learn, and print how far the evidence rose."""
    target = ax.targets.VAE(digit)

    def model(last):
        return eqx.tree_at(lambda target: target.decoder.last, target, last)

    sampler = ax.Sampler(
        ax.GeometricPath(None, target, np.linspace(0, 1, 5) ** 2),
        ax.kernels.HMC(0.1, 6),
        num_particles=num_particles,
    )
    learnt = ax.learn(
        jr.key(0),
        ax.CRAFT(sampler, optax.adam(1e-2)),
        model,
        target.decoder.last,
        ax.flows.diagonal_affine(None, target.shape),
        num_steps=num_steps,
        optimizer=optax.adam(1e-2),
        progress=True,
    )
    count = max(2, num_steps // 6)
    first, last = learnt.log_normalizer[:count], learnt.log_normalizer[-count:]
    print(f"log p(image): {first.mean():.1f} over the first {count} steps, "
          f"{last.mean():.1f} over the last")  # fmt: skip
    print("One image: this shows that evidence rises, not how to train a VAE.")
    return learnt


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--digit", type=int, default=3)
    parser.add_argument("--num-steps", type=int, default=60)
    options = parser.parse_args()
    main(options.digit, options.num_steps)

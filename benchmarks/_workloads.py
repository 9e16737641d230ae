"""The workloads: a sampler, a flow to train, and what we want to reach."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection

import annealax as ax


class Workload(NamedTuple):
    """What is timed.

    Attributes:
        sampler: The sampler; its kernel is HMC.
        flow: Where the flow of every transition starts.
        goals: Upper bounds, by the name of a row of the report.
    """

    sampler: ax.Sampler
    flow: AbstractBijection
    goals: Mapping[str, float]


def many_well_affine(num_particles: int) -> Workload:
    """32-d many well, diagonal affine."""
    sampler = _many_well(num_particles)
    return Workload(
        sampler,
        ax.flows.diagonal_affine(None, (32,)),
        {"training / gradients": 1.5, "deployment / gradients": 1.5},
    )


def many_well_spline(num_particles: int) -> Workload:
    """32-d many well, spline autoregressive flow with 30 units per coordinate."""
    flow = ax.flows.spline_autoregressive(
        jr.key(0), (32,), hidden=(960, 960, 960), num_bins=10
    )
    return Workload(_many_well(num_particles), flow, {"training (gemm)": 110})


def _many_well(num_particles: int) -> ax.Sampler:
    path = ax.GeometricPath((32,), ax.targets.ManyWell(32), 10)
    steps = ax.kernels.InterpolatedStepSize([0.0, 1.0], [0.5, 0.1])
    return ax.Sampler(
        path,
        ax.kernels.HMC(steps, 10),
        ax.ESSResampling(0.3),
        num_particles=num_particles,
    )


def gaussian(num_particles: int) -> Workload:
    """50-d correlated and shifted Gaussian, diagonal affine."""
    dim = 50
    indices = np.arange(dim)
    covariance = 0.5 ** np.abs(indices[:, None] - indices)
    path = ax.GeometricPath((dim,), ax.targets.Normal(np.ones(dim), covariance), 10)
    sampler = ax.Sampler(
        path,
        ax.kernels.HMC(0.3, 10),
        ax.ESSResampling(0.3),
        num_particles=num_particles,
    )
    return Workload(
        sampler,
        ax.flows.diagonal_affine(None, (dim,)),
        {"training / gradients": 1.5, "deployment / gradients": 1.5},
    )


def lgcp(num_particles: int) -> Workload:
    """Log Gaussian Cox process on 32x32 cells, diagonal affine, as in the paper."""
    target = ax.targets.LogGaussianCoxPines(grid=32)
    path = ax.GeometricPath(target.shape, target, 10)
    steps = ax.kernels.InterpolatedStepSize([0.0, 0.25, 0.5, 1.0], [0.3, 0.3, 0.2, 0.2])
    sampler = ax.Sampler(
        path,
        ax.kernels.HMC(steps, 10),
        ax.ESSResampling(0.3),
        num_particles=num_particles,
    )
    return Workload(
        sampler,
        ax.flows.diagonal_affine(None, target.shape),
        {"training (gemm)": 160, "training / gradients": 1.5},
    )


def phi4(num_particles: int) -> Workload:
    """phi^4 theory on 14x14 sites, two coupling layers, as in the paper."""
    shape = (14, 14)
    target = ax.targets.Phi4(shape, mass_squared=-4.75, coupling=5.1)
    path = ax.GeometricPath(shape, target, 10)
    steps = ax.kernels.InterpolatedStepSize([0.0, 0.3, 1.0], [0.3, 0.15, 0.1])
    sampler = ax.Sampler(
        path,
        ax.kernels.HMC(steps, num_leapfrog=10, num_steps=10),
        ax.ESSResampling(0.3),
        num_particles=num_particles,
    )
    return Workload(
        sampler,
        ax.flows.lattice_coupling(
            jr.key(0), shape, num_layers=2, channels=(10,), kernel_size=3
        ),
        {
            "training (gemm)": 100,
            "deployment (gemm)": 60,
            "training / pieces": 1.3,
            "deployment / pieces": 1.3,
        },
    )


WORKLOADS: dict[str, Callable[[int], Workload]] = {
    "many-well-affine": many_well_affine,
    "many-well-spline": many_well_spline,
    "gaussian": gaussian,
    "lgcp": lgcp,
    "phi4": phi4,
}

"""Exact answers for phi^4 on small lattices, by transfer matrix and by quadrature.

Independent of the library: plain NumPy, in float64. The integrands are entire and die
like exp(-phi^4), so that Gauss-Legendre nodes converge geometrically.
"""

import functools
from typing import NamedTuple

import numpy as np


class Exact(NamedTuple):
    """What is known exactly.

    Attributes:
        log_normalizer: log Z.
        susceptibility: E[(sum of phi)^2] / V.
        two_point_function: E[phi(x) phi(x + r)] by separation, of the lattice's shape.
    """

    log_normalizer: float
    susceptibility: float
    two_point_function: np.ndarray


def nodes_and_weights(bound, count):
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return bound * nodes, bound * weights


def potential(phi, mass_squared, coupling):
    return mass_squared * phi**2 + coupling * phi**4


def chain(length, mass_squared, coupling, *, bound=4.0, count=160):
    """The (n, 1) lattice: Z = Tr T^n with T = exp(-(a - b)^2 - V(a)/2 - V(b)/2)."""
    phi, weights = nodes_and_weights(bound, count)
    half = 0.5 * (np.log(weights) - potential(phi, mass_squared, coupling))
    transfer = np.exp(half[:, None] + half - (phi[:, None] - phi) ** 2)
    eigenvalues, vectors = np.linalg.eigh(transfer)
    # All that is left out is below rounding; logs need the rest to be positive.
    keep = eigenvalues > 1e-15 * eigenvalues[-1]
    values = eigenvalues[keep] / eigenvalues[-1]
    field = vectors[:, keep].T @ (phi[:, None] * vectors[:, keep])
    partition = np.sum(values**length)
    correlator = np.array(
        [
            np.einsum("i,ij,j,ji", values**t, field, values ** (length - t), field)
            for t in range(length)
        ]
    )
    # At t = 0 the sum over intermediate states is complete only with all of them.
    density = np.einsum(
        "ki,i,ki->k", vectors[:, keep], values**length, vectors[:, keep]
    )
    correlator[0] = np.sum(phi**2 * density)
    correlator /= partition
    return Exact(
        float(length * np.log(eigenvalues[-1]) + np.log(partition)),
        float(correlator.sum()),
        correlator[:, None],
    )


def grid(shape, *, bound, count):
    """All fields on a product grid, with the weights of the quadrature."""
    size = int(np.prod(shape))
    nodes, weights = nodes_and_weights(bound, count)
    fields = np.stack(np.meshgrid(*[nodes] * size, indexing="ij"), axis=-1)
    measure = functools.reduce(np.multiply.outer, [weights] * size)
    return fields.reshape(-1, *shape), measure.reshape(-1)


def square(mass_squared, coupling, *, bound=4.0, count=160):
    """The 2 x 2 lattice, by quadrature.

    Both neighbours along a side are the same site, so each of the four links of the
    ring a - b - d - c counts twice. Given a and d, the integrals over b and c factor.
    """
    phi, weights = nodes_and_weights(bound, count)
    local = weights * np.exp(-potential(phi, mass_squared, coupling))
    link = np.exp(-2 * (phi[:, None] - phi) ** 2)
    between = (link * local) @ link
    between_first = (link * (local * phi)) @ link
    outer = local[:, None] * local
    density = outer * between**2
    partition = density.sum()
    equal = np.sum(density * (phi**2)[:, None]) / partition
    diagonal = np.sum(density * np.multiply.outer(phi, phi)) / partition
    nearest = np.sum(outer * between * between_first * phi[:, None]) / partition
    return Exact(
        float(np.log(partition)),
        float(equal + 2 * nearest + diagonal),
        np.array([[equal, nearest], [nearest, diagonal]]),
    )

"""Checks of user input shared by the targets: each error says value, cause, remedy."""

import math
import operator
from typing import Any

import numpy as np
from jaxtyping import Array

from annealax._errors import InvalidInputError


def finite_array(name: str, value: Any) -> np.ndarray:
    """The value as a float64 NumPy array, refused unless every entry is finite."""
    array = np.asarray(value, dtype=np.float64)
    if array.size == 0:
        raise InvalidInputError(
            f"{name} of shape {array.shape} is empty; give at least one."
        )
    if not np.all(np.isfinite(array)):
        raise InvalidInputError(
            f"{name} must be finite, got {array}; remove NaN and inf."
        )
    return array


def finite_float(name: str, value: Any) -> float:
    """The value as a Python float, refused unless finite."""
    if not math.isfinite(number := float(value)):
        raise InvalidInputError(f"{name} must be a finite number, got {value}.")
    return number


def positive_float(name: str, value: Any) -> float:
    """The value as a Python float, refused unless finite and above 0."""
    if (number := finite_float(name, value)) <= 0:
        raise InvalidInputError(f"{name} must be above 0, got {value}.")
    return number


def dimension(name: str, value: Any, minimum: int) -> int:
    """The value as an int of at least `minimum`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidInputError(
            f"{name} must be a whole number, got {value!r}."
        ) from None
    if number < minimum:
        raise InvalidInputError(f"{name} must be {minimum} or more, got {number}.")
    return number


def cholesky(name: str, covariance: np.ndarray) -> np.ndarray:
    """Cholesky factors of covariances of shape (..., dim, dim), in float64."""
    transposed = np.swapaxes(covariance, -1, -2)
    # Loose enough for a matrix that was computed in float32.
    asymmetry, size = np.abs(covariance - transposed).max(), np.abs(covariance).max()
    if asymmetry > 1e-5 * size:
        raise InvalidInputError(
            f"{name} must be symmetric, but entries differ from their mirror image by "
            f"up to {asymmetry:.3g}; pass (C + C.T) / 2 if that is what is meant."
        )
    symmetric = 0.5 * (covariance + transposed)
    try:
        return np.linalg.cholesky(symmetric)
    except np.linalg.LinAlgError:
        raise InvalidInputError(
            f"{name} must be positive definite, but its smallest eigenvalue is "
            f"{np.linalg.eigvalsh(symmetric).min():.3g}; remove redundant coordinates "
            "or add a small multiple of the identity."
        ) from None


def standard_deviations(name: str, variances: np.ndarray) -> np.ndarray:
    """Square roots of variances, refused unless all are above 0."""
    if np.any(variances <= 0):
        raise InvalidInputError(
            f"{name} holds variances, which must be above 0, got {variances}."
        )
    return np.sqrt(variances)


def normalised_weights(weights: Any, num_components: int) -> np.ndarray:
    """Component weights that sum to 1; None means equal weights."""
    if weights is None:
        return np.full(num_components, 1.0 / num_components)
    weights = finite_array("weights", weights)
    if weights.shape != (num_components,):
        raise InvalidInputError(
            f"weights must have shape ({num_components},), one per row of means, got "
            f"{weights.shape}."
        )
    if np.any(weights <= 0):
        raise InvalidInputError(
            f"weights must be above 0, got {weights}; leave out components of weight 0."
        )
    return weights / weights.sum()


def component_means(value: Any) -> np.ndarray:
    """Means of shape (components, dim)."""
    means = finite_array("means", value)
    if means.ndim != 2:
        raise InvalidInputError(
            f"means must have shape (components, dim), got {means.shape}; for one "
            "component pass means[None]."
        )
    return means


def check_configuration(shape: tuple[int, ...], x: Array) -> None:
    """Refuse anything but one configuration: broadcasting would be silently wrong."""
    if x.shape != shape:
        raise InvalidInputError(
            f"this target takes one configuration of shape {shape}, got {x.shape}; use "
            "jax.vmap over a batch of configurations."
        )

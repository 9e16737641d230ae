r"""Bayesian logistic regression on any table of features and two-valued labels.

$$ \log \gamma(w) = \sum_j \log p(w_j / s) - \log s
   - \sum_i \log (1 + e^{-(2 y_i - 1) X_i w}) $$

with a prior $p$ (normal, Laplace or Student t) of scale $s$.
"""

import os
from collections.abc import Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy import stats
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from annealax._checks import finite_array, positive_number
from annealax._errors import InvalidInputError
from annealax.targets._csv import Table, read_csv
from annealax.targets.base import AbstractPosterior, check_configuration

_PRIORS = {
    "normal": lambda x, scale: stats.norm.logpdf(x, scale=scale),
    "laplace": lambda x, scale: stats.laplace.logpdf(x, scale=scale),
    "student_t": lambda x, scale: stats.t.logpdf(x, 4.0, scale=scale),
}

_DRAWS = {
    "normal": jr.normal,
    "laplace": jr.laplace,
    "student_t": lambda key, shape: jr.t(key, 4.0, shape),
}

_SQUARABLE = 1e150
"""Larger numbers overflow when they are squared, for the variance."""


class LogisticRegression(AbstractPosterior):
    """Posterior of the coefficients of a logistic regression.

    A configuration holds the intercept, if there is one, and then one coefficient for
    each feature. The density is fully normalised, so log Z is the evidence.

    Args:
        features: Table of shape (examples, features).
        labels: One label for each example: 0 or 1, or a boolean.
        prior: Prior of every coefficient, the intercept included: `normal`, `laplace`
            or `student_t` (four degrees of freedom).
        prior_scale: Scale of the prior.
        intercept: Whether to add an intercept.
        standardize: Whether to bring each feature to mean 0 and variance 1 first; the
            coefficients are then per standard deviation.
        names: Names of the features, for `constrain`; None is feature_1, feature_2, ...
    """

    signed_design: Float[Array, "dim examples"]  # columns negated where the label is 0
    names: tuple[str, ...] = eqx.field(static=True)
    prior: str = eqx.field(static=True)
    prior_scale: float = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    log_normalizer: float | None = eqx.field(static=True)

    def __init__(
        self,
        features: ArrayLike | Sequence,
        labels: ArrayLike | Sequence,
        *,
        prior: Literal["normal", "laplace", "student_t"] = "normal",
        prior_scale: float | int = 1.0,
        intercept: bool = True,
        standardize: bool = False,
        names: Sequence[str] | None = None,
    ):
        design = finite_array("features", features)
        if design.ndim != 2:
            raise InvalidInputError(
                f"features must have shape (examples, features), got {design.shape}."
            )
        if names is None:
            names = [f"feature_{i + 1}" for i in range(design.shape[1])]
        names = _check_names(names, design.shape[1], intercept)
        if prior not in _PRIORS:
            raise InvalidInputError(
                f"prior must be one of {', '.join(_PRIORS)}; got {prior!r}"
            )
        signs = _signs(labels, len(design))
        features_only = names[-design.shape[1] :]
        if standardize:
            _check_size(design, features_only, _SQUARABLE)
            design = _standardize(design, features_only)
        _check_size(design, features_only, float(jnp.finfo(jnp.result_type(float)).max))
        if intercept:
            design = np.concatenate([np.ones((len(design), 1)), design], axis=1)
        self.signed_design = jnp.asarray(
            (signs[:, None] * design).T, jnp.result_type(float)
        )
        self.names = names
        self.prior = prior
        self.prior_scale = positive_number("prior_scale", prior_scale)
        self.shape = (len(names),)
        self.log_normalizer = None

    @staticmethod
    def from_csv(
        path: str | os.PathLike[str],
        *,
        label: str,
        positive: str | None = None,
        **options,
    ) -> "LogisticRegression":
        """The posterior given a CSV file with one example a row.

        Args:
            path: The file; its first line names the columns. All columns but the label
                are features.
            label: Name of the column of labels.
            positive: The text of the label that counts as 1, the other being 0; None
                if the labels are 0 and 1, or -1 and 1.
            **options: `prior`, `prior_scale`, `intercept`, `standardize` of the class.
        """
        table = read_csv(path)
        labels = _labels(table, label, positive)
        names = [name for name in table.names if name != label]
        if not names:
            raise InvalidInputError(
                f"{path} has no column but the label {label!r}; add features"
            )
        features = table.numbers(names)
        return LogisticRegression(features, labels, names=names, **options)

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log density of one configuration."""
        check_configuration(self.shape, x)
        margins = jnp.matmul(x, self.signed_design, precision="highest")
        prior = jnp.sum(_PRIORS[self.prior](x, self.prior_scale))
        return prior - jnp.sum(jax.nn.softplus(-margins))

    def constrain(self, x: Float[Array, " dim"]) -> dict[str, Array]:
        """The intercept and the coefficient of each feature, by name."""
        return dict(zip(self.names, x, strict=True))

    def draw_prior(self, key: PRNGKeyArray) -> Float[Array, " dim"]:
        """A configuration drawn from the prior."""
        return self.prior_scale * _DRAWS[self.prior](key, self.shape)


def _check_names(
    names: Sequence[str], num_features: int, intercept: bool
) -> tuple[str, ...]:
    if len(names) != num_features:
        raise InvalidInputError(f"{len(names)} names for {num_features} features")
    names = ("intercept", *names) if intercept else tuple(names)
    if len(set(names)) != len(names):
        raise InvalidInputError(
            f"the names of the coefficients must differ, got {', '.join(names)}"
        )
    return names


def _signs(labels: ArrayLike | Sequence, num_examples: int) -> np.ndarray:
    labels = np.asarray(labels, np.float64)
    if labels.shape != (num_examples,):
        raise InvalidInputError(
            f"labels must have shape ({num_examples},), one for each row of features; "
            f"got {labels.shape}"
        )
    if not np.all((labels == 0) | (labels == 1)):
        raise InvalidInputError(
            f"labels must be 0 or 1, got {np.unique(labels)[:5].tolist()}"
        )
    return 2 * labels - 1


def _check_size(design: np.ndarray, names: Sequence[str], limit: float) -> None:
    for name, largest in zip(names, np.abs(design).max(axis=0), strict=True):
        if largest > limit:
            raise InvalidInputError(
                f"feature {name!r} holds a number of size {largest:.3g}, too large to "
                "compute with; divide the column by a constant"
            )


def _standardize(design: np.ndarray, names: Sequence[str]) -> np.ndarray:
    scale = design.std(axis=0)
    for name, spread in zip(names, scale, strict=True):
        if not spread > 0:
            raise InvalidInputError(
                f"feature {name!r} is constant and cannot be standardised; drop it"
            )
    return (design - design.mean(axis=0)) / scale


def _labels(table: Table, label: str, positive: str | None) -> np.ndarray:
    cells = table.text(label)
    if positive is not None:
        values = set(cells)
        if positive not in values or len(values) != 2:
            raise InvalidInputError(
                f"{table.path}, column {label!r}: expected {positive!r} and one other "
                f"value, found {', '.join(map(repr, sorted(values)[:5]))}"
            )
        return np.array([cell == positive for cell in cells], np.float64)
    try:
        numbers = table.numbers([label])[:, 0]
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{error}; or, if labels are text, name the one that counts as 1 with "
            "positive="
        ) from error
    values = set(numbers.tolist())
    if not (values <= {0.0, 1.0} or values <= {-1.0, 1.0}):
        raise InvalidInputError(
            f"{table.path}, column {label!r}: labels must be 0 and 1, or -1 and 1; "
            f"found {sorted(values)[:5]}; name the one that counts as 1 with positive="
        )
    return (numbers > 0).astype(np.float64)

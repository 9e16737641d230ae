"""Logistic regression on a table of the user."""

from typing import Literal

import numpy as np
from pydantic import Field

from annealax import targets
from annealax._errors import InvalidInputError
from annealax.experiments.experiment import VectorExperiment


class Logistic(VectorExperiment):
    """Logistic regression on your CSV, or on a made-up table.

    --set csv=FILE --set label=COLUMN: the first line names the columns, and all but the
    label are features. Without a file: 200 made-up examples of five features, of which
    two have no effect.
    """

    csv: str = Field("", description="file of examples; empty: made-up ones")
    label: str = Field("label", description="name of its column of labels")
    positive: str = Field(
        "", description="label that counts as 1; empty: they are 0, 1"
    )
    prior: Literal["normal", "laplace", "student_t"] = Field(
        "normal", description="prior of the coefficients"
    )
    prior_scale: float = Field(1.0, gt=0, description="its scale")
    standardize: bool = Field(True, description="bring features to mean 0, variance 1")
    num_transitions = 8
    ladder_power = 2.0
    step_size_betas = (0.0, 0.2, 1.0)
    step_sizes = (0.4, 0.25, 0.15)
    flow_family = "affine_autoregressive"

    def target(self) -> targets.LogisticRegression:
        """The posterior of the coefficients."""
        options: dict = {
            "prior": self.prior,
            "prior_scale": self.prior_scale,
            "standardize": self.standardize,
        }
        if self.csv:
            positive = self.positive or None
            return targets.LogisticRegression.from_csv(
                self.csv, label=self.label, positive=positive, **options
            )
        if self.positive:
            raise InvalidInputError("positive= needs a file of examples: set csv=FILE.")
        features, labels = _made_up()
        return targets.LogisticRegression(features, labels, **options)


def _made_up() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(200, 5))
    features[:, 1] += 0.7 * features[:, 0]  # correlated, as real features are
    logits = features @ np.array([1.5, -1.0, 0.5, 0.0, 0.0]) - 0.4
    labels = generator.uniform(size=200) < 1 / (1 + np.exp(-logits))
    return features, labels.astype(np.float64)

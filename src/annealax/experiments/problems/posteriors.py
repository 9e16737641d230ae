"""Posteriors of statistical models, on data that is shipped or given by the user."""

from typing import Literal

import numpy as np
from pydantic import Field

from annealax import targets
from annealax._errors import InvalidInputError
from annealax.experiments.experiment import VectorExperiment


class Seeds(VectorExperiment):
    """Seeds on 21 plates, 26 dimensions: regression with random effects.

    Plain SMC on this ladder: log Z -73.410 with a spread of 0.015 over six passes
    (exact: -73.406). With 16 transitions and steps twice as long it was off by 1.
    """

    num_transitions = 64
    ladder_power = 2.0
    pilot_transitions = 60
    step_size_betas = (0.0, 0.3, 1.0)
    step_sizes = (0.15, 0.1, 0.07)
    num_hmc_steps = 2
    num_train_steps = 60

    def target(self) -> targets.Seeds:
        """The posterior; log Z by quadrature."""
        return targets.Seeds()


class Brownian(VectorExperiment):
    """Brownian motion with missing observations, 32 dimensions.

    Plain SMC on this ladder: log Z 1.167 with a spread of 0.023 over six passes (exact:
    1.188). The start that the pilot places decides: from a standard normal it was off
    by 1 with 120 transitions.
    """

    num_transitions = 64
    ladder_power = 1.5
    pilot_transitions = 60
    step_size_betas = (0.0, 0.1, 1.0)
    step_sizes = (0.06, 0.03, 0.02)
    num_hmc_steps = 4
    num_train_steps = 60

    def target(self) -> targets.BrownianMotion:
        """The posterior; log Z by quadrature."""
        return targets.BrownianMotion()


class EightSchools(VectorExperiment):
    """Eight schools, 10 dimensions."""

    centered: bool = Field(False, description="the centred form, which is harder")
    num_transitions = 8
    initial_scale = 2.0
    step_size_betas = (0.0, 0.3, 1.0)
    step_sizes = (0.6, 0.4, 0.4)

    def target(self) -> targets.EightSchools:
        """The posterior; log Z by quadrature."""
        return targets.EightSchools(self.centered)


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

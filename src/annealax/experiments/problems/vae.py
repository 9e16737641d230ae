"""The latents of a digit under a trained decoder (Section 4.2, Appendix I)."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import Field

from annealax import targets
from annealax.experiments.experiment import VectorExperiment
from annealax.vae import load_decoder


class VAE(VectorExperiment):
    """30 latents of a handwritten digit, under a convolutional decoder.

    The paper's settings: three temperatures (the start included), an affine inverse
    autoregressive flow with two hidden layers of 150 units, two HMC steps of 10
    leapfrogs, 100 particles. log Z is the log evidence of the image.
    """

    digit: int = Field(0, ge=0, le=9, description="which test digit")
    decoder: str = Field(
        "", description="file of train-vae; empty: the shipped decoder"
    )
    num_particles = 100
    num_transitions = 2
    num_hmc_steps = 2
    step_size_betas = (0.0, 0.25, 0.5, 1.0)
    step_sizes = (0.2, 0.12, 0.1, 0.08)
    num_train_steps = 500
    flow_hidden = (150, 150)

    def target(self) -> targets.VAE:
        """The posterior of the latents."""
        decoder = load_decoder(self.decoder) if self.decoder else None
        return targets.VAE(self.digit, decoder=decoder)

    def pictures(self, run: Any) -> Mapping[str, Callable[[], Any]]:
        """The digit, prior draws, posterior draws."""
        from annealax.report import problem_charts  # noqa: PLC0415

        return {
            "digits.png": lambda: problem_charts.draw_digits(run, run.problem.target)
        }

"""Targets: densities with known answers, and models from applications."""

from annealax.targets.base import AbstractPosterior as AbstractPosterior
from annealax.targets.base import AbstractTarget as AbstractTarget
from annealax.targets.cox import LogGaussianCox as LogGaussianCox
from annealax.targets.cox import LogGaussianCoxPines as LogGaussianCoxPines
from annealax.targets.hierarchical import BrownianMotion as BrownianMotion
from annealax.targets.hierarchical import EightSchools as EightSchools
from annealax.targets.hierarchical import Seeds as Seeds
from annealax.targets.logistic_regression import (
    LogisticRegression as LogisticRegression,
)
from annealax.targets.mixtures import (
    ChallengingMixture as ChallengingMixture,
)
from annealax.targets.mixtures import GaussianMixture as GaussianMixture
from annealax.targets.mixtures import StudentTMixture as StudentTMixture
from annealax.targets.phi4 import Phi4 as Phi4
from annealax.targets.synthetic import Funnel as Funnel
from annealax.targets.synthetic import ManyWell as ManyWell
from annealax.targets.synthetic import Normal as Normal
from annealax.targets.vae import VAE as VAE

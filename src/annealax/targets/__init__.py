"""Targets: densities with known answers, and models from applications."""

from annealax.targets._posterior import AbstractPosterior as AbstractPosterior
from annealax.targets.base import AbstractTarget as AbstractTarget
from annealax.targets.brownian import BrownianMotion as BrownianMotion
from annealax.targets.challenging_mixture import (
    ChallengingMixture as ChallengingMixture,
)
from annealax.targets.cox import LogGaussianCox as LogGaussianCox
from annealax.targets.cox import LogGaussianCoxPines as LogGaussianCoxPines
from annealax.targets.eight_schools import EightSchools as EightSchools
from annealax.targets.funnel import Funnel as Funnel
from annealax.targets.gaussian_mixture import GaussianMixture as GaussianMixture
from annealax.targets.logistic_regression import (
    LogisticRegression as LogisticRegression,
)
from annealax.targets.many_well import ManyWell as ManyWell
from annealax.targets.normal import Normal as Normal
from annealax.targets.phi4 import Phi4 as Phi4
from annealax.targets.seeds import Seeds as Seeds
from annealax.targets.student_t_mixture import StudentTMixture as StudentTMixture
from annealax.targets.vae import VAE as VAE

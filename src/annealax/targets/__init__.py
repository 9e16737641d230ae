"""Targets: densities with known answers, and models from applications."""

from annealax.targets._base import AbstractTarget as AbstractTarget
from annealax.targets.challenging_mixture import (
    ChallengingMixture as ChallengingMixture,
)
from annealax.targets.funnel import Funnel as Funnel
from annealax.targets.gaussian_mixture import GaussianMixture as GaussianMixture
from annealax.targets.many_well import ManyWell as ManyWell
from annealax.targets.normal import Normal as Normal
from annealax.targets.student_t_mixture import StudentTMixture as StudentTMixture

"""Markov kernels for one particle; samplers `vmap` them."""

from annealax.kernels._schedule import AbstractSchedule as AbstractSchedule
from annealax.kernels._schedule import InterpolatedStepSize as InterpolatedStepSize
from annealax.kernels._schedule import PerTemperature as PerTemperature
from annealax.kernels._schedule import bind as bind
from annealax.kernels.base import AbstractKernel as AbstractKernel
from annealax.kernels.base import Composition as Composition
from annealax.kernels.base import KernelInfo as KernelInfo
from annealax.kernels.base import NoMove as NoMove
from annealax.kernels.base import Point as Point
from annealax.kernels.base import point_at as point_at
from annealax.kernels.ensemble_walk import EnsembleWalk as EnsembleWalk
from annealax.kernels.hmc import HMC as HMC
from annealax.kernels.hmc import MALA as MALA
from annealax.kernels.nuts import NUTS as NUTS
from annealax.kernels.random_walk import RandomWalk as RandomWalk

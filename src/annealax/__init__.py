"""annealax: samples from hard densities, and their normalising constants.

SMC samplers whose annealing steps are helped by normalising flows (CRAFT), on JAX.
"""

# ruff: noqa: E402 (the compiler and signals come first)
from annealax import _command_start as _command_start
from annealax import _compiler

_compiler.avoid_faults()

from annealax import flows as flows
from annealax import kernels as kernels
from annealax import loggers as loggers
from annealax import targets as targets
from annealax._compilation_cache import compilation_cache as compilation_cache
from annealax._doubts import Doubt as Doubt
from annealax._errors import AnnealaxError as AnnealaxError
from annealax._errors import InvalidInputError as InvalidInputError
from annealax._errors import MissingExtraError as MissingExtraError
from annealax._errors import SamplingError as SamplingError
from annealax._mcmc import MarkovChains as MarkovChains
from annealax._mcmc import mcmc as mcmc
from annealax._particles import Particles as Particles
from annealax._path import AbstractPath as AbstractPath
from annealax._path import Edge as Edge
from annealax._path import GeometricPath as GeometricPath
from annealax._pimh import Chain as Chain
from annealax._pimh import ChainSnapshot as ChainSnapshot
from annealax._pimh import pimh as pimh
from annealax._resampling import AbstractResampler as AbstractResampler
from annealax._resampling import ESSResampling as ESSResampling
from annealax._resampling import NoResampling as NoResampling
from annealax._result import Result as Result
from annealax._result import StepInfo as StepInfo
from annealax._sampler import Sampler as Sampler
from annealax._sampler import correct as correct
from annealax._sampler import transport as transport
from annealax._work.checkpoint import Checkpoint as Checkpoint
from annealax._work.checkpoint import CheckpointWarning as CheckpointWarning
from annealax._work.serialise import FileError as FileError
from annealax._work.serialise import load as load
from annealax._work.serialise import save as save
from annealax._work.signals import Interrupted as Interrupted
from annealax.auto import ReplicateSnapshot as ReplicateSnapshot
from annealax.auto import Sample as Sample
from annealax.auto import sample as sample
from annealax.experiments.runs import Run as Run
from annealax.experiments.runs import load_run as load_run
from annealax.trainers import AFT as AFT
from annealax.trainers import CRAFT as CRAFT
from annealax.trainers import SNF as SNF
from annealax.trainers import VI as VI
from annealax.trainers import AbstractTrainer as AbstractTrainer
from annealax.trainers import TrainInfo as TrainInfo
from annealax.trainers import TrainState as TrainState
from annealax.trainers.fit import Fit as Fit
from annealax.trainers.fit import Snapshot as Snapshot
from annealax.trainers.fit import fit as fit
from annealax.trainers.learn import Learnt as Learnt
from annealax.trainers.learn import learn as learn
from annealax.trainers.rollback import Rollback as Rollback

__version__ = "0.1.0"

"""All public names, in one list: `annealax` takes them from here when they are used."""

# ruff: noqa: F401

from annealax import flows, kernels, loggers, targets
from annealax._black_box import BlackBox, black_box
from annealax._compilation_cache import compilation_cache
from annealax._doubts import Doubt
from annealax._errors import (
    AnnealaxError,
    InvalidInputError,
    MissingExtraError,
    SamplingError,
)
from annealax._evidence import EvidenceComparison, compare_evidence
from annealax._mcmc import MarkovChains, mcmc
from annealax._particles import Particles
from annealax._path import AbstractPath, Edge, GeometricPath
from annealax._pimh import Chain, ChainSnapshot, pimh
from annealax._resampling import (
    AbstractResampler,
    ESSResampling,
    IslandResampling,
    NoResampling,
)
from annealax._result import Result, StepInfo
from annealax._sampler import Sampler, correct, transport
from annealax._work.checkpoint import Checkpoint, CheckpointWarning
from annealax._work.serialise import FileError, load, save
from annealax._work.signals import Interrupted
from annealax.auto import ReplicateSnapshot, Sample, sample
from annealax.models import Model, from_numpyro, from_pymc, from_stan
from annealax.trainers import (
    AFT,
    CRAFT,
    SNF,
    VI,
    AbstractTrainer,
    Pipeline,
    TrainInfo,
    TrainState,
)
from annealax.trainers.fit import Fit, Snapshot, fit
from annealax.trainers.learn import Learnt, learn
from annealax.trainers.rollback import Rollback

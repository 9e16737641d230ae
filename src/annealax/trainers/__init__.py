"""Trainers: how flows are learnt. Each is one method of the paper."""

from annealax.trainers.aft import AFT as AFT
from annealax.trainers.base import AbstractTrainer as AbstractTrainer
from annealax.trainers.base import TrainInfo as TrainInfo
from annealax.trainers.base import TrainState as TrainState
from annealax.trainers.craft import CRAFT as CRAFT
from annealax.trainers.pipeline import Pipeline as Pipeline
from annealax.trainers.snf import SNF as SNF
from annealax.trainers.vi import VI as VI

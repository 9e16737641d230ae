"""Experiments: problems with their settings, and the command that runs them.

The core never imports this package.
"""

from annealax.experiments._settings import Settings as Settings
from annealax.experiments._settings import VectorSettings as VectorSettings
from annealax.experiments.evaluate import Evaluation as Evaluation
from annealax.experiments.evaluate import evaluate as evaluate
from annealax.experiments.problems import EXPERIMENTS as EXPERIMENTS
from annealax.experiments.run import METHODS as METHODS
from annealax.experiments.run import Job as Job
from annealax.experiments.run import Outcome as Outcome
from annealax.experiments.run import prepare as prepare

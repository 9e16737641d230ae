"""Experiments: problems with their settings, and the methods that sample them.

The core never imports this package; it imports neither the reports nor the command.
"""

from annealax.experiments.evaluation import Evaluation as Evaluation
from annealax.experiments.evaluation import Outcome as Outcome
from annealax.experiments.evaluation import evaluate as evaluate
from annealax.experiments.evaluation import run_experiment as run_experiment
from annealax.experiments.experiment import Experiment as Experiment
from annealax.experiments.experiment import Problem as Problem
from annealax.experiments.experiment import VectorExperiment as VectorExperiment
from annealax.experiments.methods import METHODS as METHODS
from annealax.experiments.methods import Method as Method
from annealax.experiments.registry import EXPERIMENTS as EXPERIMENTS
from annealax.experiments.registry import find_experiment as find_experiment
from annealax.experiments.runs import Run as Run
from annealax.experiments.runs import load_run as load_run

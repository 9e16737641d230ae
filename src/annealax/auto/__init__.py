"""The automatic mode: a log density in, samples and log Z out."""

from annealax.auto.modes import ModeTable as ModeTable
from annealax.auto.result import ReplicateSnapshot as ReplicateSnapshot
from annealax.auto.result import Sample as Sample
from annealax.auto.result import Stage as Stage
from annealax.auto.sample import sample as sample

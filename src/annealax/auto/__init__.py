"""The automatic mode: a log density in, samples and log Z out."""

from annealax.auto._answer import ModeTable as ModeTable
from annealax.auto._answer import ReplicateSnapshot as ReplicateSnapshot
from annealax.auto._answer import Sample as Sample
from annealax.auto._answer import Stage as Stage
from annealax.auto._sample import sample as sample

"""Loggers: callbacks for `fit` and `pimh` that keep the numbers of every step.

A logger is any function of a snapshot: it reads `snapshot.step` and
`snapshot.metrics()`. Give one or several as `callback=`:

    ax.fit(..., callback=[ax.loggers.CSV("run.csv"), ax.loggers.TensorBoard("logs")])
"""

from annealax.loggers._tables import CSV as CSV
from annealax.loggers._tables import JSONLines as JSONLines
from annealax.loggers._tensorboard import TensorBoard as TensorBoard

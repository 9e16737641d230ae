"""Starts, a family a file, and the proposals that the search goes through in turn.

To add a start: write its file (`base.py` says what a start is) with a proposal, a pure
function of `Seen` that yields candidates, and name it here.
"""

from collections.abc import Callable, Iterator

from annealax.auto.starts.base import Candidate, Seen
from annealax.auto.starts.clusters import propose_clusters
from annealax.auto.starts.gaussian import propose_moments
from annealax.auto.starts.hierarchy import propose_hierarchy
from annealax.auto.starts.leaders import (
    propose_leaders_of_means,
    propose_leaders_of_scales,
)
from annealax.auto.starts.mixture import propose_refit, propose_regions
from annealax.auto.starts.student import propose_tails

PROPOSALS: tuple[Callable[[Seen], Iterator[Candidate]], ...] = (
    propose_regions,
    propose_moments,
    propose_refit,
    propose_tails,
    propose_leaders_of_scales,
    propose_hierarchy,
    propose_leaders_of_means,
)
"""Each is asked in every round, with all that was seen until then."""

WITHOUT_GRADIENT = (propose_clusters, propose_tails)
"""Those for densities without gradient: they look at particles alone."""

"""Flows: builders that return flowjax bijections, each starting as the identity.

Any unconditional flowjax bijection of the right shape can be used as well.
"""

from annealax.flows.autoregressive import affine_autoregressive as affine_autoregressive
from annealax.flows.autoregressive import spline_autoregressive as spline_autoregressive
from annealax.flows.base import diagonal_affine as diagonal_affine
from annealax.flows.base import replicate as replicate
from annealax.flows.base import select as select
from annealax.flows.coupling import coupling as coupling
from annealax.flows.lattice import lattice_coupling as lattice_coupling
from annealax.flows.lattice_modes import lattice_modes as lattice_modes
from annealax.flows.lattice_modes import lattice_sites as lattice_sites

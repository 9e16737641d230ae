"""Models: what `annealax.sample` samples, written here or elsewhere.

`base.py` is the contract; `plain.py` functions of JAX, and one file for each system of
others. These are looked up when they are used: importing annealax imports none of them.
"""

import annealax.auto  # noqa: F401 (first: it and models.base need each other's parts)
from annealax.models.base import Model as Model
from annealax.models.numpyro import from_numpyro as from_numpyro
from annealax.models.pymc import from_pymc as from_pymc
from annealax.models.stan import from_stan as from_stan

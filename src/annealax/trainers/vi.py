r"""Variational inference with a flow: one transition from initial to target.

With a single edge from :math:`\pi_0` to :math:`\gamma`, no Markov kernel and no
resampling, the loss of CRAFT is the reverse KL divergence up to log Z,

$$\mathcal L = \mathbb E_{\pi_0}[D_1] = \mathrm{KL}[T_\# \pi_0 \| \pi] - \log Z,$$

and the estimate of Z is that of importance sampling with the proposal
:math:`T_\# \pi_0`.
"""

import equinox as eqx
import jax.numpy as jnp
import optax
from flowjax.bijections import AbstractBijection
from jaxtyping import PRNGKeyArray

from annealax._objectives import Estimator
from annealax._path import AbstractPath
from annealax._resampling import NoResampling
from annealax._sampler import Sampler
from annealax.kernels import NoMove
from annealax.trainers.base import AbstractTrainer, TrainInfo, TrainState
from annealax.trainers.craft import CRAFT


class VI(AbstractTrainer):
    """Train one flow from the initial distribution to the target.

    Args:
        problem: A path, or a sampler whose path and number of particles are used; in
            either case only the two ends of the path matter.
        optimizer: Any optax optimiser.
        gradient: "plain" or "path".
        num_particles: Draws per step; those of the sampler, or 1000, if left out.
    """

    craft: CRAFT

    def __init__(
        self,
        problem: AbstractPath | Sampler,
        optimizer: optax.GradientTransformation,
        gradient: Estimator = "plain",
        *,
        num_particles: int | None = None,
    ):
        if isinstance(problem, Sampler):
            path, default = problem.path, problem.num_particles
        else:
            path, default = problem, 1000
        ends = jnp.asarray([0.0, 1.0], path.betas.dtype)
        sampler = Sampler(
            eqx.tree_at(lambda path: path.betas, path, ends),
            NoMove(),
            NoResampling(),
            num_particles=default if num_particles is None else num_particles,
        )
        self.craft = CRAFT(sampler, optimizer, gradient)

    @property
    def sampler(self) -> Sampler:
        """Importance sampling with one transition: run it with the trained flow."""
        return self.craft.sampler

    def init(self, key: PRNGKeyArray, flow: AbstractBijection) -> TrainState:
        """The one transition starts at `flow`."""
        return self.craft.init(key, flow)

    def step(
        self, key: PRNGKeyArray, state: TrainState
    ) -> tuple[TrainState, TrainInfo]:
        """Fresh draws, one update."""
        return self.craft.step(key, state)

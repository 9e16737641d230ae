"""Particle MCMC on top of a finished run: the command `annealax pimh`."""

import dataclasses
from typing import Any

import jax.random as jr

from annealax._chain import Chain
from annealax._pimh import pimh
from annealax._sampler import Sampler
from annealax._work.checkpoint import Checkpoint
from annealax._work.snapshots import Callback
from annealax.experiments._folder import RunFolder
from annealax.experiments.run import METHODS, FinishedRun


@dataclasses.dataclass(frozen=True)
class ChainRun:
    """Chains that a finished run proposed for.

    Attributes:
        run: The run.
        sampler: What made the proposals.
        chain: The chains.
    """

    run: FinishedRun
    sampler: Sampler
    chain: Chain

    @property
    def label(self) -> str:
        """What to call it."""
        return f"PIMH with {METHODS[self.run.method].label}"


def run_chains(
    run: FinishedRun,
    *,
    num_steps: int,
    num_chains: int = 1,
    num_particles: int | None = None,
    seed: int = 0,
    progress: bool = False,
    callback: list[Callback] | None = None,
    checkpoint: Checkpoint | None = None,
) -> ChainRun:
    """Run particle independent Metropolis-Hastings with the sampler of a run.

    Args:
        run: A finished run.
        num_steps: Iterations per chain.
        num_chains: Independent chains.
        num_particles: Particles of a proposal; None for that of the run.
        seed: Seed.
        progress: Show progress.
        callback: As in `pimh`.
        checkpoint: As in `pimh`.
    """
    settings, flows = run.settings, run.flows
    if num_particles is not None:
        settings = dataclasses.replace(settings, num_particles=num_particles)
    sampler = METHODS[run.method].sampler(settings)
    chain = pimh(
        jr.key(seed),
        lambda key: sampler.run(key, flows),
        num_steps=num_steps,
        num_chains=num_chains,
        observables=dict(settings.target().observables) or None,
        configurations=True,
        callback=callback,
        progress=progress,
        checkpoint=checkpoint,
    )
    return ChainRun(run, sampler, chain)


def write(folder: RunFolder, chains: ChainRun) -> list[str]:
    """Numbers and pictures into the run's folder; returns the names of the files."""
    chain = chains.chain
    arrays: dict[str, Any] = {
        "log_normalizer": chain.log_normalizer,
        "proposed_log_normalizer": chain.proposed_log_normalizer,
        "accepted": chain.accepted,
        "configurations": chain.configurations,
        **{f"trace_{k}": v for k, v in chain.observables.items()},
        **{f"mean_{k}": v for k, v in chain.mean.items()},
        **{f"stderr_{k}": v for k, v in chain.stderr.items()},
    }
    folder.write_arrays("pimh.npz", arrays)
    folder.write_json("pimh_answer.json", {"seconds": chain.seconds})
    return ["pimh.npz", "pimh_answer.json"]

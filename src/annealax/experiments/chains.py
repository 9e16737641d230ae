"""Particle MCMC on top of a finished run: the command `annealax pimh`."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax.random as jr
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from annealax import observables
from annealax._pimh import Chain, pimh
from annealax._sampler import Sampler
from annealax._work.checkpoint import Checkpoint
from annealax._work.drive import Callback
from annealax.experiments import lattice_pictures
from annealax.experiments._folder import RunFolder
from annealax.experiments._style import BLUE, ORANGE, new_table
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


def show(console: Console, chains: ChainRun) -> None:
    """Print the expectations with their error bars, and how the chain went."""
    chain = chains.chain
    view = new_table(
        f"{chains.run.name}: {chains.label}, "
        f"{chain.accepted.shape[0]} x {chain.accepted.shape[1]} iterations of "
        f"{chains.sampler.num_particles} particles"
    )
    view.add_column("expectation of")
    for header in ("mean", "standard error", "autocorrelation time"):
        view.add_column(header, justify="right", no_wrap=True)
    for name, mean, error, time in rows(chain):
        time_text = "" if time is None else f"{time:.2f}"
        view.add_row(name, f"{mean:.6g}", f"{error:.2g}", time_text)
    console.print(view)
    for line in remarks(chains):
        console.print(line, highlight=False)


def rows(chain: Chain) -> Iterator[tuple[str, float, float, float | None]]:
    """Name, mean, standard error and autocorrelation time of each number.

    Arrays of more than eight numbers are left to the files.
    """
    mean, stderr, times = chain.mean, chain.stderr, chain.autocorrelation_time
    for name in chain.observables:
        values = np.atleast_1d(mean[name])
        if values.ndim > 1 or values.size > 8:
            continue
        for index, value in enumerate(values):
            label = name.replace("_", " ")
            yield (
                label if mean[name].ndim == 0 else f"{label} [{index + 1}]",
                float(value),
                float(np.atleast_1d(stderr[name])[index]),
                float(np.atleast_1d(times[name])[index]),
            )
    if {"magnetisation_squared", "magnetisation_fourth"} <= set(chain.observables):
        value, error = chain.derived(observables.binder_cumulant)
        yield "Binder cumulant", float(value), float(error), None


def remarks(chains: ChainRun) -> Iterator[str]:
    """Acceptance, log Z and advice on the number of particles."""
    chain = chains.chain
    proposals = chain.proposed_log_normalizer.ravel()
    top = proposals.max()
    weights = np.exp(proposals - top)
    log_z = top + np.log(weights.mean())
    error = weights.std(ddof=1) / weights.mean() / np.sqrt(len(weights))
    bar = f" ± {error:.2g}" if len(weights) > 1 else ""
    yield (
        f"Accepted {chain.acceptance_rate:.0%} of proposals; "
        f"{chain.seconds:.1f} s, {chain.seconds / len(proposals):.3g} s a proposal. "
        f"log Z of all proposals together: {log_z:.4f}{bar}."
    )
    yield f"{chain.advice(chains.sampler.num_particles)}."


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
    return ["pimh.npz"]


def figures(chains: ChainRun) -> Mapping[str, Callable[[], Figure]]:
    """Pictures of the chains, by file name."""
    shape = chains.sampler.path.shape
    found: dict[str, Callable[[], Figure]] = {
        "pimh_trace.png": lambda: draw_trace(chains)
    }
    if "zero_momentum_correlator" in chains.chain.observables:
        found |= lattice_pictures.of_chain(chains.chain, shape)
    return found


def draw_trace(chains: ChainRun) -> Figure:
    """Traces of log Z and of the first scalar observables, with running means."""
    chain = chains.chain
    scalars = [k for k, v in chain.observables.items() if v.ndim == 2][:2]
    figure = Figure((7.6, 1.6 * (1 + len(scalars)) + 0.5), layout="constrained")
    axes = figure.subplots(1 + len(scalars), 1, sharex=True, squeeze=False).ravel()
    steps = np.arange(1, chain.accepted.shape[1] + 1)
    axes[0].plot(steps, chain.log_normalizer.T, color=BLUE, lw=0.9, alpha=0.8)
    axes[0].set_ylabel("log Z")
    for axis, name in zip(axes[1:], scalars, strict=True):
        trace = chain.observables[name]
        axis.plot(steps, trace.T, color=BLUE, lw=0.9, alpha=0.5)
        running = np.cumsum(trace.mean(axis=0)) / steps
        axis.plot(steps, running, color=ORANGE, lw=1.4, label="running mean")
        axis.set_ylabel(name.replace("_", "\n", 1).replace("_", " "))
    if scalars:
        axes[1].legend(fontsize=8, loc="lower right")
    axes[-1].set_xlabel("iteration")
    figure.suptitle(
        f"{chains.run.name}: {chains.label}, acceptance {chain.acceptance_rate:.0%}",
        fontsize=10,
    )
    return figure

"""`annealax pimh`: particle MCMC with the sampler of a finished run."""

import contextlib
from pathlib import Path
from typing import Any

import jax.random as jr
import numpy as np

from annealax._arviz import MissingExtraError, to_netcdf
from annealax._pimh import Chain, pimh
from annealax.cli.folder import Done, Workplace
from annealax.cli.output import json_number
from annealax.experiments.jobs import ChainJob, Proposal
from annealax.experiments.runs import CHAIN_ANSWER, load_run
from annealax.report.tables import chain_remarks, chain_rows


def prepare(job: ChainJob, path: Path) -> tuple[str, Proposal]:
    """Name and sampler of what is in the folder."""
    run = load_run(path)
    return run.name, run.proposal(job.num_particles)


def work(place: Workplace, job: ChainJob, ready: tuple[str, Proposal]) -> Done:
    """Run the chains, from their checkpoint if there is one."""
    name, proposal = ready
    store = place.checkpoint(job.checkpoint_seconds).child("pimh")
    if place.fresh:
        store.clear()
    place.output.say(
        f"{name}: compiling, then {job.num_chains} x {job.num_steps} proposals"
    )
    chain = pimh(
        jr.key(job.seed),
        proposal.run,
        num_steps=job.num_steps,
        num_chains=job.num_chains,
        observables=dict(proposal.observables) or None,
        configurations=True,
        callback=place.callbacks("pimh"),
        progress=place.output.progress,
        checkpoint=store,
        executor=place.workers,
    )
    content = {
        "name": name,
        "label": f"PIMH with {proposal.label}",
        "num_particles": proposal.num_particles,
        "acceptance_rate": chain.acceptance_rate,
        "seconds": chain.seconds,
        "num_devices": chain.num_devices,
        "expectations": {
            label: {"mean": json_number(mean), "stderr": json_number(error)}
            for label, mean, error, _ in chain_rows(chain)
        },
        "remarks": list(chain_remarks(chain, proposal.num_particles)),
    }
    place.folder.write_json(CHAIN_ANSWER, content)
    place.folder.write_arrays("pimh.npz", as_arrays(chain))
    files = ["pimh.npz"]
    with contextlib.suppress(MissingExtraError):
        data = chain.to_arviz({"name": name, "method": job.command})
        to_netcdf(place.path / "pimh.nc", data)
        files.append("pimh.nc")
    return Done(files, content)


def as_arrays(chain: Chain) -> dict[str, Any]:
    """What `pimh.npz` holds."""
    found = chain.configurations
    configurations: dict[str, Any] = {"configurations": found}
    if isinstance(found, dict):  # by name, and side by side
        columns = [v.reshape(*v.shape[:2], -1) for v in found.values()]
        configurations = {f"configurations_{key}": v for key, v in found.items()}
        configurations["configurations"] = np.concatenate(columns, axis=2)
    return {
        "log_normalizer": chain.log_normalizer,
        "proposed_log_normalizer": chain.proposed_log_normalizer,
        "accepted": chain.accepted,
        **configurations,
        **{f"trace_{k}": v for k, v in chain.observables.items()},
        **{f"mean_{k}": v for k, v in chain.mean.items()},
        **{f"stderr_{k}": v for k, v in chain.stderr.items()},
    }

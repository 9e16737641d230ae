"""`annealax run`: train, deploy, compare with plain SMC, and write it all down."""

import contextlib
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np

from annealax._arviz import MissingExtraError, to_arviz, to_netcdf
from annealax._work.serialise import save
from annealax.cli.folder import Done, Workplace
from annealax.cli.output import json_doubts, json_number
from annealax.experiments.evaluation import Outcome, Stages, run_experiment
from annealax.experiments.experiment import Problem
from annealax.experiments.jobs import FLOWS, RunJob
from annealax.targets.base import AbstractPosterior


def prepare(job: RunJob, _: Path) -> Problem:
    """Build all parts: what does not fit together is an error now."""
    method = job.way  # a wrong name first: a pilot takes a while
    method.sampler(job.problem)
    if method.trainer is not None:
        method.trainer(job.problem)
        job.problem.flow(jr.key(0))
    return job.problem


def work(place: Workplace, job: RunJob, problem: Problem) -> Done:
    """Run, from the checkpoints if there are any."""
    stages = Stages(
        place.output.progress,
        place.output.say,
        place.callbacks,
        place.checkpoint(job.checkpoint_seconds),
        place.workers,
    )
    outcome = run_experiment(
        problem, method=job.method, seed=job.seed, name=job.name, stages=stages
    )
    table = as_json(outcome)
    place.folder.write_json("table.json", table)
    files = ["result.npz"]
    if outcome.fit is not None:
        save(place.path / FLOWS, outcome.fit.flows)
    place.folder.write_arrays("result.npz", as_arrays(outcome))
    with contextlib.suppress(MissingExtraError):
        to_netcdf(place.path / "result.nc", as_arviz(outcome))
        files.append("result.nc")
    content = {"name": job.name, "method": job.method, "seed": job.seed, **table}
    return Done(files, content)


def as_arrays(outcome: Outcome) -> dict[str, Any]:
    """What `result.npz` holds: the first pass in full, all pooled, the training."""
    result, particles = outcome.main.result, outcome.main.result.particles
    arrays = {
        "x": result.x,
        "log_weights": result.log_weights,
        "log_density": particles.log_density,
        "log_selection": particles.log_selection,
        "roots": particles.roots,
        "log_normalizer": result.log_normalizer,
        "log_normalizer_stderr": result.log_normalizer_stderr,
        "log_normalizer_true": np.nan if outcome.truth is None else outcome.truth,
        "pooled_log_normalizer": outcome.main.log_normalizer,
        "pooled_log_normalizer_stderr": outcome.main.log_normalizer_stderr,
        "betas": outcome.main.sampler.path.betas,
        "repeats_log_normalizer": outcome.main.log_normalizers,
        "repeats_log_normalizer_stderr": outcome.main.stderrs,
        **{f"step_{key}": value for key, value in result.steps._asdict().items()},
    }
    if outcome.fit is not None:
        history = outcome.fit.history
        arrays |= {
            "history_loss": history.loss,
            "history_log_normalizer": history.log_normalizer,
            "history_ess": history.steps.ess,
            "history_acceptance_rate": history.steps.acceptance_rate,
            "history_num_skipped": history.num_skipped,
        }
    return arrays


def as_arviz(outcome: Outcome) -> Any:
    """The first pass for ArviZ; of a posterior, its parameters in their own space."""
    result, target = outcome.main.result, outcome.problem.target
    values: Any = result.x
    if isinstance(target, AbstractPosterior):
        values = jax.vmap(target.constrain)(result.x)
    return to_arviz(
        values,
        result.log_weights,
        log_normalizer=result.log_normalizer,
        log_normalizer_stderr=result.log_normalizer_stderr,
        roots=result.particles.roots,
        seed=outcome.seed,
        attributes={
            "name": outcome.name,
            "method": outcome.method,
            "seed": outcome.seed,
        },
    )


def as_json(outcome: Outcome) -> dict[str, Any]:
    """What `table.json` holds: the comparison, with times."""
    fit = outcome.fit
    training: dict[str, Any] = dict.fromkeys(
        (
            "training_seconds",
            "training_compile_seconds",
            "training_num_skipped",
            "training_num_devices",
        )
    )
    if fit is not None:
        training = {
            "training_seconds": fit.seconds,
            "training_compile_seconds": fit.compile_seconds,
            "training_num_skipped": int(fit.history.num_skipped.sum()),
            "training_num_devices": fit.num_devices,
        }
    return {
        "log_normalizer_true": outcome.truth,
        **training,
        "training_warnings": [] if fit is None else json_doubts(fit.warnings()),
        "rows": [
            {
                "label": row.label,
                "num_transitions": row.num_transitions,
                "log_normalizer": json_number(row.log_normalizer),
                "log_normalizer_stderr": json_number(row.log_normalizer_stderr),
                "repeats_log_normalizer": list(map(json_number, row.log_normalizers)),
                "repeats_ess": list(map(json_number, row.ess)),
                "repeats_lowest_ess": list(map(json_number, row.lowest_ess)),
                "seconds_per_pass": row.seconds,
                "num_devices": row.num_devices,
                "evaluations_per_pass": json_number(row.result.num_evaluations),
                "warnings": json_doubts(row.warnings()),
            }
            for row in outcome.evaluations
        ],
    }

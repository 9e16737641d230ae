"""One piece of a figure, measured.

What depends on the seed alone (log Z, chains, evaluations) is kept apart from what
depends on the machine (`timing`): the former is the same to the bit whenever it is
measured, killed and resumed or not. Times are those of the sampling alone, without
storing results, as in Appendix I; the fastest of a few calls counts.
"""

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from annealax import observables
from annealax._keys import named_key
from annealax._pimh import pimh
from annealax._work.checkpoint import Checkpoint
from annealax._work.drive import Callback, Work, compile_ahead, drive
from annealax._work.fingerprint import fingerprint
from annealax.auto.sample import sample
from annealax.experiments.comparison import train
from annealax.experiments.evaluation import compile_pass, evaluate
from annealax.experiments.experiment import Experiment, Problem
from annealax.experiments.methods import METHODS as USUAL
from annealax.experiments.methods import Method
from annealax.kernels.base import AbstractKernel, Point, point_at
from annealax.reproduction.figures import Scale, Task, flows_task, needs_flows
from annealax.trainers import AFT
from annealax.trainers.fit import Fit, Snapshot

Measured = Mapping[str, Any]
"""What a task found: arrays and numbers by name."""

_CALLS = 3
"""Calls whose fastest is the time of a step."""

_LONGER = 5
"""Appendix F: AFT with 10 HMC steps in training for 2 in the test."""

OBSERVABLES: Mapping[str, Callable[[Array], Array]] = {
    "two_point_susceptibility": observables.two_point_susceptibility,
    "ising_energy_density": observables.ising_energy_density,
}
"""What the chains are for."""


def _aft(problem: Problem, **options: Any) -> AFT:
    settings = problem.settings
    return AFT(
        problem.sampler(),
        settings.optimizer(),
        num_iters=max(1, settings.num_train_steps),
        gradient=settings.gradient,
        **options,
    )


def _aft_halves(problem: Problem) -> AFT:
    """Appendix I: half of the particles to train on, half to stop by."""
    count = problem.settings.num_particles
    return _aft(problem, num_train=count - count // 2, num_validation=count // 2)


def _aft_longer(problem: Problem) -> AFT:
    steps = _LONGER * problem.settings.num_hmc_steps
    longer = problem.settings.replace(num_hmc_steps=steps)
    return _aft(problem, train_kernel=longer.kernel())


def _one(settings: Experiment) -> int:
    del settings
    return 1


METHODS: Mapping[str, Method] = {
    **{name: USUAL[name] for name in ("craft", "aft", "snf", "vi", "smc")},
    "aft-halves": Method("AFT", trainer=_aft_halves, num_fit_steps=_one),
    "aft-longer": Method("AFT", trainer=_aft_longer, num_fit_steps=_one),
}
"""How lines sample and train."""


@dataclasses.dataclass(frozen=True)
class Watch:
    """What goes on around a measurement.

    Attributes:
        progress: Show a live line.
        callback: Called after each call of the device, so that it can stop the work.
    """

    progress: bool = False
    callback: Callback = lambda snapshot: None


class Bench(NamedTuple):
    """What a task works with.

    Attributes:
        task: The task.
        seed: Seed of the reproduction.
        store: Where all tasks keep what they have, each in a folder of its own.
        watch: What goes on around it.
        scale: The scale.
    """

    task: Task
    seed: int
    store: Checkpoint
    watch: Watch
    scale: Scale

    @property
    def key(self) -> PRNGKeyArray:
        """Random key, from the name of the task."""
        return named_key(jr.key(self.seed), self.task.name)

    @property
    def own(self) -> Checkpoint:
        """Where this task keeps what it has."""
        return self.store.child(self.task.name)

    @property
    def identity(self) -> dict[str, Any]:
        """What the task is."""
        task = self.task
        return {
            "work": task.name,
            "settings": fingerprint(task.experiment.values()),
            "method": task.line.method,
            "count": task.count,
            "seed": self.seed,
        }

    def options(self, stage: str) -> dict[str, Any]:
        """Options of a loop."""
        return {
            "progress": self.watch.progress,
            "callback": self.watch.callback,
            "checkpoint": self.own.child(stage),
        }


def finished(bench: Bench) -> Measured | None:
    """What the task found in an earlier process; None if it has not ended."""
    saved = bench.own.child("answer").latest(bench.identity)
    return None if saved is None else saved.restore()


def measure(bench: Bench) -> Measured:
    """Do a task, or what is left of it; what it finds is kept."""
    task = bench.task
    if task.stage == "flows":
        work: Callable[[Bench], Measured] = _flows
    elif task.stage == "timing":
        work = _timing
    elif task.line.method == "sample":
        work = _automatic
    elif task.line.method == "hmc":
        work = _trajectory
    else:
        work = {"sweep": _passes, "training": _training, "chain": _chain}[task.kind]
    return bench.own.once(
        "answer", functools.partial(work, bench), identity=bench.identity
    )


def _train(bench: Bench, problem: Problem) -> Fit:
    method = METHODS[bench.task.line.method]
    return train(
        named_key(bench.key, "training"), method, problem, **bench.options("training")
    )


def _passes(bench: Bench) -> Measured:
    """Train, then deploy several times."""
    task, problem = bench.task, bench.task.problem()
    method = METHODS[task.line.method]
    fitted = None if method.trainer is None else _train(bench, problem)
    found = evaluate(
        named_key(bench.key, "passes"),
        method.sampler(problem),
        None if fitted is None else fitted.flows,
        label=task.name,
        num_repeats=task.count,
        **bench.options("passes"),
    )
    return {
        "log_normalizer": found.log_normalizers,
        "ess": found.ess,
        "evaluations_of_a_pass": float(found.result.num_evaluations),
        "evaluations_of_training": 0.0 if fitted is None else float(_costs(fitted)[-1]),
    }


def _costs(fitted: Fit) -> np.ndarray:
    """Evaluations up to each step of a training."""
    steps = np.asarray(fitted.history.steps.num_evaluations, np.float64)
    return np.cumsum(steps.sum(axis=1))


def _training(bench: Bench) -> Measured:
    """Train, and keep log Z of every step."""
    fitted = _train(bench, bench.task.problem())
    return {
        "log_normalizer": np.asarray(fitted.history.log_normalizer, np.float64),
        "evaluations": _costs(fitted),
        "stopped_early": fitted.rollback is not None,
    }


def _flows(bench: Bench) -> Measured:
    """Train what all chains of a line share."""
    fitted = _train(bench, bench.task.problem())
    log_z = np.asarray(fitted.history.log_normalizer, np.float64)
    return {"log_normalizer": log_z, "evaluations": _costs(fitted)}


def _proposal(bench: Bench) -> tuple[Any, Any]:
    """Sampler and flows of a line of chains."""
    line, problem = bench.task.line, bench.task.problem()
    flows = None
    if needs_flows(line):
        shared = bench._replace(task=flows_task(line, bench.scale))
        flows = _train(shared, problem).flows
    return METHODS[line.method].sampler(problem), flows


def _chain(bench: Bench) -> Measured:
    """Particle MCMC."""
    sampler, flows = _proposal(bench)
    chain = pimh(
        named_key(bench.key, "chain"),
        lambda key: sampler.run(key, flows),
        num_steps=bench.task.count,
        observables=OBSERVABLES,
        **bench.options("chain"),
    )
    return {
        "accepted": chain.accepted[0],
        "proposed_log_normalizer": chain.proposed_log_normalizer[0],
        **{name: np.asarray(v[0], np.float64) for name, v in chain.observables.items()},
    }


# Direct Hamiltonian Monte Carlo.


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Trajectory(Work):
    """Chains under way.

    Attributes:
        x: Where they are.
        rows: Observables of each iteration, averaged over steps and chains; last the
            acceptance rate.
    """

    x: np.ndarray
    rows: np.ndarray


class _Snapshot(NamedTuple):
    step: int
    num_steps: int
    row: np.ndarray
    seconds: float

    def metrics(self) -> dict[str, np.ndarray]:
        return dict(zip([*OBSERVABLES, "acceptance"], self.row[:, None], strict=True))


def _trajectory(bench: Bench) -> Measured:
    """HMC on the target itself, from the initial distribution on."""
    iterate, x = _direct(bench)
    key = named_key(bench.key, "steps")

    def advance(work: _Trajectory) -> tuple[_Trajectory, _Snapshot]:
        began = time.perf_counter()
        x, row = jax.block_until_ready(
            iterate(jr.fold_in(key, work.done), jnp.asarray(work.x))
        )
        work = dataclasses.replace(
            work,
            done=work.done + 1,
            seconds=work.seconds + time.perf_counter() - began,
            x=np.asarray(x),
            rows=np.append(work.rows, np.asarray(row, np.float64)[None], axis=0),
        )
        return work, _Snapshot(work.done, work.total, work.rows[-1], work.seconds)

    count = bench.task.count
    rows = np.zeros((0, len(OBSERVABLES) + 1))
    done = drive(
        advance,
        _Trajectory(total=count, x=np.asarray(x), rows=rows),
        label=bench.task.name,
        unit="iterations",
        describe=lambda snapshot: f"accepted {snapshot.row[-1]:.0%}",
        callbacks=[bench.watch.callback],
        may_stop=False,
        progress=bench.watch.progress,
        store=bench.own.child("chain"),
        identity=lambda: bench.identity,
    )
    *columns, acceptance = done.rows.T
    return {
        "acceptance": acceptance,
        **dict(zip(OBSERVABLES, columns, strict=True)),
    }


def _direct(bench: Bench) -> tuple[Callable[..., Any], Array]:
    """From a key and configurations to those after an iteration; where chains start."""
    sampler = bench.task.problem().sampler()
    path = sampler.path
    key = named_key(bench.key, "start")
    x, _ = path.sample(key, sampler.num_particles)

    def iterate(key: PRNGKeyArray, x: Array) -> tuple[Array, Array]:
        return _iterate(sampler.kernel, path.at(1.0), key, x, steps)

    # One step a call of the kernel: the average is over all of them.
    settings = bench.task.experiment
    steps, single = settings.num_hmc_steps, settings.replace(num_hmc_steps=1)
    sampler = dataclasses.replace(sampler, kernel=single.kernel())
    program = compile_ahead(eqx.filter_jit(iterate), key, x)
    return program.run, x


def _iterate(
    kernel: AbstractKernel,
    log_density: Callable[[Array], Array],
    key: PRNGKeyArray,
    x: Array,
    num_steps: int,
) -> tuple[Array, Array]:
    def step(points: Point, key: PRNGKeyArray) -> tuple[Point, Array]:
        points, info = kernel.move_all(key, points, log_density, jnp.asarray(1.0))
        values = [jnp.mean(jax.vmap(f)(points.x)) for f in OBSERVABLES.values()]
        return points, jnp.stack([*values, jnp.mean(info.acceptance_rate)])

    points = jax.vmap(functools.partial(point_at, log_density))(x)
    points, rows = jax.lax.scan(step, points, jr.split(key, num_steps))
    return points.x, jnp.mean(rows, axis=0)


# The automatic mode.


def _automatic(bench: Bench) -> Measured:
    """`annealax.sample` on the target, with nothing chosen by hand."""
    task = bench.task
    target = task.experiment.target()
    size = task.settings.get("num_particles")
    began = time.process_time()
    answer = sample(
        target,
        seed=bench.seed,
        num_particles=size,
        num_replicates=task.count,
        callback=bench.watch.callback,
        checkpoint=bench.own.child("replicates"),
    )
    found: dict[str, Any] = {
        "log_normalizer": answer.log_normalizer,
        "log_normalizer_stderr": answer.log_normalizer_stderr,
        "evaluations": float(answer.num_evaluations),
        "processor_seconds": time.process_time() - began,
        "warnings": [str(each) for each in answer.warnings()],
    }
    if task.kind == "chain":
        for name, function in OBSERVABLES.items():
            found[name] = float(answer.expectation(function))
            found[f"{name}_stderr"] = float(answer.expectation_stderr(function))
    return found


# Times.


def _timing(bench: Bench) -> Measured:
    """Wall-clock and processor time of a step, an iteration, or a pass."""
    line = bench.task.line
    clocks: list[tuple[float, float]] = []

    def note() -> None:
        clocks.append((time.perf_counter(), time.process_time()))

    if bench.task.kind == "training":
        times, memory = _time_training(bench)
    else:
        if line.method == "hmc":
            iterate, x = _direct(bench)
            memory = 0
        else:
            compiled = compile_pass(*_proposal(bench))
            memory, iterate, x = compiled.memory, lambda key, _: compiled.run(key), None
        # Compilation, and what a first call does once, come before the first note.
        for index in range(_CALLS + 2):
            jax.block_until_ready(iterate(jr.fold_in(bench.key, index), x))
            note()
        times = np.diff(np.array(clocks), axis=0)
    wall, processor = times.min(axis=0)
    return {
        "seconds": float(wall),
        "processor_seconds": float(processor),
        "memory": memory,
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
        "num_processors": os.cpu_count() or 1,
    }


def _time_training(bench: Bench) -> tuple[np.ndarray, int]:
    """Times of a step in some calls of the device, and the memory that a step needs.

    It is the program of the training itself, which is compiled already.
    """
    method, problem = METHODS[bench.task.line.method], bench.task.problem()
    clocks: list[tuple[float, float, float]] = []

    def note(snapshot: Snapshot) -> bool:
        clocks.append((snapshot.step, time.perf_counter(), time.process_time()))
        return len(clocks) > _CALLS

    fitted = train(bench.key, method, problem, callback=note)
    steps, *times = np.diff(np.array(clocks), axis=0).T
    return np.stack(times, axis=1) / steps[:, None], fitted.memory

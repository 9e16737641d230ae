"""Run `annealax.sample` on the zoo: a line of JSON for each run, as it ends."""

import concurrent.futures
import gc
import inspect
import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from _zoo.densities import Density, zoo
from _zoo.drawn import drawn, find
from _zoo.table import Row, finite, interval_ends, read

Runner = Callable[[Density, int], Row]
"""A density and a seed to what was found."""


def chosen(only: Sequence[str], sets: Sequence[int] = ()) -> list[Density]:
    """Densities whose group is listed, or whose name contains what is listed.

    Args:
        only: Groups or parts of names; nothing for all.
        sets: Seeds of sets drawn at random, instead of the densities listed.
    """
    listed = [each for seed in sets for each in drawn(seed)] or list(zoo().values())
    if not only:
        return listed
    for part in only:
        if not any(part == each.group or part in each.name for each in listed):
            groups = list(dict.fromkeys(each.group for each in listed))
            raise SystemExit(
                f"nothing in the zoo has {part!r} in its name; groups are {groups}"
            )
    return [
        each
        for each in listed
        if any(part == each.group or part in each.name for part in only)
    ]


def _in_a_loop(log_density: Callable) -> Callable:
    """The same function, in a loop of one turn."""

    def turn(point, _):
        return point, log_density(point)

    return lambda point: jax.lax.scan(turn, point, None, length=1)[1][0]


class Sampling:
    """`annealax.sample`, told more or less.

    Args:
        budget: As for `annealax.sample`.
        told: None, "region" or "prior": what is passed beside the density.
        opaque: Hide how the density is written: `annealax.sample` looks for sums of
            terms in its program, but not in loops.
    """

    def __init__(self, budget: str | None, told: str | None, opaque: bool = False):
        import annealax as ax  # noqa: PLC0415 (peers do without)

        if told and told not in inspect.signature(ax.sample).parameters:
            raise SystemExit(f"this version of annealax.sample takes no {told}=")
        self.budget, self.told, self.opaque = budget, told, opaque
        self.method = f"sample with {told}" if told else "sample"
        if opaque:
            self.method += ", opaque"
        if budget is not None:
            self.method += f", budget {budget}"

    def can(self, density: Density) -> bool:
        """Whether the density has what is to be told."""
        return self.told is None or getattr(density, self.told) is not None

    def __call__(self, density: Density, seed: int) -> Row:
        """Run."""
        import annealax as ax  # noqa: PLC0415

        log_density, options = density.log_density, {}
        if self.told == "region":
            options["region"] = density.region
        elif self.told == "prior":
            log_density, options["prior"] = density.likelihood(), density.prior()
        if self.opaque:
            log_density = _in_a_loop(log_density)
        if self.budget is not None:
            options["budget"] = self.budget
        result = ax.sample(
            log_density, density.shape, seed=seed, support=density.support, **options
        )
        return {
            "answer": finite(result.log_normalizer),
            "stderr": finite(result.log_normalizer_stderr),
            "interval": interval_ends(result.log_normalizer_interval()),
            "warnings": [doubt.code for doubt in result.warnings()],
            "warning_texts": [str(doubt) for doubt in result.warnings()],
            "evaluations": int(result.num_evaluations),
            "start": result.choices["start"],
            "flows": result.choices.get("flows"),
        }


def run_all(
    method: Any,
    densities: Sequence[Density],
    seeds: Sequence[int],
    out: Path,
    workers: int,
) -> None:
    """Run what the file does not have.

    Args:
        method: A runner with a name `method` and `can(density)`.
        densities: What to run it on.
        seeds: With which seeds.
        out: File that rows are appended to.
        workers: Processes. Each takes one density at a time, with all of its seeds, so
            that programs are compiled once.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    there = {(row["method"], row["name"], row["seed"]) for row in read(out)}
    _mend(out)
    tasks = []
    for density in densities:
        if not method.can(density):
            print(f"{density.name}: left out, it has nothing to tell {method.method}")
            continue
        left = [s for s in seeds if (method.method, density.name, s) not in there]
        if left:
            tasks.append((method, density.name, left, out))
    if workers == 1:
        for task in tasks:
            _run_one(*task)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        for future in [pool.submit(_run_one, *task) for task in tasks]:
            future.result()


def _mend(out: Path) -> None:
    """Take off a last line that was cut when a process was ended."""
    if out.exists() and (text := out.read_text()) and not text.endswith("\n"):
        out.write_text(text[: text.rfind("\n") + 1])


def _run_one(method: Any, name: str, seeds: Sequence[int], out: Path) -> None:
    density = find(name)
    for seed in seeds:
        row: Row = {
            "method": method.method,
            "name": name,
            "group": density.group,
            "dimension": density.dimension,
            "tags": sorted(density.tags),
            "seed": seed,
            "truth": finite(density.log_z),
        }
        began = time.perf_counter()
        try:
            row |= method(density, seed)
        except Exception as error:  # one row that fails must not end the others
            row["error"] = f"{type(error).__name__}: {error}"[:1000]
        row["seconds"] = round(time.perf_counter() - began, 2)
        with out.open("a") as file:  # one write, so that processes do not mix lines
            file.write(json.dumps(row) + "\n")
        print(_told(row), flush=True)
    # Programs for this density are of no use to the next: gigabytes, by the end.
    jax.clear_caches()
    gc.collect()


def _told(row: Row) -> str:
    label = f"{row['name']}, seed {row['seed']}"
    if "error" in row:
        return f"{label}: {row['error']}"
    codes = f" ({', '.join(row['warnings'])})" if row["warnings"] else ""
    numbers = " +- ".join(
        "not finite" if each is None else f"{each:.3f}"
        for each in (row["answer"], row["stderr"])
    )
    truth = "no truth" if row["truth"] is None else f"truth {row['truth']:.3f}"
    return f"{label}: {numbers}, {truth}, {row['seconds']:.0f} s{codes}"

"""Kill a run at random moments, resume it, and compare its numbers to the bit.

    python benchmarks/kill.py [--moments 20] [--method craft] [--seed 0]

An uninterrupted run comes first. Then each moment starts a run, kills it (signal 9)
after a random share of the time that the uninterrupted one took, from the end of its
start-up on, and resumes it. Checkpoints are written after every device call, so that
many kills fall on a checkpoint that is being written.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SETTINGS = {
    "num_particles": 200,
    "num_transitions": 3,
    "num_leapfrog": 2,
    "num_train_steps": 300,
    "num_repeats": 100,
    "flow_family": "diagonal_affine",
    "smc_transitions": 4,
}


def start(folder: Path, method: str) -> subprocess.Popen:
    settings = [f"--set={key}={value}" for key, value in SETTINGS.items()]
    options = ["--out", folder, "--quiet", "--checkpoint-seconds", "0"]
    return launch(["run", "bimodal", "--method", method, *options, *settings])


def launch(arguments: list) -> subprocess.Popen:
    command = [sys.executable, "-m", "annealax", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def wait(process: subprocess.Popen) -> None:
    _, errors = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"{process.args} failed:\n{errors}")


def await_start(folder: Path, process: subprocess.Popen) -> None:
    while not (folder / "settings.json").exists() and process.poll() is None:
        time.sleep(0.01)


def where(folder: Path) -> str:
    """What the run was doing when it was killed, from its files."""
    lines = []
    if (folder / "metrics.jsonl").exists():
        lines = (folder / "metrics.jsonl").read_text().splitlines()
    try:
        row = json.loads(lines[-1])
    except (IndexError, ValueError):
        return "before the first step"
    text = f"{row['stage']}, step {row['step']}"
    if (folder / "result.npz").exists():
        text = "drawing, or at its end"
    if any(folder.glob("checkpoints/*/.*.part")):
        text += ", writing a checkpoint"
    return text


def same(one: Path, other: Path) -> bool:
    with np.load(one / "result.npz") as a, np.load(other / "result.npz") as b:
        if set(a) != set(b):
            return False
        return all(
            a[k].tobytes() == b[k].tobytes() and a[k].dtype == b[k].dtype for k in a
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--method", default="craft")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        # Resumed processes find compiled programs; that is not what is tested here.
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{name}/compiled")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        failures = kill_many(Path(name), options)
    print(f"\n{options.moments - failures} of {options.moments} bit-identical")
    raise SystemExit(1 if failures else 0)


def kill_many(base: Path, options: argparse.Namespace) -> int:
    whole = base / "whole"
    wait(start(whole, options.method))  # fills the cache
    process = start(base / "timed", options.method)
    await_start(base / "timed", process)
    began = time.monotonic()
    wait(process)
    total = time.monotonic() - began
    print(f"{options.method}: uninterrupted {total:.1f} s after start-up\n")
    print("| killed after (s) | while | result.npz | bit-identical |")
    print("|---|---|---|---|", flush=True)
    rng, failures = random.Random(options.seed), 0
    for index in range(options.moments):
        folder = base / f"killed-{index}"
        process = start(folder, options.method)
        await_start(folder, process)
        delay = rng.uniform(0, 0.97 * total)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        moment, had = where(folder), (folder / "result.npz").exists()
        wait(launch(["resume", folder, "--quiet"]))
        identical = same(whole, folder)
        failures += not identical
        print(
            f"| {delay:.2f} | {moment} | {'there' if had else 'not yet'} "
            f"| {'yes' if identical else 'NO'} |",
            flush=True,
        )
    return failures


if __name__ == "__main__":
    main()

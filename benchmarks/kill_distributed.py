"""Kill -9 of one of two processes at random moments, resume on one, compare bits.

    python benchmarks/kill_distributed.py             ten times
    python benchmarks/kill_distributed.py --trials 2

Two processes do one run together (`annealax run --distributed`). One of them, process 0
and process 1 in turns, is killed at a random moment: as it starts, or after a random
pass. What is checked: the other ends by itself within the time that the documents
state, its last line says what happened, and `annealax resume`, in a single process,
ends with the bits of a run that nobody killed.
"""

import argparse
import random
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

_PASSES = 150
_RUN = [
    *("run", "bimodal", "--method", "smc", "--quiet", "--seed", "3"),
    *("--checkpoint-seconds", "0", "--set", f"num_repeats={_PASSES}"),
    *("--set", "num_particles=64", "--set", "block_size=16"),
]
_LAST = ("a process of this run is lost", "not all processes have met")
_PATIENCE = 330.0
"""Processes that have not met yet wait for each other for 300 s."""


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "annealax", *arguments]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _together(folder: Path, options: list[str]) -> list[subprocess.Popen]:
    """Both processes, their output in files."""
    port, started = _free_port(), []
    for rank in range(2):
        where = ["--distributed", "--coordinator", f"127.0.0.1:{port}"]
        where += ["--processes", "2", "--rank", str(rank)]
        with (folder.parent / f"{folder.name}-{rank}.log").open("w") as log:
            command = _command(*_RUN, *options, "--out", str(folder), *where)
            started.append(subprocess.Popen(command, stdout=log, stderr=log))
    return started


def _passes(folder: Path) -> int:
    """How many have been made so far."""
    metrics = folder / "metrics.jsonl"
    return len(metrics.read_text().splitlines()) if metrics.exists() else 0


def _wait_for_passes(folder: Path, count: int, both: list[subprocess.Popen]) -> None:
    while _passes(folder) < count and all(each.poll() is None for each in both):
        time.sleep(0.05)


def _bits(folder: Path) -> dict[str, bytes]:
    with np.load(folder / "result.npz") as arrays:
        return {name: arrays[name].tobytes() for name in arrays}


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--options", nargs="*", default=[], help="more for `annealax run`"
    )
    args = parser.parse_args()
    chance = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as base:
        calm = Path(base) / "calm"
        began = time.monotonic()
        both = _together(calm, args.options)
        _wait_for_passes(calm, 1, both)
        start_seconds = time.monotonic() - began
        codes = [process.wait() for process in both]
        seconds = time.monotonic() - began
        print(f"nobody killed: exit codes {codes}, {seconds:.0f} s", flush=True)
        wanted = _bits(calm)
        good = 0
        for trial in range(args.trials):
            folder, victim = Path(base) / f"trial-{trial}", trial % 2
            both = _together(folder, args.options)
            # One in five as it starts, the others after a random pass.
            if chance.random() < 0.2:
                time.sleep(chance.uniform(0.0, 0.5 * start_seconds))
            else:
                _wait_for_passes(folder, chance.randrange(1, _PASSES), both)
            made = _passes(folder)
            early = both[victim].poll() is not None
            both[victim].kill()
            killed = time.monotonic()
            try:
                code = both[1 - victim].wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                both[1 - victim].kill()
                code = -9
            waited = time.monotonic() - killed
            last = _last_line(folder.parent / f"{folder.name}-{1 - victim}.log")
            is_done = code == 0 and (folder / "result.npz").exists()
            clear = is_done or any(each in last for each in _LAST)
            same = None
            if (folder / "settings.json").exists():
                resumed = _command("resume", str(folder), "--quiet")
                subprocess.run(resumed, capture_output=True, check=False)
                same = _bits(folder) == wanted
            good += bool(clear and same is not False)
            print(
                f"{trial}: killed {victim} after {made} of {_PASSES} passes"
                f"{' (done before)' if early else ''}, the "
                f"other ended with {code} after {waited:.1f} s, clear {clear}, the "
                f"same bits after resume {same}; last line: {last[:60]}",
                flush=True,
            )
    print(f"{good} of {args.trials} as they should be")


if __name__ == "__main__":
    main()

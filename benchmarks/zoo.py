"""A zoo of densities of known log Z: who is silently wrong, and how often.

    python benchmarks/zoo.py list
    python benchmarks/zoo.py run --seeds 0-4 --out zoo.jsonl
    python benchmarks/zoo.py run --seeds 0-4 --out zoo.jsonl --only needles "ring 2-d"
    python benchmarks/zoo.py run --seeds 0-4 --out zoo.jsonl --with-region
    python benchmarks/zoo.py run --seeds 0-4 --out zoo.jsonl --with-prior
    python benchmarks/zoo.py run --seeds 0-4 --out zoo.jsonl --opaque
    python benchmarks/zoo.py run --seeds 0 --drawn 1000-1004 --out drawn.jsonl
    python benchmarks/zoo.py peers --method dynesty --seeds 0-4 --out zoo.jsonl
    python benchmarks/zoo.py table zoo.jsonl

Every run is one line of JSON, appended as it ends. What the file has is not run again,
so a command that was ended goes on where it was. `table` prints Markdown.

An answer is a silent failure if it is off by more than four of its errors and by more
than 0.05, and there is no warning; where there is no integral, any finite answer
without a warning is one. A warning is a false alarm if the interval holds the truth.
"""

import argparse
from pathlib import Path

from _zoo.densities import zoo
from _zoo.peers import METHODS, Peer
from _zoo.run import Sampling, chosen, run_all
from _zoo.table import read, summary, table


def _seeds(text: str) -> list[int]:
    """Seeds from `0-4`, `7` or `0-4,10,12`."""
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    if not seeds:
        raise argparse.ArgumentTypeError(f"no seeds in {text!r}; write 0-4 or 0,3,7")
    return seeds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="names, dimensions and log Z")
    running = argparse.ArgumentParser(add_help=False)
    running.add_argument("--seeds", type=_seeds, default=_seeds("0-4"))
    running.add_argument("--out", type=Path, default=Path("zoo.jsonl"))
    running.add_argument(
        "--only", nargs="+", default=[], help="groups, or parts of names"
    )
    running.add_argument(
        "--drawn",
        type=_seeds,
        default=[],
        help="sets of densities drawn at random, by their seeds, not those listed",
    )
    running.add_argument("--workers", type=int, default=1)
    run = commands.add_parser("run", parents=[running], help="annealax.sample")
    run.add_argument("--budget", help='such as "60s", as annealax.sample takes it')
    run.add_argument(
        "--opaque",
        action="store_true",
        help="hide how the densities are written: sums of terms tell where to look",
    )
    told = run.add_mutually_exclusive_group()
    told.add_argument(
        "--with-region", dest="told", action="store_const", const="region"
    )
    told.add_argument("--with-prior", dest="told", action="store_const", const="prior")
    peers = commands.add_parser("peers", parents=[running], help="another sampler")
    peers.add_argument("--method", choices=METHODS, required=True)
    peers.add_argument("--seconds", type=float, help="no answer after so long")
    commands.add_parser("table", help="print Markdown").add_argument(
        "files", nargs="+", type=Path
    )
    return parser


def main() -> None:
    arguments = _parser().parse_args()
    if arguments.command == "list":
        for each in zoo().values():
            tags = "".join(f", {tag}" for tag in sorted(each.tags))
            print(
                f"{each.group}: {each.name}: {each.log_z:.4f} ({each.known_by}{tags})"
            )
        return
    if arguments.command == "table":
        if missing := [str(path) for path in arguments.files if not path.exists()]:
            raise SystemExit(f"there is no file {', '.join(missing)}")
        rows = [row for path in arguments.files for row in read(path)]
        print(table(rows), summary(rows), sep="\n\n")
        return
    method = (
        Sampling(arguments.budget, arguments.told, arguments.opaque)
        if arguments.command == "run"
        else Peer(arguments.method, arguments.seconds)
    )
    densities = chosen(arguments.only, arguments.drawn)
    run_all(method, densities, arguments.seeds, arguments.out, arguments.workers)


if __name__ == "__main__":
    main()

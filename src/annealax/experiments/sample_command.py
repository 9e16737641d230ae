"""The command `annealax sample`."""

from pathlib import Path
from typing import Annotated

import typer

from annealax.experiments._folder import RunFolder
from annealax.experiments._options import AsJson, Quiet
from annealax.experiments._output import Output
from annealax.experiments.automatic import Automatic, parse_shape, parse_support, start


def sample(
    function: Annotated[
        str, typer.Argument(help="Log density, as module:function.", metavar="FUNCTION")
    ],
    shape: Annotated[
        list[str],
        typer.Option(
            help="Shape of a point, such as 10 or 8,8; or NAME=SHAPE for each."
        ),
    ],
    support: Annotated[
        list[str] | None,
        typer.Option(
            help="real, positive, unit, simplex or two bounds; or NAME=SUPPORT."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed; the same gives the same numbers.")
    ] = 0,
    budget: Annotated[
        str | None, typer.Option(help="Time to spend, such as 60s or 2m.")
    ] = None,
    flow: Annotated[
        str, typer.Option(help="auto, none, or the name of a family.")
    ] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Folder; runs/FUNCTION-seedS if not given.")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Sample any log density, with everything chosen automatically."""
    sizes = parse_shape(shape)
    chosen = Automatic(
        function,
        {},
        sizes,
        parse_support(support or (), isinstance(sizes, dict)),
        seed,
        budget,
        flow,
    )
    chosen.density()  # a wrong name is an error now, before there is a folder
    default = Path("runs") / f"{function.replace(':', '-')}-seed{seed}"
    output = Output(quiet=quiet, as_json=as_json)
    start(chosen, RunFolder(out or default), output)

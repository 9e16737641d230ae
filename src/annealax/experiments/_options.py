"""Options that several commands have."""

from typing import Annotated

import typer

Quiet = Annotated[bool, typer.Option("--quiet", help="Print the final table only.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="One JSON object on each line, nothing else.")
]
CheckpointSeconds = Annotated[
    float, typer.Option(help="Seconds between checkpoints.", min=0)
]

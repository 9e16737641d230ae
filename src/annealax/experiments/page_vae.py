"""The page of a folder that `annealax train-vae` wrote: a decoder and its training."""

import shlex
from pathlib import Path

import numpy as np

from annealax.experiments._html import Html, page, section, table, tag
from annealax.experiments._read import number, read_arrays, read_json, read_pictures
from annealax.experiments._run_files import Header, read_header
from annealax.experiments.page_charts import curve, grid
from annealax.experiments.page_parts import (
    command_box,
    number_text,
    settings_section,
    shown,
    software,
)


def vae_page(path: Path) -> Html:
    """The page of a decoder.

    Raises:
        FileError: If a file is missing or damaged.
    """
    header, file = read_header(path), path / "vae.json"
    content = read_json(file, "the training did not finish")
    bound = number_text(number(file, content, "test_elbo"), 2)
    counts = [int(number(file, content, f"num_{k}_images")) for k in ("train", "test")]
    history = np.asarray(read_arrays(path / "result.npz")["elbo"], np.float64)
    rows = [
        ["ELBO of a test image (nats)", bound],
        ["training steps", str(len(history))],
        ["images to train on", str(counts[0])],
        ["images to test on", str(counts[1])],
    ]
    words = "Evidence lower bound on each batch (nats)"
    return page(
        f"{header.name}: {bound} nats",
        tag("h1", header.name),
        tag("p", "The decoder of a variational autoencoder.", class_="lead"),
        table(["", ""], rows, caption="What was reached"),
        section("Training", grid([curve(history, words, None)]))
        if len(history) > 1
        else None,
        section("Pictures", *shown(read_pictures(path))),
        section("Run it again", command_box(_command(header))),
        settings_section(header),
        software(header),
    )


def _command(header: Header) -> str:
    words = ["annealax", "train-vae", "--seed", str(header.seed)]
    for key in ("data", "num_steps", "batch_size", "learning_rate"):
        words += [f"--{key.replace('_', '-')}", str(header.settings[key])]
    return shlex.join(words)

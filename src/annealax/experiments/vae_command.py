"""The command `annealax train-vae`: a decoder, trained in a run folder.

- `decoder.npz`: the decoder, in half precision, for `targets.VAE(decoder=...)`;
- `result.npz`: the bound at every step, and on the test images;
- `vae.json`: what is said at the end;
- `decoded.png`: test images, what comes back of them, and images drawn from the prior;
- settings, environment, metrics, checkpoints and a page, as for every run.
"""

import json
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import typer
from rich.console import Console

from annealax import report, vae
from annealax._work.checkpoint import Checkpoint
from annealax._work.serialise import FileError
from annealax._work.snapshots import Callback
from annealax.experiments._folder import (
    CHECKPOINTS,
    METRICS,
    RunFolder,
    write_settings,
)
from annealax.experiments._options import AsJson, CheckpointSeconds, Quiet
from annealax.experiments._output import Output
from annealax.experiments._working import working
from annealax.loggers import JSONLines

COMMAND = "train-vae"
_SHOWN = 8


class TrainingPlan(NamedTuple):
    """What `annealax train-vae` was asked for.

    Attributes:
        data: Where the images are.
        decoder: File for the decoder.
        num_steps: Training steps.
        batch_size: Images in a batch.
        learning_rate: Learning rate of Adam at the start.
        seed: The seed.
        checkpoint_seconds: Time between checkpoints.
    """

    data: str
    decoder: str
    num_steps: int
    batch_size: int
    learning_rate: float
    seed: int
    checkpoint_seconds: float


def train_vae(
    data: Annotated[
        Path,
        typer.Option(help="Images: a folder of IDX files, one IDX file, or an npz."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the files; runs/vae-decoder-seedS if not given. A name "
            "that ends in .npz is that of the decoder, with the folder beside it."
        ),
    ] = None,
    num_steps: Annotated[
        int, typer.Option(help="Training steps, each on one batch.", min=1)
    ] = 6000,
    batch_size: Annotated[int, typer.Option(help="Images in a batch.", min=1)] = 200,
    learning_rate: Annotated[
        float, typer.Option(help="Learning rate of Adam at the start.")
    ] = 2e-3,
    seed: Annotated[int, typer.Option(help="Seed.", min=0, max=2**32 - 1)] = 0,
    checkpoint_seconds: CheckpointSeconds = 60.0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train the decoder of a VAE on binarised images, for targets.VAE(decoder=...)."""
    images = vae.read_images(data)
    out = out or Path("runs") / f"vae-decoder-seed{seed}"
    is_file = out.suffix == ".npz"
    folder = RunFolder(out.with_suffix("") if is_file else out)
    plan = TrainingPlan(
        str(data.resolve()),
        str((out if is_file else folder.path / "decoder.npz").resolve()),
        num_steps,
        batch_size,
        learning_rate,
        seed,
        checkpoint_seconds,
    )
    settings = plan._asdict()
    write_settings(
        folder,
        name="vae-decoder",
        method=COMMAND,
        seed=settings.pop("seed"),
        overrides={},
        checkpoint_seconds=settings.pop("checkpoint_seconds"),
        values=settings,
        command=COMMAND,
    )
    _run(plan, images, folder, Output(quiet=quiet, as_json=as_json))


def continue_training(path: Path, output: Output) -> None:
    """Go on with a training that was interrupted."""
    file = path / "settings.json"
    try:
        content = json.loads(file.read_text())
        known = content | content["settings"]
        plan = TrainingPlan(**{name: known[name] for name in TrainingPlan._fields})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(f"{file} is damaged: {error!r}; train again.") from error
    _run(plan, vae.read_images(plan.data), RunFolder(path, existing=True), output)


def _run(
    plan: TrainingPlan, images: vae.Images, folder: RunFolder, output: Output
) -> None:
    key_train, key_test = jr.split(jr.key(plan.seed))
    with working(output, folder, COMMAND) as signals:
        output.say(
            f"{len(images.train)} images to train on, {len(images.test)} to test"
        )
        callbacks: list[Callback] = [
            JSONLines(folder.path / METRICS, stage="training"),
            *output.callbacks("training"),
        ]
        trained = vae.train(
            key_train,
            images.train,
            num_steps=plan.num_steps,
            batch_size=plan.batch_size,
            learning_rate=plan.learning_rate,
            progress=output.progress,
            callback=callbacks,
            checkpoint=Checkpoint(
                folder.path / CHECKPOINTS / "training",
                every_seconds=plan.checkpoint_seconds,
            ),
        )
        vae.save_decoder(plan.decoder, trained.decoder)
        signals.stop_if_asked("the decoder is there, its test is not")
        # What is in the file: rounded to half precision.
        decoder = vae.load_decoder(plan.decoder)
        bound = vae.elbo(key_test, decoder, trained.encoder, images.test)
        shown = _shown(key_test, decoder, trained.encoder, images.test[:_SHOWN])
        folder.write_arrays(
            "result.npz", {"elbo": trained.elbo, "test_elbo": bound, **shown}
        )
        summary: dict[str, Any] = {
            "test_elbo": bound,
            "num_train_images": len(images.train),
            "num_test_images": len(images.test),
        }
        folder.write_json("vae.json", summary)
        names = [plan.decoder, "result.npz", "vae.json"]
        names += report.write_pictures(folder.path) + report.write_page(folder.path)

    def show(console: Console) -> None:
        text = (
            f"{plan.decoder}: ELBO {bound:.2f} nats per test image "
            f"({len(images.test)} images). Page and pictures in {folder.path}."
        )
        console.print(text, highlight=False, soft_wrap=True)

    output.finish(
        show,
        lambda: {
            "command": COMMAND,
            "folder": str(folder.path),
            "files": names,
            **summary,
        },
    )


def _shown(
    key, decoder: vae.Decoder, encoder: Any, images: np.ndarray
) -> dict[str, np.ndarray]:
    """Images, what encoder and decoder make of them, and draws from the prior."""
    means = jax.vmap(lambda image: encoder(image)[0])(jnp.asarray(images, float))
    prior = jr.normal(key, (len(images), decoder.num_latents))
    decode = jax.vmap(lambda z: jax.nn.sigmoid(decoder(z)))
    return {
        "shown_images": np.asarray(images),
        "shown_decoded": np.asarray(decode(means)),
        "shown_prior": np.asarray(decode(prior)),
    }

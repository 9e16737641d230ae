"""`annealax train-vae`: the decoder of a VAE, trained in a run folder.

- the decoder itself, in half precision, for `targets.VAE(decoder=...)`;
- `result.npz`: the bound at every step and on the test images, and a few images;
- `vae.json`: what is said at the end.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from annealax import vae
from annealax.cli.folder import Done, Workplace
from annealax.experiments.jobs import TrainVAEJob

_SHOWN = 8


def prepare(job: TrainVAEJob, _: Path) -> vae.Images:
    """Read the images."""
    return vae.read_images(job.numbers.data)


def work(place: Workplace, job: TrainVAEJob, images: vae.Images) -> Done:
    """Train, from the checkpoint if there is one."""
    settings = job.numbers
    key_train, key_test = jr.split(jr.key(job.seed))
    place.output.say(
        f"{len(images.train)} images to train on, {len(images.test)} to test"
    )
    trained = vae.train(
        key_train,
        images.train,
        num_steps=settings.num_steps,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        progress=place.output.progress,
        callback=place.callbacks("training"),
        checkpoint=place.checkpoint(job.checkpoint_seconds).child("training"),
    )
    decoder = place.path / settings.decoder  # as it is, if it has a place of its own
    vae.save_decoder(decoder, trained.decoder)
    place.signals.stop_if_asked("the decoder is there, its test is not")
    # What is in the file: rounded to half precision.
    trained = trained._replace(decoder=vae.load_decoder(decoder))
    bound = vae.elbo(key_test, trained.decoder, trained.encoder, images.test)
    content = {
        "test_elbo": bound,
        "num_train_images": len(images.train),
        "num_test_images": len(images.test),
    }
    place.folder.write_json("vae.json", content)
    shown = _shown(key_test, trained, images.test[:_SHOWN])
    numbers = {"elbo": trained.elbo, "test_elbo": bound, **shown}
    place.folder.write_arrays("result.npz", numbers)
    files = [settings.decoder, "result.npz", "vae.json"]
    return Done(files, content)


def _shown(
    key: PRNGKeyArray, trained: vae.Trained, images: np.ndarray
) -> dict[str, np.ndarray]:
    """Images, what encoder and decoder make of them, and draws from the prior."""
    decoder, encoder = trained.decoder, trained.encoder
    means = jax.vmap(lambda image: encoder(image)[0])(jnp.asarray(images, float))
    prior = jr.normal(key, (len(images), decoder.num_latents))
    decode = jax.vmap(lambda z: jax.nn.sigmoid(decoder(z)))
    return {
        "shown_images": np.asarray(images),
        "shown_decoded": np.asarray(decode(means)),
        "shown_prior": np.asarray(decode(prior)),
    }

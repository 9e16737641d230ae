r"""Training a VAE: maximise the evidence lower bound (Kingma and Welling, 2014).

$$ \mathrm{ELBO}(x) = \mathbb{E}_{q(z|x)} \log p(x | z) - \mathrm{KL}(q(z | x) \| p(z))
   \le \log p(x) , \qquad p(z) = \mathcal{N}(0, I) , $$

with an encoder $q(z|x) = \mathcal{N}(\mu(x), \sigma(x)^2)$ that is used only here.
"""

import dataclasses
import os
import time
from collections.abc import Iterable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Integer, PRNGKeyArray

from annealax._checks import whole_number
from annealax._errors import InvalidInputError
from annealax._work.checkpoint import Checkpoint, as_checkpoint
from annealax._work.drive import Callback, Work, as_callbacks, drive
from annealax._work.fingerprint import fingerprint
from annealax.vae._decoder import Decoder, bernoulli_log_likelihood

_STEPS_PER_CALL = 50
_TEST_BATCH = 500


class Encoder(eqx.Module):
    """Mean and log standard deviation of the latents of an image.

    Args:
        key: Random key for the weights.
        decoder: The decoder that it is trained with.
        hidden: Units of its two hidden layers.
    """

    network: eqx.nn.MLP

    def __init__(self, key: PRNGKeyArray, decoder: Decoder, *, hidden: int = 256):
        height, width = decoder.image_shape
        self.network = eqx.nn.MLP(
            height * width,
            2 * decoder.num_latents,
            hidden,
            2,
            jax.nn.leaky_relu,
            key=key,
        )

    def __call__(self, image: Float[Array, "height width"]) -> tuple[Array, Array]:
        """Mean and log standard deviation."""
        mean, log_scale = jnp.split(self.network(image.reshape(-1)), 2)
        return mean, log_scale


class Trained(NamedTuple):
    """A trained VAE.

    Attributes:
        decoder: The decoder.
        encoder: The encoder.
        elbo: The bound on each batch, along the training.
    """

    decoder: Decoder
    encoder: Encoder
    elbo: np.ndarray


def train(
    key: PRNGKeyArray,
    images: Integer[np.ndarray, "images height width"],
    *,
    num_steps: int = 6000,
    batch_size: int = 200,
    learning_rate: float = 2e-3,
    decoder: Decoder | None = None,
    progress: bool = False,
    callback: Callback | Iterable[Callback] | None = None,
    checkpoint: str | os.PathLike | Checkpoint | None = None,
) -> Trained:
    """Train a decoder, with its encoder, on binarised images.

    Args:
        key: Random key.
        images: Images of zeros and ones.
        num_steps: Steps of Adam, each on one batch.
        batch_size: Images in a batch, drawn with replacement.
        learning_rate: Learning rate at the start; it falls to zero along a cosine.
        decoder: Where the decoder starts; None is a random one of the default sizes.
        progress: Show a live line with the bound.
        callback: One or several functions of a `TrainingSnapshot`, called after each
            device call; training stops if one returns True.
        checkpoint: A folder, or a `Checkpoint`, as for `annealax.fit`: the same call
            goes on from there, with the same numbers to the bit.

    Raises:
        InvalidInputError: If the arguments do not fit together, or the checkpoint is
            of another training.
        Interrupted: A KeyboardInterrupt, after the state was saved.
    """
    key_decoder, key_encoder, key_steps = jr.split(key, 3)
    decoder = Decoder(key_decoder) if decoder is None else decoder
    _check(images, decoder)
    num_steps = whole_number("num_steps", num_steps, at_least=0)
    batch_size = whole_number("batch_size", batch_size)
    optimizer = optax.chain(
        optax.clip_by_global_norm(100.0),
        optax.adam(optax.cosine_decay_schedule(learning_rate, max(num_steps, 1))),
    )
    model = (decoder, Encoder(key_encoder, decoder))
    pixels = jnp.asarray(images)

    def advance(work: _Training) -> tuple[_Training, TrainingSnapshot]:
        began = time.perf_counter()
        last = min(work.done + _STEPS_PER_CALL, work.total)
        model, state, bounds = _advance(
            optimizer,
            batch_size,
            key_steps,
            work.model,
            work.state,
            pixels,
            jnp.arange(work.done, last),
        )
        values = np.asarray(bounds)
        work = dataclasses.replace(
            work,
            done=last,
            seconds=work.seconds + time.perf_counter() - began,
            model=model,
            state=state,
            elbo=np.concatenate([work.elbo.astype(values.dtype), values]),
        )
        return work, TrainingSnapshot(work.done, work.total, values, work.seconds)

    work = drive(
        advance,
        _Training(
            total=num_steps,
            model=model,
            state=optimizer.init(eqx.filter(model, eqx.is_inexact_array)),
        ),
        label="training the VAE",
        describe=lambda snapshot: f"ELBO {snapshot.elbo.mean():.2f}",
        callbacks=as_callbacks(callback),
        progress=progress,
        store=as_checkpoint(checkpoint),
        identity=lambda: {
            "work": "train-vae",
            "arguments": fingerprint(
                (key, decoder, num_steps, batch_size, learning_rate)
            ),
            "images": fingerprint(images),
        },
    )
    return Trained(*work.model, work.elbo)


class TrainingSnapshot(NamedTuple):
    """What a callback of `train` sees after each device call.

    Attributes:
        step: Steps made so far.
        num_steps: Steps asked for.
        elbo: The bound at each step of this call.
        seconds: Time since the first step began.
    """

    step: int
    num_steps: int
    elbo: np.ndarray
    seconds: float

    def metrics(self) -> dict[str, np.ndarray]:
        """The bound at each step."""
        return {"elbo": self.elbo}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Training(Work):
    """A training under way."""

    model: tuple[Decoder, Encoder]
    state: optax.OptState
    elbo: np.ndarray = dataclasses.field(
        default_factory=lambda: np.zeros(0, np.float32)
    )


def elbo(
    key: PRNGKeyArray,
    decoder: Decoder,
    encoder: Encoder,
    images: Integer[np.ndarray, "images height width"],
) -> float:
    """Mean bound over images, with one draw of the latents for each."""
    total = 0.0
    for start in range(0, len(images), _TEST_BATCH):
        batch = jnp.asarray(images[start : start + _TEST_BATCH])
        value = _mean_elbo((decoder, encoder), jr.fold_in(key, start), batch)
        total += float(value) * len(batch)
    return total / len(images)


def _elbo(
    model: tuple[Decoder, Encoder], key: PRNGKeyArray, image: Float[Array, "..."]
) -> Float[Array, ""]:
    decoder, encoder = model
    mean, log_scale = encoder(image)
    z = mean + jnp.exp(log_scale) * jr.normal(key, mean.shape)
    divergence = 0.5 * jnp.sum(mean**2 + jnp.expm1(2 * log_scale) - 2 * log_scale)
    return bernoulli_log_likelihood(decoder(z), image) - divergence


@eqx.filter_jit
def _mean_elbo(
    model: tuple[Decoder, Encoder],
    key: PRNGKeyArray,
    images: Integer[Array, "batch height width"],
) -> Float[Array, ""]:
    batch = images.astype(jnp.result_type(float))
    keys = jr.split(key, len(images))
    return jnp.mean(jax.vmap(lambda key, image: _elbo(model, key, image))(keys, batch))


@eqx.filter_jit
def _advance(
    optimizer: optax.GradientTransformation,
    batch_size: int,
    key: PRNGKeyArray,
    model: tuple[Decoder, Encoder],
    state: optax.OptState,
    images: Integer[Array, "images height width"],
    indices: Int[Array, " steps"],
) -> tuple[tuple[Decoder, Encoder], optax.OptState, Float[Array, " steps"]]:
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def step(carry, index):
        params, state = carry
        key_batch, key_draw = jr.split(jr.fold_in(key, index))
        chosen = jr.randint(key_batch, (batch_size,), 0, len(images))

        def loss(params):
            return -_mean_elbo(eqx.combine(params, static), key_draw, images[chosen])

        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), -value

    (params, state), values = jax.lax.scan(step, (params, state), indices)
    return eqx.combine(params, static), state, values


def _check(images: np.ndarray, decoder: Decoder) -> None:
    if images.shape[1:] != decoder.image_shape:
        raise InvalidInputError(
            f"images must be of shape {decoder.image_shape} for this decoder, got "
            f"{images.shape[1:]}"
        )
    if images.max() > 1:
        raise InvalidInputError("images must be binarised: zeros and ones only")

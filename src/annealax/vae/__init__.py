"""A variational autoencoder of binarised images: its decoder is a model to sample."""

from annealax.vae._decoder import Decoder as Decoder
from annealax.vae._decoder import bernoulli_log_likelihood as bernoulli_log_likelihood
from annealax.vae._decoder import load_decoder as load_decoder
from annealax.vae._decoder import save_decoder as save_decoder
from annealax.vae._images import Images as Images
from annealax.vae._images import read_images as read_images
from annealax.vae._train import Encoder as Encoder
from annealax.vae._train import Trained as Trained
from annealax.vae._train import TrainingSnapshot as TrainingSnapshot
from annealax.vae._train import elbo as elbo
from annealax.vae._train import train as train

"""The experiments by name: one problem a file."""

from collections.abc import Mapping

from annealax.experiments._names import unknown_name
from annealax.experiments._settings import Settings
from annealax.experiments.problems.bimodal import Bimodal
from annealax.experiments.problems.brownian import Brownian
from annealax.experiments.problems.challenging_mixture import ChallengingMixture
from annealax.experiments.problems.eight_schools import EightSchools
from annealax.experiments.problems.forty_modes import FortyModes
from annealax.experiments.problems.funnel import Funnel
from annealax.experiments.problems.gaussian import Gaussian
from annealax.experiments.problems.lgcp import LGCP
from annealax.experiments.problems.logistic import Logistic
from annealax.experiments.problems.many_well import ManyWell
from annealax.experiments.problems.phi4 import Phi4, Phi4Small, Phi4Tuned
from annealax.experiments.problems.seeds import Seeds
from annealax.experiments.problems.student_t import StudentT
from annealax.experiments.problems.vae import VAE

EXPERIMENTS: Mapping[str, type[Settings]] = {
    "bimodal": Bimodal,
    "gaussian": Gaussian,
    "funnel": Funnel,
    "challenging-mixture": ChallengingMixture,
    "many-well": ManyWell,
    "forty-modes": FortyModes,
    "student-t": StudentT,
    "phi4": Phi4,
    "phi4-small": Phi4Small,
    "phi4-tuned": Phi4Tuned,
    "lgcp": LGCP,
    "vae": VAE,
    "seeds": Seeds,
    "brownian": Brownian,
    "eight-schools": EightSchools,
    "logistic": Logistic,
}


def find_experiment(name: str) -> type[Settings]:
    """The settings class of this name."""
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]

"""The evidence of hierarchical models of PyMC, by `pm.sample_smc` and by `ax.sample`.

    python benchmarks/pymc_smc.py --seeds 3 --methods annealax pymc

Both get the same model and choose everything themselves; the exact values are those of
`ax.targets`, from quadrature. Prints how far log Z is off, and the seconds.
"""

import argparse
import logging
import time

import numpy as np
import pymc as pm

import annealax as ax

EXACT = {
    "eight schools": float(ax.targets.EightSchools().log_normalizer),
    "Brownian motion": float(ax.targets.BrownianMotion().log_normalizer),
}


def eight_schools():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        theta = pm.Normal("theta", mu, tau, shape=8)
        effects = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
        errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
        pm.Normal("y", theta, errors, observed=effects)
    return model


def brownian_motion():
    target = ax.targets.BrownianMotion()
    first, last = target.gap
    seen = np.r_[0:first, last:30]
    with pm.Model() as model:
        alpha = pm.LogNormal("alpha", 0, 2)
        sigma = pm.LogNormal("sigma", 0, 2)
        start = pm.Normal.dist(0, alpha)
        path = pm.GaussianRandomWalk("path", 0, alpha, init_dist=start, steps=29)
        data = np.asarray(target.observations, np.float64)
        pm.Normal("y", path[seen], sigma, observed=data)
    return model


def by_pymc(model, seed):
    with model:
        data = pm.sample_smc(
            draws=2000, chains=4, cores=1, random_seed=seed, progressbar=False
        )
    chains = data.sample_stats["log_marginal_likelihood"].values
    if isinstance(chains.flat[0], list):  # which are not as long as each other
        chains = chains.ravel()
    last = [float(each[-1]) for each in chains]
    return float(np.logaddexp.reduce(last) - np.log(len(last))), last


def by_annealax(model, seed):
    result = ax.sample(ax.from_pymc(model), seed=seed)
    return result.log_normalizer, (result.log_normalizer_stderr, *result.warnings())


METHODS = {"annealax": by_annealax, "pymc": by_pymc}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    asked = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    for name, make in (
        ("eight schools", eight_schools),
        ("Brownian motion", brownian_motion),
    ):
        for method in asked.methods:
            for seed in range(asked.seeds):
                start = time.perf_counter()
                value, more = METHODS[method](make(), seed)
                seconds = time.perf_counter() - start
                print(
                    f"{name}, {method}, seed {seed}: off by "
                    f"{value - EXACT[name]:+.4f} in {seconds:.0f} s ({more})",
                    flush=True,
                )


if __name__ == "__main__":
    main()

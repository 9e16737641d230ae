"""Chains of particle MCMC: expectations, error bars, and advice."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from annealax._arviz import chains_to_arviz
from annealax._estimates import integrated_autocorrelation_time


class Chain(NamedTuple):
    """Chains of particle independent Metropolis-Hastings.

    Attributes:
        observables: Weighted expectation of each observable in the current
            population: arrays over (chains, iterations, ...).
        log_normalizer: log Z of the current population.
        accepted: Whether the iteration's proposal was accepted.
        proposed_log_normalizer: log Z of every proposal, accepted or not.
        configurations: One unweighted configuration per iteration, or None.
        seconds: Time to make the proposals, compilation apart.
    """

    observables: dict[str, np.ndarray]
    log_normalizer: np.ndarray
    accepted: np.ndarray
    proposed_log_normalizer: np.ndarray
    configurations: np.ndarray | None
    seconds: float

    @property
    def acceptance_rate(self) -> float:
        """Fraction of proposals accepted, the first of each chain left out."""
        return float(self.accepted[:, 1:].mean()) if self.accepted.shape[1] > 1 else 1.0

    def to_arviz(self, attributes: Mapping[str, Any] | None = None) -> Any:
        """The chains as `arviz.InferenceData`; needs the extra `annealax[arviz]`.

        Configurations, which are unweighted draws, are its posterior. Observables are
        expectations in whole populations, which vary less than draws do: they are in
        `sample_stats`, with log Z and acceptance.

        Args:
            attributes: Facts to keep with it, by name.
        """
        statistics = {
            "accepted": self.accepted,
            "log_normalizer": self.log_normalizer,
            "proposed_log_normalizer": self.proposed_log_normalizer,
            **self.observables,
        }
        return chains_to_arviz(self.configurations, statistics, attributes)

    @property
    def mean(self) -> dict[str, np.ndarray]:
        """Estimate of each expectation: the average over iterations."""
        return {k: np.asarray(v.mean(axis=(0, 1))) for k, v in self.observables.items()}

    @property
    def autocorrelation_time(self) -> dict[str, np.ndarray]:
        """Integrated autocorrelation time of each trace, in iterations; at least 1."""
        return {
            k: integrated_autocorrelation_time(v) for k, v in self.observables.items()
        }

    @property
    def stderr(self) -> dict[str, np.ndarray]:
        """Standard error of each mean, autocorrelation included."""
        errors = {}
        for name, time_ in self.autocorrelation_time.items():
            trace = self.observables[name]
            count = trace.shape[0] * trace.shape[1]
            variance = trace.var(axis=(0, 1), ddof=1) if count > 1 else np.inf
            errors[name] = np.asarray(np.sqrt(variance * time_ / count))
        return errors

    def derived(
        self, function: Callable[[dict[str, np.ndarray]], Any], num_blocks: int = 50
    ) -> tuple[np.ndarray, np.ndarray]:
        """A function of the expectations, with its standard error (block jackknife).

        Args:
            function: From the dictionary of expectations to a number or an array, for
                instance the Binder cumulant.
            num_blocks: Blocks of consecutive iterations that are left out in turn.

        Returns:
            Its value and its standard error.
        """
        flat = {
            k: v.reshape(-1, *v.shape[2:]).astype(np.float64)
            for k, v in self.observables.items()
        }
        length = self.accepted.size
        blocks = np.array_split(np.arange(length), min(num_blocks, length))
        totals = {k: v.sum(axis=0) for k, v in flat.items()}
        value = np.asarray(function({k: v / length for k, v in totals.items()}))
        left_out = np.stack(
            [
                np.asarray(
                    function(
                        {
                            k: (totals[k] - flat[k][block].sum(axis=0))
                            / (length - len(block))
                            for k in flat
                        }
                    )
                )
                for block in blocks
                if len(block) < length
            ]
            or [np.full_like(value, np.nan)]
        )
        n = len(left_out)
        spread = left_out - left_out.mean(axis=0)
        return value, np.asarray(np.sqrt((n - 1) / n * np.sum(spread**2, axis=0)))

    @property
    def log_normalizer_variance(self) -> float:
        """Variance of log Z over proposals; about 1 is the best use of a budget."""
        finite = self.proposed_log_normalizer[np.isfinite(self.proposed_log_normalizer)]
        return float(np.var(finite, ddof=1)) if finite.size > 1 else float("nan")

    def advice(self, num_particles: int) -> str:
        """What the variance of log Z says about the number of particles.

        Pitt et al. (2012): a variance near 1 is the best use of a budget, and it falls
        as one over the number of particles.
        """
        variance = self.log_normalizer_variance
        best = max(1, round(num_particles * variance))
        if not np.isfinite(variance):
            return "too few proposals to say anything about the number of particles"
        text = f"Var(log Z) is {variance:.2g} at {num_particles} particles"
        if variance > 2:
            return f"{text}: too noisy; use about {best} particles, or train longer"
        if variance < 0.5:
            return (
                f"{text}: below 1, so {max(best, 1)} particles would mix about as well "
                "per iteration at a fraction of the cost; keep more only if memory "
                "and vectorisation make them cheap"
            )
        return f"{text}: near 1, the best use of a budget"

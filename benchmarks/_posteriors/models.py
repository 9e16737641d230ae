"""The models, as functions of NumPyro, and their data.

All data are simulated here, with fixed seeds, from parameters that are near but not at
what is estimated; except the eight schools (Rubin 1981), which are published.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from numpyro import deterministic, factor, plate, sample


class Posterior(NamedTuple):
    """A model and its data."""

    kind: str
    model: Callable[..., None]
    args: tuple[Any, ...]


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(1000 + seed)


def linear(x, y):
    scale = sample("scale", dist.HalfNormal(2.0))
    level = sample("level", dist.Normal(0, 5))
    slope = sample("slope", dist.Normal(0, 2).expand([x.shape[1]]).to_event(1))
    sample("y", dist.Normal(level + x @ slope, scale), obs=y)


def logistic(x, y):
    level = sample("level", dist.Normal(0, 3))
    slope = sample("slope", dist.Normal(0, 1.5).expand([x.shape[1]]).to_event(1))
    sample("y", dist.Bernoulli(logits=level + x @ slope), obs=y)


def robust(x, y):
    scale = sample("scale", dist.HalfNormal(2.0))
    freedom = sample("freedom", dist.Gamma(2.0, 0.1))
    slope = sample("slope", dist.Normal(0, 2).expand([x.shape[1]]).to_event(1))
    sample("y", dist.StudentT(1 + freedom, x @ slope, scale), obs=y)


def counts(x, y):
    slope = sample("slope", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    shape = sample("shape", dist.HalfCauchy(3.0))
    sample("y", dist.NegativeBinomial2(jnp.exp(1.0 + x @ slope), shape), obs=y)


def survival(x, time, seen):
    shape = sample("shape", dist.LogNormal(0.0, 0.5))
    level = sample("level", dist.Normal(0, 2))
    slope = sample("slope", dist.Normal(0, 1))
    scale = jnp.exp(level + slope * x)
    rate = (time / scale) ** shape
    log_hazard = jnp.log(shape / scale) + (shape - 1) * jnp.log(time / scale)
    factor("likelihood", jnp.sum(jnp.where(seen, log_hazard, 0.0) - rate))


def horseshoe(x, y):
    overall = sample("overall", dist.HalfCauchy(0.5))
    scale = sample("scale", dist.HalfNormal(2.0))
    with plate("feature", x.shape[1]):
        local = sample("local", dist.HalfCauchy(1.0))
        raw = sample("raw", dist.Normal(0, 1))
    slope = deterministic("slope", overall * local * raw)
    sample("y", dist.Normal(x @ slope, scale), obs=y)


def schools(y, error, centred):
    mean = sample("mean", dist.Normal(0, 5))
    spread = sample("spread", dist.HalfCauchy(5.0))
    with plate("school", len(y)):
        if centred:
            effect = sample("effect", dist.Normal(mean, spread))
        else:
            effect = mean + spread * sample("raw", dist.Normal(0, 1))
        sample("y", dist.Normal(effect, error), obs=y)


def intercepts(group, x, y):
    count = int(GROUPS.max()) + 1
    mean = sample("mean", dist.Normal(0, 3))
    spread = sample("spread", dist.HalfNormal(1.0))
    slope = sample("slope", dist.Normal(0, 1))
    scale = sample("scale", dist.HalfNormal(1.0))
    with plate("group", count):
        level = sample("level", dist.Normal(mean, spread))
    sample("y", dist.Normal(level[group] + slope * x, scale), obs=y)


def rates(trials, successes):
    centre = sample("centre", dist.Beta(2.0, 4.0))
    weight = sample("weight", dist.LogNormal(2.0, 1.0))
    with plate("unit", len(trials)):
        share = sample("share", dist.Beta(centre * weight, (1 - centre) * weight))
        sample("y", dist.Binomial(trials, share), obs=successes)


def slopes(group, x, y):
    count = int(GROUPS.max()) + 1
    mean = sample("mean", dist.Normal(0, 2).expand([2]).to_event(1))
    spread = sample("spread", dist.HalfNormal(1.0).expand([2]).to_event(1))
    factor_ = sample("factor", dist.LKJCholesky(2, 2.0))
    scale = sample("scale", dist.HalfNormal(1.0))
    with plate("group", count):
        raw = sample("raw", dist.Normal(0, 1).expand([2]).to_event(1))
    both = mean + raw @ (spread[:, None] * factor_).T
    sample("y", dist.Normal(both[group, 0] + both[group, 1] * x, scale), obs=y)


def process(x, y):
    length = sample("length", dist.InverseGamma(4.0, 4.0))
    height = sample("height", dist.HalfNormal(2.0))
    noise = sample("noise", dist.HalfNormal(0.5))
    square = ((x[:, None] - x) / length) ** 2
    diagonal = (noise**2 + 1e-4) * jnp.eye(len(x))
    covariance = height**2 * jnp.exp(-0.5 * square) + diagonal
    sample("y", dist.MultivariateNormal(0.0, covariance), obs=y)


def latent_process(x, y):
    length = sample("length", dist.InverseGamma(4.0, 4.0))
    height = sample("height", dist.HalfNormal(1.0))
    raw = sample("raw", dist.Normal(0, 1).expand([len(x)]).to_event(1))
    kernel = jnp.exp(-0.5 * ((x[:, None] - x) / length) ** 2)
    root = jnp.linalg.cholesky(kernel + 1e-4 * jnp.eye(len(x)))
    sample("y", dist.Poisson(jnp.exp(1.0 + height * root @ raw)), obs=y)


def hidden_markov(y):
    stay = sample("stay", dist.Beta(4.0, 2.0).expand([2]).to_event(1))
    rising = dist.transforms.OrderedTransform()
    base = dist.Normal(jnp.array([-1.0, 0.5]), 1.0).to_event(1)
    level = sample("level", dist.TransformedDistribution(base, rising))
    scale = sample("scale", dist.HalfNormal(1.0))
    move = jnp.log(jnp.stack([stay[0], 1 - stay[0], 1 - stay[1], stay[1]]))
    move = move.reshape(2, 2)
    emit = dist.Normal(level, scale).log_prob(y[:, None])

    def step(alpha, seen):
        return logsumexp(alpha[:, None] + move, axis=0) + seen, None

    alpha, _ = jax.lax.scan(step, emit[0] - jnp.log(2.0), emit[1:])
    factor("likelihood", logsumexp(alpha))


def mixture(y):
    share = sample("share", dist.Beta(2.0, 2.0))
    rising = dist.transforms.OrderedTransform()
    base = dist.Normal(jnp.array([-1.0, 0.5]), 1.0).to_event(1)
    centre = sample("centre", dist.TransformedDistribution(base, rising))
    scale = sample("scale", dist.LogNormal(0.0, 0.5).expand([2]).to_event(1))
    terms = dist.Normal(centre, scale).log_prob(y[:, None])
    weights = jnp.log(jnp.stack([share, 1 - share]))
    factor("likelihood", jnp.sum(logsumexp(terms + weights, axis=1)))


def zero_inflated(x, y):
    gate = sample("gate", dist.Beta(1.5, 3.0))
    level = sample("level", dist.Normal(0, 2))
    slope = sample("slope", dist.Normal(0, 1))
    sample("y", dist.ZeroInflatedPoisson(gate, jnp.exp(level + slope * x)), obs=y)


def predator(time_step, seen):
    rate = sample("rate", dist.LogNormal(jnp.log(0.6), 0.3).expand([4]).to_event(1))
    start = sample("start", dist.LogNormal(jnp.log(8.0), 0.5).expand([2]).to_event(1))
    noise = sample("noise", dist.HalfNormal(0.5))

    def slope(z):
        prey, hunter = jnp.exp(z)
        grow, eaten, die, feed = rate * jnp.array([1.0, 0.1, 1.0, 0.1])
        return jnp.stack([grow - eaten * hunter, feed * prey - die])

    def step(z, _):
        for _ in range(4):
            h = time_step / 4
            a = slope(z)
            b = slope(z + h / 2 * a)
            c = slope(z + h / 2 * b)
            d = slope(z + h * c)
            z = z + h / 6 * (a + 2 * b + 2 * c + d)
        return z, z

    _, path = jax.lax.scan(step, jnp.log(start), None, length=seen.shape[0])
    sample("y", dist.Normal(path, noise), obs=seen)


def responses(answers):
    people, items = answers.shape
    spread = sample("spread", dist.LogNormal(0.0, 0.3))
    with plate("item", items):
        difficulty = sample("difficulty", dist.Normal(0, 1.5))
        sharpness = sample("sharpness", dist.LogNormal(0.0, 0.3))
    with plate("person", people):
        ability = sample("ability", dist.Normal(0, 1))
    logits = sharpness * (spread * ability[:, None] - difficulty)
    sample("y", dist.Bernoulli(logits=logits).to_event(2), obs=answers)


def autoregression(y):
    level = sample("level", dist.Normal(0, 2))
    back = sample("back", dist.Uniform(-1.0, 1.0))
    scale = sample("scale", dist.HalfNormal(1.0))
    first = scale / jnp.sqrt(1 - back**2)
    sample("first", dist.Normal(level, first), obs=y[0])
    mean = level + back * (y[:-1] - level)
    sample("y", dist.Normal(mean, scale), obs=y[1:])


def volatility(y):
    level = sample("level", dist.Normal(0, 1))
    back = sample("back", dist.Beta(10.0, 2.0))
    spread = sample("spread", dist.HalfNormal(0.5))
    raw = sample("raw", dist.Normal(0, 1).expand([len(y)]).to_event(1))

    def step(h, z):
        h = level + back * (h - level) + spread * z
        return h, h

    first = level + spread / jnp.sqrt(1 - back**2) * raw[0]
    _, rest = jax.lax.scan(step, first, raw[1:])
    h = jnp.concatenate([first[None], rest])
    sample("y", dist.Normal(0.0, jnp.exp(h / 2)), obs=y)


def change(y):
    before = sample("before", dist.Gamma(2.0, 0.5))
    after = sample("after", dist.Gamma(2.0, 0.5))
    times = jnp.arange(1, len(y))
    one = dist.Poisson(before).log_prob(y)
    other = dist.Poisson(after).log_prob(y)
    early, late = jnp.cumsum(one)[:-1], jnp.sum(other) - jnp.cumsum(other)[:-1]
    factor("likelihood", logsumexp(early + late) - jnp.log(len(times)))


# Data.

GROUPS = np.repeat(np.arange(6), [4, 9, 5, 12, 3, 7])


def _made() -> dict[str, Posterior]:
    x = _rng(0).normal(size=(40, 4))
    slope = np.array([1.2, -0.7, 0.0, 0.4])
    mean = x @ slope
    noise = _rng(1).normal(size=40)
    heavy = _rng(2).standard_t(2.5, size=40)
    yes = (_rng(3).uniform(size=40) < 1 / (1 + np.exp(-mean - 0.3))).astype(int)
    many = _rng(4).negative_binomial(3, 3 / (3 + np.exp(1.0 + 0.5 * mean)))
    life = np.exp(1.0 + 0.5 * x[:, 0]) * _rng(5).weibull(1.4, size=40)
    wide = _rng(6).normal(size=(50, 8))
    sparse = wide @ np.array([2.0, -1.5, 0, 0, 0, 0, 0, 0.4]) + _rng(7).normal(size=50)
    level = _rng(8).normal(0.5, 0.8, size=6)[GROUPS]
    grouped = level + 0.6 * x[:, 1] + 0.5 * noise
    turned = level + (0.6 + 0.5 * _rng(9).normal(size=6)[GROUPS]) * x[:, 1]
    trials = _rng(10).integers(8, 30, size=10)
    share = _rng(11).beta(3, 7, size=10)
    line = np.sort(_rng(12).uniform(0, 6, size=25))
    wave = np.sin(1.5 * line) + 0.3 * _rng(13).normal(size=25)
    state = np.cumsum(_rng(14).uniform(size=60) < 0.15) % 2
    switched = np.where(state, 1.2, -0.8) + 0.6 * _rng(15).normal(size=60)
    which = _rng(16).uniform(size=50) < 0.35
    mixed = np.where(which, -1.2, 1.3) + 0.7 * _rng(17).normal(size=50)
    some = _rng(18).poisson(np.exp(0.8 + 0.4 * x[:, 0])) * (
        _rng(19).uniform(size=40) > 0.3
    )
    ability, hard = _rng(20).normal(size=(15, 1)), np.linspace(-1.2, 1.2, 6)
    right = (_rng(21).uniform(size=(15, 6)) < 1 / (1 + np.exp(hard - ability))) * 1
    walk = [0.0]
    for shock in _rng(22).normal(size=59):
        walk.append(0.5 + 0.7 * (walk[-1] - 0.5) + 0.4 * shock)
    quiet = np.exp(0.5 * np.cumsum(0.25 * _rng(23).normal(size=30)) - 0.3)
    returns = quiet * _rng(24).normal(size=30)
    disasters = np.concatenate([_rng(25).poisson(4, 18), _rng(26).poisson(1.5, 22)])
    path = _lotka(0.5, 20)
    seen = path + 0.2 * _rng(27).normal(size=path.shape)
    effects = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    dark = _rng(28).poisson(np.exp(1.0 + 0.8 * np.sin(line[::2])))
    censored = np.minimum(life, 4.0)
    return {
        "linear": Posterior("regression", linear, (x, 0.4 + mean + 0.7 * noise)),
        "logistic": Posterior("regression", logistic, (x, yes)),
        "robust": Posterior("regression", robust, (x, mean + 0.5 * heavy)),
        "counts": Posterior("regression", counts, (x, many)),
        "survival": Posterior("survival", survival, (x[:, 0], censored, life < 4.0)),
        "horseshoe": Posterior("sparse regression", horseshoe, (wide, sparse)),
        "schools": Posterior("hierarchical", schools, (effects, errors, False)),
        "schools-centred": Posterior("hierarchical", schools, (effects, errors, True)),
        "intercepts": Posterior("hierarchical", intercepts, (GROUPS, x[:, 1], grouped)),
        "rates": Posterior(
            "hierarchical", rates, (trials, _rng(29).binomial(trials, share))
        ),
        "slopes": Posterior(
            "hierarchical", slopes, (GROUPS, x[:, 1], turned + 0.4 * noise)
        ),
        "process": Posterior("Gaussian process", process, (line, wave)),
        "latent-process": Posterior(
            "Gaussian process", latent_process, (line[::2], dark)
        ),
        "hidden-markov": Posterior("hidden Markov", hidden_markov, (switched,)),
        "mixture": Posterior("mixture", mixture, (mixed,)),
        "zero-inflated": Posterior("mixture", zero_inflated, (x[:, 0], some)),
        "predator": Posterior("differential equation", predator, (0.5, seen)),
        "responses": Posterior("item response", responses, (right,)),
        "autoregression": Posterior("time series", autoregression, (np.asarray(walk),)),
        "volatility": Posterior("time series", volatility, (returns,)),
        "change": Posterior("time series", change, (disasters,)),
    }


def _lotka(time_step: float, count: int) -> np.ndarray:
    z, found = np.log([8.0, 6.0]), []
    for _ in range(count):
        for _ in range(200):
            prey, hunter = np.exp(z)
            z = z + time_step / 200 * np.array(
                [0.6 - 0.06 * hunter, 0.05 * prey - 0.55]
            )
        found.append(z)
    return np.array(found)


POSTERIORS = _made()

numpyro.enable_validation(False)

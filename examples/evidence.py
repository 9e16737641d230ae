# %% [markdown]
# # Which of two models
# Did all groups have one rate of success, or one each? The evidence answers, and here
# both have closed forms to compare with.

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax.scipy import stats
from scipy.special import betaln, comb

import annealax as ax

wins = np.array([8, 4, 9, 5])
tries = np.array([20, 22, 18, 20])


def log_likelihood(rates):
    """Successes of each group; one rate, or a rate for each."""
    rates = jnp.broadcast_to(rates, (4,))
    return jnp.sum(stats.binom.logpmf(wins, tries, rates))


# %%
one = ax.sample(lambda p: log_likelihood(p[0]), (1,), support="unit", seed=0)
each = ax.sample(log_likelihood, (4,), support="unit", seed=0)
choose = np.log(comb(tries, wins)).sum()
exact_one = choose + betaln(1 + wins.sum(), 1 + (tries - wins).sum())
exact_each = choose + betaln(1 + wins, 1 + tries - wins).sum()

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
for i, (name, result, exact) in enumerate(
    (("one rate", one, exact_one), ("a rate each", each, exact_each))
):
    log_z, error = result.log_normalizer, result.log_normalizer_stderr
    print(f"{name}: log Z = {log_z:.4f} +- {error:.4f} (exact {exact:.4f})")
    left.errorbar(i, log_z - exact, 2 * error, fmt="o", color="teal", capsize=4)
left.axhline(0, color="black", lw=1)
left.set(title="log evidence minus exact (two errors)", xlim=(-0.5, 1.5))
left.set_xticks([0, 1], ["one rate", "a rate each"])
factor = np.exp(one.log_normalizer - each.log_normalizer)
print(f"Bayes factor for one rate: {factor:.2f}")
mean, deviation = each.mean(), each.std()
right.errorbar(range(4), mean, deviation, fmt="o", color="teal", capsize=4)
right.axhline(float(one.mean()[0]), color="darkorange", label="one rate")
right.set(title=f"rates; Bayes factor {factor:.1f} for one", xlabel="group")
right.legend()
figure.savefig("evidence.png", dpi=110)

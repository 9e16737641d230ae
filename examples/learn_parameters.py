# %% [markdown]
# # Learning the parameters of a model
# The evidence of a Cox process is maximised in its variance and length scale while
# the flows train. No derivative goes through the sampler, and the result has standard
# errors.

# %%
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
import optax

import annealax as ax

cox = ax.targets.LogGaussianCoxPines(8, whitened=True)


def model(parameters):
    """The process under another prior; factorised once a pass."""
    return cox.with_prior(
        jnp.exp(parameters["log_variance"]), jnp.exp(parameters["log_length_scale"])
    )


start = {"log_variance": jnp.log(1.0), "log_length_scale": jnp.log(0.05)}

# %%
sampler = ax.Sampler(
    ax.GeometricPath(None, cox, 4), ax.kernels.HMC(0.25, 6), num_particles=200
)
learnt = ax.learn(
    jr.key(0),
    ax.CRAFT(sampler, optax.adam(1e-2)),
    model,
    start,
    ax.flows.diagonal_affine(None, cox.shape),
    num_steps=150,
)
for name, value in learnt.parameters.items():
    print(f"{name} = {value:.3f} +- {learnt.stderr[name]:.3f}")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
left.plot(np.asarray(learnt.log_normalizer), color="teal")
left.set(title="log evidence", xlabel="step")
for name, values in learnt.path.items():
    right.plot(np.asarray(values), label=name)
right.set(title="parameters", xlabel="step")
right.legend()
figure.savefig("learn_parameters.png", dpi=110)

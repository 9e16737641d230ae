# %% [markdown]
# # The same bits on one device and on four
# Particles lie in blocks; blocks are spread over the devices of a mesh. What comes out
# depends on the size of a block alone. Four virtual devices share one processor here;
# with real ones, leave out the lines with flags.

# %%
# ruff: noqa: E402 (the flags come first)
import os

FLAGS = "--xla_force_host_platform_device_count=4"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}"

import jax
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np

import annealax as ax

target = ax.targets.ManyWell(4)
path = ax.GeometricPath((4,), target, betas=10)
kernel = ax.kernels.HMC(0.2, 5)
sampler = ax.Sampler(path, kernel, num_particles=4000, block_size=500)

# %%
runs = {}
for count in (1, 2, 4):
    mesh = jax.make_mesh((count,), ("particles",))
    runs[count] = sampler.run(jr.key(0), mesh=mesh)
    print(f"{count} devices: log Z = {runs[count].log_normalizer:.6f}")
same = all(np.array_equal(run.x, runs[1].x) for run in runs.values())
print(f"the same bits: {same}; exact: {target.log_normalizer:.6f}")

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
for axis, (count, run) in zip(axes, runs.items(), strict=True):
    axis.hexbin(
        run.x[:, 0], run.x[:, 2], C=run.weights, gridsize=45, reduce_C_function=np.sum
    )
    axis.set(
        title=f"{count} devices: {run.log_normalizer:.5f}", xlabel="x[0]", ylabel="x[2]"
    )
figure.savefig("many_devices.png", dpi=110)

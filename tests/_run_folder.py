"""Run folders made up from numbers, for tests of what reads them."""

import io
import json
import warnings

import numpy as np
from matplotlib.figure import Figure


def png(words="picture", size=(4.0, 3.0)):
    """A small picture."""
    figure = Figure(size)
    figure.subplots().set_title(words)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=72)
    return file.getvalue()


def read_netcdf(path):
    """What ArviZ reads from a file, without what it announces when it is imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    return arviz.from_netcdf(path)


def row(label, values, **changes):
    """A row of table.json."""
    return {
        "label": label,
        "num_transitions": 5,
        "log_normalizer": values[0],
        "log_normalizer_stderr": 0.125,
        "repeats_log_normalizer": values,
        "repeats_ess": [0.5] * len(values),
        "repeats_lowest_ess": [0.25] * len(values),
        "seconds_per_pass": 0.005,
        "evaluations_per_pass": 27500.0,
        "warnings": [],
    } | changes


def arrays(num_particles=200, shape=(3,), transitions=5, steps=30, seed=0):
    """What result.npz holds."""
    rng = np.random.default_rng(seed)
    logs = rng.normal(size=num_particles)
    return {
        "x": rng.normal(size=(num_particles, *shape)).astype(np.float32),
        "log_weights": logs - np.log(np.exp(logs).sum()),
        "log_normalizer": np.float32(1.5),
        "log_normalizer_stderr": np.float32(0.125),
        "betas": np.linspace(0, 1, transitions + 1),
        "step_ess": np.linspace(40, 150, transitions),
        "step_acceptance_rate": np.linspace(0.9, 0.7, transitions),
        "step_resampled": np.arange(transitions) < 1,
        "step_free_energy": np.linspace(2, 1, transitions),
        "step_log_ratio": np.linspace(-1, -0.5, transitions),
        "history_loss": 5 / np.arange(1, steps + 1),
        "history_log_normalizer": rng.normal(size=steps),
        "history_ess": rng.uniform(20, 150, size=(steps, transitions)),
        "history_num_skipped": np.zeros(steps, int),
    }


def doubt(text, code="a-code"):
    """A warning of table.json."""
    return {"code": code, "text": text}


def chain_arrays(chains=1, steps=9, seed=0):
    """What pimh.npz holds."""
    rng = np.random.default_rng(seed)
    return {
        "accepted": rng.uniform(size=(chains, steps)) < 0.5,
        "log_normalizer": rng.normal(size=(chains, steps)),
        "proposed_log_normalizer": rng.normal(size=(chains, steps)),
        "configurations": rng.normal(size=(chains, steps, 4, 4)),
        "trace_energy": rng.normal(size=(chains, steps)),
        "trace_zero_momentum_correlator": 1 + rng.uniform(size=(chains, steps, 4)),
    }


def write_comparison(folder, *, truth=0.5, spreads=(0.01, 0.5)):
    """Write the folder of a comparison: two methods, and chains without log Z."""
    write(folder, method="craft,smc,hmc", pictures=())
    for name in ("table.json", "result.npz"):
        (folder / name).unlink()
    attempt = dict.fromkeys(("evaluations", "training_seconds", "seconds"), 4.0)
    attempt |= {"compile_seconds": 1.0, "memory": 5_000_000, "ess": 0.5, "rhat": None}
    rows, curves = [], {}
    for method, spread in zip(("craft", "smc"), spreads, strict=True):
        values = 0.5 + spread * np.array([1, -1, 1, -1, 1, -1])
        attempts = [attempt | {"log_normalizer": value} for value in values]
        what = {"method": method, "label": method.upper(), "what": f"{method}ing"}
        rows.append(what | {"attempts": attempts})
        for index, value in enumerate(values):
            steps = np.arange(1.0, 9)
            curve = np.stack([steps, 10 * steps, value + 1 / steps], axis=1)
            curves[f"{method}_{index}"] = curve
    chains = attempt | {"log_normalizer": None, "rhat": 1.5}
    rows.append(
        {"method": "hmc", "label": "HMC", "what": "chains", "attempts": [chains] * 6}
    )
    content = {"name": "gaussian", "seed": 3, "rows": rows}
    content |= {"log_normalizer_true": truth}
    content |= {"budget": {"unit": "seconds", "amount": 4.0}}
    (folder / "compare.json").write_text(json.dumps(content))
    np.savez(folder / "compare.npz", **curves, hmc_0=np.zeros((0, 3)))
    return folder


def write_decoder(folder):
    """Write the folder of a decoder."""
    write(folder, name="vae-decoder", method="train-vae", pictures=())
    (folder / "table.json").unlink()
    content = {"test_elbo": -91.25, "num_train_images": 30, "num_test_images": 5}
    (folder / "vae.json").write_text(json.dumps(content))
    rng = np.random.default_rng(0)
    shown = {
        f"shown_{name}": rng.uniform(size=(2, 6, 6))
        for name in ("images", "decoded", "prior")
    }
    np.savez(folder / "result.npz", elbo=-100 / np.arange(1, 20.0), **shown)
    return folder


def write_sample(folder, order=("x", "y", "s"), replicates=4):
    """Write the folder of `annealax sample`, of parameters in this order."""
    write(folder, name="model:density", method="sample", pictures=(), truth=None)
    file = folder / "settings.json"
    content = json.loads(file.read_text()) | {"command": "sample", "overrides": {}}
    content |= {
        "shape": {name: [] for name in order},
        "settings": {"shape": ", ".join(f"{name}=" for name in order)},
    }
    file.write_text(json.dumps(content))
    numbers = {k: v for k, v in arrays().items() if "history" not in k}
    steps = {k: v for k, v in numbers.items() if k.startswith("step_")}
    numbers |= {f"replicate_{k}": np.tile(v, (replicates, 1)) for k, v in steps.items()}
    numbers |= {"step_sizes": np.linspace(0.5, 0.1, 5)}
    for index, name in enumerate(sorted(order)):
        numbers[f"x_{name}"] = numbers["x"][:, index]
    numbers["repeats_log_normalizer_stderr"] = np.full(replicates, 0.2)
    np.savez(folder / "result.npz", **numbers)
    table = json.loads((folder / "table.json").read_text())
    table |= {"rows": [row("sample", [1.5, 1.25, 1.0, 1.75][:replicates])]}
    (folder / "table.json").write_text(json.dumps(table))
    (folder / "summary.txt").write_text("log Z  1.5000 +- 0.1250\n", encoding="utf-8")
    notes = {"search": "9 points; second opinion: log Z 0 +- 0.1", "cost": "81 in 9 s"}
    (folder / "answer.json").write_text(json.dumps({"seed": 3, "notes": notes}))
    return folder


def write(
    folder,
    *,
    name="gaussian",
    method="craft",
    seed=3,
    overrides=None,
    settings=None,
    rows=None,
    truth=1.0,
    numbers=None,
    pictures=("marginals.png",),
):
    """Write a run folder; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    overrides = {"num_particles": 200} if overrides is None else overrides
    values = {"num_particles": 200, "resample_threshold": 0.3, "step_sizes": [0.5, 0.2]}
    content = {
        "command": "run",
        "name": name,
        "method": method,
        "seed": seed,
        "overrides": overrides,
        "settings": values | overrides | (settings or {}),
    }
    (folder / "settings.json").write_text(json.dumps(content))
    versions = {"annealax": "0.1.0", "jax": "0.10.2", "python": "3.11.7"}
    facts = {"versions": versions, "devices": ["cpu:0"]}
    (folder / "environment.json").write_text(json.dumps(facts))
    rows = [row("CRAFT", [1.5, 1.25, 0.75]), row("SMC", [2.0, 0.5, 1.0])] + (rows or [])
    table = {"log_normalizer_true": truth, "training_seconds": 2.5, "rows": rows}
    (folder / "table.json").write_text(json.dumps(table))
    np.savez_compressed(folder / "result.npz", **(numbers or arrays()))
    for picture in pictures:
        (folder / picture).write_bytes(png(picture))
    return folder

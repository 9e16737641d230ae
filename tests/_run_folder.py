"""Run folders made up from numbers, for tests of what reads them."""

import io
import json

import numpy as np
from matplotlib.figure import Figure


def png(words="picture", size=(4.0, 3.0)):
    """A small picture."""
    figure = Figure(size)
    figure.subplots().set_title(words)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=72)
    return file.getvalue()


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
        "history_loss": 5 / np.arange(1, steps + 1),
        "history_log_normalizer": rng.normal(size=steps),
        "history_ess": rng.uniform(20, 150, size=(steps, transitions)),
        "history_num_skipped": np.zeros(steps, int),
    }


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
        "name": name,
        "method": method,
        "seed": seed,
        "overrides": overrides,
        "settings": values | overrides | (settings or {}),
        "versions": {"annealax": "0.1.0", "jax": "0.10.2", "python": "3.11.7"},
        "devices": ["cpu:0"],
    }
    (folder / "settings.json").write_text(json.dumps(content))
    rows = [row("CRAFT", [1.5, 1.25, 0.75]), row("SMC", [2.0, 0.5, 1.0])] + (rows or [])
    table = {"log_normalizer_true": truth, "training_seconds": 2.5, "rows": rows}
    (folder / "table.json").write_text(json.dumps(table))
    np.savez_compressed(folder / "result.npz", **(numbers or arrays()))
    for picture in pictures:
        (folder / picture).write_bytes(png(picture))
    return folder

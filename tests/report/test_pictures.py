"""Pictures of a folder: which there are, and what is kept for pages to come."""

from types import SimpleNamespace

import jax
import jax.random as jr
import numpy as np
import pytest
import tests_problems
import tests_run_folder as made_up
from matplotlib.figure import Figure

import annealax as ax
from annealax import report, targets
from annealax.report.read import read


def is_picture(file):
    return file.read_bytes().startswith(b"\x89PNG")


CASES = {
    "run": (made_up.write, {"diagnostics.png", "training.png", "posterior.png"}),
    "sample": (made_up.write_sample, {"diagnostics.png", "posterior.png"}),
    "comparison": (made_up.write_comparison, {"compare.png"}),
    "decoder": (made_up.write_decoder, {"training.png", "decoded.png"}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_folder(tmp_path, case):
    write, expected = CASES[case]
    write(tmp_path)
    names = report.write_pictures(tmp_path)
    assert set(names) == expected
    assert all(is_picture(tmp_path / name) for name in names)
    assert report.write_page(tmp_path) == ["report.html"]


def test_chains_have_a_picture(tmp_path):
    made_up.write(tmp_path)
    np.savez(tmp_path / "pimh.npz", **made_up.chain_arrays(2, 30))
    assert "pimh.png" in report.write_pictures(tmp_path)


class Mine:
    """Settings with a picture of their own, in place of one that all have."""

    def pictures(self, run):
        assert run.name == "gaussian"
        return {"mine.png": Figure, "posterior.png": lambda: Figure((1, 1))}


def loaded(target, x):
    """What `load_run` gives, of a plain sampler in two or more dimensions."""
    path = ax.GeometricPath(x.shape[1:], target, 2)
    sampler = ax.Sampler(path, ax.kernels.HMC(0.1, num_leapfrog=2), num_particles=20)
    return SimpleNamespace(
        name="gaussian",
        seed=0,
        settings=Mine(),
        problem=SimpleNamespace(target=target),
        sampler=sampler,
        flows=None,
        result=SimpleNamespace(x=x),
    )


def test_pictures_of_the_experiment_join_and_replace(tmp_path):
    made_up.write(tmp_path, numbers=made_up.arrays(shape=(2,)))
    run = loaded(tests_problems.skewed_log_density, np.zeros((200, 2)))
    names = report.write_pictures(tmp_path, run)
    assert {"temperatures.png", "mine.png", "posterior.png"} <= set(names)
    assert read(tmp_path).pictures["posterior.png"].width == 130  # one inch
    assert "parameters.npz" not in names  # this density has neither names nor draws


def test_a_posterior_keeps_its_parameters_in_their_own_space(tmp_path):
    target = targets.EightSchools()
    x = jr.normal(jr.key(0), (200, *target.shape))
    made_up.write(tmp_path, numbers=made_up.arrays() | {"x": np.asarray(x)})
    names = report.write_pictures(tmp_path, loaded(target, x))
    assert "parameters.npz" in names
    draws = read(tmp_path).draws
    order = tuple(target.constrain(x[0]))
    assert draws.named
    assert draws.names[: len(order) - 1] == order[:-1]  # the last one is a list
    tau = jax.vmap(target.constrain)(x)["tau"]
    shown = draws.values[:, draws.names.index("tau")]
    np.testing.assert_allclose(shown, tau, rtol=1e-6)
    medians = dict(zip(draws.names, np.median(draws.prior, axis=0), strict=True))
    assert abs(medians["tau"] - 5) < 0.7  # of a half-Cauchy, its scale
    assert abs(medians["mu"]) < 0.5


def test_exact_draws_are_kept(tmp_path):
    target = targets.GaussianMixture([[0.0, 3.0]], [np.eye(2)], [1.0])
    made_up.write(tmp_path, numbers=made_up.arrays(shape=(2,)))
    run = loaded(target, np.zeros((200, 2)))
    report.write_pictures(tmp_path, run)
    exact = read(tmp_path).draws.exact
    np.testing.assert_allclose(exact.mean(axis=0), [0, 3], atol=0.1)

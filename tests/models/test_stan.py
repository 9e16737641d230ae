"""The adapter to Stan, against a library with BridgeStan's interface.

Compiling a model of Stan takes its source, which is in no wheel, and a minute. So what
BridgeStan loads here is a model in C with the same interface, whose density is also
written in JAX: the test is of names, order, Jacobians, batches and errors.
"""

import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import bridgestan
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.stats import expon, norm

import annealax as ax
from annealax._work.fingerprint import fingerprint

Y = np.array([0.3, 1.2, -0.4, 0.9])
_SOURCE = Path(__file__).parent / "_bridge_model.c"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "the test needs a C compiler"
    path = tmp_path_factory.mktemp("bridge") / "by_hand_model.so"
    names = ("MAJOR", "MINOR", "PATCH")
    numbers = bridgestan.__version__.split(".")
    version = [f"-D{n}={v}" for n, v in zip(names, numbers, strict=True)]
    command = [compiler, "-shared", "-fPIC", "-O1", *version, str(_SOURCE), "-lm"]
    subprocess.run([*command, "-o", str(path)], check=True)
    return path


@pytest.fixture(scope="module")
def model(library):
    return ax.from_stan(library, {"y": Y})


def _log_density(values):
    """The same model in JAX."""
    return (
        norm.logpdf(values["mu"], 0, 2)
        + expon.logpdf(values["sigma"])
        + norm.logpdf(values["z"]).sum()
        + norm.logpdf(jnp.asarray(Y), values["mu"], values["sigma"]).sum()
    )


def _from_free(vector):
    """Stan's order: columns first."""
    values = {
        "mu": vector[0],
        "sigma": jnp.exp(vector[1]),
        "z": vector[2:].reshape(3, 2).T,
    }
    return _log_density(values) + vector[1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_density_gradient_and_curvature_are_those_of_the_library(model, dtype):
    with jax.enable_x64(dtype == "float64"):
        points = 0.5 * jnp.asarray(np.random.default_rng(0).normal(size=(5, 8)))
        direction = jnp.arange(8.0)
        free = model.free()

        def along(function):
            slope = jax.grad(function)
            return lambda x: jax.jvp(slope, (x,), (direction,))[1]

        pairs = [(free, _from_free), (along(free), along(_from_free))]
        rtol = 2e-5 if dtype == "float32" else 1e-12
        for rough, (ours, right) in zip((1, 1e5), pairs, strict=True):
            found = jax.jit(jax.vmap(ours))(points)
            assert found.dtype == dtype
            tolerance = rtol if dtype == "float32" else rtol * rough
            np.testing.assert_allclose(
                found, jax.vmap(right)(points), rtol=tolerance, atol=tolerance
            )
        slopes = jax.vmap(jax.grad(free))(points)
        np.testing.assert_allclose(
            slopes, jax.vmap(jax.grad(_from_free))(points), rtol=rtol, atol=rtol
        )


def test_names_shapes_and_what_stan_computes(model):
    values, _ = model.space.constrain(jnp.arange(8.0) / 10)
    assert {name: each.shape for name, each in values.items()} == {
        "mu": (),
        "sigma": (),
        "z": (2, 3),
    }
    np.testing.assert_allclose(values["z"], [[0.2, 0.4, 0.6], [0.3, 0.5, 0.7]])
    np.testing.assert_allclose(values["sigma"], np.exp(0.1), rtol=1e-6)
    back = model.space.unconstrain(values)
    np.testing.assert_allclose(back, jnp.arange(8.0) / 10, atol=1e-6)
    np.testing.assert_allclose(
        model.log_density(values), _log_density(values), rtol=1e-5
    )
    found = model.transform(values)
    np.testing.assert_allclose(found["precision"], np.exp(-0.2), rtol=1e-6)
    pointwise = model.pointwise_log_likelihood(values)["log_lik"]
    np.testing.assert_allclose(pointwise, norm.logpdf(Y, 0.0, np.exp(0.1)), rtol=1e-5)
    draws = jax.vmap(lambda key: model.predict(key, values)["y_new"])(
        jr.split(jr.key(0), 2000)
    )
    assert draws.mean() == pytest.approx(0.0, abs=4 * 1.11 / np.sqrt(2000))
    assert draws.std() == pytest.approx(np.exp(0.1), rel=0.07)


def test_where_stan_rejects_there_is_no_density(model):
    free = model.free()
    value, slope = jax.value_and_grad(free)(jnp.full(8, 60.0))
    assert value == -jnp.inf
    np.testing.assert_array_equal(slope, 0)


def test_a_model_finds_its_library_again_in_another_process(model):
    library = model.functions.library
    again = pickle.loads(pickle.dumps(library))
    assert again.density(np.zeros(8), True)[0] == library.density(np.zeros(8), True)[0]


def test_errors_say_what_is_missing(library, tmp_path, monkeypatch):
    with pytest.raises(ax.InvalidInputError, match="variable y does not exist"):
        ax.from_stan(library, {"x": [1.0]})
    with pytest.raises(ax.InvalidInputError, match="there is no file"):
        ax.from_stan(tmp_path / "none.stan")
    with pytest.raises(ax.InvalidInputError, match="code of a model"):
        ax.from_stan("model.txt")

    def no_source(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(bridgestan, "compile_model", no_source)
    with pytest.raises(ax.MissingExtraError, match=r"make, a C\+\+ compiler"):
        ax.from_stan("parameters { real x; } model { x ~ normal(0, 1); }")


def test_bridgestan_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "bridgestan", None)
    with pytest.raises(ax.MissingExtraError, match=r"annealax\[stan\]"):
        ax.from_stan("model.stan")


def test_checkpoints_tell_data_apart(library, model):
    other = ax.from_stan(library, {"y": Y + 1})
    assert fingerprint(model) == fingerprint(ax.from_stan(library, {"y": Y}))
    assert fingerprint(model) != fingerprint(other)

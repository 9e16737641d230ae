"""What a notebook shows of runs, fits and chains."""

import re

import jax
import jax.numpy as jnp
import jax.random as jr
import optax
import pytest

import annealax as ax


@pytest.fixture(scope="module")
def sampler():
    path = ax.GeometricPath((2,), lambda x: -jnp.sum((x - 1) ** 2), betas=2)
    return ax.Sampler(path, ax.kernels.RandomWalk(0.3), num_particles=100)


def identifiers(html):
    return set(re.findall(r'id="([^"]+)"', html))


def test_a_run_a_fit_and_a_chain(sampler):
    result = sampler.run(jr.key(0))
    craft = ax.CRAFT(sampler, optax.adam(1e-2))
    trained = ax.fit(
        jr.key(1), craft, ax.flows.diagonal_affine(None, (2,)), num_steps=4
    )
    chain = ax.pimh(jr.key(2), sampler.run, num_steps=8)
    for each, words in (
        (result, "log Z = "),
        (trained, "Flows trained for 4 steps"),
        (chain, "proposals accepted"),
    ):
        line, page = repr(each), each._repr_html_()
        assert len(line) < 160
        assert "\n" not in line
        assert words in line
        assert words in page
        assert "<svg" in page
        assert "<script" not in page
    again = result._repr_html_()
    assert not identifiers(again) & identifiers(result._repr_html_())


def test_a_result_under_a_trace_has_a_text(sampler):
    seen = []

    def run(key):
        result = sampler.run(key)
        seen.append(repr(result))
        return result.log_normalizer

    jax.eval_shape(run, jr.key(0))
    assert "Result(" in seen[0]

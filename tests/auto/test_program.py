"""Programs of densities: what they share, and what keeps them apart."""

import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

from annealax.auto.program import trace

POINT = jax.ShapeDtypeStruct((2,), jnp.result_type(float))
X = np.array([0.3, -1.2])


def _density(x, data, scale):
    """Rules of derivatives, a loop, and data."""
    inside = jax.lax.fori_loop(0, 3, lambda _, total: total + jnp.tanh(x[0]), 0.0)
    fitted = jnp.sum(norm.logpdf(data, x[0], scale))
    return inside + jnp.logaddexp(x[0], x[1]) + jax.nn.softplus(x[1]) + fitted


def _closed_over(data, scale=2.0):
    return lambda x: _density(x, jnp.asarray(data), scale)


@pytest.mark.parametrize("data", [np.arange(4.0), jnp.arange(4.0) - 7])
def test_a_traced_function_is_the_function(data):
    by_arguments = trace(_density, POINT, (data, 2.0)).traced
    by_closure = trace(_closed_over(data), POINT).traced
    exact = jax.value_and_grad(_density)(jnp.asarray(X), jnp.asarray(data), 2.0)
    for traced in (by_arguments, by_closure):
        found = jax.value_and_grad(traced)(jnp.asarray(X))
        np.testing.assert_allclose(found[0], exact[0], rtol=1e-6)
        np.testing.assert_allclose(found[1], exact[1], rtol=1e-6)


def test_other_data_compile_nothing():
    traces = []

    @eqx.filter_jit
    def value(density, x):
        traces.append(1)
        return density(x)

    def values(*traced):
        return [float(value(each.traced, jnp.asarray(X))) for each in traced]

    first, second = np.arange(4.0), np.arange(4.0) ** 2
    a, b = values(trace(_closed_over(first), POINT), trace(_closed_over(second), POINT))
    assert a != b
    assert len(traces) == 1
    # Numbers among the arguments are data, too.
    a, b, c = values(
        trace(_density, POINT, (first, 2.0)),
        trace(_density, POINT, (second, 2.0)),
        trace(_density, POINT, (first, 3.0)),
    )
    assert len({a, b, c}) == 3
    assert len(traces) == 2


@pytest.mark.parametrize(
    "other",
    [
        _closed_over(np.arange(5.0)),
        _closed_over(np.arange(4.0), 3.0),
        _closed_over(np.arange(4)),
        lambda x: _density(x, jnp.arange(4.0), 2.0) + x[0],
    ],
)
def test_what_computes_something_else_is_another_program(other):
    first = trace(_closed_over(np.arange(4.0)), POINT).traced.program
    assert trace(other, POINT).traced.program is not first


def test_rules_of_derivatives_of_the_user_are_not_confused():
    """They may close over data, which a program does not show."""

    def with_slope(slope):
        @jax.custom_vjp
        def line(x):
            return 0.0 * x[0]

        line.defvjp(lambda x: (line(x), x), lambda x, bar: (bar * slope + 0 * x,))
        return line

    one, two = (trace(with_slope(slope), POINT).traced for slope in (1.0, 2.0))
    assert jax.grad(one)(jnp.asarray(X))[0] == 1
    assert jax.grad(two)(jnp.asarray(X))[0] == 2
    assert one.program is not two.program


def test_it_can_be_sent_to_another_process():
    traced = trace(_density, POINT, (np.arange(4.0), 2.0)).traced
    again = pickle.loads(pickle.dumps(traced))
    assert again(jnp.asarray(X)) == traced(jnp.asarray(X))


def test_a_function_is_traced_in_either_precision_in_turn():
    """JAX remembers in which precision it saw an array of NumPy, while that is held."""
    means = np.array([[0.0, 0.0], [1.0, 2.0]])

    def log_density(x):
        return jax.nn.logsumexp(-0.5 * jnp.sum((x - means) ** 2, axis=1))

    for double in (False, True, False):
        with jax.enable_x64(double):
            point = jax.ShapeDtypeStruct((2,), jnp.result_type(float))
            traced = trace(log_density, point).traced
            value, slope = jax.jit(jax.value_and_grad(traced))(np.array([0.5, 1.0]))
            assert value.dtype == slope.dtype == point.dtype
            assert {each.dtype for each in traced.constants} == {point.dtype}
            np.testing.assert_allclose(value, np.log(2) - 0.625, rtol=1e-6)

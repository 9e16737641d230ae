"""Lattice flows: plain convolutions, identity, inverse, symmetries, derivatives."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from tests_problems import perturb

import annealax as ax
from annealax import _flows
from annealax.flows import lattice_coupling

SHAPE = (4, 6)
CASES = {
    "affine": {},
    "odd": {"odd": True},
    "deep": {"num_layers": 3, "channels": (3, 4), "activation": jnp.tanh},
    "deep_odd": {"channels": (4, 2), "kernel_size": 5, "odd": True},
    "spline": {"transformer": "spline", "channels": (3,), "num_bins": 3, "bound": 3.0},
    "spline_odd": {
        "transformer": "spline",
        "channels": (3,),
        "num_bins": 4,
        "bound": 3.0,
        "odd": True,
    },
}
# Translations that keep the colours of the checkerboard, less the trivial one.
SHIFTS = [(a, b) for a in range(SHAPE[0]) for b in range(SHAPE[1]) if (a + b) % 2 == 0][
    1:
]


def build(name, shape=SHAPE):
    """A flow away from the identity, in the precision of the moment."""
    flow = lattice_coupling(jr.key(0), shape, **CASES[name])
    return perturb(jr.key(1), flow, 0.2 if name.startswith("spline") else 0.05)


def fields(count=3, shape=SHAPE, seed=2):
    return np.random.default_rng(seed).normal(size=(count, *shape))


@eqx.filter_jit
def transform(flow, x):
    return jax.vmap(flow.transform_and_log_det)(x)


def plain(flow, x, activation):
    """The same affine flow as masked, padded convolutions on the whole lattice."""
    colour = np.indices(x.shape).sum(axis=0) % 2

    def convolve(layer, values):
        margin = layer.weight.shape[-1] // 2
        # Kernels wider than the lattice wrap more than once.
        index = [np.arange(-margin, n + margin) % n for n in x.shape]
        padded = values[:, index[0]][:, :, index[1]]
        out = jax.lax.conv_general_dilated(padded[None], layer.weight, (1, 1), "VALID")
        return out[0] + layer.bias[:, None, None]

    log_det = 0.0
    for index, network in enumerate(flow.networks):
        moved = colour == index % 2
        values = jnp.where(moved, 0, x)[None]
        for layer in network[:-1]:
            values = activation(convolve(layer, values))
        shift, log_scale = convolve(network[-1], values)
        x = jnp.where(moved, x * jnp.exp(log_scale) + shift, x)
        log_det = log_det + jnp.sum(jnp.where(moved, log_scale, 0))
    return x, log_det


@pytest.mark.parametrize("shape", [SHAPE, (2, 2)], ids=str)
@pytest.mark.parametrize("name", ["affine", "deep"])
def test_matches_plain_convolutions(name, shape):
    activation = CASES[name].get("activation", jax.nn.relu)
    x = fields(2, shape)
    with jax.enable_x64(True):
        flow = build(name, shape)
        params, rest = _flows.partition(flow)

        def loss(params, apply):
            flow = eqx.combine(params, rest)
            y, log_det = jax.vmap(functools.partial(apply, flow))(x)
            return jnp.mean(jnp.sum(y**2, (1, 2)) - log_det), (y, log_det)

        evaluate = eqx.filter_jit(jax.value_and_grad(loss, has_aux=True))
        ours = evaluate(params, lambda flow, x: flow.transform_and_log_det(x))
        theirs = evaluate(params, lambda flow, x: plain(flow, x, activation))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11),
        ours,
        theirs,
    )
    assert np.mean(np.abs(np.subtract(ours[0][1][0], x))) > 0.05


@pytest.mark.parametrize("name", CASES)
def test_starts_as_the_identity(name):
    flow = lattice_coupling(jr.key(0), SHAPE, **CASES[name])
    x = jnp.asarray(fields(), jnp.float32)
    y, log_det = transform(flow, x)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(log_det, 0)


@pytest.mark.parametrize("name", CASES)
def test_inverse_and_log_det(name):
    @eqx.filter_jit
    def evaluate(flow, x):
        y, log_det = flow.transform_and_log_det(x)
        back, log_det_back = flow.inverse_and_log_det(y)
        jacobians = [mode(flow.transform)(x) for mode in (jax.jacrev, jax.jacfwd)]
        return back, log_det, log_det_back, jacobians

    x = fields(1)[0]
    with jax.enable_x64(True):
        back, log_det, log_det_back, jacobians = evaluate(build(name), x)
    np.testing.assert_allclose(back, x, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(log_det_back, -log_det, rtol=1e-8)
    np.testing.assert_allclose(*jacobians, atol=1e-12)
    sign, expected = np.linalg.slogdet(np.reshape(jacobians[0], (x.size, x.size)))
    assert sign == 1
    np.testing.assert_allclose(log_det, expected, rtol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_symmetries(name):
    """Exactly the symmetries that are promised: half of the translations, oddness."""
    x = fields(1)[0]
    images = [x, -x, np.roll(x, (1, 0), (0, 1))]
    images += [np.roll(x, shift, (0, 1)) for shift in SHIFTS]
    with jax.enable_x64(True):
        y, log_det = transform(build(name), np.stack(images))
    y, log_det = np.asarray(y), np.asarray(log_det)
    for index, shift in enumerate(SHIFTS, start=3):
        np.testing.assert_allclose(y[index], np.roll(y[0], shift, (0, 1)), rtol=1e-12)
    np.testing.assert_allclose(log_det[3:], log_det[0], rtol=1e-12)
    assert np.max(np.abs(y[2] - np.roll(y[0], (1, 0), (0, 1)))) > 0.01
    if CASES[name].get("odd"):
        np.testing.assert_allclose(y[1], -y[0], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(log_det[1], log_det[0], rtol=1e-10)
    else:
        assert np.max(np.abs(y[1] + y[0])) > 0.01


def test_one_layer_moves_one_colour():
    flow = lattice_coupling(jr.key(0), SHAPE, num_layers=1)
    x = jnp.asarray(fields(1), jnp.float32)
    y, _ = transform(perturb(jr.key(1), flow, 0.1), x)
    colour = np.indices(SHAPE).sum(axis=0) % 2
    np.testing.assert_array_equal(y[0] != x[0], colour == 0)


def test_batches_and_gradients_of_all_kinds():
    """Per particle, summed, by particle and flow at once: all are the same numbers."""
    flow = build("affine")
    params, rest = _flows.partition(flow)
    x = jnp.asarray(fields(5), jnp.float32)

    def loss(params, x):
        y, log_det = eqx.combine(params, rest).transform_and_log_det(x)
        return jnp.sum(y**3) - log_det

    def mean_loss(params, x):
        return jnp.mean(jax.vmap(loss, (None, 0))(params, x))

    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), params)
    pick = functools.partial(jax.tree.map, lambda leaf: leaf[1])
    together = jax.jit(jax.grad(mean_loss))(params, x)
    each = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(params, x)
    flows = jax.jit(jax.vmap(jax.grad(mean_loss), (0, None)))(stacked, x)
    scanned = jax.jit(
        lambda params, x: jax.lax.map(lambda p: jax.grad(mean_loss)(p, x), params)
    )(stacked, x)
    chains = jax.jit(jax.vmap(jax.vmap(loss, (None, 0)), (None, 1), 1))(
        params, jnp.stack([x, x], axis=1)
    )
    values = jnp.stack([loss(params, one) for one in x])
    np.testing.assert_allclose(chains, jnp.stack([values, values], 1), rtol=1e-5)
    twice = jax.jit(jax.grad(mean_loss))(pick(stacked), x)
    mean = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), each)
    for one, other in [(mean, together), (pick(flows), twice), (pick(scanned), twice)]:
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4),
            one,
            other,
        )


def test_second_derivatives():
    """Forward over reverse agrees with reverse over reverse, in parameters and x."""
    with jax.enable_x64(True):
        flow = build("deep")
        params, rest = _flows.partition(flow)
        point = params, jnp.asarray(fields(1)[0])
        direction = jax.tree.map(jnp.cos, point)

        def loss(point):
            y, log_det = eqx.combine(point[0], rest).transform_and_log_det(point[1])
            return jnp.sum(y**3) - log_det

        def along(point):
            return jax.jvp(loss, (point,), (direction,))[1]

        forward = jax.jit(lambda p: jax.jvp(jax.grad(loss), (p,), (direction,))[1])
        reverse = jax.jit(jax.grad(along))
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9),
            forward(point),
            reverse(point),
        )


def test_only_weights_are_arrays():
    flow = lattice_coupling(jr.key(0), SHAPE, num_layers=2, channels=(10,))
    shapes = [leaf.shape for leaf in jax.tree.leaves(eqx.filter(flow, eqx.is_array))]
    assert shapes == 2 * [(10, 1, 3, 3), (10,), (2, 10, 3, 3), (2,)]
    trainable, _ = _flows.partition(flow)
    assert len(jax.tree.leaves(trainable)) == len(shapes)


def test_mixed_precision():
    flow = build("affine")
    with jax.enable_x64(True):
        y, log_det = transform(flow, fields())
        assert y.dtype == log_det.dtype == jnp.float64
        np.testing.assert_allclose(jax.vmap(flow.inverse)(y), fields(), rtol=1e-10)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((4, 5), {}, r"even length, got \(4, 5\)"),
        ((3, 4), {}, "even length"),
        ((4,), {}, "even length"),
        ((4, 1), {}, "annealax.flows.coupling"),
        ((0, 2), {}, "positive whole numbers"),
        (SHAPE, {"num_layers": 0}, "num_layers must be at least 1, got 0"),
        (SHAPE, {"kernel_size": 4}, "odd and at least 3, got 4"),
        (SHAPE, {"kernel_size": 1}, "odd and at least 3, got 1"),
        (SHAPE, {"channels": ()}, "at least one hidden layer"),
        (SHAPE, {"channels": (0,)}, "positive whole numbers"),
        (SHAPE, {"transformer": "cubic"}, "choose from"),
        (SHAPE, {"transformer": "spline", "num_bins": 1}, "num_bins"),
    ],
)
def test_errors(shape, options, message):
    with pytest.raises(ax.InvalidInputError, match=message):
        lattice_coupling(jr.key(0), shape, **options)

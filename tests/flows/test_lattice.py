"""Lattice flows: plain convolutions, identity, inverse, symmetries, derivatives."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import annealax as ax
from annealax.flows import lattice_coupling
from annealax.flows.base import partition

SHAPE = (4, 6)
CASES = {
    "affine": {},
    "odd": {"odd": True},
    "deep": {"channels": (4, 3), "kernel_size": 5, "activation": jnp.tanh},
    "deep_odd": {"num_layers": 3, "channels": (4, 2), "odd": True},
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


@functools.cache
def build(name, shape=SHAPE, dtype=np.float64, noisy=True):
    """A flow, away from the identity unless told otherwise."""
    key = jr.key(0, impl="rbg")  # compiles fastest
    flow = lattice_coupling(key, shape, **CASES[name])
    rng = np.random.default_rng(1)
    size = (0.2 if name.startswith("spline") else 0.05) * noisy

    def move(leaf):
        return jnp.asarray(np.asarray(leaf, dtype) + size * rng.normal(size=leaf.shape))

    with jax.enable_x64(dtype == np.float64):
        return jax.tree.map(
            lambda leaf: move(leaf) if eqx.is_array(leaf) else leaf, flow
        )


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


@pytest.mark.parametrize(
    ("name", "shape"), [("affine", (2, 2)), ("deep", SHAPE)], ids=str
)
def test_matches_plain_convolutions(name, shape):
    activation = CASES[name].get("activation", jax.nn.relu)
    x = fields(2, shape)
    with jax.enable_x64(True):
        flow = build(name, shape)
        params, rest = partition(flow)

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
def test_inverse_and_log_det(name):
    @eqx.filter_jit
    def evaluate(flow, x):
        y, log_det = flow.transform_and_log_det(x)
        back, log_det_back = flow.inverse_and_log_det(y)
        return back, log_det, log_det_back, jax.jacrev(flow.transform)(x)

    x = fields(1)[0]
    with jax.enable_x64(True):
        back, log_det, log_det_back, jacobian = evaluate(build(name), x)
    np.testing.assert_allclose(back, x, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(log_det_back, np.negative(log_det), rtol=1e-8)
    sign, expected = np.linalg.slogdet(np.reshape(jacobian, (x.size, x.size)))
    assert sign == 1
    np.testing.assert_allclose(log_det, expected, rtol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_identity_at_the_start_and_symmetries(name):
    """Exactly the symmetries that are promised: half of the translations, oddness."""
    x = fields(1)[0]
    images = [x, -x, np.roll(x, (1, 0), (0, 1))]
    images = np.stack(images + [np.roll(x, shift, (0, 1)) for shift in SHIFTS])
    with jax.enable_x64(True):
        same, nothing = transform(build(name, noisy=False), images)
        y, log_det = transform(build(name), images)
    np.testing.assert_array_equal(same, images)
    np.testing.assert_array_equal(nothing, 0)
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
    flow = build("affine", dtype=np.float32)
    flow = eqx.tree_at(lambda flow: flow.networks, flow, flow.networks[:1])
    x = fields(1).astype(np.float32)
    y, _ = transform(flow, x)
    colour = np.indices(SHAPE).sum(axis=0) % 2
    np.testing.assert_array_equal(np.not_equal(y, x)[0], colour == 0)


def test_batches_and_gradients_of_all_kinds():
    """Per particle, on average, by flow and particle at once: all the same numbers."""
    params, rest = partition(build("affine", dtype=np.float32))
    x = fields(5).astype(np.float32)

    def loss(params, x):
        y, log_det = eqx.combine(params, rest).transform_and_log_det(x)
        return jnp.sum(y**3) - log_det

    def mean_loss(params, x):
        return jnp.mean(jax.vmap(loss, (None, 0))(params, x))

    @jax.jit
    def evaluate(params, x):
        stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), params)
        gradient = jax.grad(mean_loss)
        return {
            "one": jax.lax.map(lambda each: loss(params, each), x),
            "chains": jax.vmap(jax.vmap(loss, (None, 0)), (None, 1), 1)(
                params, jnp.stack([x, x], axis=1)
            ),
            "together": gradient(params, x),
            "each": jax.vmap(jax.grad(loss), (None, 0))(params, x),
            "flows": jax.vmap(gradient, (0, None))(stacked, x),
            "scanned": jax.lax.map(lambda params: gradient(params, x), stacked),
        }

    def same(one, other):
        close = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4)
        jax.tree.map(close, one, other)

    out = jax.tree.map(np.asarray, evaluate(params, x))
    same(out["chains"], np.stack([out["one"]] * 2, axis=1))
    same(jax.tree.map(lambda leaf: leaf.mean(axis=0), out["each"]), out["together"])
    same(jax.tree.map(lambda leaf: leaf[0], out["flows"]), out["together"])
    same(out["scanned"], out["flows"])


def test_second_derivatives():
    """Forward over reverse agrees with reverse over reverse, in parameters and x."""
    with jax.enable_x64(True):
        flow = build("affine")
        params, rest = partition(flow)
        point = jax.tree.map(np.asarray, (params, fields(1)[0]))
        direction = jax.tree.map(lambda leaf: np.cos(leaf), point)

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
    flow = build("affine")
    shapes = [leaf.shape for leaf in jax.tree.leaves(eqx.filter(flow, eqx.is_array))]
    assert shapes == 2 * [(10, 1, 3, 3), (10,), (2, 10, 3, 3), (2,)]
    trainable, _ = partition(flow)
    assert len(jax.tree.leaves(trainable)) == len(shapes)


def test_mixed_precision():
    flow = build("affine", dtype=np.float32)
    with jax.enable_x64(True):
        y, log_det = transform(flow, fields())
    assert y.dtype == log_det.dtype == np.float64
    y, log_det = transform(flow, fields().astype(np.float32))
    assert y.dtype == log_det.dtype == np.float32


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((4, 5), {}, r"even length, got \(4, 5\)"),
        ((3, 4), {}, "even length"),
        ((4,), {}, "even length"),
        ((4, 1), {}, "annealax.flows.coupling"),
        ((0, 2), {}, "whole numbers of at least 1"),
        (SHAPE, {"num_layers": 0}, "num_layers .* positive whole number, got 0"),
        (SHAPE, {"kernel_size": 4}, "odd and at least 3, got 4"),
        (SHAPE, {"kernel_size": 1}, "odd and at least 3, got 1"),
        (SHAPE, {"channels": ()}, "at least one hidden layer"),
        (SHAPE, {"channels": (0,)}, "whole numbers of at least 1"),
        (SHAPE, {"transformer": "cubic"}, "affine, spline"),
        (SHAPE, {"transformer": "spline", "num_bins": 1}, "num_bins"),
    ],
)
def test_errors(shape, options, message):
    with pytest.raises(ax.InvalidInputError, match=message):
        lattice_coupling(jr.key(0), shape, **options)

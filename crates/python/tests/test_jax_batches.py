"""Batches of operators are one call each: never a loop over examples, and as many calls for a hundred examples as for two."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import deviation
from sweeps import sampled

from gradewise import _core
from gradewise._registry import OPERATORS
from gradewise.jax._operators import apply

jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def calls(function, *inputs):
    """How often the compiled program calls operators; each call runs once, for there are no loops."""
    text = jax.jit(function).lower(*inputs).compile().as_text()
    assert " while(" not in text
    return len(re.findall(r'custom_call_target="gradewise_', text))


def sample(name, signature=(2, 0, 1)):
    """The registry's sample of an operator with most inputs."""
    attributes, inputs = max(_core.samples(name, signature, 2, 3, 0), key=lambda s: len(s[1]))
    return attributes, [jnp.asarray(np.array(values).reshape(shape)) for shape, values in inputs]


# The most calls that a batch of all inputs takes: one, or what an operator's parts are; linear maps are JAX's matrix products.
PARTS = {
    "clifford_layer": 1,
    "fc_clifford_layer": 0,
    "fcgp": 0,
    "gelu_fcgp_norm": 0,
    "mv_block": 4,
    "mv_linear": 0,
    "steerable_layer": 2,
}


@pytest.mark.parametrize("name", sampled(OPERATORS, 3))
def test_calls_of_a_batch(name):
    attributes, inputs = sample(name)
    function = lambda *i: apply(name, attributes, i)
    everything = tuple(range(len(inputs)))
    slope = lambda *i: jax.grad(lambda *i: jnp.sin(function(*i)).sum(), everything)(*i)
    rows = [operand.has_rows for operand in OPERATORS[name].operands[: len(inputs)]]
    for which in ([True] * len(inputs), rows, [not r for r in rows]):
        if not any(which):
            continue
        axes = tuple(0 if w else None for w in which)
        counts = []
        for size in (2, 5):
            given = [jnp.stack([x] * size) if w else x for x, w in zip(inputs, which)]
            counts.append((calls(jax.vmap(function, axes), *given), calls(jax.vmap(slope, axes), *given)))
        assert counts[0] == counts[1], (which, counts)
        forward, both = counts[0]
        # A batch of features alone is the operator with more rows. test_jax.py compares the numbers.
        most = 1 if which == rows else PARTS.get(name, 1)
        assert forward <= most, (which, counts)
        # Forward and backward; the parts' own second halves beside them.
        assert both <= max(2, 1 + 3 * max(most, PARTS.get(name, 1))), (which, counts)


def test_gradients_of_weights_example_by_example():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((6, 8, 5, 3)))
    weight = jnp.ones((3, 20))
    attributes = '{"algebra":"3,0,0","normalize":false}'
    slope = jax.grad(lambda w, x: (apply("sgp", attributes, [x, x, w]) ** 2).sum())
    mapped = jax.vmap(slope, (None, 0))
    assert calls(mapped, weight, x) == 2
    assert deviation(mapped(weight, x), jnp.stack([slope(weight, one) for one in x])) < 1e-13
    # Maps within maps, the inner one over weights.
    ensembles = jnp.asarray(np.random.default_rng(1).standard_normal((4, 3, 20)))
    deeper = jax.vmap(jax.vmap(slope, (0, None)), (None, 0))
    assert calls(deeper, ensembles, x) == 2
    assert deviation(deeper(ensembles, x)[2, 1], slope(ensembles[1], x[2])) < 1e-13


def test_second_derivatives_of_batches_have_no_loops():
    attributes, (x, y, weight) = sample("sgp", (3, 0, 0))
    loss = lambda x, y, w: jnp.sin(apply("sgp", attributes, [x, y, w])).sum()
    twice = jax.grad(lambda w, x, y: (jax.grad(loss, 0)(x, y, w) ** 2).sum())
    given = [jnp.stack([z, 2 * z, z - 1]) for z in (weight, x, y)]
    assert deviation(jax.vmap(twice)(*given), jnp.stack([twice(*one) for one in zip(*given)])) < 1e-11
    assert calls(jax.vmap(twice), *given) > 0

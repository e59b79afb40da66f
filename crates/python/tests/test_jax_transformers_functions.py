"""Functions of the transformers in JAX, and attention, against those of PyTorch."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import gradewise.jax.lgatr
from gradewise.torch.lgatr import primitives as lgatr_primitives
from jax_transformers import THEIRS
from sweeps import sampled
from transformer_cases import OURS


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def attention_inputs(before=(2, 3), heads=2, items=3, others=4):
    generator = np.random.default_rng(5)
    shapes = [(items, 2, 16), (others, 2, 16), (others, 1, 16), (items, 3), (others, 3), (others, 5)]
    return [generator.normal(size=(*before, heads, *shape)) for shape in shapes]


MASKS = [(shape, is_bool) for shape in [(3, 4), (2, 3, 4), (2, 3, 1, 3, 4), (3, 2, 3, 4)] for is_bool in (True, False)]


@pytest.mark.parametrize("mask, is_bool", sampled([pytest.param(*case) for case in MASKS], 5))
def test_masks(mask, is_bool):
    generator = np.random.default_rng(6)
    values = generator.normal(size=mask)
    values = values > -0.8 if is_bool else values
    given = attention_inputs()
    found = jax.jit(lambda *x: gradewise.jax.lgatr.sdp_attention(*x, attn_mask=values))(*given)
    expected = lgatr_primitives.sdp_attention(*map(torch.from_numpy, given), attn_mask=torch.from_numpy(values))
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-12, atol=1e-12)


def test_causal_attention_and_items_that_attend_to_none():
    given = attention_inputs(others=3)
    mask = np.ones((3, 3), bool)
    mask[0, 0] = False
    run = lambda *x: gradewise.jax.lgatr.sdp_attention(*x, attn_mask=mask, is_causal=True, scale=0.3)  # noqa: E731
    mv, s = jax.jit(run)(*given)
    assert not mv[..., 0, :, :].any() and not s[..., 0, :].any()
    triangle = torch.from_numpy(mask & np.tri(3, dtype=bool))
    expected, _ = lgatr_primitives.sdp_attention(*map(torch.from_numpy, given), attn_mask=triangle, scale=0.3)
    np.testing.assert_allclose(mv[..., 1:, :, :], expected.numpy()[..., 1:, :, :], rtol=1e-12, atol=1e-12)
    gradient = jax.jit(jax.grad(lambda x: run(x, *given[1:])[0].sum()))(jnp.asarray(given[0]))
    assert np.isfinite(gradient).all() and np.abs(gradient).max() > 0


def test_attention_of_jax_itself():
    """``implementation`` is that of ``jax.nn.dot_product_attention``, whose softmax is in single precision."""
    given = [jnp.asarray(x, jnp.float32) for x in attention_inputs()]
    mask = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)) > -0.8)
    for attn_mask in (mask, jnp.where(mask, 0.3, -0.2)):
        run = lambda **options: jax.jit(lambda *x: gradewise.jax.lgatr.sdp_attention(*x, **options))(*given)  # noqa: E731
        for a, b in zip(run(attn_mask=attn_mask, implementation="xla"), run(attn_mask=attn_mask)):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


FUNCTIONS = {
    "lgatr": {"geometric_product": 2, "inner_product": 2, "abs_squared_norm": 1, "equi_layer_norm": 1, "reverse": 1}
    | {"grade_project": 1, "grade_involute": 1},
    "gatr": {"geometric_product": 2, "outer_product": 2, "equivariant_join": 3, "inner_product": 2, "dual": 1}
    | {"reverse": 1, "grade_involute": 1},
}


@pytest.mark.parametrize("package, name", [(p, name) for p, names in FUNCTIONS.items() for name in names])
def test_functions(package, name):
    generator = np.random.default_rng(7)
    given = [generator.normal(size=(2, 3, 16)) for _ in range(FUNCTIONS[package][name])]
    found = getattr(THEIRS[package], name)(*map(jnp.asarray, given))
    primitives = importlib.import_module(f"gradewise.torch.{package}.primitives")
    close(found, getattr(primitives, name)(*map(torch.from_numpy, given)))


def close(found, expected):
    assert found.dtype.name == "float64"
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("package, maps", [("lgatr", 5), ("lgatr", 10), ("gatr", 9)])
def test_equi_linear(package, maps):
    generator = np.random.default_rng(8)
    x, coefficients = generator.normal(size=(2, 3, 4, 16)), generator.normal(size=(5, 4, maps))
    primitives = importlib.import_module(f"gradewise.torch.{package}.primitives")
    found = THEIRS[package].equi_linear(jnp.asarray(x), jnp.asarray(coefficients))
    close(found, primitives.equi_linear(torch.from_numpy(x), torch.from_numpy(coefficients)))


INTERFACE = {
    "lgatr": {"scalar": 1, "vector": 4, "bivector": 6, "axialvector": 4, "pseudoscalar": 1},
    "gatr": {"scalar": 1, "point": 3, "translation": 3, "rotation": 4, "oriented_plane": 3, "pluecker_ray": 6}
    | {"pseudoscalar": 1, "point_embedding_reg": 0},
}


@pytest.mark.parametrize("package, name", [(p, name) for p, names in INTERFACE.items() for name in names])
def test_interface(package, name):
    ours, theirs = ((x.interface if package == "gatr" else x) for x in (THEIRS[package], OURS[package]))
    generator, width = np.random.default_rng(9), INTERFACE[package][name]
    if width:
        given = [generator.normal(size=(5, width)) for _ in range(2 if name == "oriented_plane" else 1)]
        embed = f"embed_{name}"
        close(getattr(ours, embed)(*map(jnp.asarray, given)), getattr(theirs, embed)(*map(torch.from_numpy, given)))
    if name != "translation":
        mv, extract = generator.normal(size=(5, 16)), f"extract_{name}"
        close(getattr(ours, extract)(jnp.asarray(mv)), getattr(theirs, extract)(torch.from_numpy(mv)))


@pytest.mark.parametrize("beam", ["lightlike", "timelike", "spacelike", "xyplane", None])
@pytest.mark.parametrize("has_time, is_mirrored", [(True, True), (False, True), (True, False)])
def test_spurions(beam, has_time, is_mirrored):
    options = (beam, has_time, is_mirrored)
    found = gradewise.jax.lgatr.get_spurions(*options, dtype=jnp.float64)
    close(found, OURS["lgatr"].get_spurions(*options, dtype=torch.float64))
    assert len(found) == gradewise.jax.lgatr.get_num_spurions(*options)

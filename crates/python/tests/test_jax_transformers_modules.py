"""The transformers as modules of Flax NNX and of Equinox."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradewise
from gradewise.jax._transformers.definition import named
from jax_transformers import THEIRS, TINY, inputs_of, tiny
from transformer_cases import OURS


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


LIBRARIES = {"nnx": "flax", "equinox": "equinox"}


@pytest.fixture(params=LIBRARIES)
def library(request):
    """A library's modules."""
    pytest.importorskip(LIBRARIES[request.param], reason=f"{LIBRARIES[request.param]} is not installed")
    return importlib.import_module(f"gradewise.jax.{request.param}")


def module_of(library, kind, dtype=jnp.float64, **options):
    """A library's module."""
    if library.__name__.endswith("nnx"):
        from flax import nnx

        return getattr(library, kind)(**(TINY[kind] | options), rngs=nnx.Rngs(0), dtype=dtype)
    return getattr(library, kind)(**(TINY[kind] | options), key=jax.random.key(0), dtype=dtype)


def held(library, tree):
    """A module's arrays, or gradients of them, by their published names."""
    if library.__name__.endswith("nnx"):
        from flax import nnx

        flat = nnx.to_flat_state(nnx.state(tree) if isinstance(tree, nnx.Module) else tree)
        return {".".join(map(str, path)).removeprefix("parameters."): np.asarray(x.get_value()) for path, x in flat}
    return {name: np.asarray(x) for name, x in named(tree.parameters) if hasattr(x, "dtype")}


SIZES = [("LGATr", 0), *[pytest.param(kind, 1, marks=pytest.mark.whole) for kind in TINY]]


@pytest.mark.parametrize("kind, blocks", SIZES)
def test_modules(library, kind, blocks):
    """Results and gradients of modules with a checkpoint's weights are the definition's."""
    options = {"num_blocks": blocks}
    definition, parameters = tiny(kind, **options)
    state = {name: np.asarray(x) for name, x in named(parameters)}
    module = module_of(library, kind, **options)
    loaded = library.load(module, state)
    assert loaded.definition == definition and loaded.definition is not definition
    stored = held(library, loaded)
    assert stored.keys() == state.keys() and all((stored[name] == x).all() for name, x in state.items())
    given = {name: jnp.asarray(x) for name, x in inputs_of(kind).items()}
    loss = lambda call: sum((y * y).sum() for y in call(**given))  # noqa: E731
    of_definition = lambda p: loss(lambda **x: definition(p, **x))  # noqa: E731
    value, expected = jax.jit(jax.value_and_grad(of_definition))(parameters)
    if library.__name__.endswith("nnx"):
        from flax import nnx

        assert loaded is module
        found, gradients = nnx.jit(nnx.value_and_grad(loss))(loaded)
    else:
        import equinox

        assert loaded is not module
        found, gradients = equinox.filter_jit(equinox.filter_value_and_grad(loss))(loaded)
    np.testing.assert_allclose(found, value, rtol=1e-13)
    gradients = held(library, gradients)
    for name, x in named(expected):
        np.testing.assert_allclose(gradients[name], x, rtol=1e-9, atol=1e-11, err_msg=name)
    with pytest.raises(gradewise.CheckpointError, match="linear_in.weight"):
        library.load(module, {name: x for name, x in state.items() if not name.startswith("linear_in.weight")})


def test_modules_of_all_networks(library):
    """The names of the published networks, whose parameters are float32; rotary frequencies are none."""
    for kind, package in {"ConditionalLGATr": "lgatr", "ConditionalLGATrSlim": "lgatr", "AxialGATr": "gatr"}.items():
        assert getattr(library, kind).kind is getattr(THEIRS[package], kind)
    module = module_of(library, "GATr", dtype=None)
    state = {name: np.asarray(x) for name, x in OURS["gatr"].GATr(**TINY["GATr"]).state_dict().items()}
    stored = held(library, library.load(module, state))
    assert state.keys() - stored.keys() == {"blocks.0.attention.pos_encoding.inv_freq"}
    assert {x.dtype.name for x in stored.values()} == {"float32"}
    assert all((stored[name] == state[name]).all() for name in stored)

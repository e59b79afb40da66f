"""The published layers as modules of Flax NNX and of Equinox, against those of PyTorch with the same weights."""

import importlib
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import gradewise
from gradewise.torch import cgenn

# Most of the time of these tests is XLA's, for programs that run once.
jax.config.update("jax_disable_most_optimizations", True)

LIBRARIES = {"nnx": "flax", "equinox": "equinox"}
SIGNATURES = {(3, 0, 0): (1.0, 1.0, 1.0), (1, 1, 1): (1.0, -1.0, 0.0)}


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=LIBRARIES)
def library(request):
    """A library's modules."""
    pytest.importorskip(LIBRARIES[request.param], reason=f"{LIBRARIES[request.param]} is not installed")
    return importlib.import_module(f"gradewise.jax.{request.param}")


def randomness(library, seed=0):
    """What a constructor draws from."""
    if library.__name__.endswith("nnx"):
        from flax import nnx

        return {"rngs": nnx.Rngs(seed)}
    return {"key": jax.random.key(seed)}


def parameters(library, module):
    """The parameters of a module by their published names, and the function of them that the module is."""
    if library.__name__.endswith("nnx"):
        from flax import nnx

        graph, state = nnx.split(module)
        return state, lambda state, *inputs: nnx.merge(graph, state)(*inputs)
    return module, lambda module, *inputs: module(*inputs)


def named(tree):
    """The arrays of parameters, or of their gradients, by published names."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    words = lambda path: [str(getattr(k, "name", getattr(k, "key", getattr(k, "idx", "")))) for k in path]
    return {".".join(w for w in words(path) if w != "value"): np.asarray(leaf) for path, leaf in leaves}


def pair(library, name, signature, *arguments, **options):
    """A module of PyTorch, moved away from its initial values, and ours with its weights."""
    torch.manual_seed(0)
    theirs = getattr(cgenn, name)(cgenn.CliffordAlgebra(SIGNATURES[signature]), *arguments, **options).double()
    with torch.no_grad():
        for p in theirs.parameters():
            p += 0.3 * torch.randn_like(p)
    own = getattr(library, name)(signature, *arguments, **options, **randomness(library), dtype=jnp.float64)
    return theirs, library.load(own, theirs.state_dict())


def close(found, expected, tolerance=1e-12):
    found, expected = np.asarray(found), expected.detach().numpy()
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert np.abs(found - expected).max() <= tolerance * max(np.abs(expected).max(), 1e-300)


def need_same(library, theirs, own, *inputs):
    """Results, and gradients of inputs and of all parameters."""
    given = [torch.from_numpy(x).requires_grad_(x.dtype == np.float64) for x in inputs]
    expected = theirs(*given)
    share = torch.sin(1.0 + torch.arange(expected.numel(), dtype=torch.float64)).view(expected.shape)
    (expected * share).sum().backward()
    tree, function = parameters(library, own)

    @jax.jit
    def both(tree, x):
        y, pull = jax.vjp(lambda tree, x: function(tree, x, *inputs[1:]), tree, x)
        return y, *pull(jnp.asarray(share.numpy()))

    y, of_tree, of_x = both(tree, jnp.asarray(inputs[0]))
    close(y, expected)
    close(of_x, given[0].grad, 1e-11)
    gradients, weights = named(of_tree), dict(theirs.named_parameters())
    assert gradients.keys() == weights.keys()
    for name, p in weights.items():
        close(gradients[name], p.grad, 1e-11)


def numbers(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape)


LAYERS = {
    "MVLinear": [((2, 3), {}), ((2, 3), {"subspaces": False}), ((2, 3), {"bias": False})],
    "MVSiLU": [((2,), {})],
    "NormalizationLayer": [((2,), {}), ((2,), {"init": 0.5})],
    "MVLayerNorm": [((2,), {})],
    "SteerableGeometricProductLayer": [
        ((2,), {}),
        ((2,), {"include_first_order": False}),
        ((2,), {"normalization_init": None}),
    ],
    "FullyConnectedSteerableGeometricProductLayer": [
        ((2, 3), {}),
        ((2, 3), {"include_first_order": False, "normalization_init": None}),
    ],
    "CEMLP": [((2, 4, 3), {}), ((2, 4, 3), {"n_layers": 1}), ((2, 4, 3), {"n_layers": 3, "normalization_init": None})],
}


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda s: "".join(map(str, s)))
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_those_of_pytorch(library, name, signature):
    # One algebra sees all options.
    for arguments, options in LAYERS[name][: None if signature == (3, 0, 0) else 1]:
        theirs, own = pair(library, name, signature, *arguments, **options)
        need_same(library, theirs, own, numbers(5, 2, 8))
    # Axes between features and blades.
    x = numbers(3, 2, 4, 8)
    close(own(jnp.asarray(x)), theirs(torch.from_numpy(x)))


@pytest.mark.parametrize(("edges", "nodes", "residual"), [(1, 0, True), (0, 2, False)])
def test_messages_are_those_of_pytorch(library, edges, nodes, residual):
    features = 2
    options = {"edge_attr_features": edges, "residual": residual}
    theirs, own = pair(library, "EGCL", (3, 0, 0), features, 4, features, **options)
    ends = np.random.default_rng(0).integers(0, 4, (2, 9))
    h, of_edges = numbers(5, features, 8), numbers(9, edges, 8) if edges else None
    if nodes == 0:
        need_same(library, theirs, own, h, ends, of_edges)
        return
    # The published layer takes features of nodes, for which its sizes have no place: with them, the update takes as many more.
    wider, ours = pair(library, "EGCL", (3, 0, 0), features, 4, features, **options)
    torch.manual_seed(1)
    wider.node_model = cgenn.CEMLP(cgenn.CliffordAlgebra((1.0, 1.0, 1.0)), 2 * features + nodes, 4, features).double()
    made = library.CEMLP((3, 0, 0), 2 * features + nodes, 4, features, **randomness(library), dtype=jnp.float64)
    made = library.load(made, wider.node_model.state_dict())
    if library.__name__.endswith("nnx"):
        ours.node_model = made
    else:
        import equinox

        ours = equinox.tree_at(lambda m: m.node_model, ours, made)
    x = numbers(5, nodes, 8)
    found = ours(jnp.asarray(h), jnp.asarray(ends), None, jnp.asarray(x))
    close(found, wider(torch.from_numpy(h), torch.from_numpy(ends), None, torch.from_numpy(x)))


def test_a_new_network_draws_each_parameter_anew_and_learns(library):
    network = library.CEMLP((3, 0, 0), 2, 6, 1, **randomness(library), dtype=jnp.float32)
    tree, function = parameters(library, network)
    weights = {name: x for name, x in named(tree).items() if name.endswith("weight") and x.shape[:2] == (6, 6)}
    assert len(weights) >= 2
    assert len({x.tobytes() for x in weights.values()}) == len(weights)
    spread = np.concatenate([x.ravel() for x in weights.values()]) * np.sqrt(6)
    assert 0.8 < spread.std() < 1.2
    other, _ = parameters(library, library.CEMLP((3, 0, 0), 2, 6, 1, **randomness(library, 1)))
    assert not np.array_equal(named(other)["layers.0.0.weight"], named(tree)["layers.0.0.weight"])
    x = jnp.asarray(numbers(20, 2, 8).astype("float32"))
    loss = lambda tree: ((function(tree, x) - x[:, :1]) ** 2).mean()
    step = jax.jit(lambda tree: jax.tree.map(lambda p, g: p - 0.02 * g, tree, jax.grad(loss)(tree)))
    before = loss(tree)
    for _ in range(40):
        tree = step(tree)
    assert loss(tree) < 0.9 * before


def test_an_ensemble_is_a_batch_of_parameters(library):
    """``vmap`` over parameters: as many calls of operators as for one network."""
    trees, function = [], None
    for seed in range(3):
        tree, function = parameters(
            library, library.CEMLP((3, 0, 0), 2, 4, 2, **randomness(library, seed), dtype=jnp.float64)
        )
        trees.append(tree)
    x = jnp.asarray(numbers(5, 2, 8))
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
    mapped = jax.jit(jax.vmap(function, (0, None)))
    for found, tree in zip(mapped(together, x), trees, strict=True):
        np.testing.assert_allclose(found, function(tree, x), rtol=1e-11, atol=1e-12)
    assert " while(" not in mapped.lower(together, x).compile().as_text()


def test_what_does_not_fit_is_refused(library):
    draws = randomness(library)
    for call, error, text in (
        (
            lambda: library.MVLinear((1.0, 1.0), 2, 3, **draws),
            gradewise.ArgumentError,
            r"expected gradewise\.Algebra, or the numbers",
        ),
        (lambda: library.MVLinear((3, 0, 0), 0, 3, **draws), gradewise.ArgumentError, "in_features is 0"),
        (lambda: library.CEMLP((3, 0, 0), 2, 3, 1, n_layers=0, **draws), gradewise.ArgumentError, "n_layers is 0"),
        (
            lambda: library.MVSiLU((3,), 2, **draws)(jnp.ones((5, 2, 4))),
            gradewise.ShapeError,
            r"MVSiLU: .*\[5, 2, 4\], expected",
        ),
        (lambda: library.MVLinear((3,), 2, 3, **draws)(jnp.ones((5, 4, 8))), gradewise.ShapeError, "mv_linear"),
    ):
        with pytest.raises(error, match=text):
            call()
    linear = library.MVLinear(gradewise.Algebra(3), 2, 3, **draws)
    state = cgenn.MVLinear(cgenn.CliffordAlgebra((1.0, 1.0, 1.0)), 2, 3).state_dict()
    for changed, text in (
        ({"weight": state["weight"]}, r"\['bias'\] are not in both"),
        (state | {"weight": state["weight"][:2]}, r"weight has shape \[2, 2, 4\], expected \[3, 2, 4\]"),
        (cgenn.MVLinear(cgenn.CliffordAlgebra((1.0, 1.0, -1.0)), 2, 3).state_dict(), "the metric"),
    ):
        with pytest.raises(gradewise.CheckpointError, match=text):
            library.load(linear, changed)


def test_every_module_is_exported_and_described(library):
    for name in library.__all__:
        assert inspect.getdoc(getattr(library, name)), name

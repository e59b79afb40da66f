"""Clifford-steerable networks in Flax: the published numbers, symmetries, transformations of JAX, and refusals."""

import inspect
import itertools
import os
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import deviation
from jax.test_util import check_grads
from safetensors import safe_open
from safetensors.numpy import load_file
from steerable_cases import CASES, drawn, evaluate, initial, published

import gradewise as gw
import gradewise.jax as gj

pytest.importorskip("flax", reason="flax is not installed")
from gradewise.jax import steerable as st  # noqa: E402

# Most of the time of these tests is XLA's, for programs that run once.
jax.config.update("jax_disable_most_optimizations", True)

FAMILIES = Path(os.environ.get("GRADEWISE_FAMILIES_GOLDEN", Path(__file__).parent / "families"))
FIELDS = Path(os.environ.get("GRADEWISE_GOLDEN", Path(__file__).parents[3] / "tests" / "golden")) / "fields"
METRICS = [(1, 1), (1, -1), (-1, 1, 1), (1, 1, 1)]


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def vectors():
    return load_file(FAMILIES / "steerable.safetensors")


def paths(metric):
    return st.CliffordAlgebra(metric).geometric_product_paths_sum


def network(case):
    metric, name, options, _ = CASES[case]
    return getattr(st, name)(algebra=metric, product_paths_sum=paths(metric), **options)


def of(vectors, prefix):
    return {name.removeprefix(f"{prefix}/"): x for name, x in vectors.items() if name.startswith(f"{prefix}/")}


def need_same(found, expected, tolerance=1e-12):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert deviation(found[name], value) <= tolerance, name


@pytest.mark.parametrize("case", CASES)
def test_published_networks(case, vectors):
    model = network(case)
    inputs = drawn(case, model)
    function = jax.jit(partial(evaluate, model))
    found = function(*inputs)
    need_same(found, of(vectors, case))
    # The same bits each time.
    again = function(*inputs)
    assert all(np.array_equal(found[name], again[name]) for name in found)


def test_initial_parameters_are_the_published_ones(vectors):
    with jax.enable_x64(False):
        found = initial(network("block"))
    expected = of(vectors, "initial")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_beside_the_published_code(case):
    checkout = os.environ.get("GRADEWISE_CSCNN")
    if not checkout:
        pytest.skip("GRADEWISE_CSCNN names no checkout of github.com/maxxxzdn/clifford-group-equivariant-cnns")
    theirs, own = published(checkout, case), network(case)
    # Their algebra is taken as it is.
    given = own.clone(algebra=theirs.algebra)
    inputs = drawn(case, theirs)
    expected = jax.jit(partial(evaluate, theirs))(*inputs)
    for model in (own, given):
        need_same(jax.jit(partial(evaluate, model))(*inputs), expected)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("conv_pm_wrap", "float64"),
        ("conv_pp_same", "float32"),
        ("conv_ppp_same", "float64"),
        ("kernel_mpp", "float64"),
        ("kernel_mpp", "float32"),
        ("kernel_pp", "float64"),
    ],
)
def test_golden_vectors(name, dtype):
    with safe_open(FIELDS / f"cs_{name}.safetensors", "np") as file:
        told, tensors = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}
    metric, number = tuple(map(int, told["metric"].split(","))), lambda key: int(told[key])
    sizes = {"c_in": number("c_in"), "c_out": number("c_out"), "kernel_size": number("kernel_size")}
    options = {"num_layers": number("num_layers"), "hidden_dim": number("hidden_dim"), "bias_dims": (0,)}
    options |= {"algebra": metric, "product_paths_sum": paths(metric), **sizes}
    given = {key: jnp.asarray(value, dtype) for key, value in of_dots(tensors, "in.").items()}
    x = given.pop("x", None)
    blades = 2 ** len(metric)
    if x is None:
        model, inputs = st.CliffordSteerableKernel(**options), ()
        # Ours to theirs: [out, result, in, feature, *taps].
        split = lambda k: k.reshape(sizes["c_out"], blades, sizes["c_in"], blades, *k.shape[2:])
    else:
        mode = told["padding_mode"]
        model = st.CliffordSteerableConv(**options, padding_mode=mode.upper() if mode == "same" else mode)
        inputs = (jnp.moveaxis(x, (0, -1), (-1, 1)),)
        split = lambda y: jnp.moveaxis(y, (-1, 1), (0, -1))
    parameters = st.load(jax.eval_shape(model.init, jax.random.key(0), *inputs), given)
    parameters = jax.tree.map(lambda p: p.astype(dtype), parameters)

    @jax.jit
    def both(cotangent, *given):
        y, pull = jax.vjp(lambda p, *x: split(model.apply(p, *x)), *given)
        return y, *pull(cotangent)

    y, of_parameters, *of_x = both(jnp.asarray(tensors["cot.y"], dtype), parameters, *inputs)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    assert y.dtype == dtype and deviation(y, tensors["out.y"]) <= tolerance
    found = st.flatten(of_parameters)
    if of_x:
        found["x"] = jnp.moveaxis(of_x[0], (-1, 1), (0, -1))
    need_same(found, of_dots(tensors, "grad."), tolerance)


def of_dots(tensors, prefix):
    return {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}


@pytest.mark.parametrize("name", ["layer_norm", "mv_gelu"])
def test_golden_pointwise(name):
    tensors = load_file(FIELDS / f"cs_{name}_pp.safetensors")
    module = st.MVLayerNorm((1, 1)) if name == "layer_norm" else st.MVGELU()
    own = lambda x: jnp.moveaxis(module.apply({}, jnp.moveaxis(x, (0, -1), (-1, 1))), (-1, 1), (0, -1))
    y, pull = jax.vjp(own, jnp.asarray(tensors["in.x"]))
    assert deviation(y, tensors["out.y"]) <= 1e-12
    assert deviation(pull(jnp.asarray(tensors["cot.y"]))[0], tensors["grad.x"]) <= 1e-12


def action(matrix):
    """What a matrix does to all blades: its minors."""
    n = len(matrix)
    blades = [list(b) for grade in range(n + 1) for b in itertools.combinations(range(n), grade)]
    minor = lambda a, b: np.linalg.det(matrix[np.ix_(a, b)]) if len(a) == len(b) else 0.0
    return np.array([[minor(a, b) for b in blades] for a in blades])


def isometry(metric, rng):
    """A product of reflections: a rotation, boost or reflection of the metric."""
    g, total = np.diag(np.array(metric, float)), np.eye(len(metric))
    for _ in range(rng.integers(1, 4)):
        v = rng.standard_normal(len(metric))
        while abs(v @ g @ v) < 0.3:
            v = rng.standard_normal(len(metric))
        total = total @ (np.eye(len(metric)) - 2 * np.outer(v, v @ g) / (v @ g @ v))
    return total


def kernel(metric, bias_dims=(0,)):
    """A kernel with random parameters, at points: ``[out, result, in, feature, points]``."""
    model = st.CliffordSteerableKernel(metric, 2, 2, 3, 3, 3, bias_dims, paths(metric))
    rng = np.random.default_rng(len(metric))
    tree = jax.eval_shape(model.init, jax.random.key(0))
    parameters = jax.tree.map(lambda p: jnp.asarray(0.4 * rng.standard_normal(p.shape)), tree)
    blades = 2 ** len(metric)
    at = jax.jit(lambda v: model.apply(parameters, v).reshape(2, blades, 2, blades, -1))
    return at


def turned(metric, at, rng):
    """How far a kernel is from commuting with a random isometry at random points off the light cone."""
    t = isometry(metric, rng)
    v = rng.standard_normal((40, len(metric)))
    v = v[np.abs(v**2 @ np.array(metric)) > 0.1][:10]
    rho = action(t)
    expected = np.einsum("ja,oacbn,bi->ojcin", rho, at(jnp.asarray(v)), np.linalg.inv(rho))
    return deviation(at(jnp.asarray(v @ t.T)), expected)


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_kernels_commute_with_rotations_reflections_and_boosts(metric):
    rng, at = np.random.default_rng(0), kernel(metric)
    assert max(turned(metric, at, rng) for _ in range(5)) <= 1e-9
    # A bias on a vector has a direction.
    assert turned(metric, kernel(metric, (0, 1)), rng) > 1e-3


def signed_permutations(metric):
    for order in itertools.permutations(range(len(metric))):
        if all(metric[a] == metric[b] for a, b in enumerate(order)):
            for signs in itertools.product((1, -1), repeat=len(metric)):
                yield np.eye(len(metric))[list(order)] * np.array(signs)[:, None]


def moved(field, t):
    """A field ``[batch, channels, *space, blades]`` under a signed permutation of its axes."""
    n = len(t)
    order, signs = np.abs(t).argmax(1), t.sum(1)
    x = np.transpose(field, [0, 1, *(2 + order), 2 + n])
    x = np.flip(x, [2 + axis for axis in range(n) if signs[axis] < 0])
    return x @ action(t).T


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_networks_commute_with_isometries_of_the_grid(metric):
    n = len(metric)
    options = {"kernel_num_layers": 2, "kernel_hidden_dim": 3, "kernel_size": 3, "blocks": (1,)}
    model = st.CSResNet(metric, 1, 1, 2, bias_dims=(0,), product_paths_sum=paths(metric), **options)
    rng = np.random.default_rng(n)
    x = rng.standard_normal((1, 1, *[4] * n, 2**n))
    tree = jax.eval_shape(model.init, jax.random.key(0), jnp.asarray(x))
    parameters = jax.tree.map(lambda p: jnp.asarray(0.3 * rng.standard_normal(p.shape)), tree)
    apply = jax.jit(lambda x: model.apply(parameters, x))
    y, every = np.asarray(apply(x)), list(signed_permutations(metric))
    assert len(every) == {(1, 1): 8, (1, -1): 4, (-1, 1, 1): 16, (1, 1, 1): 48}[metric]
    for t in every[1 :: max(len(every) // 6, 1)]:
        assert deviation(apply(moved(x, t)), moved(y, t)) <= 1e-12
    # The test sees a field whose blades do not turn with it.
    t = every[-1]
    assert deviation(apply(moved(x, t) @ action(t)), moved(y, t)) > 1e-3


def test_transformations():
    metric = (1, -1)
    model = st.CliffordSteerableConv(metric, 1, 2, 3, (0,), paths(metric), 2, 2, padding_mode="wrap")
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((3, 1, 3, 3, 4)))
    tree = jax.eval_shape(model.init, jax.random.key(0), x)
    draw = lambda p: jnp.asarray(0.3 * rng.standard_normal(p.shape))
    one, two = (jax.tree.map(draw, tree) for _ in range(2))
    apply = jax.jit(model.apply)
    y = apply(one, x)
    # A batch of fields, and of parameters.
    assert deviation(jax.jit(jax.vmap(lambda x: model.apply(one, x[None])[0]))(x), y) <= 1e-13
    stack = jax.tree.map(lambda a, b: jnp.stack([a, b]), one, two)
    several = jax.jit(jax.vmap(model.apply, (0, None)))(stack, x)
    assert deviation(several, jnp.stack([y, apply(two, x)])) <= 1e-13
    # No field, and one of a single point.
    assert apply(one, x[:0]).shape == (0, 2, 3, 3, 4)
    point = jax.jit(model.clone(padding_mode="SAME").apply)(one, x[:, :, :1, :1])
    assert point.shape == (3, 2, 1, 1, 4) and np.isfinite(point).all()


def test_derivatives():
    """Both modes, and the second derivative, along one direction, beside differences."""
    metric = (1, -1)
    model = st.CliffordSteerableConv(metric, 1, 1, 3, (0,), paths(metric), 2, 2, padding_mode="wrap")
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((1, 1, 3, 3, 4)))
    tree = (jax.eval_shape(model.init, jax.random.key(0), x), x)
    draw = lambda p: jnp.asarray(0.3 * rng.standard_normal(p.shape))
    at, way = (jax.tree.map(draw, tree) for _ in range(2))
    loss = lambda given: (model.apply(*given) ** 2).sum()
    inner = lambda a, b: sum(jnp.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)))

    @jax.jit
    def slopes(given):
        slope = lambda given: inner(jax.grad(loss)(given), way)
        return loss(given), jax.jvp(loss, (given,), (way,))[1], slope(given), inner(jax.grad(slope)(given), way)

    _, forward, reverse, second = slopes(at)
    step = 1e-5
    after, before = (slopes(jax.tree.map(lambda a, w: a + h * w, at, way)) for h in (step, -step))  # noqa: B023
    assert deviation(forward, reverse) <= 1e-12
    assert deviation((after[0] - before[0]) / (2 * step), reverse) <= 1e-6
    assert deviation((after[2] - before[2]) / (2 * step), second) <= 1e-6


def numpys_norm(x, signature, least, parts):
    """(max(q, least)² + 1e-16)^¼ of the parts of x, ``[parts, rows, features]``."""
    squares = np.array(gw._core.squared_norms(signature))[:, None, None] * x * x
    forms = np.stack([squares[part].sum(0) for part in parts])
    return (np.maximum(forms, least) ** 2 + 1e-16) ** 0.25


@pytest.mark.parametrize("signature", [(1, 1, 0), (1, 0, 1)])
def test_min_clamp(signature):
    rng = np.random.default_rng(0)
    grades = np.array(gw.Algebra(*signature).grades)
    parts = [grades == grade for grade in range(grades.max() + 1)]
    x = rng.standard_normal((len(grades), 6, 3)) * np.array([1e-3, 0.1, 1, 1, 10, 0])[:, None]
    a, gain = rng.standard_normal((3, len(parts))), rng.standard_normal(3)
    norms = numpys_norm(x, signature, 0.01, parts)
    by_grade = x / (1 / (1 + np.exp(-a.T[:, None])) * (norms - 1) + 1 + 1e-6)[grades]
    mean = numpys_norm(x, signature, 0.01, [grades >= 0]).mean(2, keepdims=True)
    whole = gain * x / (mean + 1e-6)
    for operator, parameter, expected in ((gj.mv_normalization, a, by_grade), (gj.mv_layer_norm, gain, whole)):
        clamped = jax.jit(partial(operator, signature=signature, min_clamp=0.01))
        assert deviation(clamped(x, parameter), expected) <= 1e-14
        check_grads(clamped, (jnp.asarray(x[:, 3:5]), jnp.asarray(parameter)), order=1, modes=["fwd", "rev"])
        folded = jax.vmap(clamped, (1, None), 1)(jnp.asarray(x)[:, :, None], parameter)[:, :, 0]
        assert deviation(folded, expected) <= 1e-14
        short = clamped(jnp.asarray(x, jnp.bfloat16), jnp.asarray(parameter, jnp.bfloat16))
        assert short.dtype == jnp.bfloat16 and deviation(short.astype(float), expected) <= 1e-2
        # No clamp is the kernel, which is far from that here.
        assert 1e-3 < deviation(operator(x, parameter, signature), expected)


def test_small_forms_have_no_gradient_through_the_norm():
    x = jnp.full((4, 1, 1), 0.01)
    slope = jax.jacobian(lambda x: gj.mv_layer_norm(x, jnp.ones(1), (2, 0, 0), min_clamp=0.01))(x)
    assert deviation(slope.reshape(4, 4), np.eye(4) / ((0.01**2 + 1e-16) ** 0.25 + 1e-6)) <= 1e-14


def test_layers_take_axes_between_features_and_blades():
    metric = (-1, 1)
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 3, 5, 4)))
    layers = [
        st.MVLinear(metric, 3, 2, (0, 1)),
        st.MVLinear(metric, 3, 2, None, subspaces=False),
        st.GradeNorm(metric),
        st.FullyConnectedSteerableGeometricProductLayer(metric, 3, 2, (0,), paths(metric), False, False),
    ]
    for layer in layers:
        parameters = layer.init(jax.random.key(0), x)
        rows = jnp.moveaxis(x, 2, 1).reshape(10, 3, 4)
        expected = jnp.moveaxis(layer.apply(parameters, rows).reshape(2, 5, -1, 4), 1, 2)
        assert deviation(layer.apply(parameters, x), expected) <= 1e-14


def test_algebra():
    algebra = st.CliffordAlgebra((-1, 1, 1))
    assert algebra == st.CliffordAlgebra([-1, 1, 1]) != st.CliffordAlgebra((1, 1, -1))
    a, b = (jnp.asarray(x) for x in np.random.default_rng(0).standard_normal((2, 2, 3, 8)))
    expected = np.einsum("...i,ijk,...k->...j", a, algebra.cayley, b)
    assert deviation(algebra.geometric_product(a, b), expected) <= 1e-14
    assert deviation(algebra.q(a), algebra.geometric_product(algebra.beta(a), a)[..., :1]) <= 1e-14
    np.testing.assert_allclose(sum(algebra.qs(a)), algebra.q(a), rtol=1e-12, atol=1e-12)
    vectors = algebra.embed_grade(a[..., :3], 1)
    np.testing.assert_array_equal(algebra.get_grade(vectors, 1), a[..., :3])
    # The square of a time-like vector is negative; its norm is the clamp's.
    time = algebra.embed(jnp.ones(1), [1])
    assert algebra.geometric_product(time, time)[0] == -1
    assert deviation(algebra.norm(time), np.array([0.1])) <= 1e-9


def test_weights_by_name():
    model = network("block")
    parameters, _, _ = drawn("block", model)
    flat = st.flatten(parameters)
    assert "CliffordSteerableConv_2.CliffordSteerableKernel_0.ScalarShell_0.kernel_width" in flat
    empty = jax.tree.map(jnp.zeros_like, parameters)
    for state in (parameters, parameters["params"], {name: np.asarray(x) for name, x in flat.items()}):
        loaded = st.load(empty, state)
        assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), loaded, parameters))
    name = "CliffordSteerableConv_0.bias"
    with pytest.raises(gw.CheckpointError, match=name):
        st.load(parameters, {key: x for key, x in flat.items() if key != name})
    with pytest.raises(gw.CheckpointError, match=r"has shape \[7\]"):
        st.load(parameters, {**flat, name: jnp.zeros(7)})


def test_refusals():
    x = jnp.zeros((1, 1, 3, 3, 4))

    def refused(match, kind=gw.ArgumentError, x=x, **changed):
        options = {"algebra": (1, 1), "c_in": 1, "c_out": 1, "kernel_size": 3, "bias_dims": (0,)}
        options |= {"product_paths_sum": 10, "num_layers": 2, "hidden_dim": 2, **changed}
        with pytest.raises(kind, match=match):
            jax.eval_shape(st.CliffordSteerableConv(**options).init, jax.random.key(0), x)

    refused("squares 1 and -1", algebra=(1, 0))
    refused("squares 1 and -1", algebra=(2, 1))
    refused("squares 1 and -1", algebra=())
    refused("product_paths_sum is 20", product_paths_sum=20)
    refused("num_layers is 1", num_layers=1)
    refused("hidden_dim is 0", hidden_dim=0)
    refused("stride is 0", stride=0)
    refused("padding_mode 'circular'", padding_mode="circular")
    refused("blades", gw.ShapeError, bias_dims=(4,))
    refused("the field has shape", gw.ShapeError, x=x[..., :3])
    refused("the field has shape", gw.ShapeError, x=x[..., 0])
    refused("the field has shape", gw.ShapeError, c_in=2)
    with pytest.raises(gw.ArgumentError, match="stride 2"):
        block = st.CSBasicBlock((1, 1), 1, 1, 10, True, 2, 2, 3, (0,), stride=2)
        jax.eval_shape(block.init, jax.random.key(0), x)
    with pytest.raises(gw.ShapeError, match="points of shape"):
        kernel((1, 1))(jnp.zeros((3, 3)))
    features = jnp.zeros((4, 2, 3))
    with pytest.raises(gw.ArgumentError, match="min_clamp is -1"):
        gj.mv_normalization(features, jnp.zeros((3, 3)), (2, 0, 0), min_clamp=-1)
    with pytest.raises(gw.ArgumentError, match="min_clamp is nan"):
        gj.mv_layer_norm(features, jnp.zeros(3), (2, 0, 0), min_clamp=float("nan"))
    with pytest.raises(gw.ShapeError):
        gj.mv_layer_norm(features, jnp.zeros(4), (2, 0, 0), min_clamp=0.01)
    with pytest.raises(gw.DTypeError):
        gj.mv_layer_norm(features, jnp.zeros(3, jnp.float32), (2, 0, 0), min_clamp=0.01)


def test_everything_public_is_described():
    for name in st.__all__:
        assert inspect.getdoc(getattr(st, name)), name

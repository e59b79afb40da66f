"""The operators in JAX: values, derivatives, and what JAX does to functions."""

import gc
import inspect
import json
import resource
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import CASES, deviation, evaluate
from jax.test_util import check_grads
from sweeps import sampled

import gradewise as gw
import gradewise.jax as gj
import gradewise.numpy as gn
from gradewise import _core
from gradewise._registry import OPERATORS
from gradewise.jax._definitions import define
from gradewise.jax._operators import apply

# Most of the time of these tests is XLA's, for programs that run once.
jax.config.update("jax_disable_most_optimizations", True)

SIGNATURES = [(3, 0, 0), (1, 3, 0), (2, 0, 1)]


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def same(jaxs, numpys):
    """Bits on the CPU, where both are one call; NumPy's arrays are there, and on another device sums have another order."""
    jaxs, numpys = np.asarray(jaxs), np.asarray(numpys)
    if jax.default_backend() == "cpu":
        np.testing.assert_array_equal(jaxs, numpys)
    else:
        assert jaxs.shape == numpys.shape
        assert np.linalg.norm(jaxs - numpys) <= 1e-12 * np.linalg.norm(numpys)


def samples(name, signature, rows=2, features=3, seed=0):
    """The registry's samples of an operator."""
    for attributes, inputs in _core.samples(name, signature, rows, features, seed):
        yield attributes, [jnp.asarray(np.array(v).reshape(s)) for s, v in inputs]


def every(signatures=SIGNATURES):
    return [
        pytest.param(name, signature, id=f"{name}-{''.join(map(str, signature))}")
        for name in OPERATORS
        for signature in signatures
    ]


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_golden_vectors(dtype):
    checked = 0
    for case in CASES:
        inputs = {key: jnp.asarray(value).astype(dtype) for key, value in case.inputs.items()}
        expected, cotangent = case.output, jnp.asarray(case.cotangent).astype(dtype)
        gradients = case.gradients
        is_short = dtype in ("bfloat16", "float16")
        if is_short:
            if case.operation == "fc_steerable_gp":
                # A composition here, whose intermediate results are rounded to 16 bits.
                continue
            # What the operator makes of the rounded inputs.
            exact = {key: value.astype("float64") for key, value in inputs.items()}
            expected, pull = jax.vjp(lambda i: evaluate(gj, case, i), exact)
            (gradients,) = pull(cotangent.astype("float64"))
        actual, pull = jax.vjp(lambda i: evaluate(gj, case, i), inputs)
        assert actual.dtype == dtype, case.name
        assert deviation(actual, expected) <= case.tolerance(dtype, "y"), case.name
        (pulled,) = pull(cotangent)
        for key, gradient in pulled.items():
            if is_short and np.linalg.norm(gradients[key]) < 1e-6:
                continue
            bound = case.tolerance(dtype, f"grad.{key}") * (4 if is_short else 1)
            assert gradient.dtype == dtype
            assert deviation(gradient, gradients[key]) <= bound, (case.name, key)
        checked += 1
    assert checked >= 50


@pytest.mark.parametrize(("name", "signature"), every())
def test_gradients_to_second_order(name, signature):
    checked = 0
    for attributes, inputs in samples(name, signature):
        check_grads(
            lambda *i: apply(name, attributes, i), inputs, order=2, modes=["rev"], eps=1e-6, rtol=1e-5, atol=1e-5
        )
        checked += 1
    assert checked


@pytest.mark.parametrize(("name", "signature"), every([(3, 0, 0)]))
def test_values_are_those_of_numpy_and_jit_changes_nothing(name, signature):
    for attributes, inputs in samples(name, signature, rows=5, features=4):
        eager = apply(name, attributes, inputs)
        expected = np.asarray(gw.run(name, attributes, [np.asarray(x) for x in inputs]))
        same(eager, expected)
        loss = lambda *i: (apply(name, attributes, i) ** 2).sum()
        compiled = jax.jit(jax.value_and_grad(loss, argnums=tuple(range(len(inputs)))))
        value, gradients = compiled(*inputs)
        again, others = jax.value_and_grad(loss, argnums=tuple(range(len(inputs))))(*inputs)
        np.testing.assert_allclose(value, again, rtol=1e-14)
        for one, other in zip(gradients, others):
            np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-14)


def stacked(inputs, batched, size=3):
    rng = np.random.default_rng(5)
    return [jnp.asarray(rng.standard_normal((size, *x.shape))) if b else x for x, b in zip(inputs, batched)]


def hessian_like(function, inputs):
    """Something that all of a function's passes take part in."""
    norm = lambda *i: (function(*i) ** 2).sum()
    gradient = jax.grad(norm, argnums=tuple(range(len(inputs))))
    return jax.grad(lambda *i: sum((g**2).sum() for g in gradient(*i)), argnums=tuple(range(len(inputs))))


@pytest.mark.parametrize(("name", "signature"), sampled(every([(2, 0, 1)]), 3))
def test_vmap_is_a_loop(name, signature):
    for attributes, inputs in samples(name, signature):
        function = lambda *i: apply(name, attributes, i)
        features = tuple(index in OPERATORS[name].features for index in range(len(inputs)))
        only_first = tuple(index == 0 for index in range(len(inputs)))
        all_of_them = (True,) * len(inputs)
        # In this order without those that are the same: many operators have one input with rows.
        for batched in dict.fromkeys((features, only_first, all_of_them)):
            given = stacked(inputs, batched)
            axes = tuple(0 if b else None for b in batched)
            each = [[x[k] if b else x for x, b in zip(given, batched)] for k in range(3)]
            mapped = jax.vmap(function, axes)(*given)
            np.testing.assert_allclose(mapped, jnp.stack([function(*one) for one in each]), rtol=1e-12, atol=1e-13)
            twice = hessian_like(function, inputs)
            results = jax.vmap(twice, axes)(*given)
            for result, expected in zip(results, zip(*(twice(*one) for one in each)), strict=True):
                np.testing.assert_allclose(result, jnp.stack(expected), rtol=1e-8, atol=1e-8)


def test_vmap_folds_its_axis_into_the_rows():
    x = jnp.ones((6, 8, 5, 3))
    weight = jnp.ones((3, 20))
    mapped = jax.vmap(gj.sgp, (0, None, None))
    text = str(jax.make_jaxpr(mapped)(x, x[0], weight))
    assert "f64[8,30,3] = gradewise_forward" in text and "scan" not in text
    # Gradients of features fold as well, at any depth of maps.
    deeper = jax.vmap(jax.vmap(jax.grad(lambda x, w: gj.sgp(x, x, w).sum()), (0, None)), (0, None))
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 3, 8, 5, 3)))
    text = str(jax.make_jaxpr(deeper)(x, weight))
    assert "f64[8,30,3]" in text and "scan" not in text
    np.testing.assert_allclose(deeper(x, weight)[1, 2], jax.grad(lambda x: gj.sgp(x, x, weight).sum())(x[1, 2]))
    # Gradients of weights, example by example, are folded into features.
    text = str(jax.make_jaxpr(jax.vmap(jax.grad(lambda w, x: gj.sgp(x, x, w).sum()), (None, 0)))(weight, x[0]))
    assert "f64[9,20] = gradewise_pull" in text or "f64[9,20] =" in text
    assert "scan" not in text


def test_gradients_that_nobody_wants_are_not_computed():
    x, weight = jnp.ones((8, 2, 3)), jnp.ones((3, 20))
    text = str(jax.make_jaxpr(jax.grad(lambda w: gj.sgp(x, x, w).sum()))(weight))
    assert "wanted=(False, False, True)" in text
    text = str(jax.make_jaxpr(jax.grad(lambda x: gj.sgp(x, x, weight).sum()))(x))
    assert "wanted=(True, True, False)" in text


def close(found, expected, tolerance=1e-11):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert deviation(np.asarray(a), np.asarray(b)) < tolerance


@pytest.mark.parametrize("name, signature", sampled(every([(3, 0, 0), (1, 0, 1)]), 3))
def test_definitions_are_what_kernels_compute(name, signature):
    for attributes, inputs in samples(name, signature):
        ours, theirs = (lambda *i: apply(name, attributes, i)), (lambda *i: define(name, attributes, i))
        (y, pull), (expected, pulled) = jax.vjp(ours, *inputs), jax.vjp(theirs, *inputs)
        grad = jax.random.normal(jax.random.key(0), y.shape)
        close((y, pull(grad)), (expected, pulled(grad)))


@pytest.mark.parametrize("name, signature", sampled(every([(1, 1, 0)]), 3))
def test_both_modes_to_third_order(name, signature, is_whole):
    """Against the same transformations of the definition, which JAX differentiates itself."""
    given = list(samples(name, signature))
    # A sample with all inputs goes through every rule that another one goes through.
    for attributes, inputs in given if is_whole else [max(given, key=lambda sample: len(sample[1]))]:
        tangents = [jax.random.normal(jax.random.key(i), x.shape) for i, x in enumerate(inputs)]
        shares = jax.random.normal(jax.random.key(99), apply(name, attributes, inputs).shape)
        everything = tuple(range(len(inputs)))

        def along(function):
            return lambda *i: jax.jvp(function, i, tuple(tangents))[1]

        def through(function):
            gradient = jax.grad(function, everything)
            return lambda *i: sum((g * t).sum() for g, t in zip(gradient(*i), tangents))

        results = []
        for run in (apply, define):
            function = lambda *i, run=run: run(name, attributes, i)
            loss = lambda *i, f=function: (jnp.sin(f(*i)) * shares).sum()
            every_one = lambda *i, f=function, loss=loss: [
                jax.jvp(f, i, tuple(tangents)),
                jax.linear_transpose(jax.linearize(f, *i)[1], *i)(shares),
                along(along(along(f)))(*i),
                jax.grad(through(through(loss)), everything)(*i),
                jax.grad(along(along(loss)), everything)(*i),
            ]
            # Operator by operator: XLA takes minutes to compile all of this as one program.
            with jax.disable_jit():
                results.append(every_one(*inputs))
        close(*results)


def test_jacobians_hessians_and_batches_of_them():
    x = jax.random.normal(jax.random.key(0), (8, 2, 2))
    weight, shares = jax.random.normal(jax.random.key(1), (2, 20)), jax.random.normal(jax.random.key(2), x.shape)
    layer = lambda x: gj.sgp(x, x, weight, gate=True, normalize=True)
    loss = lambda x: (jnp.sin(layer(x)) * shares).sum()
    close(jax.jacfwd(layer)(x), jax.jacrev(layer)(x))
    expected = jax.jacrev(jax.jacrev(loss))(x)
    for outer in (jax.jacfwd, jax.jacrev):
        for inner in (jax.jacfwd, jax.jacrev):
            close(outer(inner(loss))(x), expected)
    batch = jax.random.normal(jax.random.key(3), (3, *x.shape))
    for transform in (jax.hessian, jax.grad, jax.jacfwd):
        close(jax.jit(jax.vmap(transform(loss)))(batch), jnp.stack([transform(loss)(one) for one in batch]))
    ensembles = jax.random.normal(jax.random.key(4), (3, *weight.shape))
    slope = jax.grad(lambda w: (gj.sgp(x, x, w) * shares).sum())
    close(jax.vmap(slope)(ensembles), jnp.stack([slope(w) for w in ensembles]))


def test_shards_of_a_mesh():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",))
    rows = jax.sharding.PartitionSpec(None, "rows")
    x = jax.random.normal(jax.random.key(0), (8, 4, 2))
    function = jax.shard_map(gj.geometric_product, mesh=mesh, in_specs=(rows, rows), out_specs=rows)
    close(jax.jit(function)(x, x), gj.geometric_product(x, x))
    loss = lambda f: jax.grad(lambda x: (f(x, x) ** 2).sum())
    close(jax.jit(loss(function))(x), loss(gj.geometric_product)(x))


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_dtypes_stay(dtype):
    x, weight = jnp.ones((8, 2, 3), dtype), jnp.ones((4, 3, 5), dtype)
    y, pull = jax.vjp(gj.mv_linear, x, weight)
    assert y.dtype == dtype and all(g.dtype == dtype for g in pull(y))


def test_without_x64_arrays_are_float32():
    with jax.enable_x64(False):
        y = gj.geometric_product(np.ones((8, 2, 3)), np.ones((8, 2, 3)))
        assert y.dtype == jnp.float32
        assert gj.geometric_product([[[1.0]], [[0.0]]], [[[2.0]], [[1.0]]], (1,)).dtype == jnp.float32


def test_wrong_shapes_and_dtypes_raise_with_our_texts():
    x = jnp.zeros((8, 4, 3))
    for call in (
        gj.geometric_product,
        jax.jit(gj.geometric_product),
        jax.grad(lambda x, y: gj.geometric_product(x, y).sum()),
    ):
        with pytest.raises(gw.ShapeError, match=r"shape \[4, 4, 3\], expected \[8, 4, 3\]"):
            call(x, x[:4])
        with pytest.raises(gw.ShapeError, match=r"\[8, 4, 3\]"):
            call(x, jnp.zeros((8, 5, 3)))
    with pytest.raises(gw.ShapeError, match="sgp"):
        gj.sgp(x, x, jnp.zeros((3, 19)))
    with pytest.raises(gw.DTypeError, match="int"):
        gj.geometric_product(x.astype(int), x)
    with pytest.raises(gw.DTypeError, match="input 1 has dtype float32, and input 0 has float64"):
        gj.geometric_product(x, x.astype("float32"))
    with pytest.raises(gw.ArgumentError, match="9 generators"):
        gj.geometric_product(x, x, (9, 0, 0))
    with pytest.raises(gw.ArgumentError, match="softmax is no operator for JAX"):
        apply("softmax", "{}", [x])


def test_an_error_of_a_call_has_our_text():
    x = jnp.zeros((8, 4, 3))
    call = jax.ffi.ffi_call("gradewise_forward", jax.ShapeDtypeStruct(x.shape, x.dtype))
    with pytest.raises(Exception, match="there is no operation `nothing`"):
        call(x, operation="nothing", attributes="null").block_until_ready()
    with pytest.raises(Exception, match="no text `attributes`"):
        call(x, operation="square").block_until_ready()
    short = jax.ffi.ffi_call("gradewise_forward", jax.ShapeDtypeStruct((8, 4, 2), x.dtype))
    with pytest.raises(Exception, match="a result has shape"):
        short(x, operation="square", attributes="null").block_until_ready()
    whole = jax.ffi.ffi_call("gradewise_forward", jax.ShapeDtypeStruct((3,), jnp.int32))
    with pytest.raises(Exception, match="expected f64, f32, bf16 or f16"):
        whole(jnp.zeros(3, jnp.int32), operation="square", attributes="null").block_until_ready()


def test_results_are_written_in_full():
    # A view of an input, which has to be copied into its buffer; and gradients that are zero because nothing depends on their inputs.
    call = jax.ffi.ffi_call("gradewise_forward", jax.ShapeDtypeStruct((3, 2), jnp.float64))
    x = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(call(x, operation="permute", attributes='{"axes":[1,0]}'), x.T)
    np.testing.assert_array_equal(call(x, operation="reshape", attributes='{"shape":[3,2]}'), x.reshape(3, 2))
    shapes = (jax.ShapeDtypeStruct(x.shape, x.dtype),) * 2
    both = jax.ffi.ffi_call("gradewise_backward", shapes)
    for _ in range(20):
        one, two = both(x, 2 * x, x + 2 * x, x, operation="add", attributes="null", needs="11")
        np.testing.assert_array_equal(one, x)
        np.testing.assert_array_equal(two, x)
    left, right = both(x, 2 * x, 2 * x**2, jnp.ones_like(x), operation="mul", attributes="null", needs="11")
    np.testing.assert_array_equal(left, 2 * x)
    np.testing.assert_array_equal(right, x)


@pytest.mark.parametrize(("rows", "features"), [(0, 3), (1, 1), (4, 0)])
def test_few_rows_and_features(rows, features):
    x, weight = jnp.ones((8, rows, features)), jnp.ones((features, 20))
    assert gj.sgp(x, x, weight).shape == x.shape
    gradients = jax.grad(lambda x, w: gj.sgp(x, x, w).sum(), (0, 1))(x, weight)
    assert [g.shape for g in gradients] == [x.shape, weight.shape]


def test_transforms_compose():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((8, 4, 3)))
    weight = jnp.ones((3, 20))
    loss = lambda x: (gj.sgp(x, x, weight, normalize=True) ** 2).sum()
    expected = jax.grad(loss)(x)
    np.testing.assert_allclose(jax.grad(jax.checkpoint(loss))(x), expected, rtol=1e-12)
    stepped = jax.lax.scan(lambda x, _: (gj.sgp(x, x, weight, normalize=True), None), x, length=3)[0]
    loop = x
    for _ in range(3):
        loop = gj.sgp(loop, loop, weight, normalize=True)
    np.testing.assert_allclose(stepped, loop, rtol=1e-12)
    strided = jax.jit(lambda x: gj.geometric_product(x[:, ::2], x.transpose(0, 1, 2)[:, 1::2]))(x)
    same(strided, gn.geometric_product(np.asarray(x)[:, ::2], np.asarray(x)[:, 1::2]))


def test_every_function_is_exported_and_described():
    assert gj.__all__ == gn.__all__
    for name in gj.__all__:
        assert inspect.getdoc(getattr(gj, name)), name


def test_threads():
    rng = np.random.default_rng(0)
    function = jax.jit(lambda x: gj.geometric_product(x, x))
    inputs = [jnp.asarray(rng.standard_normal((8, 64, 32))) for _ in range(4)]
    expected = [np.asarray(function(x)) for x in inputs]
    wrong = []

    def work(x, y):
        with jax.enable_x64(True):
            for _ in range(50):
                if not np.array_equal(function(x), y):
                    wrong.append(x)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(inputs, expected)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_ten_thousand_calls_do_not_grow():
    x, weight = jnp.ones((8, 16, 16)), jnp.ones((16, 20))
    step = jax.jit(jax.grad(lambda w: gj.sgp(x, x, w, normalize=True).sum()))
    for _ in range(500):
        step(weight).block_until_ready()
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(10_000):
        step(weight).block_until_ready()
    # One result is 16 KiB: kept, ten thousand would be 160 MiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024

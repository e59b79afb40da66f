"""The operators on NumPy arrays: values, memory, and what is refused."""

import inspect
import resource
import threading

import numpy as np
import pytest
from golden import CASES, deviation, evaluate

import gradewise as gw
import gradewise.numpy as gn


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_golden_vectors(dtype):
    checked = 0
    for case in CASES:
        inputs = {key: value.astype(dtype) for key, value in case.inputs.items()}
        expected = case.output
        if dtype == "float16":
            if case.operation == "fc_steerable_gp":
                # A composition here, whose intermediate results are rounded to 16 bits.
                continue
            # What the operator makes of the rounded inputs.
            expected = evaluate(gn, case, {key: value.astype("float64") for key, value in inputs.items()})
        actual = evaluate(gn, case, inputs)
        assert actual.dtype == dtype, case.name
        assert deviation(actual, expected) <= case.tolerance(dtype, "y"), case.name
        checked += 1
    assert checked >= 50


def layouts(x):
    """The same values with other strides, byte orders and places."""
    yield np.asfortranarray(x)
    yield np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    yield np.ascontiguousarray(x[::-1])[::-1]
    yield x.astype(x.dtype.newbyteorder())
    wide = np.full((*x.shape[:-1], 2 * x.shape[-1]), np.nan)
    wide[..., ::2] = x
    yield wide[..., ::2]
    shifted = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    shifted[:] = x
    yield shifted
    frozen = x.copy()
    frozen.flags.writeable = False
    yield frozen
    yield x.tolist()


def test_layouts_do_not_matter_and_inputs_stay_as_they_are():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 8, 5, 3))
    expected = gn.geometric_product(x, y)
    for layout in layouts(y):
        before = np.array(layout)
        np.testing.assert_array_equal(gn.geometric_product(x, layout), expected)
        np.testing.assert_array_equal(layout, before)


def test_lists_take_the_dtype_of_the_arrays_beside_them():
    x = np.ones((4, 2, 3), np.float32)
    weight = np.ones((3, 3, 2)).tolist()
    assert gn.mv_linear(x, weight, signature=(2, 0, 0)).dtype == np.float32
    assert gn.mv_linear(x.tolist(), weight, signature=(2, 0, 0)).dtype == np.float64


def test_results_are_new_arrays_that_may_be_written_to():
    x = np.random.default_rng(0).standard_normal((8, 4, 2))
    y = gn.geometric_product(x, x)
    again = gn.geometric_product(x, x)
    assert y.flags.writeable and not np.shares_memory(y, x) and not np.shares_memory(y, again)
    y[:] = 0
    assert np.any(again != 0)


def test_the_result_is_not_copied():
    x = np.ones((8, 4, 2))
    y = gn.geometric_product(x, x)
    assert isinstance(y.base, gw.Array)
    assert np.asarray(y.base).ctypes.data == y.ctypes.data


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("features", [0, 1, 7])
def test_few_rows_and_features(rows, features):
    x = np.ones((8, rows, features))
    weight = np.ones((features, 20))
    assert gn.sgp(x, x, weight).shape == x.shape
    assert gn.mv_silu(x, np.ones((features, 4)), np.ones((features, 4))).shape == x.shape


def test_any_signature():
    rng = np.random.default_rng(0)
    for signature in [(2,), (1, 1), (4, 1, 0), (2, 0, 1)]:
        x = rng.standard_normal((2 ** sum(signature), 3, 2))
        assert gn.geometric_product(x, x, signature).shape == x.shape


def test_wrong_shapes_and_dtypes_raise_with_our_texts():
    x = np.zeros((8, 4, 3))
    with pytest.raises(gw.ShapeError, match=r"shape \[4, 4, 3\], expected \[8, 4, 3\]"):
        gn.geometric_product(x, x[:4])
    with pytest.raises(gw.ShapeError, match="sgp"):
        gn.sgp(x, x, np.zeros((3, 19)))
    with pytest.raises(gw.DTypeError, match="int64"):
        gn.geometric_product(x.astype(int), x)
    with pytest.raises(gw.GradewiseError, match="f32"):
        gn.geometric_product(x, x.astype(np.float32))
    with pytest.raises(gw.ArgumentError, match="9 generators"):
        gn.geometric_product(x, x, (9, 0, 0))
    with pytest.raises(ValueError):
        gn.geometric_product(x, [[1.0], [2.0, 3.0]])


def test_every_function_is_exported_and_described():
    from gradewise import _front

    public = {name for name in vars(_front) if not name.startswith("_") and inspect.isfunction(getattr(_front, name))}
    assert set(gn.__all__) == set(_front.__all__) == public - {"install", "written"}
    for name in gn.__all__:
        assert "[blades, rows" in inspect.getdoc(getattr(gn, name)) or "[n, rows" in inspect.getdoc(
            getattr(gn, name)
        ), name


def test_threads_compute_at_the_same_time_and_right():
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((8, 64, 32)) for _ in range(4)]
    expected = [gn.geometric_product(x, x) for x in inputs]
    wrong = []

    def work(x, y):
        for _ in range(50):
            if not np.array_equal(gn.geometric_product(x, x), y):
                wrong.append(x)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(inputs, expected)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_ten_thousand_calls_do_not_grow():
    x = np.ones((8, 16, 16))
    for _ in range(200):
        gn.geometric_product(x, x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(10_000):
        gn.geometric_product(x, x)
    # One result is 16 KiB: kept, ten thousand would be 160 MiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024

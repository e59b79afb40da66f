"""Arrays that come and go by DLPack: the same memory, whose it is for how long, and what is refused."""

import ctypes
import gc
import sys
import weakref

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

import gradewise as gw


class Producer:
    """An array of NumPy behind the protocol alone, as other libraries have it."""

    def __init__(self, array, version=True, device=(1, 0)):
        self.array, self.version, self.device = array, version, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None, **options):
        assert stream is None
        if "max_version" in options and not self.version:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**options)


def address(array):
    return np.asarray(array).ctypes.data


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("version", [True, False])
def test_numpy_memory_is_shared_both_ways(dtype, version):
    x = np.arange(24, dtype=dtype).reshape(2, 3, 4)
    for view in (x, x.transpose(2, 0, 1), x[:, 1:, ::2], x[0, 0, 0:1], np.broadcast_to(x[:, :1], x.shape).copy()):
        array = gw.asarray(Producer(view, version))
        assert (array.shape, array.dtype, array.device, array.ndim) == (view.shape, dtype, "cpu", view.ndim)
        assert (array.size, array.nbytes, len(array)) == (view.size, view.nbytes, len(view))
        for back in (np.asarray(array), np.from_dlpack(array)):
            assert back.ctypes.data == view.ctypes.data
            assert back.dtype == view.dtype
            np.testing.assert_array_equal(back, view)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_torch_memory_is_shared_both_ways(dtype):
    x = torch.arange(12).reshape(3, 4).to(dtype).T
    array = gw.asarray(x)
    assert array.dtype == str(dtype).removeprefix("torch.")
    back = torch.from_dlpack(array)
    assert back.data_ptr() == x.data_ptr() and back.dtype == dtype and torch.equal(back, x)
    back += 1
    assert torch.equal(back, x), "a write through one is seen by the other"


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_jax_memory_is_shared_both_ways(dtype):
    x = jnp.arange(12).reshape(3, 4).astype(dtype)
    array = gw.asarray(x)
    back = jax.dlpack.from_dlpack(array)
    assert back.dtype == x.dtype and (back == x).all()
    assert back.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()


def test_lists_and_scalars_are_copied_as_float64():
    assert gw.asarray([[1, 2], [3, 4]]).dtype == "float64"
    scalar = gw.asarray(2.5)
    assert scalar.shape == () and np.asarray(scalar) == 2.5
    with pytest.raises(TypeError, match="no length"):
        len(scalar)


def test_arrays_without_elements():
    array = gw.asarray(np.zeros((2, 0, 3), np.float32))
    assert array.shape == (2, 0, 3) and array.size == 0
    assert np.from_dlpack(array).shape == torch.from_dlpack(array).shape == (2, 0, 3)


def test_asarray_of_an_array_is_that_array():
    array = gw.asarray(np.zeros(3))
    assert gw.asarray(array) is array
    assert array.to("cpu") is array
    assert repr(array) == "gradewise.Array(shape=(3,), dtype=float64, device=cpu)"


@pytest.mark.parametrize("version", [True, False])
def test_the_array_keeps_its_source_and_lets_it_go(version):
    x = np.zeros((4, 5))
    before = sys.getrefcount(x)
    array = gw.asarray(Producer(x, version))
    assert sys.getrefcount(x) == before + 1
    del array
    assert sys.getrefcount(x) == before


def test_consumers_keep_the_array_and_let_it_go():
    x = np.zeros((4, 5))
    before = sys.getrefcount(x)
    for consume in (np.asarray, np.from_dlpack, torch.from_dlpack):
        consumed = consume(gw.asarray(x))
        assert sys.getrefcount(x) > before, consume
        del consumed
        gc.collect()
        assert sys.getrefcount(x) == before, consume


def test_capsules_that_nobody_takes_are_released():
    x = np.zeros((4, 5))
    before = sys.getrefcount(x)
    array = gw.asarray(x)
    capsules = [array.__dlpack__(), array.__dlpack__(max_version=(1, 0))]
    del array
    assert sys.getrefcount(x) == before + 1
    del capsules
    assert sys.getrefcount(x) == before


def test_a_refused_source_is_let_go():
    for array in (np.zeros(4, np.int32), np.zeros(4)[::-1]):
        before = sys.getrefcount(array)
        with pytest.raises(gw.GradewiseError) as caught:
            gw.asarray(Producer(array))
        del caught
        gc.collect()
        assert sys.getrefcount(array) == before


def test_a_capsule_is_taken_once():
    capsule = gw.asarray(np.zeros(3)).__dlpack__(max_version=(1, 0))

    class Again:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_):
            return capsule

    gw.asarray(Again())
    with pytest.raises(gw.ArgumentError, match="taken before"):
        gw.asarray(Again())


def test_arrays_can_be_weakly_referenced():
    array = gw.asarray(np.zeros(3))
    there = weakref.ref(array)
    del array
    assert there() is None


def test_read_only_is_respected():
    x = np.zeros(3)
    x.flags.writeable = False
    array = gw.asarray(x)
    assert array.read_only
    assert not np.asarray(array).flags.writeable
    assert not np.from_dlpack(array).flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        array.__dlpack__()
    copied = np.from_dlpack(array, copy=True)
    assert copied.flags.writeable and copied.ctypes.data != x.ctypes.data
    assert not array.copy().read_only
    assert not gw.asarray(np.zeros(3)).read_only


def test_what_consumers_ask_for():
    array = gw.asarray(np.zeros(3))
    assert array.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="stream is 7"):
        array.__dlpack__(stream=7)
    with pytest.raises(BufferError, match="move it"):
        array.__dlpack__(dl_device=(2, 0))
    array.__dlpack__(stream=-1, dl_device=(1, 0), copy=False)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "complex64", "bool"])
def test_other_dtypes_are_refused_by_name(dtype):
    with pytest.raises(gw.DTypeError, match=dtype):
        gw.asarray(Producer(np.zeros(3, dtype)))
    with pytest.raises(gw.DTypeError, match=dtype):
        gw.asarray(np.zeros(3, dtype))


def test_numpy_has_no_bfloat16_and_is_told_so():
    array = gw.asarray(torch.zeros(3, dtype=torch.bfloat16))
    with pytest.raises(gw.DTypeError, match="bfloat16"):
        np.asarray(array)
    with pytest.raises(gw.DTypeError, match="bfloat16"):
        gw.asarray(np.zeros(3, ml_dtypes.bfloat16))


@pytest.mark.parametrize(("place", "name"), [((4, 0), "OpenCL"), ((8, 0), "Metal"), ((10, 1), "ROCm")])
def test_other_devices_are_refused_by_name(place, name):
    with pytest.raises(gw.DeviceError, match=name):
        gw.asarray(Producer(np.zeros(3), device=place))


def test_cuda_without_kernels_or_a_device_is_a_typed_error():
    if gw.targets() and torch.cuda.is_available():
        pytest.skip("CUDA is there")
    with pytest.raises(gw.DeviceError):
        gw.asarray(Producer(np.zeros(3), device=(2, 0)))
    with pytest.raises(gw.DeviceError):
        gw.asarray(np.zeros(3)).to("cuda:0")


def test_negative_strides_are_refused_by_the_protocol_and_copied_of_numpy():
    x = np.arange(6.0).reshape(2, 3)[:, ::-1]
    with pytest.raises(gw.ShapeError, match="negative strides"):
        gw.asarray(Producer(x))
    array = gw.asarray(x)
    np.testing.assert_array_equal(np.asarray(array), x)


def test_strides_of_axes_with_one_element_do_not_matter():
    x = np.zeros((3, 4))[:1, ::-4]
    assert x.strides[1] < 0 and x.shape == (1, 1)
    assert gw.asarray(Producer(x)).shape == (1, 1)


def test_byte_order_and_alignment_of_numpy_are_put_right_by_a_copy():
    x = np.arange(6, dtype=np.dtype(np.float64).newbyteorder()).reshape(2, 3)
    np.testing.assert_array_equal(np.asarray(gw.asarray(x)), x)
    bytes_ = np.zeros(8 * 6 + 1, np.uint8)
    shifted = bytes_[1:].view(np.float64)
    shifted[:] = np.arange(6)
    np.testing.assert_array_equal(np.asarray(gw.asarray(shifted)), np.arange(6.0))
    fields = np.zeros(5, [("a", "i4"), ("b", "f8")])
    fields["b"] = np.arange(5)
    np.testing.assert_array_equal(np.asarray(gw.asarray(fields["b"])), np.arange(5.0))


class Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [
        ("version", Version),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


class Handmade:
    """A versioned tensor whose every field a test can choose."""

    def __init__(self, shape=(2, 3), strides=(3, 1), offset=0, shift=0, version=(1, 0), bits=64):
        self.data = np.arange(16.0)
        self.deleted = 0
        axes = ctypes.c_int64 * len(shape)
        self.shape, self.strides = axes(*shape), strides and axes(*strides)

        def delete(_):
            self.deleted += 1

        self.managed = Managed(Version(*version), None, DELETER(delete), 0)
        tensor = self.managed.tensor
        tensor.data, tensor.byte_offset, tensor.ndim = self.data.ctypes.data + shift, offset, len(shape)
        tensor.device_type, tensor.code, tensor.bits, tensor.lanes = 1, 2, bits, 1
        tensor.shape = self.shape
        tensor.strides = self.strides

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor_versioned", None)


def test_offsets_and_missing_strides():
    source = Handmade(offset=16)
    np.testing.assert_array_equal(np.asarray(gw.asarray(source)), source.data[2:8].reshape(2, 3))
    assert source.deleted == 1
    source = Handmade(shape=(2, 2, 3), strides=None)
    np.testing.assert_array_equal(np.asarray(gw.asarray(source)), source.data[:12].reshape(2, 2, 3))


def test_the_deleter_is_called_once_and_last():
    source = Handmade()
    array = gw.asarray(source)
    shown = np.asarray(array)
    del array
    assert source.deleted == 0
    del shown
    assert source.deleted == 1


@pytest.mark.parametrize(
    ("source", "error", "text"),
    [
        (Handmade(version=(2, 0)), gw.ArgumentError, "DLPack 2.0"),
        (Handmade(shift=4), gw.ArgumentError, "not a multiple of 8"),
        (Handmade(offset=3), gw.ArgumentError, "not a multiple of 8"),
        (Handmade(shape=(2, -3)), gw.ShapeError, "negative size"),
        (Handmade(strides=(-3, 1)), gw.ShapeError, "negative strides"),
        (Handmade(strides=(2**62, 1)), gw.ArgumentError, "reach beyond"),
        (Handmade(bits=128), gw.DTypeError, "float128"),
    ],
    ids=["version", "address", "offset", "size", "stride", "reach", "bits"],
)
def test_what_cannot_be_read_is_refused_and_given_back(source, error, text):
    with pytest.raises(error, match=text):
        gw.asarray(source)
    assert source.deleted == 1


def test_objects_without_the_protocol_are_refused_by_name():
    from gradewise import _core

    with pytest.raises(gw.ArgumentError, match="dict"):
        _core.from_dlpack({})


def test_run_takes_arrays_of_any_library_and_gives_memory_of_its_own():
    x = np.arange(6.0).reshape(2, 3)
    for given in (x, torch.from_numpy(x), x.tolist()):
        y = gw.run("square", None, [given])
        np.testing.assert_array_equal(np.asarray(y), x**2)
        assert np.asarray(y).flags.writeable
    # An operation whose result would be a view of its input.
    attributes = {"shape": [3, 2]}
    y = np.asarray(gw.run("reshape", attributes, [x]))
    y += 1
    np.testing.assert_array_equal(x, np.arange(6.0).reshape(2, 3))


def test_run_refuses_by_our_texts():
    with pytest.raises(gw.ArgumentError, match="no operation `sqare`"):
        gw.run("sqare", None, [[1.0]])
    with pytest.raises(gw.ArgumentError, match="2 inputs were given, expected 1"):
        gw.run("square", None, [[1.0], [2.0]])
    with pytest.raises(gw.GradewiseError, match="f32"):
        gw.run("mul", None, [np.zeros(3), np.zeros(3, np.float32)])

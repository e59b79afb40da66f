"""Arrays on a CUDA device that come and go by DLPack: the same memory, and work in the order of both streams."""

import gc

import numpy as np
import pytest
import torch

import gradewise as gw

# Where a GPU is required, conftest.py fails without one.
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no CUDA device")

# Some milliseconds of a GPU's clock: what is not ordered behind a kernel of this length reads what was there before.
LONG = 20_000_000


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_memory_is_shared_both_ways(dtype):
    x = torch.arange(12, device="cuda").reshape(3, 4).to(dtype).T
    array = gw.asarray(x)
    assert (array.shape, array.device) == ((4, 3), "cuda:0") and array.__dlpack_device__() == (2, 0)
    back = torch.from_dlpack(array)
    assert back.data_ptr() == x.data_ptr() and back.dtype == dtype and torch.equal(back, x)


def test_run_computes_on_the_device():
    x = torch.randn(8, 64, 16, device="cuda")
    weight = torch.randn(16, 20, device="cuda")
    attributes = '{"algebra":"3,0,0","normalize":false}'
    y = gw.run("sgp", attributes, [x, x, weight])
    assert y.device == "cuda:0"
    expected = np.asarray(gw.run("sgp", attributes, [x.cpu(), x.cpu(), weight.cpu()]))
    np.testing.assert_allclose(torch.from_dlpack(y).cpu(), expected, rtol=1e-4, atol=1e-4)


def test_our_work_waits_for_the_producer():
    x = torch.zeros(1 << 20, device="cuda")
    gw.run("square", None, [x])
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
        x.fill_(3)
        y = gw.run("square", None, [x])
    assert (np.asarray(y.to("cpu")) == 9).all()


def test_the_consumer_waits_for_our_work():
    x = torch.zeros(1 << 20, device="cuda")
    gw.run("square", None, [x])
    torch.cuda.synchronize()
    torch.cuda._sleep(LONG)
    x.fill_(3)
    # Ours waits for the long kernel, and the other stream for ours.
    y = gw.run("square", None, [x])
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        z = torch.from_dlpack(y) + 1
        total = z.sum()
    torch.cuda.synchronize()
    assert total.item() == 10 * (1 << 20)


def test_memory_goes_back_only_after_its_use():
    weight = torch.full((1 << 20,), 3.0, device="cuda")
    torch.cuda.synchronize()
    torch.cuda._sleep(LONG)
    copy = weight.clone()
    y = gw.run("square", None, [copy])
    # The caching allocator gives this memory to the next tensor at once.
    del copy
    gc.collect()
    other = torch.full((1 << 20,), 7.0, device="cuda")
    assert (np.asarray(y.to("cpu")) == 9).all() and (other == 7).all()


def test_memory_of_ours_goes_back_only_after_the_consumer():
    x = torch.full((1 << 20,), 3.0, device="cuda")
    gw.run("square", None, [x])
    torch.cuda.synchronize()
    shown = torch.from_dlpack(gw.run("square", None, [x]))
    torch.cuda._sleep(LONG)
    later = shown + 1
    # Our pool may give this memory to the next result at once.
    del shown
    gc.collect()
    again = [gw.run("square", None, [later * 0 + 5]) for _ in range(2)]
    assert (later == 10).all() and all((torch.from_dlpack(y) == 25).all() for y in again)


def test_the_host_is_told_where_the_array_is():
    x = torch.arange(6.0, device="cuda")
    array = gw.asarray(x)
    with pytest.raises(gw.DeviceError, match=r'move it with .to\("cpu"\)'):
        np.asarray(array)
    np.testing.assert_array_equal(np.asarray(array.to("cpu")), x.cpu())
    np.testing.assert_array_equal(np.from_dlpack(array, device="cpu"), x.cpu())
    with pytest.raises(BufferError, match="it is a copy"):
        array.__dlpack__(dl_device=(1, 0), copy=False)
    assert torch.equal(torch.from_dlpack(gw.asarray(x.cpu()).to("cuda:0")), x)


def test_devices_do_not_mix():
    with pytest.raises(gw.GradewiseError, match="cuda:0"):
        gw.run("mul", None, [np.zeros(3), torch.zeros(3, dtype=torch.float64, device="cuda")])


def test_streams_that_dlpack_does_not_know_are_refused():
    array = gw.asarray(torch.zeros(3, device="cuda"))
    for stream in (0, -2):
        with pytest.raises(BufferError, match=f"stream is {stream}"):
            array.__dlpack__(stream=stream)
    for stream in (None, 1, 2, -1, torch.cuda.Stream().cuda_stream):
        array.__dlpack__(stream=stream, max_version=(1, 0))

"""Devices that tests run on: the CPU, and CUDA where PyTorch has it. `--whole` runs sweeps in full of which tests take samples."""

import importlib.util
import os

import pytest


def devices() -> list:
    import torch

    there = torch.cuda.is_available()
    if os.environ.get("GRADEWISE_REQUIRE_GPU") == "1":
        assert there, "GRADEWISE_REQUIRE_GPU=1, and PyTorch finds no CUDA device"
    skip = pytest.mark.skip(reason="PyTorch finds no CUDA device")
    return ["cpu", pytest.param("cuda", marks=() if there else skip)]


def pytest_addoption(parser) -> None:
    parser.addoption("--whole", action="store_true", help="run sweeps in full, which takes some minutes more")


@pytest.fixture(scope="session")
def is_whole(request) -> bool:
    return request.config.getoption("--whole")


def pytest_collection_modifyitems(config, items) -> None:
    if not config.getoption("--whole"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("whole")])
        items[:] = [item for item in items if not item.get_closest_marker("whole")]


def pytest_configure(config) -> None:
    config.addinivalue_line("markers", "whole: of a sweep; runs with --whole alone (sweeps.py)")
    if importlib.util.find_spec("torch"):
        import torch

        # Tensors of tests are tiny: threads of PyTorch that wait for each other took nine tenths of the time. What threads change,
        # test_threads.py checks in processes of its own.
        torch.set_num_threads(1)
    if os.environ.get("GRADEWISE_REQUIRE_GPU") == "1":
        devices()


def pytest_generate_tests(metafunc) -> None:
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", devices())

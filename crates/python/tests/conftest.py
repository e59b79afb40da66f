"""Devices that tests run on: the CPU, and CUDA where PyTorch has it."""

import os

import pytest


def devices() -> list:
    import torch

    there = torch.cuda.is_available()
    if os.environ.get("GRADEWISE_REQUIRE_GPU") == "1":
        assert there, "GRADEWISE_REQUIRE_GPU=1, and PyTorch finds no CUDA device"
    skip = pytest.mark.skip(reason="PyTorch finds no CUDA device")
    return ["cpu", pytest.param("cuda", marks=() if there else skip)]


def pytest_configure(config) -> None:
    if os.environ.get("GRADEWISE_REQUIRE_GPU") == "1":
        devices()


def pytest_generate_tests(metafunc) -> None:
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", devices())

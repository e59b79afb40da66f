"""What is copied where features come to fused modules in another order than the operators'."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gradewise.torch._accelerate.report import Border
from gradewise.torch._layout import to_planes
from gradewise.torch.cgenn.maps import Map
from gradewise.torch.flash import FlashMap


def borders(model: nn.Module, *arguments: Any) -> list[Border]:
    """The calls of fused modules in ``model(*arguments)`` with features that lie in another order than the operators', and what the
    copies cost. Inside of a fused module, and from one to the next, there are none."""
    found: list[Border] = []

    def watch(path: str) -> Callable[..., None]:
        def look(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            x = inputs[0] if inputs else None
            if not isinstance(x, Tensor) or x.dim() < 3:
                return
            planes = to_planes(x, x.shape[-1], path)
            if not planes.is_contiguous():
                found.append(Border(path, tuple(x.shape), x.numel() * x.element_size(), _microseconds(planes)))

        return look

    hooks = []

    def visit(module: nn.Module, path: str) -> None:
        if isinstance(module, Map) and not isinstance(module, FlashMap):
            # What is inside is no border, and would be called by itself if it had hooks.
            hooks.append(module.register_forward_pre_hook(watch(path)))
            return
        for name, child in module.named_children():
            visit(child, f"{path}.{name}" if path else name)

    visit(model, "")
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    devices = sorted({p.device.index for p in model.parameters() if p.is_cuda})
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=devices):
            model(*arguments)
    finally:
        for hook in hooks:
            hook.remove()
        # Such as running statistics: the call is none of training.
        for name, value in model.named_buffers():
            if name in buffers and not torch.equal(value, buffers[name]):
                value.data.copy_(buffers[name])
    return found


def _microseconds(planes: Tensor, repetitions: int = 20) -> float:
    """The time of a copy into the operators' order."""
    planes = planes.detach()
    for _ in range(3):
        planes.contiguous()
    if planes.is_cuda:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repetitions):
            planes.contiguous()
        end.record()
        end.synchronize()
        return 1e3 * start.elapsed_time(end) / repetitions
    began = time.perf_counter()
    for _ in range(repetitions):
        planes.contiguous()
    return 1e6 * (time.perf_counter() - began) / repetitions

"""The published algebras of accelerated modules: faster embeddings, where they are the same, and no tables of another algebra."""

from __future__ import annotations

import copy

import torch
from torch import nn

from gradewise.torch._accelerate.kinds import Stays, names_of, space_of_module
from gradewise.torch._accelerate.proof import copy_of, quiet
from gradewise.torch._accelerate.swap import AlgebraMap, TablesMap, is_swapped, restore, swap
from gradewise.torch._space import Space
from gradewise.torch.cgenn.maps import Setting


def take_algebras(model: nn.Module) -> list[nn.Module]:
    """Replaces the algebras that accelerated modules of a model have; returns those that are new."""
    found: dict[int, tuple[nn.Module, Space]] = {}
    for module in model.modules():
        algebra = getattr(module, "algebra", None)
        if not isinstance(algebra, nn.Module) or isinstance(algebra, AlgebraMap) or hasattr(algebra, "space"):
            continue
        if is_swapped(module):
            found[id(algebra)] = (algebra, module._gradewise.space)
        elif id(algebra) not in found and "CliffordAlgebra" in names_of(algebra) and hasattr(algebra, "metric"):
            try:
                found[id(algebra)] = (algebra, space_of_module(module))
            except Stays:
                continue
    taken = []
    for algebra, space in found.values():
        setting = Setting(space)
        kind = AlgebraMap if _embeds_alike(algebra, setting) else TablesMap
        try:
            swap(algebra, kind, setting)
        except TypeError:
            continue
        taken.append(algebra)
    return taken


def _embeds_alike(algebra: nn.Module, setting: Setting) -> bool:
    """Whether a published algebra's embeddings are those of this package: values, dtypes and gradients."""
    space = setting.space
    if "embed" in algebra.__dict__ or "embed_grade" in algebra.__dict__:
        return False
    try:
        with quiet(algebra):
            published = copy_of(algebra, None)
            restore(published)
            ours = copy.deepcopy(published)
            swap(ours, AlgebraMap, setting)
            device = next((b.device for b in published.buffers()), torch.device("cpu"))
            every = range(space.blades)
            indices = [(0,), (space.blades - 1,), tuple(every), tuple(reversed(every))[: max(1, space.blades - 1)]]
            calls = [("embed", where, len(where)) for where in [*indices, list(every)[1:2], list(every)]]
            calls += [("embed_grade", grade, size) for grade, size in enumerate(space.sizes)]
            for name, where, count in calls:
                for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
                    x = (10 * torch.randn(2, 3, count, device=device)).to(dtype)
                    if not all(_same(*(getattr(a, name)(x.clone(), where) for a in (published, ours)))):
                        return False
    except Exception:
        # Another method, or one with other arguments.
        return False
    return True


def _same(a: torch.Tensor, b: torch.Tensor) -> list[bool]:
    return [a.shape == b.shape, a.dtype == b.dtype, a.device == b.device, a.shape == b.shape and torch.equal(a, b)]

"""Code around accelerated modules that asks for views of what they return.

Results of operators lie in memory in the operators' order. `Tensor.view` refuses such a tensor where it takes the published module's. What
a model does with results cannot be seen without running it; its code says whether it may ask for views.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from gradewise.torch._accelerate.swap import is_swapped
from gradewise.torch.cgenn.maps import Map

_ASKS = frozenset({"view", "view_as", "as_strided", "is_contiguous", "data_ptr", "stride", "storage_offset", "numpy"})


def adjacent_where_asked(model: nn.Module) -> None:
    """Lets accelerated modules return tensors that are adjacent in memory where the code that calls them asks for views."""
    for parent in model.modules():
        if isinstance(parent, Map):
            continue
        children = {name: child for name, child in parent.named_children() if any(map(_is_map, child.modules()))}
        if not children:
            continue
        asks = any(
            names & _ASKS and (names & children.keys() or "_modules" in names or "modules" in names)
            for names in _functions(parent)
        )
        # In a sequence, what follows sees what came before.
        asks = asks or (
            isinstance(parent, nn.Sequential)
            and any(names & _ASKS for child in parent if not _is_map(child) for names in _functions(child))
        )
        if asks:
            for child in children.values():
                make_adjacent(child)


def make_adjacent(module: nn.Module) -> None:
    """Lets the outermost accelerated modules of this one return tensors that are adjacent in memory."""
    if _is_map(module):
        module.__dict__["_gradewise"] = replace(module._gradewise, is_contiguous=True)
        return
    if not isinstance(module, Map):
        for child in module.children():
            make_adjacent(child)


def _is_map(module: nn.Module) -> bool:
    return isinstance(module, Map) and is_swapped(module)


def _functions(module: nn.Module) -> Iterator[frozenset[str]]:
    """The names that each function of a module's own classes, or patched into it, reads."""
    owners = [
        vars(cls)
        for cls in type(module).__mro__
        if not cls.__module__.startswith(("torch.", "torch_geometric.", "gradewise."))
    ]
    for members in [*owners, module.__dict__]:
        for member in members.values():
            function = getattr(member, "__func__", getattr(member, "__wrapped__", member))
            if isinstance(function, types.FunctionType):
                yield frozenset(_names(function.__code__))


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
        elif isinstance(constant, str):
            # As in getattr(self, "layers").
            yield constant

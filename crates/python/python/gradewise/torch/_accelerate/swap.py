"""Classes that compute by operators and stay subclasses of the published ones, and the way back."""

from __future__ import annotations

import copyreg
import types
import weakref
from typing import Any

import torch
from torch import Tensor, nn

from gradewise.torch.cgenn.algebra import embed, embed_grade
from gradewise.torch.cgenn.maps import (
    FullMap,
    LayerNormMap,
    LinearMap,
    Map,
    NormalizationMap,
    Setting,
    SiLUMap,
    SteerableMap,
)
from gradewise.torch.cgenn.messages import MessagesMap
from gradewise.torch.cgenn.mlp import BlockMap, NetworkMap
from gradewise.torch.flash import FlashMap


class AlgebraMap:
    """The published algebra: faster embeddings that can be captured, since they make no tensors of indices; and it refuses tables of another
    algebra, which its modules do not read any more."""

    _gradewise: Setting
    _published: type[nn.Module]

    def embed(self, tensor: Any, tensor_index: Any) -> Any:
        if not isinstance(tensor, Tensor) or not isinstance(tensor_index, (tuple, list)) or tensor.dim() == 0:
            return self._published.embed(self, tensor, tensor_index)
        blades, index = self._gradewise.space.blades, list(tensor_index)
        is_plain = all(type(blade) is int and 0 <= blade < blades for blade in index) and len(set(index)) == len(index)
        if not is_plain or not index or tensor.shape[-1] != len(index):
            return self._published.embed(self, tensor, tensor_index)
        return embed(tensor, index, blades)

    def embed_grade(self, tensor: Any, grade: Any) -> Any:
        sizes = self._gradewise.space.sizes
        # The published code makes numbers of the default dtype whatever it is given.
        if (
            not isinstance(tensor, Tensor)
            or type(grade) is not int
            or not 0 <= grade < len(sizes)
            or tensor.dim() == 0
            or tensor.shape[-1] != sizes[grade]
            or tensor.dtype != torch.get_default_dtype()
        ):
            return self._published.embed_grade(self, tensor, grade)
        return embed_grade(tensor, grade, sizes)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        self._gradewise.space.check(state_dict, prefix)
        self._published._load_from_state_dict(self, state_dict, prefix, *rest)


class TablesMap(AlgebraMap):
    """A published algebra whose embeddings are others than those that are known: it keeps them."""

    def embed(self, *given: Any, **named: Any) -> Any:
        return self._published.embed(self, *given, **named)

    def embed_grade(self, *given: Any, **named: Any) -> Any:
        return self._published.embed_grade(self, *given, **named)


_MAPS = {
    kind.__name__: kind
    for kind in (
        AlgebraMap,
        BlockMap,
        FlashMap,
        FullMap,
        LayerNormMap,
        LinearMap,
        MessagesMap,
        NetworkMap,
        NormalizationMap,
        SiLUMap,
        SteerableMap,
        TablesMap,
    )
}
# As long as a module has them: classes that somebody defines again and again, as in a notebook, go.
_MADE: weakref.WeakValueDictionary[tuple[type, type], type] = weakref.WeakValueDictionary()


def fused(original: type, kind: type) -> type:
    """The subclass of a published class that computes by a map, under the published name."""
    key = (original, kind)
    there = _MADE.get(key)
    if there is not None:
        return there

    def make(cls: type, *given: Any, **named: Any) -> Any:
        # Code that makes another module of this one's class, such as a slice of a sequence, gets the published one: what is inside of it has
        # not been compared. Without arguments this is how copies and replicas are made.
        if given or named:
            return original(*given, **named)
        return original.__new__(cls)

    def reduce(self: Any, protocol: int) -> Any:
        reduced = original.__reduce_ex__(self, max(int(protocol), 2))
        if not isinstance(reduced, tuple) or reduced[0] is not copyreg.__newobj__ or len(reduced[1]) != 1:
            return reduced
        return (_revive, (original, kind.__name__), *reduced[2:])

    namespace = {
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
        "__new__": make,
        "__reduce_ex__": reduce,
        "_published": original,
    }
    made = types.new_class(original.__name__, (kind, original), {}, lambda names: names.update(namespace))
    _MADE[key] = made
    return made


def _revive(original: type, kind: str) -> Any:
    """An accelerated module without its state, for copies and pickles."""
    cls = fused(original, _MAPS[kind])
    return cls.__new__(cls)


def swap(module: nn.Module, kind: type, setting: Setting) -> None:
    """Lets a module compute by a map."""
    cls = fused(type(module), kind)
    module.__dict__["_gradewise"] = setting
    try:
        module.__class__ = cls
    except TypeError:
        del module.__dict__["_gradewise"]
        raise


def is_swapped(module: nn.Module) -> bool:
    """Whether this is somebody's module that computes by a map."""
    return isinstance(module, (Map, AlgebraMap)) and type(module)._published is not None


def undo(module: nn.Module) -> bool:
    """Gives one module its published class back; whether it had another."""
    if not is_swapped(module):
        return False
    module.__class__ = type(module)._published
    module.__dict__.pop("_gradewise", None)
    return True


def restore(model: nn.Module) -> int:
    """Undoes :func:`accelerate`: every module of ``model`` has its published class, and computes as it did before.

    Parameters, buffers, hooks and optimisers' states stay; they are the same objects before, between and after.

    Args:
        model: a model that was accelerated, or parts of which were.

    Returns:
        How many modules compute as published again; 0 if none was accelerated.
    """
    return sum(undo(module) for module in list(model.modules()))

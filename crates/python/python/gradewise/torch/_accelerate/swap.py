"""Classes that compute by operators and stay subclasses of the published ones, and the way back."""

from __future__ import annotations

import copyreg
import functools
import types
import weakref
from inspect import getattr_static
from typing import Any, Union

import torch
from torch import Tensor, nn

from gradewise.torch._accelerate.fields import FIELDS
from gradewise.torch._accelerate.gate import FieldGate, FieldProven, Gate, Proven
from gradewise.torch._accelerate.layers import LAYERS
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
from gradewise.torch.cgenn.stack import Stack, StackMap
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
        StackMap,
        SteerableMap,
        TablesMap,
    )
}
# As long as a module has them: classes that somebody defines again and again, as in a notebook, go.
_MADE: weakref.WeakValueDictionary[tuple[type, type], type] = weakref.WeakValueDictionary()
_LAYERS = {(kind.package, kind.name): kind.layer for kind in (*LAYERS, *FIELDS)}


def fused(original: type, kind: type) -> type:
    """The subclass of a published class that computes by a map, under the published name."""
    return _made(original, (kind,), kind, (kind.__name__,), {})


def gated(original: type, layer: type) -> type:
    """The subclass of a published layer that computes by ours behind a gate, under the published name and with the published methods."""
    names = next(names for names, found in _LAYERS.items() if found is layer)
    gate = FieldGate if names[0] == "cliffordlayers" else Gate
    namespace: dict[str, Any] = {"_acts_as": layer}
    for cls in layer.__mro__:
        if cls not in nn.Module.__mro__:
            namespace |= {n: getattr_static(original, n) for n in vars(cls) if n[0] != "_" and hasattr(original, n)}

    @functools.wraps(original.forward)
    def forward(self: Any, *given: Any, **named: Any) -> Any:
        return gate.forward(self, *given, **named)

    namespace["forward"] = forward
    return _made(original, (gate, layer), layer, names, namespace)


def _made(original: type, bases: tuple[type, ...], kind: type, names: tuple[str, ...], more: dict[str, Any]) -> type:
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
        return (_revive, (original, *names), *reduced[2:])

    namespace = {
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
        "__new__": make,
        "__reduce_ex__": reduce,
        "_published": original,
        **more,
    }
    made = types.new_class(original.__name__, (*bases, original), {}, lambda names: names.update(namespace))
    _MADE[key] = made
    return made


def _revive(original: type, *names: str) -> Any:
    """An accelerated module without its state, for copies and pickles."""
    cls = fused(original, _MAPS[names[0]]) if len(names) == 1 else gated(original, _LAYERS[names])
    return cls.__new__(cls)


def swap(module: nn.Module, kind: type, setting: Union[Setting, Stack]) -> None:
    """Lets a module compute by a map."""
    cls = fused(type(module), kind)
    module.__dict__["_gradewise"] = setting
    try:
        module.__class__ = cls
    except TypeError:
        del module.__dict__["_gradewise"]
        raise


def enter_gate(module: nn.Module, layer: type[nn.Module], proven: Union[Proven, FieldProven]) -> None:
    """Lets a published layer compute by ours behind a gate."""
    cls = gated(type(module), layer)
    module.__class__ = cls
    module.__dict__["_gradewise"] = proven
    module.__dict__.update(proven.extras)


def is_swapped(module: nn.Module) -> bool:
    """Whether this is somebody's module that computes by a map, by a layer of ours, or as one node."""
    return isinstance(module, (Map, AlgebraMap, StackMap, Gate)) and type(module)._published is not None


def _without(cls: type) -> type:
    """A class without what it has of ours: the published one, or one like it over the published one, where somebody has put a subclass over
    ours meanwhile, as parametrizations of PyTorch do."""
    if getattr(cls, "_published", None) is None:
        return cls
    if "_published" in vars(cls):
        return cls._published
    own = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    return types.new_class(cls.__name__, tuple(map(_without, cls.__bases__)), {}, lambda names: names.update(own))


def undo(module: nn.Module) -> bool:
    """Gives one module its published class back; whether it had another."""
    if not is_swapped(module):
        return False
    module.__class__ = _without(type(module))
    setting = module.__dict__.pop("_gradewise", None)
    for name in getattr(setting, "extras", ()):
        module.__dict__.pop(name, None)
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

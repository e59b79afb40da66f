"""Layers of message passing in a row as one node of PyTorch's graph of gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Optional

import torch
from torch import Tensor, nn

from gradewise import _core
from gradewise.torch import _composite, _messages
from gradewise.torch._composite import has_hooks, is_eager
from gradewise.torch._space import Space
from gradewise.torch.cgenn.maps import LinearMap, is_ordinary
from gradewise.torch.cgenn.messages import MessagesMap, is_followed, is_pair


@dataclass(frozen=True)
class Stack:
    """What the method ``_forward`` of a network computes, beside its parameters: a linear map, layers of message passing and a linear map."""

    space: Space
    layers: int
    """How many layers there are."""
    has_embedding: bool
    """Whether there is a linear map before the layers."""
    parameters: tuple[str, ...]
    """The names of what the method takes: ``h``, the edges, and ``edge_attr``, ``node_attr`` or both, in its own order."""


class StackMap:
    """A network with modules ``layers`` and ``projection``, perhaps ``embedding``, whose method ``_forward`` runs them in a row.

    As one node, where nothing follows the modules inside; otherwise as the network itself does, module by module, with the same bits.
    """

    _gradewise: Any
    _published: ClassVar[type[nn.Module]]

    def _forward(self, *given: Any, **named: Any) -> Any:
        stack = self._gradewise
        if not torch.compiler.is_compiling() and len(given) <= len(stack.parameters):
            bound = dict(zip(stack.parameters, given))
            everything = {**bound, **named}
            # What is not given is for the method's own defaults.
            if bound.keys().isdisjoint(named) and everything.keys() == set(stack.parameters):
                result = run_as_one(self, stack, everything)
                if result is not None:
                    return result
        return self._published._forward(self, *given, **named)


def run_as_one(network: Any, stack: Stack, given: dict[str, Any]) -> Optional[Tensor]:
    """What the layers make of ``h``, edges and attributes, by name, as one node of the graph of gradients; None where that is impossible."""
    if torch.compiler.is_compiling():
        return None
    h, edges = given.get(stack.parameters[0]), given.get(stack.parameters[1])
    edge_attr, node_attr = given.get("edge_attr"), given.get("node_attr")
    space = stack.space
    features = [h, *(x for x in (edge_attr, node_attr) if x is not None)]
    if not all(is_ordinary(x, space.blades) and x.dim() == 3 for x in features) or not is_pair(edges):
        return None
    if not is_eager(h) or space.order is not None:
        return None
    layers = network._modules["layers"]
    if type(layers) not in (nn.Sequential, nn.ModuleList) or len(layers._modules) != stack.layers:
        return None

    parameters: list[Tensor] = []
    embedding = None
    if stack.has_embedding:
        embedding = _linear(network._modules["embedding"], space, parameters)
        if embedding is None or parameters[0].shape[1] != h.shape[1]:
            return None
    made: list[_messages.Layer] = []
    receivers = set()
    for layer in layers._modules.values():
        found = _operands(layer, space)
        if found is None:
            return None
        made.append(found[0])
        parameters += found[1]
        receivers.add(layer._gradewise.receiver)
    last = _last(network._modules["projection"])
    projection = None if last is None else _linear(last, space, parameters)
    if projection is None or len(receivers) != 1:
        return None

    one = _messages.passing(
        space.signature, tuple(made), edge_attr is not None, node_attr is not None, embedding, projection
    )
    attributes = [x for x in (edge_attr, node_attr) if x is not None for _ in made]
    inputs = [h, *attributes, *parameters]
    if not one.native.admits(inputs):
        return None
    ends = list(edges)
    receiver = receivers.pop()
    rows, columns = ends[receiver], ends[1 - receiver]
    if rows.device != h.device or columns.device != h.device:
        return None
    between = _composite.edges_between(rows, columns, h.shape[0])
    if between is None:
        return None
    result = _composite.run(one, inputs, (rows, columns), between)
    return result.contiguous() if last._gradewise.is_contiguous else result


def _operands(layer: Any, space: Space) -> Optional[tuple[_messages.Layer, list[Tensor]]]:
    """The parameters of a layer of message passing that is called as it was proven, and that nothing follows."""
    state = layer.__dict__
    if getattr(type(layer), "_acts_as", None) is not MessagesMap or "forward" in state or has_hooks(layer):
        return None
    setting = state["_gradewise"]
    if setting.space != space or setting.is_opposite or is_followed(layer):
        return None
    return layer.operands()


def _last(projection: Any) -> Any:
    """The linear map of a projection, which may be a sequence of this map alone; None for another module."""
    if type(projection) is not nn.Sequential:
        return projection
    if len(projection._modules) != 1 or has_hooks(projection) or "forward" in projection.__dict__:
        return None
    return next(iter(projection._modules.values()))


_MATRIX = _core.Parts([(None, (), LinearMap, ("weight",), ())])
_MATRIX_AND_BIAS = _core.Parts([(None, (), LinearMap, ("weight", "bias"), ())])


def _linear(module: Any, space: Space, parameters: list[Tensor]) -> Optional[_messages.Linear]:
    """Adds the parameters of a linear map; None for a module of another kind or algebra, or one that something follows."""
    if getattr(type(module), "_acts_as", None) is not LinearMap or module._gradewise.space != space:
        return None
    # By attribute: a bias with a parametrization is in no table.
    has_bias = module.bias is not None
    own = (_MATRIX_AND_BIAS if has_bias else _MATRIX).read(module)
    if own is None:
        return None
    parameters += own
    return _messages.Linear(has_bias)

"""Networks whose layers of message passing may run as one node: by their parts and by what their method ``_forward`` computes."""

from __future__ import annotations

import copy
import inspect
from dataclasses import replace
from typing import Any, Optional

from torch import nn

from gradewise.torch._accelerate.kinds import Stays, acts_as, refusal, sizes_of_messages
from gradewise.torch._accelerate.proof import (
    TOLERANCE,
    Trial,
    Unlike,
    compare,
    copy_of,
    disturbed,
    observe,
    quiet,
    trials,
)
from gradewise.torch._accelerate.report import Joined
from gradewise.torch._accelerate.sizes import Sizes
from gradewise.torch._accelerate.swap import is_swapped, restore, swap
from gradewise.torch.cgenn.maps import LinearMap
from gradewise.torch.cgenn.messages import MessagesMap
from gradewise.torch.cgenn.stack import Stack, StackMap, run_as_one

_METHOD = "_forward"
_EDGES = ("edges", "edge_index")
_ATTRIBUTES = {"edge_attr", "node_attr"}


def join(path: str, network: nn.Module) -> Optional[Joined]:
    """Lets the layers of a network run as one node, if this computes the same; None for another module than such a network.

    The network's own method is compared with the node on made-up graphs, forward and backward, in float64, on copies.
    """
    found = _stack_of(network)
    if found is None:
        return None
    stack, sizes = found
    made = Joined(path, type(network).__name__, stack.layers, refusal(network) or "")
    if made.reason:
        return made
    try:
        with quiet(network):
            _prove(network, stack, sizes)
        swap(network, StackMap, stack)
    except Unlike as unlike:
        return replace(made, reason=str(unlike))
    except Exception as error:
        # Somebody else's code on arguments that it did not expect, or a network that cannot be copied or takes no subclass.
        return replace(made, reason=f"it could not be compared: {type(error).__name__}: {error}"[:250])
    return made


def _stack_of(network: Any) -> Optional[tuple[Stack, Sizes]]:
    """What a network may be by its parts and by what its method takes, and made-up inputs for it."""
    layers, projection = (network._modules.get(name) for name in ("layers", "projection"))
    if is_swapped(network) or type(network).__module__.startswith("gradewise."):
        return None
    is_row = type(layers) in (nn.Sequential, nn.ModuleList) and all(acts_as(layer, MessagesMap) for layer in layers)
    if not is_row or not len(layers) or projection is None:
        return None
    method = inspect.getattr_static(type(network), _METHOD, None)
    if not inspect.isfunction(method) or _METHOD in network.__dict__:
        return None
    last = projection[0] if type(projection) is nn.Sequential and len(projection) == 1 else projection
    _, *parameters = inspect.signature(method).parameters
    attributes = parameters[2:]
    is_known = parameters[:1] == ["h"] and parameters[1:2] and parameters[1] in _EDGES and {*attributes} <= _ATTRIBUTES
    if not is_known or not acts_as(last, LinearMap):
        return None
    try:
        of_layers = {sizes_of_messages(layer) for layer in layers}
    except Stays:
        return None
    if len(of_layers) != 1:
        return None
    sizes = of_layers.pop()
    embedding = network._modules.get("embedding")
    has_embedding = embedding is not None and acts_as(embedding, LinearMap)
    if has_embedding:
        sizes = replace(sizes, features=embedding.weight.shape[1])
    return Stack(sizes.space, len(layers), has_embedding, tuple(parameters)), sizes


def _prove(network: nn.Module, stack: Stack, sizes: Sizes) -> None:
    """Raises :class:`Unlike` if a network's method computes something else than the node."""
    candidate = copy_of(network)
    disturbed(candidate)
    published = copy.deepcopy(candidate)
    restore(published)
    swap(candidate, StackMap, stack)
    device = next(p.device for p in candidate.parameters())
    for trial in trials(sizes, device, next(candidate.parameters()).dtype):
        h, edges, edge_attr, node_attr = trial.arguments
        given = {"edge_attr": edge_attr, "node_attr": node_attr}
        arguments = (h, edges, *(given[name] for name in stack.parameters[2:]))
        if run_as_one(candidate, stack, dict(zip(stack.parameters, arguments))) is None:
            raise Unlike("its modules are none of which one node can be made")
        asked = Trial(arguments, trial.is_training, method=_METHOD)
        compare(observe(candidate, asked), observe(published, asked), TOLERANCE)

"""Message passing between multivectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor, nn

from gradewise.torch import _composite, _messages
from gradewise.torch._composite import has_hooks, is_any_autocast, is_eager
from gradewise.torch._layout import to_features, to_planes
from gradewise.torch.cgenn.algebra import _algebra
from gradewise.torch.cgenn.maps import Aggregation, Map, Setting, is_ordinary, wide_dtype
from gradewise.torch.cgenn.mlp import CEMLP, NetworkMap


class MessagesMap(Map, is_map=True):
    """See :class:`EGCL`. An accelerated layer may aggregate sums or greatest values too, and at either end of its edges."""

    def forward(
        self,
        h: Tensor,
        edge_index: Sequence[Tensor],
        edge_attr: Optional[Tensor] = None,
        node_attr: Optional[Tensor] = None,
        *others: Any,
        **named: Any,
    ) -> Tensor:
        """Nodes ``[nodes, features, blades]``, edges as two lists of nodes (receiver and sender), attributes ``[edges, …, blades]`` and
        ``[nodes, …, blades]``; the nodes afterwards."""
        features = [x for x in (h, edge_attr, node_attr) if x is not None]
        if self._published is not None and (
            others
            or named
            or is_followed(self)
            or not is_pair(edge_index)
            or not all(is_ordinary(x, self._gradewise.space.blades) and x.dim() == 3 for x in features)
        ):
            return self._published.forward(self, h, edge_index, edge_attr, node_attr, *others, **named)
        if others or named:
            raise TypeError(f"EGCL: takes nodes, edges and attributes of both, and was given {[*others, *named]} too")
        setting = self._gradewise
        ends = list(edge_index)
        receivers, senders = ends[setting.receiver], ends[1 - setting.receiver]
        if is_eager(h) and setting.space.order is None and not setting.is_opposite:
            result = self._as_one(h, receivers, senders, edge_attr, node_attr)
            if result is not None:
                return result.contiguous() if setting.is_contiguous else result
        result = self._by_parts(h, receivers, senders, edge_attr, node_attr)
        return result.contiguous() if setting.is_contiguous else result

    def _by_parts(
        self, h: Tensor, receivers: Tensor, senders: Tensor, edge_attr: Optional[Tensor], node_attr: Optional[Tensor]
    ) -> Tensor:
        setting = self._gradewise
        space = setting.space
        entered = [
            None if x is None else space.enter(to_planes(x, space.blades, "EGCL")) for x in (h, edge_attr, node_attr)
        ]
        wide, update = None, lambda x, h: self._part(self.node_model, x, h if self.residual else None)
        if is_any_autocast() and h.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(h.device.type):
            # As the published layer, which adds up in the dtype that its last layer norms give messages and nodes.
            wide = wide_dtype(self, h)
            update = lambda x, h: self._part(self.node_model, x).to(wide) + (h if self.residual else 0)
        result = _messages.messages(
            *entered,
            (receivers, senders),
            lambda x: self._part(self.edge_model, x),
            update,
            _messages.Gathering(setting.aggregation.value, setting.is_opposite, wide, space),
        )
        return to_features(space.leave(result), h.shape)

    def _as_one(self, h: Tensor, rows: Any, columns: Any, edge_attr: Any, node_attr: Any) -> Optional[Tensor]:
        """The layer as one node of the graph of gradients, where that is possible."""
        features = [x for x in (h, edge_attr, node_attr) if x is not None]
        space = self._gradewise.space
        if any(not isinstance(x, Tensor) or x.dim() != 3 or x.shape[-1] != space.blades for x in features):
            return None
        found = self.operands()
        if found is None or not all(isinstance(ends, Tensor) and ends.device == h.device for ends in (rows, columns)):
            return None
        layer, parameters = found
        made = _messages.passing(space.signature, (layer,), edge_attr is not None, node_attr is not None)
        inputs = features + parameters
        if not made.native.admits(inputs):
            return None
        edges = _composite.edges_between(rows, columns, h.shape[0])
        return None if edges is None else _composite.run(made, inputs, (rows, columns), edges)

    def operands(self) -> Optional[tuple[_messages.Layer, list[Tensor]]]:
        """The parameters of messages, then those of nodes, in the order of the operators, and what the layer is made of; None if it adds up
        messages in another way, or if its networks are not those that they stand for, or have hooks."""
        if self._gradewise.aggregation is not Aggregation.MEAN:
            return None
        networks = self._modules["edge_model"], self._modules["node_model"]
        for network in networks:
            is_network = getattr(type(network), "_acts_as", None) is NetworkMap and "forward" not in network.__dict__
            if not is_network or has_hooks(network):
                return None
        of_edges, of_nodes = networks[0].operands(), networks[1].operands()
        if not of_edges or not of_nodes:
            return None
        counts = _messages.count(of_edges), _messages.count(of_nodes)
        return _messages.Layer(*counts, bool(self.residual)), of_edges + of_nodes


_STAGES = ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
_FOLLOWERS = ("_explain", *(f"_{stage}_forward_{when}" for stage in _STAGES for when in ("pre_hooks", "hooks")))
"""Where PyTorch Geometric keeps what follows the stages of a layer."""


def is_followed(layer: nn.Module) -> bool:
    """Whether PyTorch Geometric follows the stages of a layer."""
    return any(map(layer.__dict__.get, _FOLLOWERS))


def is_pair(edges: Any) -> bool:
    """Whether these are the two ends of edges, as one tensor or as two."""
    if isinstance(edges, Tensor):
        return edges.dim() == 2 and edges.shape[0] == 2 and edges.layout == torch.strided
    return isinstance(edges, (tuple, list)) and len(edges) == 2 and all(isinstance(ends, Tensor) for ends in edges)


class EGCL(MessagesMap, nn.Module):
    """A layer of message passing: messages of differences along edges, their mean at each node, an update of the nodes.

    Args:
        algebra: see the module.
        in_features: features of the nodes.
        hidden_features: features between.
        out_features: features of messages, and of the nodes afterwards.
        edge_attr_features: features of the edges.
        node_attr_features: has no effect on the sizes, as in the published code.
        residual: whether the nodes' features are added to the update.
        normalization_init: as in :class:`SteerableGeometricProductLayer`.
    """

    def __init__(
        self,
        algebra: Any,
        in_features: int,
        hidden_features: int,
        out_features: int,
        edge_attr_features: int = 0,
        node_attr_features: int = 0,
        residual: bool = True,
        normalization_init: Optional[float] = 0,
    ) -> None:
        super().__init__()
        algebra = _algebra(algebra)
        self._gradewise = Setting(algebra.space)
        self.residual = residual
        self.in_features, self.hidden_features, self.out_features = in_features, hidden_features, out_features
        self.edge_attr_features, self.node_attr_features = edge_attr_features, node_attr_features
        sizes = (hidden_features, out_features)
        self.edge_model = CEMLP(
            algebra, in_features + edge_attr_features, *sizes, normalization_init=normalization_init
        )
        self.node_model = CEMLP(algebra, in_features + out_features, *sizes, normalization_init=normalization_init)

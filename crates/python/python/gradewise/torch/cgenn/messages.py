"""Message passing between multivectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from torch import Tensor, nn

from gradewise.torch import _composite, _messages
from gradewise.torch._composite import has_hooks, is_eager
from gradewise.torch.cgenn.algebra import _algebra
from gradewise.torch.cgenn.layers import _mapped
from gradewise.torch.cgenn.mlp import CEMLP


class EGCL(nn.Module):
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
        self.residual = residual
        self.in_features, self.hidden_features, self.out_features = in_features, hidden_features, out_features
        self.edge_attr_features, self.node_attr_features = edge_attr_features, node_attr_features
        sizes = (hidden_features, out_features)
        self.edge_model = CEMLP(
            algebra, in_features + edge_attr_features, *sizes, normalization_init=normalization_init
        )
        self.node_model = CEMLP(algebra, in_features + out_features, *sizes, normalization_init=normalization_init)

    def forward(
        self,
        h: Tensor,
        edge_index: Sequence[Tensor],
        edge_attr: Optional[Tensor] = None,
        node_attr: Optional[Tensor] = None,
    ) -> Tensor:
        """Nodes ``[nodes, features, blades]``, edges as two lists of nodes (receiver and sender), attributes ``[edges, …, blades]`` and
        ``[nodes, …, blades]``; the nodes afterwards."""
        rows, columns = edge_index
        result = self._as_one(h, rows, columns, edge_attr, node_attr) if is_eager(h) else None
        if result is not None:
            return result
        return _messages.messages(
            h,
            (rows, columns),
            edge_attr,
            node_attr,
            lambda x: _mapped(self.edge_model, x),
            lambda x, h: _mapped(self.node_model, x, h if self.residual else None),
            2 ** sum(self.edge_model.signature),
        )

    def _as_one(self, h: Tensor, rows: Any, columns: Any, edge_attr: Any, node_attr: Any) -> Optional[Tensor]:
        """The layer as one node of the graph of gradients, where that is possible."""
        edge, node = self._modules["edge_model"], self._modules["node_model"]
        features = [x for x in (h, edge_attr, node_attr) if x is not None]
        blades = 2 ** sum(edge.signature)
        if any(not isinstance(x, Tensor) or x.dim() != 3 or x.shape[-1] != blades for x in features):
            return None
        if type(edge) is not CEMLP or type(node) is not CEMLP or has_hooks(edge) or has_hooks(node):
            return None
        of_edges, of_nodes = edge.operands(), node.operands()
        if of_edges is None or of_nodes is None:
            return None
        if not all(isinstance(ends, Tensor) and ends.device == h.device for ends in (rows, columns)):
            return None
        has = (edge_attr is not None, node_attr is not None)
        counts = (_messages.count(of_edges), _messages.count(of_nodes))
        made = _messages.egcl(edge.signature, *counts, *has, bool(self.residual))
        inputs = [*features, *of_edges, *of_nodes]
        if not made.native.admits(inputs):
            return None
        edges = _composite.edges_between(rows, columns, h.shape[0])
        return None if edges is None else _composite.run(made, inputs, (rows, columns), edges)

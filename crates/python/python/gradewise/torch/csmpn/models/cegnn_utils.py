"""Layers, and message passing between simplices."""

from __future__ import annotations

from typing import Any, Optional

from torch import nn

from gradewise._errors import ArgumentError, at_least_one
from gradewise.torch.cgenn.algebra import _algebra
from gradewise.torch.cgenn.layers import (
    MVLayerNorm,
    MVLinear,
    MVSiLU,
    NormalizationLayer,
    SteerableGeometricProductLayer,
)
from gradewise.torch.cgenn.maps import Aggregation, Setting
from gradewise.torch.cgenn.messages import MessagesMap
from gradewise.torch.cgenn.mlp import CEMLP

__all__ = [
    "CEMLP",
    "EGCL",
    "MVLayerNorm",
    "MVLinear",
    "MVSiLU",
    "NormalizationLayer",
    "SteerableGeometricProductLayer",
]

_AGGREGATIONS = {
    "mean": Aggregation.MEAN,
    "sum": Aggregation.SUM,
    "add": Aggregation.SUM,
    "max": Aggregation.MAX,
}


class EGCL(MessagesMap, nn.Module):
    """A layer of message passing: messages of differences along edges, what each receiver makes of them, an update of the nodes.

    Edges go from ``edge_index[0]``, the senders, to ``edge_index[1]``, the receivers, as in PyTorch Geometric; the n-body network's layer
    (:class:`gradewise.torch.cgenn.EGCL`) has them the other way round.

    Args:
        algebra: as in :mod:`gradewise.torch.cgenn`.
        in_features: features of the nodes.
        hidden_features: features between.
        out_features: features of messages, and of the nodes afterwards.
        edge_attr_features: features of the edges.
        node_attr_features: further features of the nodes.
        residual: whether the nodes' features are added to the update.
        normalization_init: as in :class:`SteerableGeometricProductLayer`.
        aggr: what a receiver makes of its messages: "mean", "sum" ("add") or "max".
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
        aggr: str = "mean",
    ) -> None:
        super().__init__()
        layer = type(self).__name__
        if aggr not in _AGGREGATIONS:
            raise ArgumentError(f"{layer}: aggr {aggr!r}, expected one of {', '.join(map(repr, _AGGREGATIONS))}")
        at_least_one(layer, in_features=in_features, hidden_features=hidden_features, out_features=out_features)
        if residual and in_features != out_features:
            raise ArgumentError(
                f"{layer}: {in_features} and {out_features} features, expected as many; or residual=False"
            )
        algebra = _algebra(algebra)
        self._gradewise = Setting(algebra.space, aggregation=_AGGREGATIONS[aggr], receiver=1)
        self.aggr, self.residual = aggr, residual
        self.in_features, self.hidden_features, self.out_features = in_features, hidden_features, out_features
        self.edge_attr_features, self.node_attr_features = edge_attr_features, node_attr_features
        widths = (hidden_features, out_features)
        normalized = {"normalization_init": normalization_init}
        self.edge_model = CEMLP(algebra, in_features + edge_attr_features, *widths, **normalized)
        self.node_model = CEMLP(algebra, in_features + out_features + node_attr_features, *widths, **normalized)
        self.algebra = algebra

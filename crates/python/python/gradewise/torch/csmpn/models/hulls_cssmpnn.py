"""The published network for volumes of convex hulls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

import torch.nn.functional as F
from torch import Tensor, nn

from gradewise.torch.cgenn.layers import MVLinear
from gradewise.torch.csmpn.models._simplices import Simplicial, centred, graph_means, need_targets, replaced


class HullsCliffordSharedSimplicialMPNN(Simplicial):
    """The published network for the volume of the convex hull of points in five dimensions.

    Args:
        in_features: vectors of a point.
        hidden_features: width.
        out_features: predictions.
        edge_features_in: has no effect, as in the published code.
        num_layers: layers of message passing.
        normalization_init, residual, aggr: as in :class:`EGCL`.
        condition: whether messages see the dimensions of their simplices.
        max_dim: the greatest dimension of simplices.
    """

    def __init__(
        self,
        in_features: int = 1,
        hidden_features: int = 28,
        out_features: int = 1,
        edge_features_in: int = 0,
        num_layers: int = 3,
        # The published command line takes None in the place of the default of what is `Optional` of one type.
        normalization_init: Union[int, float, None] = 0,
        residual: bool = True,
        aggr: str = "mean",
        condition: bool = True,
        max_dim: int = 2,
    ) -> None:
        super().__init__()
        sizes = {"in_features": in_features, "hidden_features": hidden_features, "out_features": out_features}
        self._begin((1.0,) * 5, max_dim, condition, **sizes)
        self.in_features, self.hidden_features, self.n_layers = in_features, hidden_features, num_layers
        self.cl_feature_embedding = self._embeddings(in_features, hidden_features)
        options = {"residual": residual, "normalization_init": normalization_init, "aggr": aggr}
        layers = self._messages(num_layers, hidden_features, **options)
        self.projection = nn.Sequential(MVLinear(self.algebra, hidden_features, out_features))
        # Not used; there because checkpoints have it.
        self.readout = nn.Linear(3, 1)
        self.layers = nn.Sequential(*layers)
        self._measure("loss")

    def embed_simplicial_complex(self, graph: Any, points: Optional[Tensor] = None) -> Tensor:
        """The features ``[simplices, hidden, 32]`` of the simplices of ``points``, by default those of the batch."""
        return self._embedded(graph, [(graph.input if points is None else points, 1)], self.hidden_features)

    def embed_simplex_types(self, batch: Any) -> tuple[Optional[Tensor], Optional[Tensor]]:
        """The attributes of simplices ``[simplices, types, 32]`` and of edges ``[edges, 2·types, 32]``."""
        if not self.num_node_type:
            return None, None
        return self._attributes(batch, F.one_hot(batch.node_types, self.num_node_type))

    def _forward(
        self, h: Tensor, edges: Sequence[Tensor], node_attr: Optional[Tensor] = None, edge_attr: Optional[Tensor] = None
    ) -> Tensor:
        for layer in self.layers:
            h = layer(h, edges, edge_attr, node_attr)
        return self.projection(h)

    def predict(self, batch: Any) -> Tensor:
        """The volumes ``[graphs, out_features]`` of a batch; ``input`` ``[simplices, 5]`` has the points at its nodes."""
        graphs, nodes = len(batch.ptr) - 1, batch.node_types == 0
        points = replaced(batch.input, nodes, centred(batch.input[nodes], graphs, type(self).__name__))
        h = self.embed_simplicial_complex(batch, points)
        prediction = self._forward(h, batch.edge_index, *self.embed_simplex_types(batch))[..., 0]
        return graph_means(prediction, batch.x_ind_batch, graphs)

    def forward(self, batch: Any, step: int, mode: str) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean squared error of a batch with the volumes ``target``, and that of each graph."""
        prediction = self.predict(batch).squeeze(-1)
        loss = F.mse_loss(prediction, need_targets(type(self).__name__, prediction, batch.target), reduction="none")
        return loss.mean(0), {"loss": loss}

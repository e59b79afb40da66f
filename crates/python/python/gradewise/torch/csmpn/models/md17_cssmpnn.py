"""The published network for trajectories of molecules."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor, nn

from gradewise.torch.cgenn.layers import MVLinear
from gradewise.torch.cgenn.mlp import CEMLP
from gradewise.torch.csmpn.models._simplices import TypedSimplicial, distances, graph_means, need_targets


class CliffordSharedSimplicialMPNN_md17(TypedSimplicial):
    """The published network for the next frames of a molecule.

    Args:
        max_dim: the greatest dimension of simplices.
        num_input: features of an atom: position, velocity and charge in each frame.
        num_hidden: width.
        num_out: frames of the prediction.
        num_layers: layers of message passing.
        condition: whether messages see the dimensions of their simplices.
    """

    _sets = ("train", "valid", "test")

    def __init__(
        self,
        max_dim: int = 2,
        num_input: int = 30,
        num_hidden: int = 32,
        num_out: int = 10,
        num_layers: int = 5,
        condition: bool = True,
    ) -> None:
        super().__init__()
        sizes = {"num_input": num_input, "num_hidden": num_hidden, "num_out": num_out}
        self._begin((1.0, 1.0, 1.0), max_dim, condition, **sizes)
        self.num_input, self.num_hidden = num_input, num_hidden
        self.feature_embedding = MVLinear(self.algebra, num_hidden + self.num_node_type, num_hidden, subspaces=False)
        self.cl_feature_embedding = self._embeddings(num_input, num_hidden)
        self.sim_type_embedding = nn.Embedding(max_dim + 1, max_dim + 1)
        self.layers = nn.ModuleList(self._messages(num_layers, num_hidden, aggr="sum"))
        self.projection = nn.Sequential(
            CEMLP(self.algebra, num_hidden, num_hidden, num_hidden, n_layers=1),
            MVLinear(self.algebra, num_hidden, num_out),
        )
        self._measure("loss", "ade_loss", "fde_loss")

    def embed_simplicial_complex(self, graph: Any, pos: Optional[Tensor] = None) -> Tensor:
        """The features ``[simplices, hidden, 8]`` of the simplices of positions, by default ``pos`` of the batch, velocities and charges."""
        fields = [(graph.pos if pos is None else pos, 1), (graph.vel, 1), (graph.charges, 0)]
        return self._embedded(graph, fields, self.num_hidden)

    def featurization(self, x: Tensor, node_attr: Optional[Tensor]) -> Tensor:
        """Features and attributes of simplices as features."""
        return self.feature_embedding(x if node_attr is None else torch.cat([x, node_attr], dim=1))

    def predict(self, graph: Any) -> Tensor:
        """The next positions ``[atoms, frames, 3]``; ``loc``, ``vel`` ``[simplices, frames, 3]`` and ``charges`` ``[simplices, frames, 1]``
        have the atoms' at the nodes."""
        nodes, graphs = graph.node_types == 0, len(graph.ptr) - 1
        before = graph.loc[nodes]
        centre = graph_means(before, graph.batch[nodes], graphs).mean(dim=1, keepdim=True)
        node_attr, edge_attr = self.embed_simplex_types(graph)
        x = self.embed_simplicial_complex(graph, graph.loc - centre[graph.x_ind_batch])
        x = self.featurization(x, node_attr)
        for layer in self.layers:
            x = layer(x, graph.edge_index, edge_attr, node_attr)
        return before.to(x.dtype) + self.projection(x[nodes])[..., 1:4]

    def forward(self, graph: Any, step: int, mode: str) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean squared distance of a batch with the next positions ``y``; for each graph that, the mean distance and the distance of the
        last frame."""
        graphs, frames = len(graph.ptr) - 1, graph.loc.shape[1]
        prediction = self.predict(graph)
        target = need_targets(type(self).__name__, prediction, graph.y)
        distance = distances(prediction, target)
        losses = {
            "loss": (prediction - target).square().reshape(graphs, -1, 3).sum(-1).mean(-1),
            "ade_loss": distance.reshape(graphs, -1, frames).mean(-1).mean(-1),
            "fde_loss": distance[:, -1].reshape(graphs, -1).mean(-1),
        }
        return losses["loss"].mean(), losses

    def __str__(self) -> str:
        return "Clifford Shared Simplicial MPNN for MD17 Dataset"

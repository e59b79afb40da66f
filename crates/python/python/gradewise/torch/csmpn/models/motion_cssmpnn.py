"""The published network for human motion."""

from __future__ import annotations

from typing import Any, Optional

import torch.nn.functional as F
from torch import Tensor, nn

from gradewise.torch.cgenn.layers import MVLinear
from gradewise.torch.csmpn.models._simplices import TypedSimplicial, centred, need_targets, replaced


class MotionCliffordSharedSimplicialMPNN(TypedSimplicial):
    """The published network for the positions of joints after some frames.

    Args:
        max_dim: the greatest dimension of simplices.
        num_input: vectors of a joint: position and velocity.
        num_hidden: width.
        num_out: vectors of the prediction, of which the first counts.
        num_layers: layers of message passing.
        condition: whether messages see the dimensions of their simplices.
    """

    _sets = ("train", "test")

    def __init__(
        self,
        max_dim: int = 2,
        num_input: int = 2,
        num_hidden: int = 16,
        num_out: int = 1,
        num_layers: int = 4,
        condition: bool = True,
    ) -> None:
        super().__init__()
        sizes = {"num_input": num_input, "num_hidden": num_hidden, "num_out": num_out}
        self._begin((1.0, 1.0, 1.0), max_dim, condition, **sizes)
        self.num_input, self.num_hidden = num_input, num_hidden
        # Not used; there because checkpoints have it.
        self.feature_embedding = MVLinear(self.algebra, num_input + self.num_node_type, num_hidden, subspaces=False)
        self.cl_feature_embedding = self._embeddings(num_input, num_hidden)
        self.sim_type_embedding = nn.Embedding(max_dim + 1, max_dim + 1)
        self.layers = nn.ModuleList(self._messages(num_layers, num_hidden))
        self.projection = nn.Sequential(MVLinear(self.algebra, num_hidden, num_out))
        self._measure("loss")

    def embed_simplicial_complex(self, graph: Any, pos: Optional[Tensor] = None) -> Tensor:
        """The features ``[simplices, hidden, 8]`` of the simplices of positions, by default those of the batch, and velocities."""
        return self._embedded(graph, [(graph.pos if pos is None else pos, 1), (graph.vel, 1)], self.num_hidden)

    def predict(self, graph: Any) -> Tensor:
        """The positions afterwards ``[nodes, 3]``; ``pos`` and ``vel`` ``[simplices, 3]`` have those of before at the nodes."""
        nodes = graph.node_types == 0
        before = graph.pos[nodes]
        node_attr, edge_attr = self.embed_simplex_types(graph)
        pos = replaced(graph.pos, nodes, centred(before, len(graph.ptr) - 1, type(self).__name__))
        x = self.embed_simplicial_complex(graph, pos)
        for layer in self.layers:
            x = layer(x, graph.edge_index, edge_attr, node_attr)
        return before.to(x.dtype) + self.projection(x[nodes])[..., 0, 1:4]

    def forward(self, graph: Any, step: int, mode: str) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean squared error of a batch with the positions ``y``, and that of each node."""
        prediction = self.predict(graph)
        target = need_targets(type(self).__name__, prediction, graph.y)
        loss = F.mse_loss(prediction, target, reduction="none").mean(dim=1)
        return loss.mean(), {"loss": loss}

    def __str__(self) -> str:
        return "Clifford Shared Simplicial MPNN for Motion Dataset"

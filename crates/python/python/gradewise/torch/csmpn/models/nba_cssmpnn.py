"""The published network for players of basketball."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor, nn

from gradewise._errors import ShapeError
from gradewise.torch.cgenn.layers import MVLinear
from gradewise.torch.cgenn.mlp import CEMLP
from gradewise.torch.csmpn.models._simplices import TypedSimplicial, distances, need_targets

_NODES = 6
"""Five players and the ball, which is last and not predicted."""


class NBACliffordSharedSimplicialMPNN(TypedSimplicial):
    """The published network for the next positions of five players, who see the ball.

    Args:
        max_dim: the greatest dimension of simplices, 2.
        num_input: vectors of a player: position and velocity in each frame.
        num_hidden: width.
        num_out: frames of the prediction, four times those of the input.
        num_layers: layers of message passing.
        stats: kept, and not used.
        condition: whether messages see the dimensions of their simplices.
    """

    def __init__(
        self,
        max_dim: int = 2,
        num_input: int = 20,
        num_hidden: int = 40,
        num_out: int = 40,
        num_layers: int = 4,
        stats: Any = None,
        condition: bool = True,
    ) -> None:
        super().__init__()
        sizes = {"num_input": num_input, "num_hidden": num_hidden, "num_out": num_out}
        self._begin((1.0, 1.0), max_dim, condition, **sizes)
        self.num_input, self.num_hidden, self.num_out, self.stats = num_input, num_hidden, num_out, stats
        algebra = self.algebra
        self.feature_embedding = MVLinear(algebra, num_input + self.num_node_type, num_hidden, subspaces=False)
        self.cl_feature_embedding = nn.Sequential(
            MVLinear(algebra, num_input, num_input, subspaces=False),
            CEMLP(algebra, 2 * num_input, num_hidden, num_input, n_layers=1),
            nn.Sequential(
                CEMLP(algebra, 3 * num_input, num_hidden, num_hidden, n_layers=1),
                CEMLP(algebra, num_hidden, num_hidden, num_input, n_layers=1),
            ),
        )
        self.sim_type_embedding = nn.Embedding(max_dim + 1, max_dim + 1)
        self.layers = nn.Sequential(*self._messages(num_layers, num_hidden, aggr="sum"))
        self.projection = MVLinear(algebra, num_hidden, num_out)
        self._measure("loss", "ade_loss", "fde_loss")

    def embed_simplicial_complex(self, graph: Any) -> Tensor:
        """The features ``[simplices, num_input, 4]`` of the simplices of positions and velocities."""
        return self._embedded(graph, [(graph.pos, 1), (graph.vel, 1)], self.num_input)

    def featurization(self, x: Tensor, node_attr: Optional[Tensor]) -> Tensor:
        """Features and attributes of simplices as features."""
        return self.feature_embedding(x if node_attr is None else torch.cat([x, node_attr], dim=1))

    def predict(self, graph: Any) -> Tensor:
        """The next positions ``[graphs·5, num_out, 2]``; ``pos`` and ``vel`` ``[simplices, frames, 2]`` have those of before at the nodes."""
        node_attr, edge_attr = self.embed_simplex_types(graph)
        x = self.featurization(self.embed_simplicial_complex(graph), node_attr)
        for layer in self.layers:
            x = layer(x, graph.edge_index, edge_attr, node_attr)
        out = self.projection(x[graph.node_types == 0])[..., 1:3]
        graphs = len(graph.ptr) - 1
        if len(out) != graphs * _NODES:
            raise ShapeError(
                f"{type(self).__name__}: {len(out)} nodes in {graphs} graphs, expected {_NODES} in each: five players and the ball"
            )
        return out.reshape(graphs, _NODES, *out.shape[1:])[:, :-1].flatten(0, 1)

    def forward(self, graph: Any, step: int, mode: str) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean distance of a batch from the next positions ``y``; for each graph that, twice, and the distance in the last frame."""
        graphs, frames = len(graph.ptr) - 1, graph.pos.shape[1]
        prediction = self.predict(graph)
        distance = distances(prediction, need_targets(type(self).__name__, prediction, graph.y))
        mean = distance.reshape(graphs, -1, frames).mean(-1).mean(-1)
        last = distance[:, -1].reshape(graphs, -1).mean(-1)
        return mean.mean(), {"loss": mean, "ade_loss": mean, "fde_loss": last}

    def __str__(self) -> str:
        return "Clifford Shared Simplicial MPNN for NBA Dataset"

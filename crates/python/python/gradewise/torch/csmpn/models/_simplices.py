"""What the networks of simplices share: features of simplices from those of their vertices, in every order of the vertices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor, nn

from gradewise._errors import ShapeError, at_least_one
from gradewise.torch._pretrained import Pretrained
from gradewise.torch.cgenn.algebra import CliffordAlgebra
from gradewise.torch.cgenn.layers import MVLinear
from gradewise.torch.cgenn.mlp import CEMLP
from gradewise.torch.csmpn.models._metrics import LossMeans
from gradewise.torch.csmpn.models.cegnn_utils import EGCL

Field = tuple[Tensor, int]
"""Components ``[simplices, n]`` or ``[simplices, frames, n]`` of which those of vertices are read, and their grade."""


class Simplicial(Pretrained, nn.Module):
    """A network on the simplices of graphs. A batch has the attributes of the published ones:

    - ``node_types`` ``[simplices]``: the dimension of each simplex, 0 for nodes;
    - ``x_ind`` ``[simplices, 3]``: its vertices, counted from the beginning of its graph;
    - ``x_ind_batch`` ``[simplices]``: the graph of each, and ``x_ind_ptr`` ``[graphs + 1]``, where each graph begins; ``ptr`` likewise, and
      ``batch``;
    - ``edge_index`` ``[2, edges]``: senders and receivers among all simplices.
    """

    algebra: CliffordAlgebra
    max_dim: int
    cl_feature_embedding: nn.Module
    _sets: tuple[str, ...] = ("train", "val", "test")

    def _begin(self, metric: Sequence[float], max_dim: int, condition: bool, **sizes: int) -> None:
        at_least_one(type(self).__name__, **sizes)
        self.max_dim, self.condition = max_dim, condition
        self.num_node_type = max_dim + 1 if condition else 0
        self.algebra = CliffordAlgebra(metric)

    def _measure(self, *losses: str) -> None:
        """Means of losses for the published trainer."""
        for name in self._sets:
            setattr(self, f"{name}_metrics", LossMeans(*losses))
        self.loss_func = nn.MSELoss(reduction="none")

    def _embeddings(self, features: int, hidden: int) -> nn.ModuleList:
        """A map of the features of nodes, and a network of those of the simplices of each dimension."""
        networks = (
            CEMLP(self.algebra, (d + 1) * features, hidden, hidden, n_layers=d) for d in range(1, self.max_dim + 1)
        )
        return nn.ModuleList([MVLinear(self.algebra, features, hidden, subspaces=False), *networks])

    def _messages(self, layers: int, hidden: int, **options: Any) -> list[EGCL]:
        types = self.num_node_type
        return [
            EGCL(
                self.algebra,
                hidden,
                hidden,
                hidden,
                edge_attr_features=2 * types,
                node_attr_features=types,
                **options,
            )
            for _ in range(layers)
        ]

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def _vertices(self, graph: Any) -> Tensor:
        """The vertices of each simplex among those of the whole batch: ``[simplices, 3]``."""
        first = graph.x_ind_ptr[:-1][graph.x_ind_batch]
        return graph.x_ind.long() + first[:, None]

    def _embedded(self, graph: Any, fields: Sequence[Field], features: int) -> Tensor:
        """The features ``[simplices, features, blades]``: the sum, over all orders of a simplex's vertices, of the embedding of the vertices'
        fields in that order."""
        types, vertices = graph.node_types, self._vertices(graph)
        blades = self.algebra.n_blades
        result = fields[0][0].new_zeros(blades, len(types), features, dtype=self._dtype)
        for d in range(self.max_dim + 1):
            rows = (types == d).nonzero().squeeze(1)
            if not len(rows):
                continue
            orders = torch.tensor(list(itertools.permutations(range(d + 1))), device=rows.device)
            there = vertices[rows, : d + 1][:, orders].flatten(0, 1)
            parts = []
            for field, grade in fields:
                # Vertices in front of frames, as published.
                ordered = field.to(self._dtype)[there].reshape(len(there), -1, field.shape[-1])
                parts.append(self.algebra.embed_grade(ordered, grade))
            made = self.cl_feature_embedding[d](torch.cat(parts, dim=1))
            summed = made.movedim(-1, 0).unflatten(1, (len(rows), len(orders))).sum(dim=2)
            result = result.index_copy(1, rows, summed)
        return result.permute(1, 2, 0)

    def _attributes(self, graph: Any, types: Tensor) -> tuple[Optional[Tensor], Optional[Tensor]]:
        """Attributes of simplices and edges by what stands for the type of each simplex, ``[simplices, features]``; None without condition."""
        if not self.num_node_type:
            return None, None
        node_attr = self.algebra.embed_grade(types.to(self._dtype)[..., None], 0)
        senders, receivers = graph.edge_index
        return node_attr, torch.cat([node_attr[senders], node_attr[receivers]], dim=1)


class TypedSimplicial(Simplicial):
    """A network of simplices whose types have learned attributes."""

    sim_type_embedding: nn.Embedding

    def embed_simplex_types(self, graph: Any) -> tuple[Optional[Tensor], Optional[Tensor]]:
        """The attributes of simplices ``[simplices, types, blades]`` and of edges ``[edges, 2·types, blades]``."""
        return self._attributes(graph, self.sim_type_embedding(graph.node_types))


def centred(x: Tensor, samples: int, layer: str) -> Tensor:
    """Vectors ``[samples·nodes, n]`` less the mean of their sample."""
    if len(x) % samples:
        raise ShapeError(f"{layer}: {len(x)} nodes in {samples} graphs, expected as many in each")
    by_sample = x.reshape(samples, -1, x.shape[-1])
    return (by_sample - by_sample.mean(dim=1, keepdim=True)).reshape(x.shape)


def replaced(field: Tensor, nodes: Tensor, x: Tensor) -> Tensor:
    """A field with other values at the nodes, a mask. The batch's own stays as it is, so that a second call computes the same."""
    return field.index_put((nodes,), x.to(field.dtype))


def distances(prediction: Tensor, target: Tensor) -> Tensor:
    """The distances ``[...]`` of points ``[..., n]``."""
    return (prediction - target).square().sum(dim=-1).sqrt()


def need_targets(layer: str, prediction: Tensor, target: Tensor) -> Tensor:
    """The targets in the shape and dtype of the predictions."""
    if target.numel() != prediction.numel():
        raise ShapeError(
            f"{layer}: the targets have shape {list(target.shape)}, expected as many numbers as the predictions, {list(prediction.shape)}"
        )
    return target.reshape(prediction.shape).to(prediction.dtype)


def graph_means(x: Tensor, graphs: Tensor, count: int) -> Tensor:
    """The means ``[count, ...]`` of rows by graph."""
    total = x.new_zeros(count, *x.shape[1:]).index_add(0, graphs, x)
    members = x.new_zeros(count).index_add(0, graphs, x.new_ones(len(graphs))).clamp(min=1)
    return total / members.reshape(-1, *(1,) * (x.dim() - 1))

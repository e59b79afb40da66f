"""A layer of message passing of PyTorch Geometric, out of Clifford operators.

Nodes are multivectors ``[nodes, features, blades]``; PyTorch Geometric gathers them along edges, and averages messages, over axis 0. The layer
has the parameters of ``gradewise.torch.cgenn.EGCL`` and computes the same; write your own ``message`` and ``update`` likewise.
"""

import torch
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from gradewise.torch.cgenn import CEMLP, CliffordAlgebra


class EGCL(MessagePassing):
    """Messages of differences along edges, their mean at each node, an update of the nodes (Ruhe et al. 2023, arXiv:2305.11141).

    Args:
        algebra: the algebra.
        in_features: features of the nodes.
        hidden_features: features between.
        out_features: features of messages, and of the nodes afterwards.
        edge_features: features of the edges.
    """

    def __init__(self, algebra, in_features, hidden_features, out_features, edge_features=0):
        # Receivers are the first row of `edge_index`, as in the published layer.
        super().__init__(aggr="mean", flow="target_to_source", node_dim=0)
        self.edge_model = CEMLP(algebra, in_features + edge_features, hidden_features, out_features)
        self.node_model = CEMLP(algebra, in_features + out_features, hidden_features, out_features)

    def forward(self, x, edge_index, edge_attr=None):
        """Nodes ``[nodes, features, blades]``, edges ``[2, edges]``, attributes ``[edges, features, blades]``."""
        return x + self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_i, x_j, edge_attr):
        difference = x_i - x_j
        return self.edge_model(difference if edge_attr is None else torch.cat([difference, edge_attr], 1))

    def update(self, messages, x):
        return self.node_model(torch.cat([x, messages], 1))


def main():
    algebra = CliffordAlgebra((1.0, 1.0, 1.0))
    layer = EGCL(algebra, 3, 8, 3)
    points = algebra.embed_grade(torch.randn(10, 3, 3), 1)
    graph = Data(x=points, edge_index=torch.randint(0, 10, (2, 40)))
    print(layer(graph.x, graph.edge_index).shape)


if __name__ == "__main__":
    main()

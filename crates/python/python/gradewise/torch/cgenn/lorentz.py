"""The published network for jets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor, nn

from gradewise._core import squared_norms
from gradewise._errors import ArgumentError
from gradewise.torch._pretrained import Pretrained
from gradewise.torch.cgenn.algebra import CliffordAlgebra, _algebra
from gradewise.torch.cgenn.layers import FullyConnectedSteerableGeometricProductLayer, MVLayerNorm, MVLinear
from gradewise.torch.cgenn.mlp import _block


def quadratic_forms(algebra: CliffordAlgebra, x: Tensor) -> Tensor:
    """The scalar and the quadratic forms of the other grades of ``[rows, features, blades]``: ``[rows, features, grades]``."""
    squares, order = squared_norms(algebra.signature), algebra.space.order
    own = [squares[order[0].index(blade)] for blade in range(len(squares))] if order else squares
    signs = torch.tensor(own, dtype=x.dtype, device=x.device)
    squares = (x * x * signs).split(algebra.sizes, dim=-1)
    return torch.cat([x[..., :1], *(part.sum(dim=-1, keepdim=True) for part in squares[1:])], dim=-1)


class CGLayer(nn.Module):
    """A layer of the published network for jets: messages of invariants and of multivectors, each steering the other.

    The arguments are those of the published code.
    """

    def __init__(
        self,
        algebra: Any,
        in_features_x: int,
        hidden_features_x: int,
        out_features_x: int,
        in_features_h: int,
        hidden_features_h: int,
        out_features_h: int,
        edge_attr_x: int = 3,
        edge_attr_h: int = 0,
        node_attr_x: int = 2,
        node_attr_h: int = 2,
        aggregation: str = "mean",
        use_invariants_to_update: bool = True,
        residual: bool = False,
        normalization_init: Optional[float] = None,
        layer_type: str = "fc",
    ) -> None:
        super().__init__()
        if aggregation not in ("mean", "sum"):
            raise ArgumentError(f"CGLayer: aggregation {aggregation!r}, expected 'mean' or 'sum'")
        self.algebra = algebra = _algebra(algebra)
        grades = algebra.n_subspaces
        self.edge_attr_x, self.aggregation, self.layer_type = edge_attr_x, aggregation, layer_type
        self.use_invariants_to_update, self.residual = use_invariants_to_update, residual
        self.in_features_x, self.out_features_x = in_features_x, out_features_x
        self.in_features_h, self.out_features_h = in_features_h, out_features_h
        hidden = hidden_features_h
        self.phi_h = nn.Sequential(
            nn.Linear(3 * in_features_h + edge_attr_h + out_features_x * grades, hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
        )
        message = (edge_attr_x + 3 * in_features_x, hidden_features_x)
        update = (node_attr_x + in_features_x + hidden_features_x, out_features_x)
        if layer_type == "fc":
            self.phi_x, self.theta_x = (
                nn.Sequential(
                    FullyConnectedSteerableGeometricProductLayer(algebra, a, b, normalization_init=normalization_init),
                    MVLayerNorm(algebra, b),
                )
                for a, b in (message, update)
            )
        elif layer_type == "gpmlp":
            self.phi_x, self.theta_x = (_block(algebra, a, b, normalization_init) for a, b in (message, update))
        else:
            raise ArgumentError(f"CGLayer: layer_type {layer_type!r}, expected 'fc' or 'gpmlp'")
        self.theta_h = nn.Sequential(
            nn.Linear(node_attr_h + grades * hidden_features_x + in_features_h + hidden, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, out_features_h),
        )
        steering = lambda: nn.Sequential(
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, out_features_x * grades)
        )
        self.psi_x, self.chi_x = steering(), steering()

    def _reduce(self, x: Tensor, segments: Tensor, count: int) -> Tensor:
        total = x.new_zeros(count, *x.shape[1:]).index_add(0, segments, x)
        if self.aggregation == "sum":
            return total
        members = x.new_zeros(count).index_add(0, segments, x.new_ones(segments.shape[0])).clamp(min=1)
        return total / members.view(-1, *(1,) * (x.dim() - 1))

    def _steered(self, x: Tensor, h: Tensor, network: nn.Module) -> Tensor:
        weights = network(h).view(h.shape[0], self.out_features_x, self.algebra.n_subspaces).sigmoid()
        by_blade = [
            weights[..., g : g + 1].expand(*weights.shape[:2], size) for g, size in enumerate(self.algebra.sizes)
        ]
        return x * torch.cat(by_blade, dim=-1)

    def forward(
        self,
        h: Optional[Tensor],
        x: Tensor,
        edges: Sequence[Tensor],
        node_attr_h: Optional[Tensor],
        node_attr_x: Optional[Tensor],
        edge_attr_h: Optional[Tensor],
        edge_attr_x: Optional[Tensor],
    ) -> tuple[Optional[Tensor], Tensor]:
        """Invariants ``[nodes, features]`` or None, multivectors ``[nodes, features, blades]``, edges (receivers, senders) and attributes;
        the invariants and multivectors afterwards."""
        i, j = edges
        there = lambda parts: torch.cat([part for part in parts if part is not None], dim=1)
        m_x = self.phi_x(there([x[i], x[j], x[i] - x[j], edge_attr_x]))
        invariants = quadratic_forms(self.algebra, m_x).flatten(1)
        m_h = None if h is None else self.phi_h(there([invariants, h[i], h[j], h[i] - h[j], edge_attr_h]))
        if self.use_invariants_to_update:
            m_x = self._steered(m_x, m_h, self.psi_x)
        new_x = self.theta_x(there([x, self._reduce(m_x, i, x.shape[0]), node_attr_x]))
        if m_h is None:
            new_h = None
        else:
            own = quadratic_forms(self.algebra, x).flatten(1)
            new_h = self.theta_h(there([h, self._reduce(m_h, i, h.shape[0]), own, node_attr_h]))
        if self.use_invariants_to_update:
            new_x = self._steered(new_x, new_h, self.chi_x)
        if self.residual and new_h is not None and self.in_features_h == self.out_features_h:
            new_h = new_h + h
        if self.residual and self.in_features_x == self.out_features_x:
            new_x = new_x + x
        return new_h, new_x


class LorentzCGGNN(Pretrained, nn.Module):
    """The published network that tells jets of top quarks from others, equivariant under the Lorentz group.

    The arguments are those of the published code.
    """

    def __init__(
        self,
        in_features_h: int = 2,
        hidden_features_h: int = 72,
        in_features_x: int = 1,
        hidden_features_x: int = 8,
        decoder_features: int = 64,
        n_class: int = 2,
        n_layers: int = 4,
        dropout: float = 0.2,
        use_invariants_to_update: bool = True,
        use_invariant_network: bool = True,
        normalization_init: Optional[float] = None,
        residual: bool = False,
        aggregation: str = "mean",
        layer_type: str = "fc",
    ) -> None:
        super().__init__()
        if not use_invariant_network:
            in_features_h = hidden_features_h = 0
        self.in_features_h, self.hidden_features_h = in_features_h, hidden_features_h
        self.in_features_x, self.hidden_features_x = in_features_x, hidden_features_x
        self.use_invariant_network, self.n_layers = use_invariant_network, n_layers
        self.algebra = CliffordAlgebra((1.0, -1.0, -1.0, -1.0))
        self.embedding_h = nn.Linear(in_features_h, hidden_features_h)
        self.embedding_x = MVLinear(self.algebra, in_features_x, hidden_features_x, subspaces=False)
        widths = (hidden_features_x,) * 3 + (hidden_features_h,) * 3
        self.CGLs = nn.ModuleList(
            CGLayer(
                self.algebra,
                *widths,
                edge_attr_x=3,
                node_attr_x=1,
                node_attr_h=2,
                aggregation=aggregation,
                use_invariants_to_update=use_invariants_to_update,
                residual=residual,
                normalization_init=normalization_init,
                layer_type=layer_type,
            )
            for _ in range(n_layers)
        )
        decoded = hidden_features_h + hidden_features_x * self.algebra.n_subspaces
        self.graph_dec = nn.Sequential(
            nn.Linear(decoded, decoder_features), nn.ReLU(), nn.Dropout(dropout), nn.Linear(decoder_features, n_class)
        )

    def _forward(
        self,
        h: Tensor,
        x: Tensor,
        edge_attr_h: Optional[Tensor],
        edge_attr_x: Optional[Tensor],
        node_attr_h: Optional[Tensor],
        node_attr_x: Optional[Tensor],
        edges: Sequence[Tensor],
        node_mask: Tensor,
        edge_mask: Optional[Tensor],
        n_nodes: int,
    ) -> Tensor:
        """Invariants ``[nodes, 2]`` and momenta ``[nodes, 1, 16]`` of the particles of all jets, with attributes and edges; the logits
        ``[jets, classes]``."""
        hidden = self.embedding_h(h) if self.use_invariant_network else None
        x = self.embedding_x(x)
        for layer in self.CGLs:
            hidden, x = layer(
                hidden,
                x,
                edges,
                node_attr_x=node_attr_x,
                node_attr_h=node_attr_h,
                edge_attr_x=edge_attr_x,
                edge_attr_h=edge_attr_h,
            )
        invariants = quadratic_forms(self.algebra, x).flatten(1)
        features = invariants if hidden is None else torch.cat([hidden, invariants], dim=1)
        features = (features * node_mask).view(-1, n_nodes, features.shape[-1])
        return self.graph_dec(features.mean(dim=1)).squeeze(1)

    forward = _forward

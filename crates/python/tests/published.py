"""Stand-ins for somebody's modules: the published names, structure, layouts and habits, written with dense tables.

Nothing of gradewise is used, and forward passes are spelled out here, so that tests can edit them.
"""

import itertools
import math

import torch
from torch import nn

EPS = 1e-6


class CliffordAlgebra(nn.Module):
    """An algebra by its metric, in any order of its signs."""

    def __init__(self, metric):
        super().__init__()
        n = len(metric)
        blades = [b for g in range(n + 1) for b in itertools.combinations(range(n), g)]
        table = torch.zeros(2**n, 2**n, 2**n)
        for (i, a), (k, b) in itertools.product(enumerate(blades), repeat=2):
            swaps = sum(x > y for x in a for y in b)
            product = tuple(sorted(set(a) ^ set(b)))
            table[i, blades.index(product), k] = (-1) ** swaps * math.prod(metric[x] for x in a if x in b)
        grades = torch.tensor([len(b) for b in blades])
        self.dim, self.n_blades, self.n_subspaces = n, 2**n, n + 1
        self.register_buffer("metric", torch.tensor(metric))
        self.register_buffer("subspaces", torch.tensor([math.comb(n, g) for g in range(n + 1)]))
        self.register_buffer("bbo_grades", grades.to(torch.get_default_dtype()))
        self.register_buffer("even_grades", grades % 2 == 0)
        self.register_buffer("odd_grades", grades % 2 == 1)
        self.register_buffer("cayley", table)
        self.grade_list = grades.tolist()

    def of_grade(self, grade):
        first = sum(math.comb(self.dim, g) for g in range(grade))
        return slice(first, first + math.comb(self.dim, grade))

    def embed(self, tensor, tensor_index):
        mv = torch.zeros(*tensor.shape[:-1], self.n_blades, device=tensor.device, dtype=tensor.dtype)
        mv[..., tensor_index] = tensor
        return mv

    def embed_grade(self, tensor, grade):
        mv = torch.zeros(*tensor.shape[:-1], self.n_blades, device=tensor.device)
        mv[..., self.of_grade(grade)] = tensor
        return mv

    def forms(self, x):
        """The quadratic form of each grade."""
        reverse = (-1.0) ** (self.bbo_grades * (self.bbo_grades - 1) // 2)
        squares = torch.einsum("...i,ik,...k->...i", x, self.cayley[:, 0], x) * reverse
        return torch.stack([squares[..., self.of_grade(g)].sum(-1) for g in range(self.dim + 1)], dim=-1)

    def smooth(self, forms):
        return (forms**2 + 1e-16) ** 0.25

    def by_blade(self, by_grade):
        return by_grade[..., self.grade_list]

    def paths(self):
        g = range(self.dim + 1)
        parts = {grade: self.of_grade(grade) for grade in g}
        return [
            (a, b, c) for a, b, c in itertools.product(g, repeat=3) if self.cayley[parts[a], parts[b], parts[c]].any()
        ]

    def split(self, mv):
        return mv.reshape(mv.shape[0], -1, self.n_blades)


class MVLinear(nn.Module):
    def __init__(self, algebra, in_features, out_features, subspaces=True, bias=True, b_dims=(0,)):
        super().__init__()
        self.algebra, self.subspaces = algebra, subspaces
        self.in_features, self.out_features = in_features, out_features
        grades = [algebra.n_subspaces] * subspaces
        self.weight = nn.Parameter(torch.empty(out_features, in_features, *grades))
        self.b_dims = b_dims if bias else ()
        self.bias = nn.Parameter(torch.empty(1, out_features, len(b_dims))) if bias else None
        # As the published class: a bound method on the instance.
        self._forward = self._by_grade if subspaces else self._shared
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.normal_(self.weight, std=1 / math.sqrt(self.in_features))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _shared(self, x):
        return torch.einsum("bm...i,nm->bn...i", x, self.weight)

    def _by_grade(self, x):
        return torch.einsum("bm...i,nmi->bn...i", x, self.algebra.by_blade(self.weight))

    def forward(self, input):
        result = self._forward(input)
        if self.bias is not None:
            bias = self.algebra.embed(self.bias, self.b_dims)
            result += bias[(slice(None), slice(None)) + (None,) * (result.dim() - 3)]
        return result


class MVSiLU(nn.Module):
    def __init__(self, algebra, channels, invariant="mag2"):
        super().__init__()
        self.algebra, self.channels, self.invariant = algebra, channels, invariant
        self.a = nn.Parameter(torch.ones(1, channels, algebra.dim + 1))
        self.b = nn.Parameter(torch.zeros(1, channels, algebra.dim + 1))

    def invariants(self, x):
        forms = self.algebra.forms(x)[..., 1:]
        return torch.cat([x[..., :1], self.algebra.smooth(forms) if self.invariant == "norm" else forms], dim=-1)

    def gate(self, x):
        return torch.sigmoid(x)

    def forward(self, input):
        between = (slice(None), slice(None)) + (None,) * (input.dim() - 3)
        return self.algebra.by_blade(self.gate(self.a[between] * self.invariants(input) + self.b[between])) * input


class NormalizationLayer(nn.Module):
    def __init__(self, algebra, features, init=0.0):
        super().__init__()
        self.algebra, self.in_features = algebra, features
        self.a = nn.Parameter(torch.zeros(features, algebra.n_subspaces) + init)

    def forward(self, input):
        assert input.shape[1] == self.in_features
        norms = self.algebra.smooth(self.algebra.forms(input))
        return input / (self.algebra.by_blade(torch.sigmoid(self.a) * (norms - 1) + 1) + EPS)


class MVLayerNorm(nn.Module):
    def __init__(self, algebra, channels):
        super().__init__()
        self.algebra, self.channels = algebra, channels
        self.a = nn.Parameter(torch.ones(1, channels))

    def forward(self, input):
        norm = self.algebra.smooth(self.algebra.forms(input).sum(-1)).mean(dim=1, keepdim=True)
        return self.a[(slice(None), slice(None)) + (None,) * (input.dim() - 2)] * input / (norm[..., None] + EPS)


class _Product(nn.Module):
    def build(self, algebra, features, out, include_first_order, normalization_init):
        self.algebra, self.include_first_order = algebra, include_first_order
        self.product_paths = algebra.paths()
        is_there = normalization_init is not None
        self.normalization = NormalizationLayer(algebra, features, normalization_init) if is_there else nn.Identity()
        self.linear_right = MVLinear(algebra, features, features, bias=False)
        if include_first_order:
            self.linear_left = MVLinear(algebra, features, out)

    def _get_weight(self):
        n = self.algebra.dim + 1
        full = torch.zeros(*self.weight.shape[:-1], n, n, n, dtype=self.weight.dtype, device=self.weight.device)
        a, b, c = map(list, zip(*self.product_paths))
        full[..., a, b, c] = self.weight
        g = self.algebra.grade_list
        return full[..., g, :, :][..., g, :][..., g] * self.algebra.cayley

    def forward(self, input):
        right = self.normalization(self.linear_right(input))
        indices = "bni,nijk,bnk->bnj" if self.weight.dim() == 2 else "bni,mnijk,bnk->bmj"
        product = torch.einsum(indices, input, self._get_weight(), right)
        return (self.linear_left(input) + product) / math.sqrt(2) if self.include_first_order else product


class SteerableGeometricProductLayer(_Product):
    def __init__(self, algebra, features, include_first_order=True, normalization_init=0.0):
        super().__init__()
        self.features = features
        self.build(algebra, features, features, include_first_order, normalization_init)
        self.weight = nn.Parameter(torch.randn(features, len(self.product_paths)) / 2)


class FullyConnectedSteerableGeometricProductLayer(_Product):
    def __init__(self, algebra, in_features, out_features, include_first_order=True, normalization_init=0.0):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.build(algebra, in_features, out_features, include_first_order, normalization_init)
        self.weight = nn.Parameter(torch.randn(out_features, in_features, len(self.product_paths)) / 4)


def block(algebra, in_features, out_features, normalization_init=0.0):
    return nn.Sequential(
        MVLinear(algebra, in_features, out_features),
        MVSiLU(algebra, out_features),
        SteerableGeometricProductLayer(algebra, out_features, normalization_init=normalization_init),
        MVLayerNorm(algebra, out_features),
    )


class CEMLP(nn.Module):
    def __init__(self, algebra, in_features, hidden_features, out_features, n_layers=2, normalization_init=0.0):
        super().__init__()
        self.algebra, self.n_layers = algebra, n_layers
        self.in_features, self.hidden_features, self.out_features = in_features, hidden_features, out_features
        widths = [in_features, *[hidden_features] * (n_layers - 1), out_features]
        self.layers = nn.Sequential(*(block(algebra, a, b, normalization_init) for a, b in zip(widths, widths[1:])))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def reduced(messages, ends, count, how):
    """Sums, means or greatest of the messages to each node; 0 where there are none."""
    if how == "max":
        places = ends[:, None, None].expand_as(messages)
        return messages.new_zeros(count, *messages.shape[1:]).scatter_reduce(
            0, places, messages, "amax", include_self=False
        )
    total = messages.new_zeros(count, *messages.shape[1:]).index_add(0, ends, messages)
    if how in ("sum", "add"):
        return total
    members = messages.new_zeros(count).index_add(0, ends, messages.new_ones(len(ends)))
    return total / members.clamp(min=1)[:, None, None]


class _Layer(nn.Module):
    def build(self, algebra, in_features, hidden_features, out_features, edge_attr_features, node_attr_features):
        self.in_features, self.hidden_features, self.out_features = in_features, hidden_features, out_features
        sizes = (hidden_features, out_features)
        self.edge_model = CEMLP(algebra, in_features + edge_attr_features, *sizes)
        self.node_model = CEMLP(algebra, in_features + out_features + node_attr_features, *sizes)

    def message(self, h_i, h_j, edge_attr=None):
        return self.edge_model(torch.cat([x for x in (h_i - h_j, edge_attr) if x is not None], dim=1))

    def update(self, h_agg, h, node_attr=None):
        out = self.node_model(torch.cat([x for x in (h, h_agg, node_attr) if x is not None], dim=1))
        return h + out if self.residual else out


class EGCL(_Layer):
    """The layer of the n-body network: means at the first end of edges."""

    def __init__(
        self,
        algebra,
        in_features,
        hidden_features,
        out_features,
        edge_attr_features=0,
        node_attr_features=0,
        residual=True,
    ):
        super().__init__()
        self.residual = residual
        self.build(algebra, in_features, hidden_features, out_features, edge_attr_features, node_attr_features)

    def forward(self, h, edge_index, edge_attr=None, node_attr=None):
        rows, cols = edge_index
        message = self.message(h[rows], h[cols], edge_attr)
        return self.update(reduced(message, rows, len(h), "mean"), h, node_attr)


class MessagePassing(nn.Module):
    """What the simplicial networks inherit: messages from the first end of edges to the second, of flattened features."""

    def __init__(self, aggr, flow="source_to_target"):
        super().__init__()
        self.aggr, self.flow = aggr, flow

    def propagate(self, edge_index, h, edge_attr, node_attr):
        source, target = edge_index if self.flow == "source_to_target" else (edge_index[1], edge_index[0])
        message = self.message(h[target], h[source], edge_attr)
        return self.update(reduced(message, target, len(h), self.aggr), h, node_attr)


class Simplicial:
    """Gives its class the name of the n-body layer, as the simplicial networks' code does."""

    class EGCL(MessagePassing, _Layer):
        def __init__(
            self,
            algebra,
            in_features,
            hidden_features,
            out_features,
            edge_attr_features=0,
            node_attr_features=0,
            residual=True,
            aggr="mean",
            flow="source_to_target",
        ):
            super().__init__(aggr, flow)
            self.residual, self.algebra = residual, algebra
            self.build(algebra, in_features, hidden_features, out_features, edge_attr_features, node_attr_features)

        def forward(self, h, edge_index, edge_attr=None, node_attr=None):
            h = self.algebra.split(h.reshape(len(h), -1))
            return self.algebra.split(self.propagate(edge_index, h, edge_attr, node_attr))

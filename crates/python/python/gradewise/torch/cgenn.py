"""The modules of Clifford-group-equivariant networks (Ruhe et al. 2023, arXiv:2305.11141), under their published names.

Constructors, parameters, their names and shapes are those of the published code, and so are inputs and outputs,
``[rows, features, ..., blades]``: its checkpoints load with ``load_state_dict``, checkpoints of these modules load there, and its
models need no change but an import.

``algebra`` is a :class:`CliffordAlgebra` of this module, one of the published code, or a metric such as ``(1.0, 1.0, 1.0)``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradewise._core import Algebra
from gradewise._errors import ArgumentError, CheckpointError, ShapeError
from gradewise.torch import _composite, _messages
from gradewise.torch import _functional as ops
from gradewise.torch._composite import has_hooks, is_eager
from gradewise.torch._layout import in_order, n_paths, signature_of, to_features, to_planes
from gradewise.torch._operators import Viewed
from gradewise.torch._views import LISTED, ROWS, TRANSPOSED, TURNED

__all__ = [
    "CEMLP",
    "CGLayer",
    "CliffordAlgebra",
    "ConvexHullCGMLP",
    "EGCL",
    "FullyConnectedSteerableGeometricProductLayer",
    "LorentzCGGNN",
    "MVLayerNorm",
    "MVLinear",
    "MVSiLU",
    "NBodyCGGNN",
    "NormalizationLayer",
    "O3CGMLP",
    "O5CGMLP",
    "SteerableGeometricProductLayer",
]


class CliffordAlgebra(nn.Module):
    """An algebra by its metric: the sizes that modules ask for, and embeddings of vectors and scalars.

    Args:
        metric: the squares of the generators: those of 1, then those of -1, then those of 0.
    """

    def __init__(self, metric: Sequence[float]) -> None:
        super().__init__()
        self._become(signature_of(metric))

    def _become(self, signature: tuple[int, int, int]) -> None:
        self.signature = signature
        self.dim = sum(signature)
        self.n_blades = 2**self.dim
        self.n_subspaces = self.dim + 1
        self.sizes = grade_sizes(signature)

    @property
    def n_paths(self) -> int:
        """The number of triples of grades (left, result, right) that occur in the product."""
        return n_paths(self.signature)

    def embed(self, tensor: Tensor, tensor_index: Sequence[int]) -> Tensor:
        """Components ``[..., n]`` on the ``n`` blades of these numbers, and zeros on the others: ``[..., blades]``."""
        return embed(tensor, tensor_index, self.n_blades)

    def embed_grade(self, tensor: Tensor, grade: int) -> Tensor:
        """Components ``[..., n]`` on the ``n`` blades of a grade: ``[..., blades]``."""
        return embed_grade(tensor, grade, self.sizes)

    def get_grade(self, mv: Tensor, grade: int) -> Tensor:
        """The components of a grade of ``[..., blades]``."""
        first = sum(self.sizes[:grade])
        return mv[..., first : first + self.sizes[grade]]

    def extra_repr(self) -> str:
        return "{}, {}, {}".format(*self.signature)

    def _save_to_state_dict(self, destination, prefix, keep_vars) -> None:
        # The published code keeps its tables in checkpoints, and asks for them when it loads one.
        for name, table in _tables(self.signature).items():
            destination[prefix + name] = table.clone()

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing, unexpected, errors) -> None:
        # They follow from the metric.
        for name in _tables(self.signature):
            state_dict.pop(prefix + name, None)


def grade_sizes(signature: tuple[int, int, int]) -> tuple[int, ...]:
    """The number of blades of each grade."""
    dim = sum(signature)
    return tuple(math.comb(dim, grade) for grade in range(dim + 1))


def embed(tensor: Tensor, tensor_index: Sequence[int], blades: int) -> Tensor:
    """:meth:`CliffordAlgebra.embed` in an algebra of so many blades."""
    index = [int(blade) % blades for blade in tensor_index]
    first, count = index[0], len(index)
    planes = tensor.movedim(-1, 0)
    if index != list(range(first, first + count)):
        zeros = torch.zeros_like(planes[0])
        return torch.stack([planes[index.index(b)] if b in index else zeros for b in range(blades)]).movedim(0, -1)
    pad = (0, 0) * (planes.dim() - 1) + (first, blades - first - count)
    return F.pad(planes, pad).movedim(0, -1)


def embed_grade(tensor: Tensor, grade: int, sizes: Sequence[int]) -> Tensor:
    """:meth:`CliffordAlgebra.embed_grade` in an algebra of so many blades of each grade."""
    first = sum(sizes[:grade])
    return embed(tensor, range(first, first + sizes[grade]), sum(sizes))


@lru_cache(maxsize=64)
def _tables(signature: tuple[int, int, int]) -> dict[str, Tensor]:
    """The buffers of the published algebra."""
    p, q, r = signature
    dim = p + q + r
    sizes = grade_sizes(signature)
    grades = torch.tensor([float(grade) for grade, size in enumerate(sizes) for _ in range(size)])
    cayley = torch.zeros(2**dim, 2**dim, 2**dim)
    for left, right, product, sign in Algebra(*signature).terms:
        cayley[left, product, right] = sign
    return {
        "metric": torch.tensor([1.0] * p + [-1.0] * q + [0.0] * r),
        "subspaces": torch.tensor(sizes),
        "bbo_grades": grades,
        "even_grades": grades % 2 == 0,
        "odd_grades": grades % 2 == 1,
        "cayley": cayley,
    }


def _algebra(algebra: Any) -> CliffordAlgebra:
    if isinstance(algebra, CliffordAlgebra):
        return algebra
    metric = getattr(algebra, "metric", algebra)
    return CliffordAlgebra(metric.tolist() if isinstance(metric, Tensor) else metric)


class _Module(nn.Module):
    """A map of features ``[rows, features, ..., blades]`` by operators on ``[blades, rows, features]``."""

    algebra: nn.Module

    @property
    def signature(self) -> tuple[int, int, int]:
        return self.algebra.signature

    def planes(self, x: Tensor) -> Tensor:
        """The map of ``[blades, rows, features]``."""
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        planes = to_planes(input, 2 ** sum(self.signature), type(self).__name__)
        return to_features(self.planes(planes), input.shape)


class MVLinear(_Module):
    """A linear map of features, with a matrix for each grade or one for all, and a bias on the scalar.

    Args:
        algebra: see the module.
        in_features: features of the input.
        out_features: features of the output.
        subspaces: whether each grade has a matrix of its own.
        bias: whether there is a bias.

    Parameters: ``weight`` ``[out, in, grades]`` or ``[out, in]``; ``bias`` ``[1, out, 1]``.
    """

    def __init__(
        self, algebra: Any, in_features: int, out_features: int, subspaces: bool = True, bias: bool = True
    ) -> None:
        super().__init__()
        self.algebra = _algebra(algebra)
        self.in_features, self.out_features, self.subspaces = in_features, out_features, subspaces
        shape = (out_features, in_features, self.algebra.n_subspaces) if subspaces else (out_features, in_features)
        self.weight = nn.Parameter(torch.empty(shape))
        self.bias = nn.Parameter(torch.empty(1, out_features, 1)) if bias else None
        self.reset_parameters()
        self._arrange()

    def _arrange(self) -> None:
        in_order(self.weight, [2, 1, 0] if self.weight.dim() == 3 else [1, 0])

    def reset_parameters(self) -> None:
        """Normal weights of deviation in^-½, and no bias."""
        nn.init.normal_(self.weight, std=1 / math.sqrt(self.in_features))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def matrices(self) -> Viewed:
        """The weights as operators take them: ``[grades, in, out]`` or ``[in, out]``."""
        return TURNED(self.weight) if self.subspaces else TRANSPOSED(self.weight)

    def offset(self) -> Optional[Viewed]:
        """The bias ``[out]``."""
        return None if self.bias is None else LISTED(self.bias)

    def planes(self, x: Tensor) -> Tensor:
        return ops.mv_linear(x, self.matrices(), self.offset(), self.signature)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, subspaces={self.subspaces}, bias={self.bias is not None}"


class MVSiLU(_Module):
    """Each grade times a sigmoid of its invariant.

    Args:
        algebra: see the module.
        channels: features.
        invariant: "mag2", the quadratic form of each grade. The published code also has "norm".
        exclude_dual: has no effect, as in the published code.

    Parameters: ``a`` and ``b`` ``[1, features, grades]``.
    """

    def __init__(self, algebra: Any, channels: int, invariant: str = "mag2", exclude_dual: bool = False) -> None:
        super().__init__()
        if invariant != "mag2":
            raise ArgumentError(f"MVSiLU: invariant {invariant!r} has no operator, expected 'mag2'")
        self.algebra = _algebra(algebra)
        self.channels, self.invariant, self.exclude_dual = channels, invariant, exclude_dual
        self.a = nn.Parameter(torch.ones(1, channels, self.algebra.dim + 1))
        self.b = nn.Parameter(torch.zeros(1, channels, self.algebra.dim + 1))

    def planes(self, x: Tensor) -> Tensor:
        return ops.mv_silu(x, ROWS(self.a), ROWS(self.b), self.signature)

    def extra_repr(self) -> str:
        return f"{self.channels}"


class NormalizationLayer(_Module):
    """Each grade divided by something between 1 and its norm, as a parameter says.

    Args:
        algebra: see the module.
        features: features.
        init: initial value of the parameter, before its sigmoid.

    Parameters: ``a`` ``[features, grades]``.
    """

    def __init__(self, algebra: Any, features: int, init: float = 0) -> None:
        super().__init__()
        self.algebra = _algebra(algebra)
        self.in_features = features
        self.a = nn.Parameter(torch.zeros(features, self.algebra.n_subspaces) + init)

    def planes(self, x: Tensor) -> Tensor:
        return ops.mv_normalization(x, self.a, self.signature)

    def extra_repr(self) -> str:
        return f"{self.in_features}"


class MVLayerNorm(_Module):
    """Features divided by the mean of their norms, times a gain.

    Args:
        algebra: see the module.
        channels: features.

    Parameters: ``a`` ``[1, features]``.
    """

    def __init__(self, algebra: Any, channels: int) -> None:
        super().__init__()
        self.algebra = _algebra(algebra)
        self.channels = channels
        self.a = nn.Parameter(torch.ones(1, channels))

    def planes(self, x: Tensor) -> Tensor:
        return ops.mv_layer_norm(x, ROWS(self.a), self.signature)

    def extra_repr(self) -> str:
        return f"{self.channels}"


class _Steerable(_Module):
    """What the two product layers share."""

    def _products(
        self, include_first_order: bool, normalization_init: Optional[float], features: int, out: int
    ) -> None:
        self.include_first_order = include_first_order
        algebra = self.algebra
        self.normalization = (
            nn.Identity() if normalization_init is None else NormalizationLayer(algebra, features, normalization_init)
        )
        self.linear_right = MVLinear(algebra, features, features, bias=False)
        if include_first_order:
            self.linear_left = MVLinear(algebra, features, out, bias=True)

    def _is_normalized(self) -> bool:
        return not isinstance(self.normalization, nn.Identity)

    def _weight(self) -> Tensor:
        raise NotImplementedError

    def _product(self, x: Tensor, right: Tensor) -> Tensor:
        raise NotImplementedError

    def _by_parts(self, x: Tensor) -> Tensor:
        right = _mapped(self.linear_right, x)
        if self._is_normalized():
            right = _mapped(self.normalization, right)
        product = self._product(x, right)
        if not self.include_first_order:
            return product
        return (_mapped(self.linear_left, x) + product) * math.sqrt(0.5)


class SteerableGeometricProductLayer(_Steerable):
    """The sum of a linear map and of the weighted product of the input with another linear map of it, over √2.

    Args:
        algebra: see the module.
        features: features of input and output.
        include_first_order: whether the linear map is added.
        normalization_init: initial value of the normalisation of the right factor; None for no normalisation.

    Parameters: ``weight`` ``[features, paths]``, and those of ``linear_right``, ``linear_left`` and ``normalization``.
    """

    def __init__(
        self,
        algebra: Any,
        features: int,
        include_first_order: bool = True,
        normalization_init: Optional[float] = 0,
    ) -> None:
        super().__init__()
        self.algebra = _algebra(algebra)
        self.features = features
        self._products(include_first_order, normalization_init, features, features)
        self.weight = nn.Parameter(torch.empty(features, self.algebra.n_paths))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal product weights of deviation (n + 1)^-½ for n generators."""
        nn.init.normal_(self.weight, std=1 / math.sqrt(self.algebra.dim + 1))

    def _product(self, x: Tensor, right: Tensor) -> Tensor:
        return ops.sgp(x, right, self.weight, self.signature)

    def planes(self, x: Tensor) -> Tensor:
        if not self._is_normalized() or _is_hooked(self.normalization):
            return self._by_parts(x)
        right = _mapped(self.linear_right, x)
        left = _mapped(self.linear_left, x) if self.include_first_order else None
        return ops.steerable_product(x, right, self.normalization.a, self.weight, left, self.signature)


class FullyConnectedSteerableGeometricProductLayer(_Steerable):
    """As :class:`SteerableGeometricProductLayer`, with a matrix over the features for each path of grades.

    Args:
        algebra: see the module.
        in_features: features of the input.
        out_features: features of the output.
        include_first_order: whether the linear map is added.
        normalization_init: initial value of the normalisation of the right factor; None for no normalisation.

    Parameters: ``weight`` ``[out, in, paths]``, and those of ``linear_right``, ``linear_left`` and ``normalization``.
    """

    def __init__(
        self,
        algebra: Any,
        in_features: int,
        out_features: int,
        include_first_order: bool = True,
        normalization_init: Optional[float] = 0,
    ) -> None:
        super().__init__()
        self.algebra = _algebra(algebra)
        self.in_features, self.out_features = in_features, out_features
        self._products(include_first_order, normalization_init, in_features, out_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features, self.algebra.n_paths))
        self.reset_parameters()
        self._arrange()

    def _arrange(self) -> None:
        in_order(self.weight, [2, 1, 0])

    def reset_parameters(self) -> None:
        """Normal product weights of deviation (in·(n + 1))^-½ for n generators."""
        nn.init.normal_(self.weight, std=1 / math.sqrt(self.in_features * (self.algebra.dim + 1)))

    def _product(self, x: Tensor, right: Tensor) -> Tensor:
        return ops.fcgp(x, right, TURNED(self.weight), self.signature)

    def planes(self, x: Tensor) -> Tensor:
        return self._by_parts(x)


def _is_hooked(module: nn.Module) -> bool:
    """Whether hooks follow a module's calls in eager code; compiled code leaves those inside of a fused module out."""
    return not torch.compiler.is_compiling() and has_hooks(module)


def _mapped(module: nn.Module, x: Tensor, residual: Optional[Tensor] = None) -> Tensor:
    """What a module makes of ``[blades, rows, features]``, plus a residual; by a call of it where hooks follow its calls."""
    if torch.compiler.is_compiling() or (hasattr(module, "planes") and not has_hooks(module)):
        return module.planes(x) if residual is None else module.planes(x, residual)
    features = to_features(x, (x.shape[1], x.shape[2], x.shape[0]))
    result = to_planes(module(features), x.shape[0], type(module).__name__)
    return result if residual is None else result + residual


class Block(nn.Sequential):
    """MVLinear, MVSiLU, SteerableGeometricProductLayer and MVLayerNorm in a row, as one operator."""

    def operands(self) -> Optional[list[Tensor]]:
        """The parameters in the order of the operator; None if its modules are not those that it stands for, or have hooks."""
        linear, silu, steerable, norm = self._modules.values()
        if type(steerable) is not SteerableGeometricProductLayer or not steerable.include_first_order:
            return None
        parts, of = steerable._modules, _composite.parameters
        right, left = parts["linear_right"], parts["linear_left"]
        found = (
            of(linear, MVLinear, "weight", "bias"),
            of(silu, MVSiLU, "a", "b"),
            of(right, MVLinear, "weight"),
            of(parts["normalization"], NormalizationLayer, "a"),
            of(steerable, SteerableGeometricProductLayer, "weight"),
            of(left, MVLinear, "weight", "bias"),
            of(norm, MVLayerNorm, "a"),
        )
        if None in found or not (linear.subspaces and right.subspaces and left.subspaces):
            return None
        return [parameter for parameters in found for parameter in parameters]

    def _operands_for_compilers(self) -> Optional[list[Tensor]]:
        linear, silu, steerable, norm = self
        if not (linear.subspaces and steerable.include_first_order and steerable._is_normalized()):
            return None
        if linear.bias is None:
            return None
        right, left = steerable.linear_right, steerable.linear_left
        maps = (linear.weight, linear.bias, silu.a, silu.b, right.weight, steerable.normalization.a)
        return [*maps, steerable.weight, left.weight, left.bias, norm.a]

    def planes(self, x: Tensor, residual: Optional[Tensor] = None) -> Tensor:
        """The block of ``[blades, rows, features]``, plus a residual."""
        operands = self._operands_for_compilers() if torch.compiler.is_compiling() else self.operands()
        if operands is not None:
            return _messages.block(x, operands, residual, self[0].signature)
        for module in self:
            x = _mapped(module, x)
        return x if residual is None else x + residual

    def forward(self, input: Tensor) -> Tensor:
        planes = to_planes(input, 2 ** sum(self[0].signature), "Block")
        return to_features(self.planes(planes), input.shape)


def _block(algebra: CliffordAlgebra, in_features: int, out_features: int, normalization_init: Optional[float]) -> Block:
    return Block(
        MVLinear(algebra, in_features, out_features),
        MVSiLU(algebra, out_features),
        SteerableGeometricProductLayer(algebra, out_features, normalization_init=normalization_init),
        MVLayerNorm(algebra, out_features),
    )


class CEMLP(_Module):
    """Blocks of a linear map, an activation, a steerable product and a norm.

    Args:
        algebra: see the module.
        in_features: features of the input.
        hidden_features: features between.
        out_features: features of the output.
        n_layers: blocks.
        normalization_init: as in :class:`SteerableGeometricProductLayer`.
    """

    def __init__(
        self,
        algebra: Any,
        in_features: int,
        hidden_features: int,
        out_features: int,
        n_layers: int = 2,
        normalization_init: Optional[float] = 0,
    ) -> None:
        super().__init__()
        self.algebra = _algebra(algebra)
        self.in_features, self.hidden_features, self.out_features = in_features, hidden_features, out_features
        self.n_layers = n_layers
        widths = [in_features, *[hidden_features] * (n_layers - 1), out_features]
        blocks = [_block(self.algebra, a, b, normalization_init) for a, b in zip(widths, widths[1:])]
        self.layers = nn.Sequential(*blocks)

    def operands(self) -> Optional[list[Tensor]]:
        """The parameters of all blocks in the order of the operators; None if a module is another than these, or has hooks."""
        layers = self._modules["layers"]
        if has_hooks(layers):
            return None
        found: list[Tensor] = []
        for block in layers._modules.values():
            own = block.operands() if type(block) is Block and not has_hooks(block) else None
            if own is None:
                return None
            found += own
        return found

    def planes(self, x: Tensor, residual: Optional[Tensor] = None) -> Tensor:
        """The blocks of ``[blades, rows, features]``, plus a residual."""
        *first, last = self.layers
        for block in first:
            x = _mapped(block, x)
        return _mapped(last, x, residual)

    def forward(self, input: Tensor) -> Tensor:
        if is_eager(input) and input.dim() == 3 and input.shape[-1] == 2 ** sum(self.signature):
            operands = self.operands()
            if operands is not None:
                made = _messages.cemlp(self.signature, _messages.count(operands))
                inputs = [input, *operands]
                if made.native.admits(inputs):
                    return _composite.run(made, inputs)
        return super().forward(input)


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


class NBodyCGGNN(nn.Module):
    """The published network for charged particles in three dimensions.

    Args:
        in_features: features of a particle: charge, position from the centre, velocity.
        hidden_features: width.
        out_features: features of the prediction.
        edge_features_in: features of an edge: the product of the charges.
        n_layers: layers of message passing.
        normalization_init: as in :class:`SteerableGeometricProductLayer`.
        residual: as in :class:`EGCL`.
    """

    def __init__(
        self,
        in_features: int = 3,
        hidden_features: int = 28,
        out_features: int = 1,
        edge_features_in: int = 1,
        n_layers: int = 3,
        normalization_init: Optional[float] = 0,
        residual: bool = True,
    ) -> None:
        super().__init__()
        self.algebra = CliffordAlgebra((1.0, 1.0, 1.0))
        self.hidden_features, self.n_layers = hidden_features, n_layers
        self.embedding = MVLinear(self.algebra, in_features, hidden_features, subspaces=False)
        self.projection = nn.Sequential(MVLinear(self.algebra, hidden_features, out_features))
        layers = [
            EGCL(
                self.algebra,
                hidden_features,
                hidden_features,
                hidden_features,
                edge_features_in,
                residual=residual,
                normalization_init=normalization_init,
            )
            for _ in range(n_layers)
        ]
        self.layers = nn.Sequential(*layers)

    @classmethod
    def from_run(cls, checkpoint: Any) -> NBodyCGGNN:
        """The model with the weights of a run of ``gradewise train nbody``, or with their moving average if the run keeps one, in the dtype
        of its checkpoint.

        Args:
            checkpoint: the file of weights, or the :class:`gradewise.Run`. Needs the package safetensors.

        Raises:
            CheckpointError: a checkpoint of another model, or of one that the published network has no place for, such as with
                ``model.velocities``.
        """
        from safetensors import safe_open

        path = getattr(checkpoint, "checkpoint", checkpoint)
        with safe_open(str(path), "pt") as file:
            metadata = json.loads((file.metadata() or {}).get("gradewise", "{}"))
            config = metadata.get("model_config", {})
            # What of the settings changes the network; the others say how these work, or how it is trained.
            extensions = ("velocities", "conjugation", "geometry", "substeps", "pushes", "kicks")
            others = sorted(key for key in extensions if config.get(key))
            if metadata.get("model") != "nbody" or others:
                what = f"a model with {', '.join(others)}" if others else f"the model {metadata.get('model')!r}"
                raise CheckpointError(f"{path}: {what}, and the published network has no place for it")
            # Weights stand alone; what else a checkpoint has, such as an optimiser's state, is named after what it is. A moving
            # average of the weights takes their place, as in the program's `eval` and `infer`.
            names = set(file.keys())
            weights = {
                name: file.get_tensor(f"ema::{name}" if f"ema::{name}" in names else name)
                for name in names
                if "::" not in name
            }
        model = cls(hidden_features=config["hidden"], n_layers=config["layers"]).to(next(iter(weights.values())).dtype)
        parameters = dict(model.named_parameters())
        # Matrices turn, `[grades, in, out]` to `[out, in, grades]`, that of the embedding, which all grades share, from `[in, out]`.
        turned = {name: t.permute(2, 1, 0) if t.dim() == 3 else t for name, t in weights.items()}
        turned["embedding.weight"] = turned["embedding.weight"].T
        given = {_published_name(name): tensor for name, tensor in turned.items()}
        if given.keys() != parameters.keys():
            raise CheckpointError(
                f"{path}: {sorted(given.keys() ^ parameters.keys())} are not in both, the checkpoint and the published network"
            )
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(given[name].reshape(parameter.shape))
        return model

    def _forward(self, h: Tensor, edges: Sequence[Tensor], edge_attr: Tensor) -> Tensor:
        h = self.embedding(h)
        for layer in self.layers:
            h = layer(h, edges, edge_attr=edge_attr)
        return self.projection(h)

    def predict(self, batch: Sequence[Tensor]) -> Tensor:
        """The positions at the end, ``[systems·particles, 3]``, of a batch as :meth:`forward` takes it; its target is not read."""
        loc, vel, edge_attr, charges, _, edges = batch
        systems, particles, _ = loc.size()
        centred = loc - loc.mean(dim=1, keepdim=True)
        flat = [
            t.to(self.embedding.weight.dtype).reshape(-1, *t.shape[2:]) for t in (centred, loc, vel, edge_attr, charges)
        ]
        centred, loc, vel, edge_attr, charges = flat
        offsets = particles * torch.arange(systems, device=loc.device)
        edges = (edges + offsets[:, None, None]).transpose(0, 1).flatten(1)
        covariants = self.algebra.embed(torch.stack([centred, vel], dim=1), (1, 2, 3))
        invariants = self.algebra.embed(charges, (0,))
        nodes = torch.cat([invariants[:, None], covariants], dim=1)
        prediction = self._forward(nodes, (edges[0], edges[1]), self.algebra.embed(edge_attr[..., None], (0,)))
        return loc + prediction[..., 0, 1:4]

    def forward(self, batch: Sequence[Tensor], step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean squared error of a batch (positions, velocities, products of charges, charges, positions at the end, edges), and the
        error of each particle."""
        target = batch[4]
        target = target.to(self.embedding.weight.dtype).reshape(-1, *target.shape[2:])
        loss = F.mse_loss(self.predict(batch), target, reduction="none").mean(dim=1)
        return loss.mean(), {"loss": loss}


def _published_name(name: str) -> str:
    """The name of a run's parameter in the published network: there, four modules make a block."""
    match name.split("."):
        case ["layers", layer, ("edge" | "node") as which, number, *rest]:
            block, module = divmod(int(number), 4)
            return ".".join(["layers", layer, f"{which}_model", "layers", str(block), str(module), *rest])
        case ["projection", *rest]:
            return ".".join(["projection", "0", *rest])
    return name


class ConvexHullCGMLP(nn.Module):
    """The published network for the volume of the convex hull of points in five dimensions.

    Args:
        in_features: points.
        hidden_features: width.
        out_features: predictions.
        num_layers: has no effect, as in the published code: there are four product layers.
        init_normalization: has no effect, as in the published code.
    """

    def __init__(
        self,
        in_features: int = 16,
        hidden_features: int = 32,
        out_features: int = 1,
        num_layers: int = 4,
        init_normalization: float = 0,
    ) -> None:
        super().__init__()
        self.algebra = CliffordAlgebra((1.0,) * 5)
        self.in_features, self.hidden_features, self.out_features = in_features, hidden_features, out_features
        self.num_layers, self.init_normalization = num_layers, init_normalization
        products = (SteerableGeometricProductLayer(self.algebra, hidden_features) for _ in range(4))
        self.net = nn.Sequential(MVLinear(self.algebra, in_features, hidden_features, subspaces=False), *products)
        self.mlp = nn.Sequential(
            nn.Linear(hidden_features, hidden_features), nn.SiLU(), nn.Linear(hidden_features, out_features)
        )

    def predict(self, points: Tensor) -> Tensor:
        """The volumes ``[samples]`` for points ``[samples, points, 5]``."""
        return self.mlp(self.net(self.algebra.embed_grade(points, 1)).norm(dim=-1)).squeeze(-1)

    def forward(self, batch: Sequence[Tensor], step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean squared error of a batch (points, volumes), and that of each sample."""
        return _regression(self.predict(batch[0]), batch[1])


class O3CGMLP(nn.Module):
    """The published network for signed volumes of tetrahedra.

    Args:
        in_features: vectors.
        hidden_features: width.
        out_features: features of the prediction.
        num_layers: layers, of which all between the first and the last are activations, as in the published code.
        init_normalization: has no effect, as in the published code.
    """

    def __init__(
        self,
        in_features: int = 3,
        hidden_features: int = 32,
        out_features: int = 1,
        num_layers: int = 6,
        init_normalization: float = 0,
    ) -> None:
        super().__init__()
        self.algebra = CliffordAlgebra((1.0, 1.0, 1.0))
        self.in_features, self.hidden_features, self.out_features = in_features, hidden_features, out_features
        self.num_layers, self.init_normalization = num_layers, init_normalization
        full = FullyConnectedSteerableGeometricProductLayer
        between = (MVSiLU(self.algebra, hidden_features) for _ in range(num_layers - 1))
        self.net = nn.Sequential(
            full(self.algebra, in_features, hidden_features),
            *between,
            full(self.algebra, hidden_features, out_features),
        )

    def predict(self, points: Tensor) -> Tensor:
        """The signed volumes ``[samples]`` for vectors ``[samples, vectors, 3]``."""
        return self.net(self.algebra.embed_grade(points, 1))[:, 0, -1]

    def forward(self, batch: Sequence[Tensor], step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean squared error of a batch (vectors, volumes), and that of each sample."""
        return _regression(self.predict(batch[0]), batch[1])


class O5CGMLP(nn.Module):
    """The published network for the O(5)-invariant function of two vectors.

    Args:
        ymean: mean of the targets.
        ystd: deviation of the targets.
    """

    def __init__(self, ymean: float, ystd: float) -> None:
        super().__init__()
        self.algebra = CliffordAlgebra((1.0,) * 5)
        self.gp = nn.Sequential(
            MVLinear(self.algebra, 2, 8, subspaces=False), SteerableGeometricProductLayer(self.algebra, 8)
        )
        self.mlp = nn.Sequential(nn.Linear(8, 580), nn.ReLU(), nn.Linear(580, 580), nn.ReLU(), nn.Linear(580, 1))
        self.ymean, self.ystd = ymean, ystd

    def predict(self, points: Tensor) -> Tensor:
        """The normalised function ``[samples, 1]`` for pairs of vectors ``[samples, 10]`` or ``[samples, 2, 5]``."""
        input = self.algebra.embed_grade(points.reshape(len(points), 2, 5), 1)
        return self.mlp(self.gp(input)[..., 0])

    def forward(self, batch: Sequence[Tensor], step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean squared error, in units of the targets, of a batch (vectors, normalised targets), and that of each sample."""
        prediction = self.predict(batch[0])
        prediction, target = (y * self.ystd + self.ymean for y in (prediction, batch[1]))
        return _regression(prediction, target.to(prediction.dtype))


def _regression(prediction: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    if prediction.shape != target.shape:
        raise ShapeError(
            f"the targets have shape {list(target.shape)}, expected that of the predictions, {list(prediction.shape)}"
        )
    loss = F.mse_loss(prediction, target, reduction="none")
    return loss.mean(), {"loss": loss}


def quadratic_forms(algebra: CliffordAlgebra, x: Tensor) -> Tensor:
    """The scalar and the quadratic forms of the other grades of ``[rows, features, blades]``: ``[rows, features, grades]``."""
    from gradewise._core import squared_norms

    signs = torch.tensor(squared_norms(algebra.signature), dtype=x.dtype, device=x.device)
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
        weights = network(h).view(len(h), self.out_features_x, self.algebra.n_subspaces).sigmoid()
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
        new_x = self.theta_x(there([x, self._reduce(m_x, i, len(x)), node_attr_x]))
        if m_h is None:
            new_h = None
        else:
            own = quadratic_forms(self.algebra, x).flatten(1)
            new_h = self.theta_h(there([h, self._reduce(m_h, i, len(h)), own, node_attr_h]))
        if self.use_invariants_to_update:
            new_x = self._steered(new_x, new_h, self.chi_x)
        if self.residual and new_h is not None and self.in_features_h == self.out_features_h:
            new_h = new_h + h
        if self.residual and self.in_features_x == self.out_features_x:
            new_x = new_x + x
        return new_h, new_x


class LorentzCGGNN(nn.Module):
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

"""The parts of message passing between multivectors, as functions of tensors: blocks, and messages along edges.

Features are ``[rows, features, blades]`` at the borders and ``[blades, rows, features]`` within. Modules call these functions with their
parameters, and so does the backward pass of a composite that is to be differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from gradewise.torch import _functional as ops
from gradewise.torch._composite import Composite, Step, composite
from gradewise.torch._layout import to_features, to_planes
from gradewise.torch._space import Space
from gradewise.torch._views import LISTED, ROWS, TRANSPOSED, TURNED

Signature = tuple[int, int, int]
Operands = Sequence[Tensor]
"""The parameters of a block: matrices and bias of the first map, a and b of the activation, matrices of the right factor, its normalisation,
product weights, matrices and bias of the map added, gain."""

_VIEWS = ["reversed", "list", "row", "row", "reversed", "same", "same", "reversed", "list", "row"]
_COUNT = len(_VIEWS)


def count(operands: Operands) -> int:
    """The number of blocks that have these parameters."""
    return len(operands) // _COUNT


def block(x: Tensor, operands: Operands, residual: Optional[Tensor], signature: Signature) -> Tensor:
    """A block of ``[blades, rows, features]``, plus a residual."""
    linear, linear_bias, a, b, right, normalization, weight, left, left_bias, gain = operands
    return ops.mv_block(
        x,
        (TURNED(linear), LISTED(linear_bias)),
        (ROWS(a), ROWS(b)),
        TURNED(right),
        normalization,
        weight,
        (TURNED(left), LISTED(left_bias)),
        ROWS(gain),
        residual,
        signature,
    )


def blocks(x: Tensor, operands: Operands, residual: Optional[Tensor], signature: Signature) -> Tensor:
    """Blocks in a row, of whose parameters each takes its share."""
    for first in range(0, len(operands), _COUNT):
        last = first + _COUNT == len(operands)
        x = block(x, operands[first : first + _COUNT], residual if last else None, signature)
    return x


@dataclass(frozen=True)
class Gathering:
    """How messages are formed and what a node receives of them."""

    aggregation: str = "mean"
    """"mean", "sum" or "max"."""
    is_opposite: bool = False
    """Whether a message is of the sender less the receiver, rather than the other way round."""
    dtype: Optional[torch.dtype] = None
    """What they are added up in, if not in the dtype of the messages."""
    space: Optional[Space] = None
    """The algebra whose own order of blades the greatest are taken in: that of the operators may have other signs."""


def messages(
    x: Tensor,
    edge_attr: Optional[Tensor],
    node_attr: Optional[Tensor],
    ends: Sequence[Tensor],
    edge_map: Callable[[Tensor], Tensor],
    node_map: Callable[[Tensor, Tensor], Tensor],
    gathering: Gathering = Gathering(),
) -> Tensor:
    """What message passing makes of nodes ``[blades, nodes, features]``: ``edge_map`` of their differences along edges (receivers, senders),
    ``node_map`` of them and of what each receives, beside their own features."""
    rows, columns = ends[::-1] if gathering.is_opposite else ends
    x = x.contiguous()
    message = x.index_select(1, rows) - x.index_select(1, columns)
    if edge_attr is not None:
        message = torch.cat([message, edge_attr], dim=2)
    made = edge_map(message)
    received = received_by(
        made if gathering.dtype is None else made.to(gathering.dtype), ends[0], x.shape[1], gathering
    )
    parts = [x, received] if node_attr is None else [x, received, node_attr]
    return node_map(torch.cat(parts, dim=2), x)


def received_by(x: Tensor, segments: Tensor, count: int, gathering: Gathering) -> Tensor:
    """What the rows of ``[blades, rows, features]`` with one number in ``segments`` come to; 0 for numbers that do not occur."""
    zeros = x.new_zeros(x.shape[0], count, x.shape[2])
    if gathering.aggregation == "max":
        places = segments[None, :, None].expand_as(x)
        own = x if gathering.space is None else gathering.space.leave(x)
        greatest = zeros.scatter_reduce(1, places, own, "amax", include_self=False)
        return greatest if gathering.space is None else gathering.space.enter(greatest)
    total = zeros.index_add(1, segments, x)
    if gathering.aggregation == "sum":
        return total
    members = x.new_zeros(count).index_add(0, segments, x.new_ones(segments.shape[0])).clamp(min=1)
    return total / members[:, None]


class Layer(NamedTuple):
    """What a layer of message passing is made of."""

    edge_blocks: int
    node_blocks: int
    residual: bool


class Linear(NamedTuple):
    """What a linear map is made of."""

    has_bias: bool

    @property
    def views(self) -> list[str]:
        """How operators see its parameters."""
        return ["reversed", "list"][: 1 + self.has_bias]


class _Steps:
    """The steps of a composite as they are put together."""

    def __init__(self, signature: Signature, features: int, parameters: int) -> None:
        self.signature = signature
        self.steps: list[Step] = []
        self._given = features + parameters
        self._next = features
        self._attributes = '{"algebra":"' + "{},{},{}".format(*signature) + '"'

    def _add(self, name: str, attributes: str, places: Sequence[int]) -> int:
        self.steps.append((name, attributes, list(places)))
        return self._given + len(self.steps) - 1

    def _parameters(self, count: int) -> range:
        """The next parameters, which are inputs in the order of the steps."""
        self._next += count
        return range(self._next - count, self._next)

    def linear(self, x: int, linear: Linear) -> int:
        """A linear map of the value with this number; the number of the result."""
        bias = '"scalar"' if linear.has_bias else "null"
        places = [x, *self._parameters(len(linear.views))]
        return self._add("mv_linear", f'{self._attributes},"bias":{bias}}}', places)

    def blocks(self, x: int, number: int) -> int:
        """Blocks in a row."""
        for _ in range(number):
            x = self._add("mv_block", self._attributes + "}", [x, *self._parameters(_COUNT)])
        return x

    def layer(self, h: int, layer: Layer, edge_attr: Optional[int], node_attr: Optional[int]) -> int:
        """Message passing between nodes with the attributes of these numbers."""
        message = self._add("edge_difference", "", [h] if edge_attr is None else [h, edge_attr])
        received = self._add("concat_segment_mean", "", [h, self.blocks(message, layer.edge_blocks)])
        if node_attr is not None:
            received = self._add("concat", '{"axis":2}', [received, node_attr])
        result = self.blocks(received, layer.node_blocks)
        if layer.residual:
            self.steps[-1][2].append(h)
        return result


@lru_cache(maxsize=64)
def cemlp(signature: Signature, number: int) -> Composite:
    """``number`` blocks of features and their parameters."""
    steps = _Steps(signature, 1, number * _COUNT)
    steps.blocks(0, number)
    blades = 2 ** sum(signature)

    def ordinary(inputs: Sequence[Tensor], _: Any) -> Tensor:
        x, *operands = inputs
        return to_features(blocks(to_planes(x, blades, "CEMLP"), operands, None, signature), x.shape)

    return composite(steps.steps, ["planes", *_VIEWS * number], "planes", ordinary)


@lru_cache(maxsize=64)
def passing(
    signature: Signature,
    layers: tuple[Layer, ...],
    has_edges: bool,
    has_nodes: bool,
    embedding: Optional[Linear] = None,
    projection: Optional[Linear] = None,
) -> Composite:
    """Layers of message passing in a row, of nodes and attributes of edges and nodes if there are any; a linear map before them and one behind
    them if there are any.

    Inputs are the nodes, then attributes of edges and those of nodes, each once for every layer and the last layer's first: so PyTorch adds
    up their gradients, in the order in which it does for layers that are nodes of their own. Parameters follow in the order of the steps, of
    a layer those of messages first."""
    count = len(layers)
    features = 1 + count * (has_edges + has_nodes)
    views = embedding.views if embedding else []
    views = views + _VIEWS * sum(layer.edge_blocks + layer.node_blocks for layer in layers)
    views += projection.views if projection else []

    steps = _Steps(signature, features, len(views))
    x = steps.linear(0, embedding) if embedding else 0
    for index, layer in enumerate(layers):
        edge_attr = count - index if has_edges else None
        node_attr = features - 1 - index if has_nodes else None
        x = steps.layer(x, layer, edge_attr, node_attr)
    if projection:
        steps.linear(x, projection)
    blades = 2 ** sum(signature)

    def ordinary(inputs: Sequence[Tensor], ends: Sequence[Tensor]) -> Tensor:
        x, *attributes = (to_planes(x, blades, "EGCL") for x in inputs[:features])
        given = iter(inputs[features:])

        def take(count: int) -> list[Tensor]:
            return list(islice(given, count))

        if embedding:
            x = _linear(x, take(len(embedding.views)), signature)
        for index, layer in enumerate(layers):
            of_edges, of_nodes = take(layer.edge_blocks * _COUNT), take(layer.node_blocks * _COUNT)
            x = messages(
                x,
                attributes[count - 1 - index] if has_edges else None,
                attributes[-1 - index] if has_nodes else None,
                ends,
                partial(blocks, operands=of_edges, residual=None, signature=signature),
                lambda x, h, layer=layer, own=of_nodes: blocks(x, own, h if layer.residual else None, signature),
            )
        if projection:
            x = _linear(x, take(len(projection.views)), signature)
        return to_features(x, inputs[0].shape)

    return composite(steps.steps, ["planes"] * features + views, "planes", ordinary)


def _linear(x: Tensor, parameters: Sequence[Tensor], signature: Signature) -> Tensor:
    weight, *bias = parameters
    matrices = TURNED(weight) if weight.dim() == 3 else TRANSPOSED(weight)
    return ops.mv_linear(x, matrices, LISTED(bias[0]) if bias else None, signature)

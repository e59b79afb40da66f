"""The parts of message passing between multivectors, as functions of tensors: blocks, and messages along edges.

Features are ``[rows, features, blades]`` at the borders and ``[blades, rows, features]`` within. Modules call these functions with their
parameters, and so does the backward pass of a composite that is to be differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Optional

import torch
from torch import Tensor

from gradewise.torch import _functional as ops
from gradewise.torch._composite import Composite, Step, composite
from gradewise.torch._layout import to_features, to_planes
from gradewise.torch._space import Space
from gradewise.torch._views import LISTED, ROWS, TURNED

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


def _in_a_row(first: int, source: int, steps: list[Step], given: int, number: int, signature: Signature) -> list[Step]:
    """Steps of ``number`` blocks with parameters from input ``first`` on; ``source`` is the number of what they are applied to, ``given`` that
    of inputs."""
    attributes = '{"algebra":"' + "{},{},{}".format(*signature) + '"}'
    made = []
    for index in range(number):
        place = first + index * _COUNT
        made.append(("mv_block", attributes, [source, *range(place, place + _COUNT)]))
        source = given + len(steps) + index
    return made


@lru_cache(maxsize=64)
def cemlp(signature: Signature, number: int) -> Composite:
    """``number`` blocks of features and their parameters."""
    given = 1 + number * _COUNT
    steps = _in_a_row(1, 0, [], given, number, signature)
    blades = 2 ** sum(signature)

    def ordinary(inputs: Sequence[Tensor], _: Any) -> Tensor:
        x, *operands = inputs
        return to_features(blocks(to_planes(x, blades, "CEMLP"), operands, None, signature), x.shape)

    return composite(steps, ["planes", *_VIEWS * number], "planes", ordinary)


@lru_cache(maxsize=64)
def egcl(
    signature: Signature, edge_blocks: int, node_blocks: int, has_edges: bool, has_nodes: bool, residual: bool
) -> Composite:
    """Message passing for nodes, features of edges and nodes if there are any, and the parameters of the blocks of both networks."""
    features = 1 + has_edges + has_nodes
    given = features + (edge_blocks + node_blocks) * _COUNT
    first_of_nodes = features + edge_blocks * _COUNT
    blades = 2 ** sum(signature)

    steps: list[Step] = [("edge_difference", "", [0, 1] if has_edges else [0])]
    steps += _in_a_row(features, given, steps, given, edge_blocks, signature)
    steps.append(("concat_segment_mean", "", [0, given + len(steps) - 1]))
    if has_nodes:
        steps.append(("concat", '{"axis":2}', [given + len(steps) - 1, features - 1]))
    steps += _in_a_row(first_of_nodes, given + len(steps) - 1, steps, given, node_blocks, signature)
    if residual:
        name, attributes, places = steps[-1]
        steps[-1] = (name, attributes, [*places, 0])

    def ordinary(inputs: Sequence[Tensor], ends: Sequence[Tensor]) -> Tensor:
        x, *attributes = (to_planes(x, blades, "EGCL") for x in inputs[:features])
        result = messages(
            x,
            attributes[0] if has_edges else None,
            attributes[-1] if has_nodes else None,
            ends,
            lambda x: blocks(x, inputs[features:first_of_nodes], None, signature),
            lambda x, h: blocks(x, inputs[first_of_nodes:], h if residual else None, signature),
        )
        return to_features(result, inputs[0].shape)

    views = ["planes"] * features + _VIEWS * (edge_blocks + node_blocks)
    return composite(steps, views, "planes", ordinary)

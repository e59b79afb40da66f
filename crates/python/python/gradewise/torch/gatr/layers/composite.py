"""The parts of a block of GATr before and behind its attention as composites, for eager code, on whole feature planes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gradewise import _core
from gradewise._transformers.algebra import JOIN_SIGNS
from gradewise.torch._composite import Composite, composite, is_eager, is_plain, run
from gradewise.torch._transformers import composites
from gradewise.torch._transformers.algebra import PROJECTIVE
from gradewise.torch._transformers.composites import (
    Differs,
    Linear,
    Named,
    Norm,
    Part,
    Reader,
    Steps,
    activation_of,
    linear_of,
    parameter,
)
from gradewise.torch._transformers.attention import batch, planes_of_heads
from gradewise.torch._transformers.features import Features, acts_as, is_own, is_without_hooks
from gradewise.torch._transformers.features import run as run_layer
from gradewise.torch.gatr.layers.attention import MultiQueryQKVModule, QKVModule, SelfAttention, split
from gradewise.torch.gatr.layers.geometric import (
    _INNER,
    _POINT,
    _WEIGHT,
    GeometricAttention,
    Heads,
    divided_by_square,
    matrices,
    weighed_matrices,
    weights_of,
)
from gradewise.torch.gatr.layers.linear import EquiLinear
from gradewise.torch.gatr.layers.mlp import GeometricBilinear, GeoMLP, reference_rows
from gradewise.torch.gatr.layers.norm import EquiLayerNorm, GradeDropout, ScalarGatedNonlinearity


@dataclass(frozen=True)
class _Bilinear:
    """Products of two maps, joins of two others, and the map of both."""

    left: Linear
    right: Linear
    join_left: Linear
    join_right: Linear
    out: Linear


@dataclass(frozen=True)
class _Gate:
    kind: str
    scalar_kind: str


_Layer = Union[_Bilinear, _Gate, Linear]


@dataclass(frozen=True)
class _Block:
    """What there is to know of a block but for its parameters and its attention."""

    mv: int
    s: int
    norm: Norm
    qkv: tuple[Linear, ...]
    """One map of queries, keys and values, or one of each."""
    out: Linear
    mlp: tuple[_Layer, ...]
    heads: tuple[int, int, int]
    """Heads, and multivectors and scalars of each."""
    epsilon: Optional[float]
    """Of the normalizer of points, where the composite makes queries and keys of heads too."""


def _norm_of(module: nn.Module) -> Optional[tuple[Norm, Named]]:
    if not is_own(module, EquiLayerNorm) or module.mv_channel_dim != -2:
        return None
    return Norm(float(module.epsilon)), []


def _is_off(module: Optional[nn.Module]) -> bool:
    return module is None or (is_own(module, GradeDropout) and not module._draws())


def _mlp_of(module: nn.Module, mv: int, s: int, reader: Reader) -> tuple[_Layer, ...]:
    if not is_own(module, GeoMLP):
        raise Differs
    layers: list[_Layer] = []
    for number, layer in enumerate(module.layers):
        name = f"mlp.layers.{number}"
        if _is_off(layer):
            continue
        if is_own(layer, GeometricBilinear):
            parts = [
                reader.take(linear_of(getattr(layer, part), EquiLinear, mv, s), f"{name}.{part}")
                for part in ("linear_left", "linear_right", "linear_join_left", "linear_join_right")
            ]
            out = reader.take(linear_of(layer.linear_out, EquiLinear, 2 * parts[0].out, s), f"{name}.linear_out")
            layers.append(_Bilinear(*parts, out))
            mv, s = out.out, out.scalars
        elif is_own(layer, ScalarGatedNonlinearity):
            layers.append(_Gate(activation_of(layer._gate), activation_of(layer.scalar_nonlinearity)))
        else:
            linear = reader.take(linear_of(layer, EquiLinear, mv, s), name)
            layers.append(linear)
            mv, s = linear.out, linear.scalars
    return tuple(layers)


def _read(block: nn.Module, mv: int, s: int) -> tuple[_Block, Named, Named, Optional[Tensor]]:
    """The block, the parameters of the part before the attention and of that behind it, and the attention's own if the block has an epsilon."""
    attention = block.attention
    if not is_own(attention, SelfAttention) or not _is_off(attention.dropout):
        raise Differs
    qkv = attention.qkv_module
    is_shared = issubclass(acts_as(qkv), MultiQueryQKVModule)
    if not is_own(qkv, MultiQueryQKVModule if is_shared else QKVModule):
        raise Differs
    first, second, config = Reader(), Reader(), qkv.config
    norm = first.take(_norm_of(block.norm), "norm")
    linears = tuple(
        first.take(linear_of(getattr(qkv, name), EquiLinear, mv, s), f"attention.qkv_module.{name}")
        for name in (("q_linear", "k_linear", "v_linear") if is_shared else ("in_linear",))
    )
    of_head = config.hidden_mv_channels, config.hidden_s_channels or 0
    out_linear = linear_of(attention.out_linear, EquiLinear, *(count * config.num_heads for count in of_head))
    out = second.take(out_linear, "attention.out_linear")
    mlp = _mlp_of(block.mlp, mv, s, second)
    if (out.out, out.scalars) != (mv, s):
        raise Differs
    epsilon = _epsilon_of(attention)
    weights = None if epsilon is None else parameter(attention, "attention.log_weights")
    if epsilon is not None and weights is None:
        raise Differs
    made = _Block(mv, s, norm, linears, out, mlp, (config.num_heads, *of_head), epsilon)
    return made, first.named, second.named, weights


def _epsilon_of(attention: nn.Module) -> Optional[float]:
    """What the attention's normalizer adds, if it is ours and scalars are not rotated."""
    encoding, geometric = attention.pos_encoding, attention.attention
    if type(encoding) is not nn.Identity or not is_without_hooks(encoding) or not is_own(geometric, GeometricAttention):
        return None
    normalizer = geometric.normalizer
    if not isinstance(normalizer, partial) or normalizer.func is not divided_by_square:
        return None
    return float(normalizer.keywords["epsilon"])


class _Rows:
    """Steps that make matrices of heads: the planes and scalars of some groups of channels at a place."""

    def __init__(self, steps: Steps, block: _Block, items: tuple[int, int]) -> None:
        self.steps, self.block, self.items = steps, block, items
        self.shapes: dict[int, list[int]] = {}
        """Channels, heads and rows of the planes of groups."""

    def group(self, x: int, number: int, groups: int, heads: int) -> tuple[int, int]:
        """A group's planes ``[16, channels, heads, rows]`` and its scalars ``[channels, heads, rows]``, of features of several."""
        steps, (_, mv, s), rows = self.steps, self.block.heads, self.items[0] * self.items[1]
        above = groups * s * heads
        planes = steps.add("slice", _part(0, above, above + 16 * groups * mv * heads), [x])
        planes = steps.add("reshape", {"shape": [16, groups, mv, heads, rows]}, [planes])
        planes = steps.add("slice", _part(1, number, number + 1), [planes])
        scalars = steps.add("slice", _part(0, number * s * heads, (number + 1) * s * heads), [x])
        made = steps.add("reshape", {"shape": [16, mv, heads, rows]}, [planes])
        self.shapes[made] = [mv, heads, rows]
        return made, steps.add("reshape", {"shape": [s, heads, rows]}, [scalars])

    def features(self, planes: int, weights: Optional[int], is_query: bool) -> int:
        """What queries and keys are compared by: the inner product's planes and those of distances, ``[12, channels, heads, rows]``."""
        steps = self.steps
        inner, point, weight = self._every_other(planes), self._select(planes, _POINT), self._select(planes, [_WEIGHT])
        bound = steps.add("add_scalar", {"value": self.block.epsilon}, [steps.add("square", None, [weight])])
        scale = steps.add("div", None, [weight, bound])
        point, weight = (steps.add("mul", None, [x, scale]) for x in (point, weight))
        square = steps.add("sum", {"axes": [0], "keep": True}, [steps.add("square", None, [point])])
        own, mixed = steps.add("square", None, [weight]), steps.add("mul", None, [point, weight])
        if is_query:
            assert weights is not None, "distances have weights"
            far = steps.add("mul", None, [steps.add("concat", {"axis": 0}, [square, own, mixed]), weights])
        else:
            signed = [
                steps.add("mul_scalar", {"value": v}, [x]) for x, v in ((own, -1.0), (square, -1.0), (mixed, 2.0))
            ]
            far = steps.add("concat", {"axis": 0}, signed)
        return steps.add("concat", {"axis": 0}, [inner, far])

    def _every_other(self, planes: int) -> int:
        """The planes of the inner product, of which each is the first of its pair: ``[7, channels, heads, rows]``."""
        steps, shape = self.steps, self.shapes[planes]
        pairs = steps.add("reshape", {"shape": [8, 2, *shape]}, [planes])
        firsts = steps.add("slice", _part(0, 0, len(_INNER)), [steps.add("slice", _part(1, 0, 1), [pairs])])
        return steps.add("reshape", {"shape": [len(_INNER), *shape]}, [firsts])

    def _select(self, planes: int, numbers: Sequence[int]) -> int:
        # Slices rather than an index, which would be copied to the device by each call, under capture too.
        parts = [self.steps.add("slice", _part(0, number, number + 1), [planes]) for number in numbers]
        return parts[0] if len(parts) == 1 else self.steps.add("concat", {"axis": 0}, parts)

    def flat(self, planes: int, count: int, scalars: int, heads: int) -> int:
        """Rows of heads, one behind the other."""
        steps, (_, mv, s), (sets, items) = self.steps, self.block.heads, self.items
        width = count * mv

        def turned(x: int, shape: list[int], axes: list[int], last: int) -> int:
            x = steps.add("permute", {"axes": axes}, [steps.add("reshape", {"shape": shape}, [x])])
            return steps.add("reshape", {"shape": [sets, heads, items, last]}, [steps.add("contiguous", None, [x])])

        made = turned(planes, [count, mv, heads, sets, items], [3, 2, 4, 0, 1], width)
        if s:
            beside = turned(scalars, [s, heads, sets, items], [2, 1, 3, 0], s)
            made = steps.add("concat", {"axis": 3}, [made, beside])
        return steps.add("reshape", {"shape": [sets * heads * items * (width + s)]}, [made])


def _part(axis: int, start: int, end: int) -> dict[str, Any]:
    return {"axis": axis, "range": {"start": start, "end": end}}


@lru_cache(maxsize=256)
def _before(block: _Block, names: tuple[str, ...]) -> Composite:
    """Norm and maps of features and the parameters of these names: the features of each map, one below the other."""
    steps = Steps(1, len(names), PROJECTIVE)
    x = steps.norm(0, block.mv, block.norm)
    made = [steps.linear(x, linear) for linear in block.qkv]
    if len(made) > 1:
        steps.add("concat", {"axis": 0}, made)

    def ordinary(inputs: Sequence[Tensor], ends: Any) -> Tensor:
        module, shape = ends
        return functional_call(_Before(module), Part.named(names, inputs[1:]), (inputs[0], shape))

    return composite(steps.made, ["same"] * (1 + len(names)), "same", ordinary)


@lru_cache(maxsize=256)
def _heads(block: _Block, items: tuple[int, int]) -> Composite:
    """Queries, keys and values as matrices of heads, one behind the other, of the features of maps and the logarithms of weights."""
    assert block.epsilon is not None, "distances have a normalizer"
    steps = Steps(2, 0, PROJECTIVE)
    rows, (heads, mv, _) = _Rows(steps, block, items), block.heads
    if len(block.qkv) == 1:
        groups, others = [(0, n, 3, heads) for n in range(3)], heads
    else:
        ends = list(accumulate(_heights(block), initial=0))
        parts = [steps.add("slice", _part(0, start, end), [0]) for start, end in zip(ends, ends[1:])]
        groups, others = [(x, 0, 1, count) for x, count in zip(parts, (heads, 1, 1))], 1
    (q, q_s), (k, k_s), (v, v_s) = (rows.group(*group) for group in groups)
    weights = steps.add("exp", None, [steps.add("reshape", {"shape": [heads, mv]}, [1])])
    weights = steps.add("reshape", {"shape": [mv, heads, 1]}, [steps.add("transpose", {"axes": [0, 1]}, [weights])])
    made = [
        rows.flat(rows.features(q, weights, True), 12, q_s, heads),
        rows.flat(rows.features(k, None, False), 12, k_s, others),
        rows.flat(v, 16, v_s, others),
    ]
    steps.add("concat", {"axis": 0}, made)

    def ordinary(inputs: Sequence[Tensor], ends: Any) -> Tensor:
        module, shape = ends
        lengths = [batch(shape, {})] * 2
        normalizer = module.attention.attention.normalizer
        parts = matrices(*_taken_apart(block, inputs[0], shape), lengths, normalizer, weights_of(inputs[1]))
        return torch.cat([part.flatten() for part in parts])

    return composite(steps.made, ["same"] * 2, "same", ordinary, fused=True)


def _heights(block: _Block) -> list[int]:
    """The lines of the features of each map."""
    return [linear.scalars + PROJECTIVE.size * linear.out for linear in block.qkv]


def _taken_apart(block: _Block, maps: Tensor, shape: tuple[int, ...]) -> Sequence[Heads]:
    """Queries, keys and values of the features of maps, one below the other."""
    heads, mv, scalars = block.heads
    parts = zip(maps.split(_heights(block)), block.qkv)
    made = [Features.of_whole(part, linear.out, shape, PROJECTIVE) for part, linear in parts]
    if len(made) == 1:
        return split(made[0], 3, mv, scalars, heads)
    return [split(part, 1, mv, scalars, count)[0] for part, count in zip(made, (heads, 1, 1))]


@lru_cache(maxsize=1)
def _join() -> str:
    """The attributes of the published join of planes."""
    (a, b, out), terms = _core.table_terms(PROJECTIVE.products["regressive"])
    sign = [JOIN_SIGNS[PROJECTIVE.grades[blade]] for blade in PROJECTIVE.order]
    return json.dumps({"sizes": [a, b, out], "terms": [[i, k, o, int(s * sign[o])] for i, k, o, s in terms]})


@lru_cache(maxsize=256)
def _behind(block: _Block, rows: int, names: tuple[str, ...]) -> Composite:
    """The map of the attention's result, the residual, and the perceptron with its own, of the attention's features, or of its heads if the
    block has an epsilon, the features of the block, the reference of joins and parameters."""
    steps = Steps(3, len(names), PROJECTIVE)
    attended = 0 if block.epsilon is None else steps.merge(0, *block.heads[1:])
    residual = steps.add("add", None, [1, steps.linear(attended, block.out)])
    x, mv, s = steps.norm(residual, block.mv, block.norm), block.mv, block.s
    for layer in block.mlp:
        if isinstance(layer, Linear):
            x, mv, s = steps.linear(x, layer), layer.out, layer.scalars
        elif isinstance(layer, _Gate):
            x = steps.norm(x, mv, None, gate=layer.kind, scalar_gate=layer.scalar_kind if s else None)
        else:
            channels = layer.left.out
            scalars = steps.first(x, s) if s else None
            factors = [steps.linear(x, part) for part in (layer.left, layer.right, layer.join_left, layer.join_right)]
            products = steps.product(PROJECTIVE.products["geometric"], factors[:2], channels, rows)
            joins = steps.product(_join(), factors[2:], channels, rows)
            both = steps.add("concat", {"axis": 1}, [products, steps.add("mul", None, [joins, 2])])
            x = steps.linear(steps.flat(both, 2 * channels, rows), layer.out, scalars)
            mv, s = layer.out.out, layer.out.scalars
    steps.add("add", None, [residual, x])

    def ordinary(inputs: Sequence[Tensor], ends: Any) -> Tensor:
        module, shape = ends
        return functional_call(_Behind(module), Part.named(names, inputs[3:]), (*inputs[:3], shape))

    return composite(steps.made, ["same"] * (3 + len(names)), "same", ordinary, fused=True)


def _features(block: nn.Module, whole: Tensor, shape: tuple[int, ...]) -> Features:
    return Features.of_whole(whole, block.mlp.layers[0].linear_left.weight.shape[1], shape, PROJECTIVE)


class _Before(Part):
    def forward(self, whole: Tensor, shape: tuple[int, ...]) -> Tensor:
        block = self.block
        x, qkv = run_layer(block.norm, EquiLayerNorm, _features(block, whole, shape)), block.attention.qkv_module
        shared = "q_linear", "k_linear", "v_linear"
        linears = [getattr(qkv, name) for name in (shared if hasattr(qkv, "q_linear") else ("in_linear",))]
        return torch.cat([run_layer(linear, EquiLinear, x).whole() for linear in linears])


class _Behind(Part):
    def forward(self, attended: Tensor, whole: Tensor, reference: Tensor, shape: tuple[int, ...]) -> Tensor:
        block, x = self.block, _features(self.block, whole, shape)
        channels = block.attention.out_linear.weight.shape[1]
        if attended.dim() > 2:
            h = x.with_(*planes_of_heads(attended, PROJECTIVE.size, channels // attended.shape[1]))
        else:
            h = Features.of_whole(attended, channels, shape, PROJECTIVE)
        x = x + run_layer(block.attention.out_linear, EquiLinear, h)
        # The one component of the reference that joins read.
        wide = torch.nn.functional.pad(reference.t().reshape(*shape, -1)[..., None], (14, 1))
        return (x + run_layer(block.mlp, GeoMLP, run_layer(block.norm, EquiLayerNorm, x), wide)).whole()


def block_of(
    module: nn.Module, x: Features, reference: Optional[Tensor], extra: Optional[Features], mask: Any
) -> Optional[Features]:
    """The block's result by composites; None where its layers are to be run one by one: on other devices, under compilers, transformations
    or autocast, with layers that somebody watches or has replaced, dropout, several queries to a key, or channels beside the queries'."""
    if extra is not None or not composites.pays(x.mv.device, x.mv.shape[2]) or not is_eager(x.mv):
        return None
    if 0 in x.mv.shape or reference is None or module._checkpoint_mlp or module._checkpoint_attn:
        return None
    items = batch(x.shape, {})
    if len(items) != 2:
        return None
    try:
        block, first, second, weights = _read(module, *x.channels)
    except Differs:
        return None
    if mask is not None and not isinstance(mask, Tensor):
        return None
    whole = x.whole()
    factor = reference_rows(reference, x, module.mlp.layers[0].linear_left.weight.shape[0])
    factor = factor.to(whole.dtype).contiguous()
    first_inputs, second_inputs = [whole, *(p for _, p in first)], [p for _, p in second]
    others = [] if weights is None else [weights]
    if not is_plain([*first_inputs, *others, factor, *second_inputs]):
        return None
    before = _before(block, tuple(name for name, _ in first))
    behind = _behind(block, x.mv.shape[2], tuple(name for name, _ in second))
    if not before.native.admits(first_inputs) or not behind.native.admits([whole, whole, factor, *second_inputs]):
        return None
    ends = module, x.shape
    maps = run(before, first_inputs, ends)
    if weights is not None:
        made = _heads(block, items)
        if not made.native.admits([maps, weights]):
            return None
        heads, mv, scalars = block.heads
        counts = (heads, heads, heads) if len(block.qkv) == 1 else (heads, 1, 1)
        shapes = [(*items, count, planes * mv + scalars) for count, planes in zip(counts, (12, 12, 16))]
        # Computed again by the backward pass, which takes less memory and no longer.
        parts = run(made, [maps, weights], ends, again=True).split([math.prod(shape) for shape in shapes])
        a, b, c = (part.view(sets, n, length, w) for part, (sets, length, n, w) in zip(parts, shapes))
        attended = weighed_matrices(a, b, c, x.shape, mask)
    else:
        attended = module.attention._attend(*_taken_apart(block, maps, x.shape), x, mask).whole()
    result = run(behind, [attended, whole, factor, *second_inputs], ends)
    return Features.of_whole(result, block.mv, x.shape, x.blades)

"""A block of L-GATr as two composites with the attention between them, for eager code: a dozen operators each, on whole feature planes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gradewise.torch._composite import Composite, composite, is_eager, is_plain, run
from gradewise.torch._transformers import composites
from gradewise.torch._transformers.algebra import SPACETIME
from gradewise.torch._transformers.attention import batch, planes_of_heads, rows_of_heads, weigh
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
from gradewise.torch._transformers.features import Features, acts_as, is_own
from gradewise.torch._transformers.features import run as run_layer
from gradewise.torch._transformers.precision import is_island
from gradewise.torch.lgatr.layers.attention import MultiQueryQKVModule, QKVModule, SelfAttention
from gradewise.torch.lgatr.layers.linear import EquiLinear
from gradewise.torch.lgatr.layers.mlp import GeometricBilinear, GeoMLP
from gradewise.torch.lgatr.layers.norm import EquiLayerNorm, GradeDropout, ScalarGatedNonlinearity


@dataclass(frozen=True)
class _Bilinear:
    """The product of two maps, mapped, and its norm."""

    left: Linear
    right: Linear
    out: Linear
    norm: Norm


@dataclass(frozen=True)
class _Gate:
    kind: str


_Layer = Union[_Bilinear, _Gate, Linear]


@dataclass(frozen=True)
class _Block:
    """What there is to know of a block but for its parameters."""

    mv: int
    s: int
    norm1: Norm
    qkv: Linear
    heads: int
    mv_of_head: int
    s_of_head: int
    norm_qkv: Norm
    out: Linear
    norm2: Norm
    mlp: tuple[_Layer, ...]


def _norm_of(module: nn.Module) -> Optional[tuple[Norm, Named]]:
    if not is_own(module, EquiLayerNorm) or module.mv_channel_dim != -2:
        return None
    named = [(name, parameter(module, name)) for name in ("weight_mv", "weight_s")]
    found: Named = [(name, x) for name, x in named if x is not None]
    if len(found) != (0 if module.weight_mv is None else 2):
        return None
    epsilon, gain = module._constants
    # Without scalars there is a parameter of no elements.
    found = [(name, x) for name, x in found if x.numel()]
    there = {name for name, _ in found}
    return Norm(epsilon, gain, "weight_mv" in there, "weight_s" in there), found


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
        if is_own(layer, GeometricBilinear) and layer.primitives.bivector:
            left, right = (
                reader.take(linear_of(getattr(layer, part), EquiLinear, mv, s), f"{name}.{part}")
                for part in ("linear_left", "linear_right")
            )
            out = reader.take(linear_of(layer.linear_out, EquiLinear, left.out, s), f"{name}.linear_out")
            layers.append(_Bilinear(left, right, out, reader.take(_norm_of(layer.norm), f"{name}.norm")))
            mv, s = out.out, out.scalars
        elif is_own(layer, ScalarGatedNonlinearity):
            layers.append(_Gate(activation_of(layer.nonlinearity)))
        else:
            linear = reader.take(linear_of(layer, EquiLinear, mv, s), name)
            layers.append(linear)
            mv, s = linear.out, linear.scalars
    return tuple(layers)


def _read(block: nn.Module, mv: int, s: int) -> tuple[_Block, Named, Named]:
    """The block, and the parameters of the part before the attention and of that behind it."""
    attention = block.attention
    if not is_own(attention, SelfAttention) or not _is_off(attention.dropout):
        raise Differs
    qkv = attention.qkv_module
    if issubclass(acts_as(qkv), MultiQueryQKVModule) or not is_own(qkv, QKVModule):
        raise Differs
    first, second, config = Reader(), Reader(), qkv.config
    norm1 = first.take(_norm_of(block.norm1), "norm1")
    linear = first.take(linear_of(qkv.in_linear, EquiLinear, mv, s), "attention.qkv_module.in_linear")
    norm_qkv = first.take(_norm_of(qkv.norm_qkv), "attention.qkv_module.norm_qkv")
    of_head = config.hidden_mv_channels, config.hidden_s_channels if linear.scalars else 0
    out_linear = linear_of(attention.out_linear, EquiLinear, *(count * config.num_heads for count in of_head))
    out = second.take(out_linear, "attention.out_linear")
    norm2 = second.take(_norm_of(block.norm2), "norm2")
    mlp = _mlp_of(block.mlp, mv, s, second)
    if norm_qkv.gains or (out.out, out.scalars) != (mv, s) or linear.out != 3 * of_head[0] * config.num_heads:
        raise Differs
    made = _Block(mv, s, norm1, linear, config.num_heads, *of_head, norm_qkv, out, norm2, mlp)
    return made, first.named, second.named


@lru_cache(maxsize=256)
def _before(block: _Block, items: tuple[int, int], names: tuple[str, ...]) -> Composite:
    """Norm, map and norms of the heads: queries, keys and values of features and the parameters of these names."""
    steps = Steps(1, len(names), SPACETIME)
    x = steps.linear(steps.norm(0, block.mv, block.norm1), block.qkv)
    heads = {
        "groups": 3,
        "channels": block.mv_of_head,
        "scalars": block.s_of_head,
        "heads": block.heads,
        "batch": items[0],
        "items": items[1],
    }
    steps.split(x, heads, block.norm_qkv, 0)

    def ordinary(inputs: Sequence[Tensor], ends: Any) -> Tensor:
        module, shape = ends
        return functional_call(_Before(module), Part.named(names, inputs[1:]), (inputs[0], shape, items))

    return composite(steps.made, ["same"] * (1 + len(names)), "same", ordinary, groups=True)


@lru_cache(maxsize=256)
def _behind(block: _Block, rows: int, names: tuple[str, ...]) -> Composite:
    """The map of the attention's result, the residual, and the perceptron with its own, of heads, features and parameters."""
    steps = Steps(2, len(names), SPACETIME)
    h = steps.linear(steps.merge(0, block.mv_of_head, block.s_of_head), block.out)
    residual = steps.add("add", None, [1, h])
    x, mv, s = steps.norm(residual, block.mv, block.norm2), block.mv, block.s
    layers = list(block.mlp)
    while layers:
        layer = layers.pop(0)
        if isinstance(layer, Linear):
            x, mv, s = steps.linear(x, layer), layer.out, layer.scalars
        elif isinstance(layer, _Gate):
            x = steps.norm(x, mv, None, gate=layer.kind, scalar_gate=layer.kind if s else None)
        else:
            scalars = steps.first(x, s) if s else None
            factors = steps.linear(x, layer.left), steps.linear(x, layer.right)
            made = steps.product(SPACETIME.products["geometric"], factors, layer.left.out, rows)
            made = steps.flat(made, layer.left.out, rows)
            x, mv, s = steps.linear(made, layer.out, scalars), layer.out.out, layer.out.scalars
            gate = layers.pop(0).kind if layers and isinstance(layers[0], _Gate) else None
            x = steps.norm(x, mv, layer.norm, gate=gate, scalar_gate=gate if s else None)
    steps.add("add", None, [residual, x])

    def ordinary(inputs: Sequence[Tensor], ends: Any) -> Tensor:
        module, shape = ends
        return functional_call(_Behind(module), Part.named(names, inputs[2:]), (inputs[0], inputs[1], shape))

    return composite(steps.made, ["same"] * (2 + len(names)), "same", ordinary)


def _features(block: nn.Module, whole: Tensor, shape: tuple[int, ...]) -> Features:
    first = block.mlp.layers[0]
    channels = getattr(first, "linear_left", first).weight.shape[1]
    return Features.of_whole(whole, channels, shape, SPACETIME)


class _Before(Part):
    def forward(self, whole: Tensor, shape: tuple[int, ...], items: tuple[int, int]) -> Tensor:
        block = self.block
        x = run_layer(block.norm1, EquiLayerNorm, _features(self.block, whole, shape))
        (heads,) = block.attention.qkv_module._project(x, None, as_query=True)
        return rows_of_heads(*heads, items)


class _Behind(Part):
    def forward(self, heads: Tensor, whole: Tensor, shape: tuple[int, ...]) -> Tensor:
        block, x = self.block, _features(self.block, whole, shape)
        channels = block.attention.qkv_module.config.hidden_mv_channels
        mv, s = planes_of_heads(heads, SPACETIME.size, channels)
        h = x.with_(mv, s if s.shape[0] else None)
        x = x + run_layer(block.attention.out_linear, EquiLinear, h)
        return (x + run_layer(block.mlp, GeoMLP, run_layer(block.norm2, EquiLayerNorm, x))).whole()


def block_of(
    module: nn.Module, x: Features, extra: Optional[Features], options: Optional[dict], again: bool = False
) -> Optional[Features]:
    """The block's result by composites, whose steps the backward pass computes ``again`` rather than to keep them; None where its layers are to be run one by one: on other devices, under compilers, transformations
    or autocast in everything, with layers that somebody watches or has replaced, dropout, several queries to a key, or channels beside the
    queries'. Under autocast, which leaves multivectors in float32, scalars are in float32 as well until they leave the block."""
    kind = x.mv.device.type
    if extra is not None or not composites.pays(x.mv.device, x.mv.shape[2]):
        return None
    if not is_island():
        return _run(module, x, options, again) if is_eager(x.mv) else None
    with torch.autocast(kind, enabled=False):
        s = None if x.s is None else x.s.float()
        wide = x if x.is_whole else x.with_(x.mv.float(), s)
        made = _run(module, wide, options, again) if is_eager(x.mv) else None
    if made is None or made.s is None:
        return made
    s = made.s.to(x.s.dtype)
    return replace(made, s=s, kept=(made.whole(), made.mv, s))


def _run(module: nn.Module, x: Features, options: Optional[dict], again: bool) -> Optional[Features]:
    options = dict(options or {})
    items = batch(x.shape, options)
    if len(items) != 2 or 0 in x.mv.shape:
        return None
    try:
        block, first, second = _read(module, *x.channels)
    except Differs:
        return None
    whole = x.whole()
    first_inputs = [whole, *(p for _, p in first)]
    second_inputs = [p for _, p in second]
    if not is_plain([*first_inputs, *second_inputs]):
        return None
    before = _before(block, items, tuple(name for name, _ in first))
    behind = _behind(block, x.mv.shape[2], tuple(name for name, _ in second))
    if not before.native.admits(first_inputs) or not behind.native.admits([whole, whole, *second_inputs]):
        return None
    ends = module, x.shape
    q, k, v = run(before, first_inputs, ends, again=again)
    heads = weigh(q, k, v, **options)
    attention = module.attention
    if attention.use_head_scale:
        heads = heads * attention.head_scale[:, None, None]
    made = run(behind, [heads, whole, *second_inputs], ends, again=again)
    return Features.of_whole(made, block.mv, x.shape, x.blades)

"""A block of L-GATr-slim as two composites with the attention between them, for eager code, on feature planes
``[scalars + 4 · vectors, rows]``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from gradewise.torch._composite import Composite, composite, is_eager, is_plain, run
from gradewise.torch._transformers import composites
from gradewise.torch._transformers.algebra import SPACETIME
from gradewise.torch._transformers.attention import batch, weigh
from gradewise.torch._transformers.composites import Differs, Named, Part, Reader, Steps, activation_of, parameter
from gradewise.torch._transformers.features import acts_as, is_without_hooks
from gradewise.torch.lgatr.layers.slim import Pair, SlimDropout, SlimGLU, SlimLinear, SlimMLP, SlimRMSNorm
from gradewise.torch.lgatr.layers.slim_attention import SlimBlock, SlimSelfAttention

_VECTORS = [1, 2, 3, 4]
"""The blades of the planes: those of t, x, y and z."""


@dataclass(frozen=True)
class _Linear:
    """A map: vectors and scalars of its result, and whether scalars have a bias."""

    v: int
    s: int
    bias: bool


@dataclass(frozen=True)
class _Norm:
    epsilon: float
    gains: bool


@dataclass(frozen=True)
class _Gate:
    """A gated linear unit: its map, the vectors of its result, and its functions."""

    linear: _Linear
    v: int
    gate: str
    scalar_gate: str


@dataclass(frozen=True)
class _Block:
    """What there is to know of a block but for its parameters."""

    v: int
    s: int
    norm1: _Norm
    qkv: _Linear
    heads: int
    v_of_head: int
    s_of_head: int
    norm_qkv: _Norm
    out: _Linear
    norm2: _Norm
    mlp: tuple[Union[_Gate, _Linear], ...]


def _is(module: Optional[nn.Module], kind: type) -> bool:
    """Whether calling a module does nothing but the ``forward`` of this class."""
    return isinstance(module, nn.Module) and acts_as(module) is kind and "forward" not in module.__dict__ and is_without_hooks(module)


def _linear_of(module: Any, v: int, s: int) -> Optional[tuple[_Linear, Named]]:
    if not _is(module, SlimLinear):
        return None
    weight, inner = parameter(module, "weight_v"), module.linear_s
    if not isinstance(inner, nn.Module) or type(inner).forward is not nn.Linear.forward or "forward" in inner.__dict__:
        return None
    between, bias = parameter(module, "linear_s.weight"), parameter(module, "linear_s.bias")
    if not is_without_hooks(inner) or weight is None or between is None or 0 in weight.shape:
        return None
    if weight.shape[1] != v or between.shape[1] != s or (inner.bias is not None and bias is None):
        return None
    named = [("weight_v", weight), *([] if bias is None else [("linear_s.bias", bias)]), ("linear_s.weight", between)]
    return _Linear(weight.shape[0], between.shape[0], bias is not None), named


def _norm_of(module: Any, gains: Optional[tuple[int, int]]) -> Optional[tuple[_Norm, Named]]:
    if not _is(module, SlimRMSNorm):
        return None
    found = [(name, parameter(module, name)) for name in ("weight_v", "weight_s")]
    if module.weight_v is None and module.weight_s is None:
        return _Norm(module.epsilon, False), []
    named = [(name, x) for name, x in found if x is not None]
    if len(named) != 2 or gains is None or tuple(x.numel() for _, x in named) != gains:
        return None
    return _Norm(module.epsilon, True), named


def _is_off(module: Optional[nn.Module]) -> bool:
    if module is None:
        return True
    return _is(module, SlimDropout) and (not module.training or module._dropout_prob == 0)


def _mlp_of(module: Any, v: int, s: int, reader: Reader) -> tuple[Union[_Gate, _Linear], ...]:
    if not _is(module, SlimMLP):
        raise Differs
    layers: list[Union[_Gate, _Linear]] = []
    for number, layer in enumerate(module.layers):
        name = f"mlp.layers.{number}"
        if _is_off(layer):
            continue
        if _is(layer, SlimGLU):
            linear = reader.take(_linear_of(layer.linear, v, s), f"{name}.linear")
            if linear.v % 3 or linear.s % 2:
                raise Differs
            functions = activation_of(layer.nonlinearity_v), activation_of(layer.nonlinearity)
            layers.append(_Gate(linear, linear.v // 3, *functions))
            v, s = linear.v // 3, linear.s // 2
        else:
            linear = reader.take(_linear_of(layer, v, s), name)
            layers.append(linear)
            v, s = linear.v, linear.s
    return tuple(layers)


def _read(block: Any, v: int, s: int) -> tuple[_Block, Named, Named]:
    """The block, and the parameters of the part before the attention and of that behind it."""
    attention = block.attention
    if not _is(block, SlimBlock) or not _is(attention, SlimSelfAttention) or not _is_off(attention.dropout):
        raise Differs
    first, second = Reader(), Reader()
    of_head, heads = (attention.hidden_v_channels, attention.hidden_s_channels), attention.num_heads
    norm1 = first.take(_norm_of(block.norm1, (v, s)), "norm1")
    qkv = first.take(_linear_of(attention.linear_in, v, s), "attention.linear_in")
    norm_qkv = first.take(_norm_of(attention.norm, None), "attention.norm")
    out = second.take(_linear_of(attention.linear_out, of_head[0] * heads, of_head[1] * heads), "attention.linear_out")
    norm2 = second.take(_norm_of(block.norm2, (v, s)), "norm2")
    mlp = _mlp_of(block.mlp, v, s, second)
    last = mlp[-1] if mlp else None
    if (qkv.v, qkv.s) != tuple(3 * count * heads for count in of_head) or (out.v, out.s) != (v, s):
        raise Differs
    if not isinstance(last, _Linear) or (last.v, last.s) != (v, s):
        raise Differs
    made = _Block(v, s, norm1, qkv, heads, *of_head, norm_qkv, out, norm2, mlp)
    return made, first.named, second.named


class _Steps(Steps):
    """Steps on planes of vectors."""

    def __init__(self, inputs: int, parameters: int) -> None:
        super().__init__(inputs, parameters, SPACETIME)
        self._planes = {"algebra": "{},{},{}".format(*SPACETIME.space.signature), "order": _VECTORS}

    def map(self, x: int, v: int, linear: _Linear) -> int:
        """A map of ``v`` vectors and of scalars at ``x``, with the next parameters."""
        given = ["to_scalars_bias", "between"] if linear.bias else ["between"]
        attributes = {
            "blades": 4,
            "maps": 1,
            "mixes": False,
            "entries": [(0, plane, plane, 1.0) for plane in range(4)],
            "given": given,
        }
        weight, *others = self.parameters(1 + len(given))
        weight = self.add("reshape", {"shape": [linear.v, v, 1]}, [weight])
        return self.add("equi_linear", attributes, [x, weight, *others])

    def joint_norm(self, x: int, v: int, norm: _Norm, groups: int = 1, heads: int = 1) -> int:
        """The norm of ``v`` vectors and of scalars at ``x``, or of those of each head."""
        attributes = self._planes | {"groups": groups, "heads": heads, "channels": v, "epsilon": norm.epsilon}
        attributes |= {"gains": norm.gains, "scalar_gains": norm.gains}
        return self.add("joint_norm", attributes, [x, *self.parameters(2 * norm.gains)])

    def gate(self, x: int, gate: _Gate) -> int:
        """The gates of vectors and scalars at ``x``."""
        attributes = self._planes | {"channels": gate.v, "gate": gate.gate, "scalar_gate": gate.scalar_gate}
        return self.add("product_gate", attributes, [x])

    def heads_of(self, x: int, block: _Block, items: tuple[int, int]) -> int:
        """Queries, keys and values at ``x`` as rows of heads."""
        sizes = {"groups": 3, "channels": block.v_of_head, "scalars": block.s_of_head, "heads": block.heads}
        attributes = self._planes | sizes | {"batch": items[0], "items": items[1], "query": 0}
        return self.add("split_heads", attributes | {"epsilon": None, "gain": 1.0}, [x])

    def planes_of(self, heads: int, block: _Block) -> int:
        """Rows of heads as planes."""
        attributes = {"blades": 4, "channels": block.v_of_head, "scalars": block.s_of_head}
        return self.add("merge_heads", attributes, [heads])


def _parts(whole: Tensor, v: int, shape: Sequence[int]) -> Pair:
    """Vectors ``[..., items, 4, channels]`` and scalars ``[..., items, channels]`` of planes."""
    s = whole.shape[0] - 4 * v
    vectors = whole[s:].view(4, v, whole.shape[1]).permute(2, 0, 1)
    return vectors.reshape(*shape, 4, v), whole[:s].t().reshape(*shape, s)


def _whole(vectors: Tensor, scalars: Tensor) -> Tensor:
    """Their planes."""
    rows = scalars.numel() // scalars.shape[-1]
    planes = vectors.reshape(rows, 4 * vectors.shape[-1]).t()
    return torch.cat((scalars.reshape(rows, scalars.shape[-1]).t(), planes))


class _Before(Part):
    def forward(self, whole: Tensor, v: int, items: tuple[int, int]) -> Tensor:
        block = self.block
        found = block.attention.linear_in(*block.norm1(*_parts(whole, v, items)))
        return block.attention._matrices(*found, 3, 0)


class _Behind(Part):
    def forward(self, heads: Tensor, whole: Tensor, v: int, items: tuple[int, int]) -> Tensor:
        block, (vectors, scalars) = self.block, _parts(whole, v, items)
        split = 4 * block.attention.hidden_v_channels
        h_v = heads[..., :split].unflatten(-1, (4, -1)).movedim(-4, -2).flatten(-2)
        v_out, s_out = block.attention.linear_out(h_v, heads[..., split:].movedim(-2, -3).flatten(-2))
        vectors, scalars = vectors + v_out, scalars + s_out
        v_out, s_out = block.mlp(*block.norm2(vectors, scalars))
        return _whole(vectors + v_out, scalars + s_out)


@lru_cache(maxsize=256)
def _before(block: _Block, items: tuple[int, int], names: tuple[str, ...]) -> Composite:
    """Norm, map and norms of the heads: queries, keys and values of features and the parameters of these names."""
    steps = _Steps(1, len(names))
    x = steps.map(steps.joint_norm(0, block.v, block.norm1), block.v, block.qkv)
    steps.heads_of(steps.joint_norm(x, block.v_of_head, block.norm_qkv, 3, block.heads), block, items)

    def ordinary(inputs: Sequence[Tensor], module: Any) -> Tensor:
        return functional_call(_Before(module), Part.named(names, inputs[1:]), (inputs[0], block.v, items))

    return composite(steps.made, ["same"] * (1 + len(names)), "same", ordinary, groups=True)


@lru_cache(maxsize=256)
def _behind(block: _Block, items: tuple[int, int], names: tuple[str, ...]) -> Composite:
    """The map of the attention's result, the residual, and the perceptron with its own, of heads, features and parameters."""
    steps = _Steps(2, len(names))
    h = steps.map(steps.planes_of(0, block), block.v_of_head * block.heads, block.out)
    residual = steps.add("add", None, [1, h])
    x, v = steps.joint_norm(residual, block.v, block.norm2), block.v
    for layer in block.mlp:
        if isinstance(layer, _Gate):
            x, v = steps.gate(steps.map(x, v, layer.linear), layer), layer.v
        else:
            x, v = steps.map(x, v, layer), layer.v
    steps.add("add", None, [residual, x])

    def ordinary(inputs: Sequence[Tensor], module: Any) -> Tensor:
        given = inputs[0], inputs[1], block.v, items
        return functional_call(_Behind(module), Part.named(names, inputs[2:]), given)

    return composite(steps.made, ["same"] * (2 + len(names)), "same", ordinary)


def _block_of(
    module: nn.Module, whole: Tensor, v: int, items: tuple[int, int], options: dict, again: bool
) -> Optional[Tensor]:
    """The block's result by composites, in planes; None where its layers are to be run one by one."""
    try:
        block, first, second = _read(module, v, whole.shape[0] - 4 * v)
    except Differs:
        return None
    first_inputs, second_inputs = [whole, *(p for _, p in first)], [p for _, p in second]
    if not is_plain([*first_inputs, *second_inputs]):
        return None
    before = _before(block, items, tuple(name for name, _ in first))
    behind = _behind(block, items, tuple(name for name, _ in second))
    if not before.native.admits(first_inputs) or not behind.native.admits([whole, whole, *second_inputs]):
        return None
    q, k, v_ = run(before, first_inputs, module, again=again)
    heads = weigh(q, k, v_, **options)
    return run(behind, [heads, whole, *second_inputs], module, again=again)


def through(
    blocks: Iterable[nn.Module], vectors: Tensor, scalars: Tensor, options: dict, again: bool = False
) -> Pair:
    """Blocks one after the other, which the backward pass computes ``again`` rather than to keep what is in them: in planes by composites as far
    as they are blocks of this library that nobody watches, on devices and in code where that pays; by their own calls otherwise, such as
    under compilers, transformations, autocast and dropout."""
    shape, v = scalars.shape[:-1], vectors.shape[-1]
    items = batch(shape, dict(options))
    pays = composites.pays(vectors.device) and is_eager(vectors) and vectors.dtype == scalars.dtype
    pays = pays and len(items) == 2 and 0 not in vectors.shape and 0 not in scalars.shape
    whole = None
    for block in blocks:
        made = None
        if pays and isinstance(block, nn.Module):
            whole = _whole(vectors, scalars) if whole is None else whole
            made = _block_of(block, whole, v, items, options, again)
        if made is None:
            if whole is not None:
                vectors, scalars = _parts(whole, v, shape)
            if again:
                vectors, scalars = checkpoint(block, vectors, scalars, use_reentrant=False, **options)
            else:
                vectors, scalars = block(vectors, scalars, **options)
        whole = made
    return (vectors, scalars) if whole is None else _parts(whole, v, shape)

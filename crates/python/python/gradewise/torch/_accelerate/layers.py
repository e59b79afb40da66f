"""The layers of transformers that are known, by their published names: what each takes, and which of ours it may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from torch import nn

import gradewise.torch.gatr.layers as gatr_layers
import gradewise.torch.gatr.nets as gatr_nets
import gradewise.torch.lgatr.layers as lgatr_layers
import gradewise.torch.lgatr.nets as lgatr_nets
from gradewise.torch._accelerate.gate import MULTIVECTORS, SCALARS, VECTORS, VECTORS_LAST, Argument
from gradewise.torch._transformers.features import Layer, acts_as
from gradewise.torch.gatr.layers import attention as gatr_attention
from gradewise.torch.gatr.layers.norm import gate
from gradewise.torch.lgatr.layers import attention as lgatr_attention
from gradewise.torch.lgatr.layers import slim, slim_attention

Takes = dict[str, Argument]


@dataclass(frozen=True)
class LayerKind:
    """A published layer, and ours."""

    package: str
    layer: type[nn.Module]
    marks: tuple[str, ...]
    """Attributes that it has: many classes have its name."""
    takes: Callable[[Any], Takes]
    """The tensors that a module takes, by name."""
    optional: frozenset[str] = frozenset()
    """Those that it may go without."""
    attention: tuple[str, ...] = ()
    """The parameters that have options of attention, "" for those by name."""
    reference: Optional[str] = None
    """The parameter for the reference of joins."""
    axes: int = 1
    """The least number of axes before the items."""
    extras: Callable[[Any], Mapping[str, Any]] = field(default=lambda module: {})

    @property
    def name(self) -> str:
        """The published name."""
        return self.layer.__name__

    @property
    def replacement(self) -> str:
        """Ours, with its place."""
        return f"gradewise.torch.{self.package}.{self.name}"


def _pair(mv: Optional[int], s: Optional[int], first: str = "multivectors", group: int = 0, **names: str) -> Takes:
    takes = {first: Argument(MULTIVECTORS, mv, group)}
    if s is None or s > 0:
        takes[names.get("scalars", "scalars")] = Argument(SCALARS, s, group)
    return takes


def _sizes(linear: Any) -> tuple[int, int]:
    """The channels of multivectors and scalars that a linear map takes."""
    scalars = getattr(linear, "_in_s_channels", None)
    if scalars is None:
        part = linear.s2mvs if linear.s2mvs is not None else linear.s2s
        scalars = 0 if part is None else part.in_features
    return linear.weight.shape[1], scalars


def _of_linear(module: Any) -> Takes:
    return _pair(*_sizes(module))


def _any(module: Any) -> Takes:
    return _pair(None, None)


def _of_norm(module: Any) -> Takes:
    if getattr(module, "weight_mv", None) is None:
        return _pair(None, None)
    return _pair(module.weight_mv.shape[0], module.weight_s.shape[0])


def _of_mlp(module: Any) -> Takes:
    first = next(m for m in module.modules() if hasattr(m, "s2mvs"))
    return _pair(*_sizes(first))


def _extra(config: Any) -> Takes:
    takes = {}
    if config.additional_qk_mv_channels:
        takes["additional_qk_features_mv"] = Argument(MULTIVECTORS, config.additional_qk_mv_channels)
    if config.additional_qk_s_channels:
        takes["additional_qk_features_s"] = Argument(SCALARS, config.additional_qk_s_channels)
    return takes


def _of_config(config: Any, first: str = "multivectors") -> Takes:
    return _pair(config.in_mv_channels, config.in_s_channels or 0, first) | _extra(config)


def _of_cross(config: Any) -> Takes:
    return _pair(config.q_mv_channels, config.q_s_channels, "multivectors_q", scalars="scalars_q") | _pair(
        config.kv_mv_channels, config.kv_s_channels, "multivectors_kv", 1, scalars="scalars_kv"
    )


def _condition(config: Any) -> Takes:
    return _pair(config.kv_mv_channels, config.kv_s_channels, "multivectors_cond", 1, scalars="scalars_cond")


def _of_conditional_block(module: Any) -> Takes:
    return _of_config(module.attention.qkv_module.config) | _condition(module.crossattention.config)


def _of_conditional(module: Any) -> Takes:
    takes = _of_linear(module.linear_in)
    if not len(module.blocks):
        return takes | _pair(None, None, "multivectors_cond", 1, scalars="scalars_cond")
    return takes | _condition(module.blocks[0].crossattention.config)


def _slim(
    v: Optional[int],
    s: Optional[int],
    names: tuple[str, str] = ("vectors", "scalars"),
    group: int = 0,
    layout: str = VECTORS,
) -> Takes:
    return {names[0]: Argument(layout, v, group), names[1]: Argument(SCALARS, s, group)}


def _of_slim_linear(module: Any, layout: str = VECTORS) -> Takes:
    return _slim(module._in_v_channels, module._in_s_channels, layout=layout)


def _of_slim_norm(module: Any) -> Takes:
    if module.weight_v is None:
        return _slim(None, None)
    return _slim(module.weight_v.shape[0], module.weight_s.shape[0])


def _of_slim_cross(
    module: Any, names: tuple[str, ...] = ("vectors_q", "scalars_q", "vectors_kv", "scalars_kv"), layout: str = VECTORS
) -> Takes:
    q, kv = module.linear_in_q, module.linear_in_kv
    return (
        _slim(q._in_v_channels, q._in_s_channels, names[:2], 0, layout)
        | _slim(  # type: ignore[arg-type]
            kv._in_v_channels,
            kv._in_s_channels,
            names[2:],
            1,
            layout,  # type: ignore[arg-type]
        )
    )


_CONDITIONED = ("vectors", "scalars", "vectors_cond", "scalars_cond")


def _of_slim_conditional(module: Any) -> Takes:
    if not len(module.blocks):
        takes = _slim(None, None, _CONDITIONED[2:], 1, VECTORS_LAST)  # type: ignore[arg-type]
    else:
        takes = _of_slim_cross(module.blocks[0].crossattention, _CONDITIONED, VECTORS_LAST)
    return takes | _of_slim_linear(module.linear_in, VECTORS_LAST)


def _kinds_inside(module: Any) -> dict[str, Any]:
    kinds = [acts_as(layer) for layer in module.layers]
    return {"_kinds": [kind if issubclass(kind, Layer) else Layer for kind in kinds]}


def _constants(module: Any) -> dict[str, Any]:
    return {"_constants": (float(module.epsilon), float(module.gain))}


def _gate(module: Any) -> dict[str, Any]:
    return {"_gate": gate(module.gated_nonlinearity.__name__.removeprefix("gated_"))}


_S = frozenset({"scalars"})
_LINEAR = ("weight", "bias", "s2mvs", "mvs2s", "s2s")
_BILINEAR = ("linear_left", "linear_right", "linear_out")
_NET = ("linear_in", "blocks", "linear_out")
_BOTH = ("attn_kwargs", "crossattn_kwargs")


def _lgatr(layer: type[nn.Module], marks: tuple[str, ...], takes: Callable[[Any], Takes], **more: Any) -> LayerKind:
    return LayerKind("lgatr", layer, marks, takes, **more)


def _gatr(layer: type[nn.Module], marks: tuple[str, ...], takes: Callable[[Any], Takes], **more: Any) -> LayerKind:
    return LayerKind("gatr", layer, marks, takes, **more)


LAYERS = (
    _lgatr(lgatr_layers.EquiLinear, (*_LINEAR, "primitives"), _of_linear),
    _lgatr(lgatr_layers.EquiLayerNorm, ("mv_channel_dim", "epsilon", "gain"), _of_norm, optional=_S, extras=_constants),
    _lgatr(lgatr_layers.GradeDropout, ("_dropout_prob",), _any, optional=_S),
    _lgatr(lgatr_layers.ScalarGatedNonlinearity, ("nonlinearity",), _any, optional=_S),
    _lgatr(lgatr_layers.GeometricBilinear, (*_BILINEAR, "norm", "primitives"), _of_mlp),
    _lgatr(lgatr_layers.GeoMLP, ("layers",), _of_mlp, extras=_kinds_inside),
    _lgatr(lgatr_attention.QKVModule, ("in_linear", "norm_qkv", "config"), lambda m: _of_config(m.config)),
    _lgatr(lgatr_attention.MultiQueryQKVModule, ("q_linear", "norm_qkv", "config"), lambda m: _of_config(m.config)),
    _lgatr(
        lgatr_layers.SelfAttention,
        ("qkv_module", "out_linear", "use_head_scale"),
        lambda m: _of_config(m.qkv_module.config),
        attention=("",),
    ),
    _lgatr(
        lgatr_layers.CrossAttention, ("q_linear", "kv_linear", "norm"), lambda m: _of_cross(m.config), attention=("",)
    ),
    _lgatr(
        lgatr_layers.LGATrBlock,
        ("attention", "mlp", "norm1", "norm2"),
        lambda m: _of_config(m.attention.qkv_module.config),
        attention=("",),
    ),
    _lgatr(
        lgatr_layers.ConditionalLGATrBlock,
        ("attention", "crossattention", "mlp", "norm_cond"),
        _of_conditional_block,
        attention=_BOTH,
    ),
    _lgatr(lgatr_nets.LGATr, (*_NET, "primitives"), lambda m: _of_linear(m.linear_in), attention=("",)),
    _lgatr(lgatr_nets.ConditionalLGATr, (*_NET, "primitives"), _of_conditional, attention=_BOTH),
    _lgatr(slim.SlimLinear, ("weight_v", "linear_s"), _of_slim_linear),
    _lgatr(slim.SlimRMSNorm, ("weight_v", "weight_s", "epsilon"), _of_slim_norm),
    _lgatr(slim.SlimDropout, ("_dropout_prob",), lambda m: _slim(None, None)),
    _lgatr(slim.SlimGLU, ("linear", "nonlinearity", "nonlinearity_v"), lambda m: _of_slim_linear(m.linear)),
    _lgatr(slim.SlimMLP, ("layers",), lambda m: _of_slim_linear(getattr(m.layers[0], "linear", m.layers[0]))),
    _lgatr(
        slim_attention.SlimSelfAttention,
        ("linear_in", "linear_out", "norm", "hidden_v_channels"),
        lambda m: _of_slim_linear(m.linear_in),
        attention=("",),
    ),
    _lgatr(slim_attention.SlimCrossAttention, ("linear_in_q", "linear_in_kv", "norm"), _of_slim_cross, attention=("",)),
    _lgatr(
        slim_attention.SlimBlock,
        ("norm1", "norm2", "attention", "mlp"),
        lambda m: _of_slim_linear(m.attention.linear_in),
        attention=("",),
    ),
    _lgatr(
        slim_attention.ConditionalSlimBlock,
        ("norm3", "selfattention", "crossattention", "mlp"),
        lambda m: _of_slim_cross(m.crossattention, _CONDITIONED),
        attention=_BOTH,
    ),
    _lgatr(lgatr_nets.LGATrSlim, _NET, lambda m: _of_slim_linear(m.linear_in, VECTORS_LAST), attention=("",)),
    _lgatr(lgatr_nets.ConditionalLGATrSlim, _NET, _of_slim_conditional, attention=_BOTH),
    _gatr(gatr_layers.EquiLinear, (*_LINEAR, "_in_mv_channels"), _of_linear),
    _gatr(gatr_layers.EquiLayerNorm, ("mv_channel_dim", "epsilon"), _any, optional=_S),
    _gatr(gatr_layers.GradeDropout, ("_dropout_prob",), _any, optional=_S),
    _gatr(
        gatr_layers.ScalarGatedNonlinearity,
        ("gated_nonlinearity", "scalar_nonlinearity"),
        _any,
        optional=_S,
        extras=_gate,
    ),
    _gatr(gatr_layers.GeometricBilinear, (*_BILINEAR, "linear_join_left"), _of_mlp, reference="reference_mv"),
    _gatr(gatr_layers.GeoMLP, ("layers",), _of_mlp, reference="reference_mv", extras=_kinds_inside),
    _gatr(gatr_attention.QKVModule, ("in_linear", "config"), lambda m: _of_config(m.config, "inputs")),
    _gatr(
        gatr_attention.MultiQueryQKVModule, ("q_linear", "k_linear", "config"), lambda m: _of_config(m.config, "inputs")
    ),
    _gatr(
        gatr_layers.SelfAttention,
        ("qkv_module", "out_linear", "pos_encoding", "attention"),
        lambda m: _of_config(m.config),
        attention=("attention_mask",),
    ),
    _gatr(
        gatr_layers.GATrBlock,
        ("attention", "mlp", "norm"),
        lambda m: _of_config(m.attention.config),
        attention=("attention_mask",),
        reference="reference_mv",
    ),
    _gatr(
        gatr_nets.GATr,
        _NET,
        lambda m: _of_linear(m.linear_in),
        attention=("attention_mask",),
        reference="join_reference",
    ),
    _gatr(gatr_nets.AxialGATr, _NET, lambda m: _of_linear(m.linear_in), reference="join_reference", axes=2),
)

BY_NAME: dict[str, list[LayerKind]] = {}
for _kind in LAYERS:
    BY_NAME.setdefault(_kind.name, []).append(_kind)


def layers_of(module: nn.Module) -> list[LayerKind]:
    """The published layers that a module may be by its name, or by that of a class it inherits from, and by its attributes; the likeliest
    first."""
    for cls in type(module).__mro__:
        kinds = BY_NAME.get(cls.__name__, [])
        found = [kind for kind in kinds if all(hasattr(module, mark) for mark in kind.marks)]
        if found:
            return sorted(found, key=lambda kind: kind.package not in cls.__module__.split("."))
    return []


def is_ours(module: nn.Module) -> bool:
    """Whether this is a layer of this package, or one that inherits from it."""
    return isinstance(module, tuple(kind.layer for kind in LAYERS))


def is_compiled(module: nn.Module) -> bool:
    """Whether a layer's ``forward`` was compiled, as by the published ``compile=True``."""
    return hasattr(module.__dict__.get("forward"), "_torchdynamo_orig_callable")

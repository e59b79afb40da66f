"""Attention: queries, keys and values of heads as one matrix each, and the implementations that weigh them."""

from __future__ import annotations

import importlib
import json
import math
from functools import lru_cache
from typing import Any, Callable, Optional, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from gradewise._errors import ArgumentError, ShapeError
from gradewise.torch._composite import Composite, composite, is_plain, is_transformed, run

_BY_OPTION = {
    "varlen": ("cu_seq_q", "cu_seq_k", "max_q", "max_k"),
    "xformers": ("attn_bias", "op"),
    "flex": ("score_mod", "block_mask"),
    "flash": ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"),
}
"""The options by which an implementation is recognised, in the order in which they are looked for."""


def rows_of_heads(mv: Tensor, s: Optional[Tensor], shape: Sequence[int]) -> Tensor:
    """Features of heads as matrices ``[groups, ..., heads, items, 16 · channels + scalars]``.

    Args:
        mv: planes ``[16, groups, channels, heads, rows]``.
        s: scalars ``[groups, heads, rows, channels]``.
        shape: ``(..., items)``, of the rows.
    """
    lead = range(len(shape) - 1)
    split = mv.reshape(*mv.shape[:4], *shape)
    made = split.permute(1, *(4 + axis for axis in lead), 3, 3 + len(shape), 0, 2).flatten(-2)
    if s is None or s.shape[-1] == 0:
        return made
    split = s.reshape(*s.shape[:2], *shape, s.shape[3])
    return torch.cat((made, split.permute(0, *(2 + axis for axis in lead), 1, 1 + len(shape), 2 + len(shape))), -1)


def batch(shape: Sequence[int], options: dict[str, Any]) -> tuple[int, ...]:
    """``(..., items)`` with its first axes as one, which kernels ask for, unless an option may speak of them."""
    if len(shape) > 2 and any(value is not None for value in options.values()):
        return tuple(shape)
    size = 1
    for axis in shape[:-1]:
        size *= axis
    return size, shape[-1]


def planes_of_heads(x: Tensor, blades: int, channels: int) -> tuple[Tensor, Tensor]:
    """``[..., heads, items, 16 · channels + scalars]`` as planes ``[16, heads · channels, rows]`` and scalars ``[heads · scalars,
    rows]``."""
    n = x.dim()
    lead = range(n - 3)
    mv, s = x[..., : blades * channels], x[..., blades * channels :]
    mv = mv.unflatten(-1, (blades, channels)).permute(n - 1, n - 3, n, *lead, n - 2)
    s = s.permute(n - 3, n - 1, *lead, n - 2)
    heads = x.shape[-3]
    rows = x.shape[-2]
    for size in x.shape[: n - 3]:
        rows *= size
    return mv.reshape(blades, heads * channels, rows), s.reshape(heads * s.shape[1], rows)


def weigh(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """Scaled dot-product attention ``[..., heads, items, features]`` by the implementation that the options ask for.

    Args:
        q: queries ``[..., heads, items, features]``, or ``[items, features]`` without heads, as keys and values then.
        k: keys; one head or as many as the queries have.
        v: values; as keys.
        options: ``backend``, one of "native", "varlen", "flex", "xformers" and "flash", and what that implementation takes. Without
            ``backend`` it is the first that knows one of the options, ``torch.nn.functional.scaled_dot_product_attention`` otherwise.
    """
    name = options.pop("backend", None)
    if name is None:
        given = {option for option, value in options.items() if value is not None}
        name = next((n for n, known in _BY_OPTION.items() if given.intersection(known)), "native")
    if name not in _BACKENDS:
        raise ArgumentError(f"attention: backend {name!r}, expected one of {', '.join(map(repr, _BACKENDS))}, or None")
    if q.dim() == 2:
        return _BACKENDS[name](q[None], k[None], v[None], **options)[0]
    return _BACKENDS[name](q, k, v, **options)


_MOST_FEATURES = 128, 96
"""Of a head for matrix instructions, in TF32 and in float32."""


def _is_served(q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> bool:
    """Whether the library's kernels compute this attention: of float32 in eager code on a GPU with matrix instructions for it, where
    nothing is asked for but a scale and the causal mask of as many queries as keys, and PyTorch may choose its fused kernels."""
    if not (q.is_cuda and q.dtype is k.dtype is v.dtype is torch.float32 and q.dim() == k.dim() == v.dim() == 4):
        return False
    more = any(value for name, value in options.items() if name not in ("attn_mask", "scale", "is_causal"))
    if more or options.get("attn_mask") is not None or 0 in q.shape or 0 in k.shape or 0 in v.shape:
        return False
    if q.shape[0] != k.shape[0] or k.shape[:3] != v.shape[:3] or q.shape[3] != k.shape[3] or q.shape[1] % k.shape[1]:
        return False
    if options.get("is_causal") and q.shape[2] != k.shape[2]:
        return False
    # PyTorch's takes any scale.
    if options.get("scale") is not None and not 0 < options["scale"] < math.inf:
        return False
    if max(q.shape[-1], v.shape[-1]) > _MOST_FEATURES[0 if _allows_tf32() else 1] or not _has_instructions(q.device):
        return False
    fused = torch.backends.cuda.mem_efficient_sdp_enabled()
    return fused and is_plain((q, k, v)) and not torch.is_autocast_enabled("cuda")


def _allows_tf32() -> bool:
    matmul = torch.backends.cuda.matmul
    try:
        return matmul.allow_tf32
    except RuntimeError:
        # Reading the older setting fails once the newer one was used.
        return matmul.fp32_precision == "tf32"


@lru_cache(maxsize=None)
def _has_instructions(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0)


@lru_cache(maxsize=64)
def _attention(scale: float, causal: bool) -> Composite:
    def ordinary(inputs: Sequence[Tensor], _: Any) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(*_with_all_heads(*inputs), scale=scale, is_causal=causal)

    attributes = json.dumps({"causal": causal, "scale": scale, "lengths": None, "mask": None})
    return composite([("attention", attributes, [0, 1, 2])], ["same"] * 3, "same", ordinary)


def _with_all_heads(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values for each head of the queries."""
    count = q.shape[-3] // k.shape[-3]
    return (q, k, v) if count == 1 else (q, k.repeat_interleave(count, -3), v.repeat_interleave(count, -3))


def _own(q: Tensor, k: Tensor, v: Tensor, scale: Optional[float] = None, is_causal: bool = False, **_: Any) -> Tensor:
    made = _attention(q.shape[-1] ** -0.5 if scale is None else float(scale), bool(is_causal))
    # The kernels copy four features at a time.
    padded = [F.pad(x, (0, -x.shape[-1] % 4)) if x.shape[-1] % 4 else x for x in (q, k, v)]
    found = run(made, padded)
    return found[..., : v.shape[-1]] if v.shape[-1] % 4 else found


def _native(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    if _is_served(q, k, v, options):
        return _own(q, k, v, **options)
    if k.shape[-3] != q.shape[-3]:
        k, v = (x.expand(*x.shape[:-3], q.shape[-3], *x.shape[-2:]) for x in (k, v))
    mask = options.get("attn_mask")
    if mask is not None:
        scores = (*q.shape[:-1], k.shape[-2])
        if not isinstance(mask, Tensor) or not _broadcasts(mask.shape, scores):
            found = f"shape {list(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
            raise ShapeError(f"attention: attn_mask of {found}, expected a tensor that broadcasts to {list(scores)}")
    if is_transformed():
        # The fused kernels have no forward mode, and no rules for batches of gradients.
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v, **options)
    needs = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    fixed = not options.get("dropout_p") and not (mask is not None and mask.requires_grad)
    if needs and fixed and is_plain((q, k, v)) and not torch.is_autocast_enabled(q.device.type):
        return _Twice.apply(q, k, v, options)
    return F.scaled_dot_product_attention(q, k, v, **options)


class _Twice(torch.autograd.Function):
    """PyTorch's attention, whose fused kernels are not to be differentiated twice: a backward pass that is itself differentiated goes
    through its definition."""

    @staticmethod
    def forward(ctx, q, k, v, options):
        ctx.save_for_backward(q, k, v)
        ctx.options = options
        with torch.enable_grad():
            inputs = [x.detach().requires_grad_(need) for x, need in zip((q, k, v), ctx.needs_input_grad)]
            output = F.scaled_dot_product_attention(*inputs, **options)
        ctx.graph = output, inputs
        return output.detach()

    @staticmethod
    def backward(ctx, grad):
        output, inputs = ctx.graph
        saved = ctx.saved_tensors
        is_definition = torch.is_grad_enabled() or not is_plain((grad, *saved))
        if is_definition:
            inputs = saved
            with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
                inputs = [x.view_as(x) if need else x for x, need in zip(saved, ctx.needs_input_grad)]
                output = F.scaled_dot_product_attention(*inputs, **ctx.options)
        wanted = [x for x, need in zip(inputs, ctx.needs_input_grad) if need]
        found = iter(torch.autograd.grad(output, wanted, grad, retain_graph=True, create_graph=is_definition))
        return (*(next(found) if need else None for need in ctx.needs_input_grad[:3]), None)


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to)))


def _library(name: str, function: str, backend: str) -> Callable[..., Tensor]:
    try:
        return getattr(importlib.import_module(name), function)
    except (ImportError, AttributeError) as error:
        raise ArgumentError(
            f"attention: backend {backend!r} needs {name}.{function}, which is not there ({error}); install it, or leave out the options "
            "that ask for it"
        ) from error


def _flex(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return _library("torch.nn.attention.flex_attention", "flex_attention", "flex")(q, k, v, **options)


def _packed(module: str, function: str, backend: str) -> Callable[..., Tensor]:
    """An implementation for sequences of several lengths behind one another, in 16 bits: ``[items, heads, features]``."""

    def run(q: Tensor, k: Tensor, v: Tensor, dtype: Optional[torch.dtype] = None, **options: Any) -> Tensor:
        if q.dim() != 4 or q.shape[0] != 1:
            raise ShapeError(
                f"attention: backend {backend!r} with queries of shape {list(q.shape)}, expected [1, heads, items, features]: put the "
                "sequences behind one another, as items of one batch"
            )
        kernel = _library(module, function, backend)
        if not q.is_cuda:
            raise ArgumentError(
                f"attention: backend {backend!r} runs on a GPU, and the features are on {q.device}; use a mask"
            )
        if q.dtype.itemsize == 2:
            dtype = q.dtype
        elif dtype is None:
            dtype = torch.get_autocast_dtype("cuda")
        width = q.shape[-1]
        # Kernels take heads of a multiple of eight features.
        padding = -width % 8
        options.setdefault("softmax_scale" if backend == "flash" else "scale", width**-0.5)
        packed = [F.pad(x[0].transpose(0, 1).to(dtype), (0, padding)).contiguous() for x in (q, k, v)]
        made = kernel(*packed, **options)[..., : v.shape[-1]]
        return made.transpose(0, 1)[None].to(q.dtype)

    return run


def _xformers(q: Tensor, k: Tensor, v: Tensor, dtype: Optional[torch.dtype] = None, **options: Any) -> Tensor:
    if q.dim() != 4:
        raise ShapeError(f"attention: backend 'xformers' with queries of shape {list(q.shape)}, expected 4 axes")
    kernel = _library("xformers.ops", "memory_efficient_attention", "xformers")
    if not q.is_cuda:
        raise ArgumentError(
            f"attention: backend 'xformers' runs on a GPU, and the features are on {q.device}; use attn_mask"
        )
    width, padding = q.shape[-1], -q.shape[-1] % 8
    if k.shape[1] != q.shape[1]:
        k, v = (x.expand(-1, q.shape[1], -1, -1) for x in (k, v))
    options.setdefault("scale", width**-0.5)
    turned = [F.pad(x.transpose(1, 2).to(dtype or x.dtype), (0, padding)).contiguous() for x in (q, k, v)]
    made = kernel(*turned, **options)
    return made[..., :width].transpose(1, 2).to(q.dtype)


_BACKENDS: dict[str, Callable[..., Tensor]] = {
    "native": _native,
    "varlen": _packed("torch.nn.attention.varlen", "varlen_attn", "varlen"),
    "flex": _flex,
    "xformers": _xformers,
    "flash": _packed("flash_attn", "flash_attn_varlen_func", "flash"),
}

"""Puts fused operators in the place of the modules of somebody's model."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Optional

import torch
from torch import Tensor, nn

from gradewise._errors import ArgumentError
from gradewise.torch import cgenn, flash
from gradewise.torch._layout import signature_of, to_planes


@dataclass(frozen=True)
class Replaced:
    """A module that computes with operators of gradewise now."""

    path: str
    original: str
    replacement: str


@dataclass(frozen=True)
class Left:
    """A module that stays as it was."""

    path: str
    original: str
    reason: str


@dataclass(frozen=True)
class Border:
    """A call of a replaced module with features that lie in another order than its operators', so that they are copied."""

    path: str
    shape: tuple[int, ...]
    bytes: int
    microseconds: float
    """The time of the copy alone, where the features were."""


@dataclass
class Report:
    """What :func:`accelerate` did."""

    replaced: list[Replaced] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    borders: Optional[list[Border]] = None
    """What conversions at the borders of replaced parts cost for the example, if there was one."""

    def parts(self) -> list[Replaced]:
        """The replaced modules that are not inside of another one."""
        paths = {r.path for r in self.replaced}

        def is_outermost(path: str) -> bool:
            words = path.split(".")
            return not any(".".join(words[:n]) in paths for n in range(len(words))) or not path

        return sorted((r for r in self.replaced if is_outermost(r.path)), key=lambda r: r.path)

    def __str__(self) -> str:
        counts = Counter(r.original for r in self.replaced)
        lines = [
            f"replaced {len(self.replaced)} modules: " + ", ".join(f"{n} {name}" for name, n in counts.most_common())
        ]
        lines += [f"  {r.path or '(model)'}: {r.original}, with what is inside" for r in self.parts()]
        lines += [f"left {len(self.left)}"] if self.left else []
        lines += [f"  {m.path or '(model)'}: {m.original}: {m.reason}" for m in self.left]
        if self.borders is not None:
            total = sum(border.microseconds for border in self.borders)
            lines.append(f"{len(self.borders)} copies at borders in a forward pass of the example, {total:.0f} µs")
            lines += [f"  {b.path or '(model)'}: {list(b.shape)}, {b.microseconds:.1f} µs" for b in self.borders]
        return "\n".join(lines)


class _Stays(Exception):
    """A module that has no replacement, with the reason."""


def _require(module: nn.Module, *names: str) -> None:
    missing = [name for name in names if not hasattr(module, name)]
    if missing:
        raise _Stays(f"it has no {', '.join(missing)} as the published module has")


def _algebra(algebra: nn.Module) -> None:
    """Gives the published algebra the faster embeddings, once."""
    if isinstance(algebra, cgenn.CliffordAlgebra) or hasattr(algebra, "signature"):
        return
    _require(algebra, "metric")
    try:
        signature = signature_of(algebra.metric.tolist())
    except ArgumentError as error:
        raise _Stays(str(error)) from None
    algebra.signature = signature
    algebra.sizes = cgenn.grade_sizes(signature)
    # Only these: everything else of the published algebra, its tables among checkpoints' keys included, stays. They make no tensors of
    # indices, so that they can be captured.
    algebra.embed = partial(cgenn.embed, blades=algebra.n_blades)
    algebra.embed_grade = partial(cgenn.embed_grade, sizes=algebra.sizes)


def _linear(module: nn.Module) -> None:
    _require(module, "weight", "bias", "in_features", "out_features", "subspaces")
    if module.bias is not None and tuple(module.bias.shape) != (1, module.out_features, 1):
        raise _Stays(f"its bias has shape {list(module.bias.shape)}, expected [1, {module.out_features}, 1]")
    if bool(module.subspaces) != (module.weight.dim() == 3):
        raise _Stays(f"its weight has shape {list(module.weight.shape)}")


def _silu(module: nn.Module) -> None:
    _require(module, "a", "b", "invariant")
    if module.invariant != "mag2":
        raise _Stays(f"its invariant is {module.invariant!r}, and there is an operator for 'mag2'")


def _steerable(module: nn.Module) -> None:
    _require(module, "weight", "linear_right", "normalization", "include_first_order")
    parts = [module.linear_right, *([module.linear_left] if module.include_first_order else [])]
    is_normalized = isinstance(module.normalization, (cgenn.NormalizationLayer, nn.Identity))
    if not is_normalized or not all(type(part) is cgenn.MVLinear for part in parts):
        raise _Stays("not all of its parts were replaced")


def _sequence(module: nn.Module) -> None:
    kinds = (
        cgenn.MVLinear,
        cgenn.MVSiLU,
        cgenn.SteerableGeometricProductLayer,
        cgenn.MVLayerNorm,
    )
    if len(module) != len(kinds) or not all(type(child) is kind for child, kind in zip(module, kinds)):
        raise _Stays("")


def _blocks(module: nn.Module) -> None:
    _require(module, "layers")
    if not all(isinstance(layer, cgenn.Block) for layer in module.layers):
        raise _Stays("not all of its layers were replaced")


def _messages(module: nn.Module) -> None:
    _require(module, "edge_model", "node_model", "residual")
    if not all(type(child) is cgenn.CEMLP for child in (module.edge_model, module.node_model)):
        raise _Stays("its two networks were not replaced")


def _flash(module: nn.Module) -> None:
    _require(module, "gp_weight", "linear_weight", "linear_bias", "normalize")


@dataclass(frozen=True)
class _Kind:
    """A published class, by its name and a test, and what takes its place."""

    name: str
    replacement: type
    check: Callable[[nn.Module], None]
    has_algebra: bool = True
    prepare: Optional[Callable[[nn.Module], None]] = None


def _prepare_flash(module: nn.Module) -> None:
    full = module.gp_weight.dim() == 3
    module.n_features = module.linear_weight.shape[-1]
    module.signature = (module.linear_weight.shape[0] - 1, 0, 0)
    module.use_fc, module.bias_on = full, "all_blades"


_KINDS = [
    _Kind("MVLinear", cgenn.MVLinear, _linear, prepare=cgenn.MVLinear._arrange),
    _Kind("MVSiLU", cgenn.MVSiLU, _silu),
    _Kind("NormalizationLayer", cgenn.NormalizationLayer, lambda module: _require(module, "a")),
    _Kind("MVLayerNorm", cgenn.MVLayerNorm, lambda module: _require(module, "a")),
    _Kind("SteerableGeometricProductLayer", cgenn.SteerableGeometricProductLayer, _steerable),
    _Kind(
        "FullyConnectedSteerableGeometricProductLayer",
        cgenn.FullyConnectedSteerableGeometricProductLayer,
        _steerable,
        prepare=cgenn.FullyConnectedSteerableGeometricProductLayer._arrange,
    ),
    _Kind("Sequential", cgenn.Block, _sequence, has_algebra=False),
    _Kind("CEMLP", cgenn.CEMLP, _blocks),
    _Kind("EGCL", cgenn.EGCL, _messages, has_algebra=False),
    _Kind("Layer", flash.Layer, _flash, has_algebra=False, prepare=_prepare_flash),
]
_OURS = ("gradewise.",)


def accelerate(model: nn.Module, verbose: bool = True, example: Optional[Sequence[Any]] = None) -> Report:
    """Lets the modules of Clifford-group-equivariant networks and of Flash Clifford in ``model`` compute with fused operators.

    The modules are changed in place: parameters, their names, the keys of ``state_dict``, hooks and the model itself stay, so an
    optimiser made before goes on, and checkpoints load as before. Inputs and outputs keep their shapes. Between modules that were
    replaced, features stay in the operators' order of axes without copies.

    Args:
        model: a model with modules of the published implementations, recognised by name and structure.
        verbose: whether the report is printed.
        example: arguments of the model; if they are given, it is called with them once, without gradients, to measure what copies at the
            borders of replaced parts cost.

    Returns:
        What was replaced, and what was left and why.

    Raises:
        ArgumentError: if nothing in the model is known.
    """
    report = Report()
    known = {kind.name: kind for kind in _KINDS}
    # Children first: a whole is replaced if its parts were.
    for path, module in sorted(model.named_modules(), key=lambda item: -item[0].count(".") - bool(item[0])):
        original = type(module)
        kind = known.get(original.__name__)
        if kind is None or original.__module__.startswith(_OURS):
            continue
        try:
            if kind.has_algebra:
                _require(module, "algebra")
                _algebra(module.algebra)
            kind.check(module)
        except _Stays as reason:
            # Ordinary sequences are nothing that one would look for here.
            if str(reason):
                report.left.append(Left(path, original.__name__, str(reason)))
            continue
        if kind.prepare is not None:
            kind.prepare(module)
        module.__class__ = kind.replacement
        report.replaced.append(
            Replaced(path, original.__name__, f"{kind.replacement.__module__}.{kind.replacement.__name__}")
        )
    _embeddings(model)
    if not report.replaced:
        raise ArgumentError(
            "accelerate: the model has none of the modules "
            + ", ".join(kind.name for kind in _KINDS if kind.name != "Sequential")
            + f" that can be replaced\n{report}"
        )
    if example is not None:
        report.borders = borders(model, *example)
    if verbose:
        print(report)
    return report


def borders(model: nn.Module, *arguments: Any) -> list[Border]:
    """The calls of fused modules in ``model(*arguments)`` with features that lie in another order than the operators', and what the
    copies cost. Inside of a fused module, and from one to the next, there are none."""
    found: list[Border] = []

    def watch(path: str) -> Callable[..., None]:
        def look(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            x = inputs[0] if inputs else None
            if not isinstance(x, Tensor) or x.dim() < 3:
                return
            planes = to_planes(x, x.shape[-1], path)
            if not planes.is_contiguous():
                found.append(Border(path, tuple(x.shape), x.numel() * x.element_size(), _microseconds(planes)))

        return look

    fused = (cgenn._Module, cgenn.Block, cgenn.EGCL)
    hooks = []

    def visit(module: nn.Module, path: str) -> None:
        if isinstance(module, fused):
            # What is inside is no border, and would be called by itself if it had hooks.
            hooks.append(module.register_forward_pre_hook(watch(path)))
            return
        for name, child in module.named_children():
            visit(child, f"{path}.{name}" if path else name)

    visit(model, "")
    try:
        with torch.no_grad():
            model(*arguments)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _microseconds(planes: Tensor, repetitions: int = 20) -> float:
    """The time of a copy into the operators' order."""
    planes = planes.detach()
    for _ in range(3):
        planes.contiguous()
    if planes.is_cuda:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repetitions):
            planes.contiguous()
        end.record()
        end.synchronize()
        return 1e3 * start.elapsed_time(end) / repetitions
    began = time.perf_counter()
    for _ in range(repetitions):
        planes.contiguous()
    return 1e6 * (time.perf_counter() - began) / repetitions


def _embeddings(model: nn.Module) -> None:
    """Faster embeddings for what is left of the model, such as its own preparation of inputs."""
    for module in model.modules():
        if type(module).__name__ == "CliffordAlgebra" and not isinstance(module, cgenn.CliffordAlgebra):
            try:
                _algebra(module)
            except _Stays:
                continue

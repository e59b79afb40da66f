"""Puts fused operators in the place of the modules of somebody's model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Optional

from torch import nn

from gradewise._errors import ArgumentError
from gradewise.torch import cgenn, flash
from gradewise.torch._layout import signature_of


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


@dataclass
class Report:
    """What :func:`accelerate` did."""

    replaced: list[Replaced] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"replaced {len(self.replaced)} modules, left {len(self.left)}"]
        lines += [f"  {r.path or '(model)'}: {r.original} -> {r.replacement}" for r in self.replaced]
        lines += [f"  {m.path or '(model)'}: {m.original} stays: {m.reason}" for m in self.left]
        return "\n".join(lines)


class _Stays(Exception):
    """A module that has no replacement, with the reason."""


def _require(module: nn.Module, *names: str) -> None:
    missing = [name for name in names if not hasattr(module, name)]
    if missing:
        raise _Stays(f"it has no {', '.join(missing)} as the published module has")


def _algebra(module: nn.Module) -> None:
    """Gives the published algebra of a module the faster embeddings, once."""
    _require(module, "algebra")
    algebra = module.algebra
    if isinstance(algebra, cgenn.CliffordAlgebra) or hasattr(algebra, "signature"):
        return
    _require(algebra, "metric")
    try:
        signature = signature_of(algebra.metric.tolist())
    except ArgumentError as error:
        raise _Stays(str(error)) from None
    algebra.signature = signature
    algebra.sizes = cgenn.CliffordAlgebra(algebra.metric.tolist()).sizes
    # Only these: everything else of the published algebra, its tables among checkpoints' keys included, stays.
    algebra.embed = _Embedding(algebra, grade=False)
    algebra.embed_grade = _Embedding(algebra, grade=True)


class _Embedding:
    """`CliffordAlgebra.embed` of this package as a method of another algebra; without tensors of indices, so that it can be captured."""

    def __init__(self, algebra: nn.Module, grade: bool) -> None:
        self.n_blades, self.sizes, self.grade = algebra.n_blades, algebra.sizes, grade

    def __call__(self, tensor, where):
        method = cgenn.CliffordAlgebra.embed_grade if self.grade else cgenn.CliffordAlgebra.embed
        return method(self, tensor, where)

    def embed(self, tensor, where):
        return cgenn.CliffordAlgebra.embed(self, tensor, where)


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


def accelerate(model: nn.Module, verbose: bool = True) -> Report:
    """Lets the modules of Clifford-group-equivariant networks and of Flash Clifford in ``model`` compute with fused operators.

    The modules are changed in place: parameters, their names, the keys of ``state_dict``, hooks and the model itself stay, so an
    optimiser made before goes on, and checkpoints load as before. Inputs and outputs keep their shapes. Between modules that were
    replaced, features stay in the operators' order of axes without copies.

    Args:
        model: a model with modules of the published implementations, recognised by name and structure.
        verbose: whether the report is printed.

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
                _algebra(_with_algebra(module))
            kind.check(module)
        except _Stays as reason:
            # Ordinary sequences are nothing that one would look for here.
            if str(reason):
                report.left.append(Left(path, original.__name__, str(reason)))
            continue
        if kind.prepare is not None:
            module.__class__ = kind.replacement
            kind.prepare(module)
        module.__class__ = kind.replacement
        report.replaced.append(Replaced(path, original.__name__, f"{kind.replacement.__module__}.{kind.replacement.__name__}"))
    _embeddings(model)
    if not report.replaced:
        raise ArgumentError(
            "accelerate: the model has none of the modules "
            + ", ".join(kind.name for kind in _KINDS if kind.name != "Sequential")
            + f" that can be replaced\n{report}"
        )
    if verbose:
        print(report)
    return report


def _with_algebra(module: nn.Module) -> Any:
    return module


def _embeddings(model: nn.Module) -> None:
    """Faster embeddings for what is left of the model, such as its own preparation of inputs."""
    for module in model.modules():
        if type(module).__name__ == "CliffordAlgebra" and not isinstance(module, cgenn.CliffordAlgebra):
            try:
                _algebra(_Holder(module))
            except _Stays:
                continue


@dataclass
class _Holder:
    algebra: nn.Module

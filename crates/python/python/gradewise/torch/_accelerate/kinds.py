"""The published modules that are known: by what they are recognised, and how each may compute by operators."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from gradewise._errors import ArgumentError
from gradewise.torch._accelerate.sizes import Sizes
from gradewise.torch._space import Space, space_of
from gradewise.torch.cgenn.maps import (
    EPSILON,
    Aggregation,
    FullMap,
    LayerNormMap,
    LinearMap,
    Map,
    NormalizationMap,
    Setting,
    SiLUMap,
    SteerableMap,
)
from gradewise.torch.cgenn.messages import MessagesMap
from gradewise.torch.cgenn.mlp import BlockMap, NetworkMap
from gradewise.torch.flash import FlashMap


class Stays(Exception):
    """A module that has no replacement, with the reason; without a reason where nobody would look for one.

    Attributes:
        sizes: its made-up inputs, to see whether it takes what its replaced parts return; None if there is nothing to run.
    """

    def __init__(self, reason: str, sizes: Optional[Sizes] = None) -> None:
        super().__init__(reason)
        self.sizes = sizes


@dataclass(frozen=True)
class Kind:
    """A published class and what takes its place."""

    name: str
    map: type[Map]
    marks: tuple[str, ...]
    """The attributes by which a class of another name is recognised; none if names alone tell."""
    settings: Callable[[nn.Module], tuple[Sizes, Iterator[Setting]]]
    """The made-up inputs to compare with, and what the module may compute, the likeliest first. Raises :class:`Stays`."""
    is_single: bool = False
    """Whether it may be compared in float32, for its own kernels take nothing wider."""

    @property
    def replacement(self) -> str:
        """The module of this package that computes the same."""
        if self.map is FlashMap:
            return "gradewise.torch.flash.Layer"
        return "gradewise.torch.cgenn." + ("Block" if self.map is BlockMap else self.name)


def space_of_module(module: nn.Module) -> Space:
    """The algebra of a module."""
    algebra = getattr(module, "algebra", None)
    own = getattr(algebra, "_gradewise", None) or algebra
    if isinstance(getattr(own, "space", None), Space):
        return own.space
    metric = getattr(algebra, "metric", None)
    if metric is None:
        raise Stays("it has no algebra with a metric, as the published module has")
    try:
        return space_of(metric)
    except ArgumentError as error:
        raise Stays(str(error)) from None


def _need(module: nn.Module, *names: str) -> None:
    missing = [name for name in names if not hasattr(module, name)]
    if missing:
        raise Stays(f"it has no {', '.join(missing)} as the published module has")


def _need_shape(module: nn.Module, name: str, *sizes: Optional[int]) -> None:
    found = getattr(module, name)
    if not isinstance(found, Tensor) or found.dim() != len(sizes):
        raise Stays(f"its {name} is {list(found.shape) if isinstance(found, Tensor) else type(found).__name__}")
    if any(size is not None and size != there for size, there in zip(sizes, found.shape)):
        wanted = ", ".join("…" if size is None else str(size) for size in sizes)
        raise Stays(f"its {name} has shape {list(found.shape)}, expected [{wanted}]")


def acts_as(module: Any, *kinds: type) -> bool:
    """Whether calls of a module compute one of these maps."""
    return getattr(type(module), "_acts_as", None) in kinds and "forward" not in module.__dict__


def _of_parts(sizes: Sizes, *parts: tuple[Any, type]) -> None:
    left = [type(part).__name__ for part, kind in parts if not acts_as(part, kind)]
    if left:
        raise Stays(f"not all of its parts were replaced: its {', '.join(dict.fromkeys(left))} stays", sizes)
    if any(part._gradewise.space != sizes.space for part, _ in parts):
        raise Stays("its parts have different algebras", sizes)


def _linear(module: nn.Module) -> tuple[Sizes, Iterator[Setting]]:
    space = space_of_module(module)
    _need(module, "weight", "bias")
    weight, bias = module.weight, module.bias
    grades = len(space.metric) + 1
    _need_shape(module, "weight", None, None, *([grades] if weight.dim() == 3 else []))
    blades = (0,)
    if bias is not None:
        _need_shape(module, "bias", 1, weight.shape[0], None)
        given = getattr(module, "b_dims", (0,))
        given = given.tolist() if isinstance(given, Tensor) else given
        if not isinstance(given, (tuple, list)) or not all(isinstance(blade, int) for blade in given):
            raise Stays(f"its b_dims is {given!r}")
        blades = tuple(blade % space.blades for blade in given)
        if len(set(blades)) != len(blades) or bias.shape[2] not in (1, len(blades)) or not blades:
            raise Stays(f"its bias has shape {list(bias.shape)} for the blades {list(given)}")
    return Sizes(space, weight.shape[1]), iter([Setting(space, bias_blades=blades)])


def _silu(module: nn.Module) -> tuple[Sizes, Iterator[Setting]]:
    space = space_of_module(module)
    _need(module, "a", "b")
    for name in ("a", "b"):
        _need_shape(module, name, 1, module.a.shape[1] if module.a.dim() == 3 else None, len(space.metric) + 1)
    is_norm = getattr(module, "invariant", "mag2") == "norm"
    both = (Setting(space, is_norm=is_norm), Setting(space, is_norm=not is_norm))
    return Sizes(space, module.a.shape[1]), iter(both)


def _epsilons(module: nn.Module, found: Callable[[nn.Module], Optional[float]]) -> Iterator[float]:
    """What a module may add to norms: the published constant, what its own code names so, and what its results say."""
    yield EPSILON
    forward = getattr(type(module).forward, "__globals__", {})
    for where in (module.__dict__, vars(type(module)), forward):
        for name in ("eps", "EPS", "epsilon", "EPSILON", "_eps"):
            value = where.get(name)
            if isinstance(value, float) and value != EPSILON:
                yield value
    measured = found(module)
    if measured is not None:
        yield from dict.fromkeys((round(measured, 10), measured))


def _normalization(module: nn.Module) -> tuple[Sizes, Iterator[Setting]]:
    space = space_of_module(module)
    _need(module, "a")
    _need_shape(module, "a", None, len(space.metric) + 1)
    sizes = Sizes(space, module.a.shape[0])
    # A module that is applied to scalars of 1 divides them by 1 + epsilon.
    return sizes, (
        Setting(space, epsilon=e) for e in _epsilons(module, lambda m: _measured(m, sizes, lambda y: 1 / y - 1))
    )


def _layer_norm(module: nn.Module) -> tuple[Sizes, Iterator[Setting]]:
    space = space_of_module(module)
    _need(module, "a")
    _need_shape(module, "a", 1, None)
    sizes = Sizes(space, module.a.shape[1])
    gain = float(module.a.detach().double()[0, 0])
    return sizes, (
        Setting(space, epsilon=e) for e in _epsilons(module, lambda m: _measured(m, sizes, lambda y: gain / y - 1))
    )


def _measured(module: nn.Module, sizes: Sizes, of: Callable[[float], float]) -> Optional[float]:
    """What the first scalar of features that are scalars of 1 becomes, as ``of`` reads it."""
    from gradewise.torch._accelerate.proof import copy_of, quiet

    try:
        with quiet(module), torch.no_grad():
            one = torch.zeros(1, sizes.features, sizes.space.blades, dtype=torch.float64)
            one[..., 0] = 1.0
            copied = copy_of(module)
            device = next(copied.parameters()).device
            value = of(float(copied.eval()(one.to(device))[0, 0, 0]))
    except Exception:
        # It is compared with the other values, and the reason is found there.
        return None
    return value if 0.0 < value < 1e6 else None


def _product(module: nn.Module, features: int, out: int) -> tuple[Sizes, Iterator[Setting]]:
    space = space_of_module(module)
    _need(module, "linear_right", "normalization", "include_first_order")
    parts = [(module.linear_right, LinearMap)]
    if module.include_first_order:
        _need(module, "linear_left")
        parts.append((module.linear_left, LinearMap))
    if type(module.normalization) is not nn.Identity:
        parts.append((module.normalization, NormalizationMap))
    sizes = Sizes(space, features)
    _of_parts(sizes, *parts)
    return sizes, iter([Setting(space)])


def _steerable(module: nn.Module) -> tuple[Sizes, Iterator[Setting]]:
    _need(module, "weight")
    _need_shape(module, "weight", None, None)
    return _product(module, module.weight.shape[0], module.weight.shape[0])


def _full(module: nn.Module) -> tuple[Sizes, Iterator[Setting]]:
    _need(module, "weight")
    _need_shape(module, "weight", None, None, None)
    return _product(module, module.weight.shape[1], module.weight.shape[0])


_ROW = (LinearMap, SiLUMap, SteerableMap, LayerNormMap)
_ROW_NAMES = ("MVLinear", "MVSiLU", "SteerableGeometricProductLayer", "MVLayerNorm")


def _sequence(module: nn.Module) -> tuple[Sizes, Iterator[Setting]]:
    children = list(module) if isinstance(module, nn.Sequential) else []
    is_near = len(children) == len(_ROW) and all(name in names_of(child) for name, child in zip(_ROW_NAMES, children))
    if not is_near and not (len(children) == len(_ROW) and all(map(acts_as, children, _ROW))):
        # Ordinary sequences are nothing that one would look for here.
        raise Stays("")
    if not all(map(acts_as, children, _ROW)):
        stay = [
            f"{name} ({place})"
            for place, (name, c, k) in enumerate(zip(_ROW_NAMES, children, _ROW))
            if not acts_as(c, k)
        ]
        reason = f"near miss: it would be a block, but not all of its parts were replaced: its {', '.join(stay)} stays"
        raise Stays(reason, Sizes(space_of_module(children[0]), children[0].weight.shape[1]))
    space = children[0]._gradewise.space
    sizes = Sizes(space, children[0].weight.shape[1])
    _of_parts(sizes, *zip(children, _ROW))
    return sizes, iter([Setting(space)])


def _network(module: nn.Module) -> tuple[Sizes, Iterator[Setting]]:
    space = space_of_module(module)
    _need(module, "layers")
    if not isinstance(module.layers, nn.Sequential) or not len(module.layers):
        raise Stays(f"its layers are a {type(module.layers).__name__}, expected a sequence of blocks")
    features = _first_features(module)
    if features is None:
        raise Stays("its first layer is no block that begins with a linear map")
    sizes = Sizes(space, features)
    _of_parts(sizes, *((layer, BlockMap) for layer in module.layers))
    return sizes, iter([Setting(space)])


def _first_features(network: Any) -> Optional[int]:
    """The features that a network of blocks takes."""
    first = next((m for m in network.modules() if "MVLinear" in names_of(m)), None)
    weight = getattr(first, "weight", None)
    return weight.shape[1] if isinstance(weight, Tensor) and weight.dim() in (2, 3) else None


def _messages(module: nn.Module) -> tuple[Sizes, Iterator[Setting]]:
    sizes = sizes_of_messages(module)
    _of_parts(sizes, (module.edge_model, NetworkMap), (module.node_model, NetworkMap))
    return sizes, iter(_gatherings(module, sizes.space))


def sizes_of_messages(module: Any) -> Sizes:
    """The made-up inputs of a layer of message passing. Raises :class:`Stays` for another module."""
    _need(module, "edge_model", "node_model", "residual", "in_features")
    names = list(inspect.signature(type(module).forward).parameters)[1:5]
    if names != ["h", "edge_index", "edge_attr", "node_attr"]:
        raise Stays(f"its forward takes {names}, expected h, edge_index, edge_attr and node_attr")
    edge, node = module.edge_model, module.node_model
    space, features = space_of_module(edge), int(module.in_features)
    in_edge, in_node = _first_features(edge), _first_features(node)
    if in_edge is None or in_node is None or not hasattr(edge, "layers"):
        raise Stays("its networks are none of blocks that begin with a linear map")
    last = [m for m in edge.modules() if "MVLayerNorm" in names_of(m)]
    message = last[-1].a.shape[1] if last else features
    sizes = Sizes(space, features, in_edge - features, in_node - features - message)
    if in_edge < features or in_node < features + message:
        raise Stays(
            f"its networks take {in_edge} and {in_node} features, expected {features} and {features + message} or more"
        )
    return sizes


def _gatherings(module: nn.Module, space: Space) -> list[Setting]:
    aggregations = {"mean": Aggregation.MEAN, "sum": Aggregation.SUM, "add": Aggregation.SUM, "max": Aggregation.MAX}
    named = getattr(module, "aggr", None)
    hint = aggregations.get(named) if isinstance(named, str) else None
    order = sorted(Aggregation, key=lambda aggregation: aggregation is not hint)
    # PyTorch Geometric sends from the first end to the second unless it is told otherwise.
    ends = (1, 0) if hint and getattr(module, "flow", "") == "source_to_target" else (0, 1)
    return [
        Setting(space, aggregation=aggregation, receiver=receiver, is_opposite=is_opposite)
        for is_opposite, aggregation, receiver in itertools.product((False, True), order, ends)
    ]


def _flash(module: nn.Module) -> tuple[Sizes, Iterator[Setting]]:
    if not hasattr(module, "gp_weight"):
        # Many classes have this name.
        raise Stays("")
    _need(module, "gp_weight", "linear_weight", "linear_bias", "normalize")
    _need_shape(module, "linear_weight", None, None, None)
    space = Space((1.0,) * (module.linear_weight.shape[0] - 1))
    return Sizes(space, module.linear_weight.shape[-1], are_blades_first=True), iter([Setting(space)])


KINDS = (
    Kind("MVLinear", LinearMap, ("weight", "bias", "in_features", "out_features", "subspaces", "b_dims"), _linear),
    Kind("MVSiLU", SiLUMap, ("a", "b", "invariant", "channels"), _silu),
    Kind("NormalizationLayer", NormalizationMap, (), _normalization),
    Kind("MVLayerNorm", LayerNormMap, (), _layer_norm),
    Kind(
        "FullyConnectedSteerableGeometricProductLayer",
        FullMap,
        ("weight", "linear_right", "normalization", "product_paths", "in_features", "out_features"),
        _full,
    ),
    Kind(
        "SteerableGeometricProductLayer",
        SteerableMap,
        ("weight", "linear_right", "normalization", "product_paths", "features"),
        _steerable,
    ),
    Kind("Sequential", BlockMap, (), _sequence),
    Kind("CEMLP", NetworkMap, (), _network),
    Kind("EGCL", MessagesMap, ("edge_model", "node_model", "residual"), _messages),
    Kind("Layer", FlashMap, (), _flash, is_single=True),
)


def names_of(module: Any) -> list[str]:
    """The names of a module's class and of those it inherits from, the nearest first."""
    return [cls.__name__ for cls in type(module).__mro__]


def kind_of(module: nn.Module) -> Optional[Kind]:
    """The published class that a module has, inherits from, or is built as."""
    known = {kind.name: kind for kind in KINDS}
    for name in names_of(module):
        if name in known:
            return known[name]
    if isinstance(getattr(module, "algebra", None), nn.Module) or hasattr(module, "edge_model"):
        for kind in KINDS:
            if kind.marks and all(hasattr(module, mark) for mark in kind.marks):
                return kind
    return None


def is_unknown_layer(module: nn.Module) -> bool:
    """Whether this looks like a layer of such networks that is none of the known ones."""
    own = any(True for _ in module.parameters(recurse=False))
    return own and isinstance(getattr(module, "algebra", None), nn.Module)


def refusal(module: nn.Module) -> Optional[str]:
    """Why a module cannot be replaced whatever it computes; None if it can."""
    if isinstance(module, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return "it is compiled by torch.jit"
    if "forward" in module.__dict__:
        return "its forward is patched: the instance has one of its own"
    if parametrize.is_parametrized(module):
        return "its parameters are parametrized"
    if any(p.is_meta for p in module.parameters()):
        return "its parameters are on the device meta, where nothing can be compared"
    return None

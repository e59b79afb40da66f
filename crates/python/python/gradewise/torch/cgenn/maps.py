"""What the modules of this package and accelerated modules of others share: how they compute, by operators on ``[blades, rows, features]``.

A module of this package is a map with a constructor. An accelerated module is a map and its published class, of which it keeps attributes,
methods and constructor; where a call is none that was compared with the published code, it runs that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Optional

import torch
from torch import Tensor, nn

from gradewise._errors import ShapeError
from gradewise.torch import _functional as ops
from gradewise.torch._composite import has_hooks, is_any_autocast
from gradewise.torch._layout import to_features, to_planes
from gradewise.torch._operators import Viewed
from gradewise.torch._space import Space, quadratic_forms, smooth_norm, spread
from gradewise.torch._views import LISTED, ROWS, TRANSPOSED, TURNED

EPSILON = 1e-6
"""What the published normalisations add to a norm before they divide by it, and the operators too."""


class Aggregation(Enum):
    """What a node receives of the messages to it."""

    MEAN = "mean"
    SUM = "sum"
    MAX = "max"


@dataclass(frozen=True)
class Setting:
    """What a module computes, beside its parameters."""

    space: Space
    epsilon: float = EPSILON
    """Of normalisations."""
    is_norm: bool = False
    """Whether activations see the norm of a grade, rather than its quadratic form."""
    bias_blades: tuple[int, ...] = (0,)
    """The blades of the metric's own order that biases are added to."""
    is_between_allowed: bool = True
    """Whether there may be axes between features and blades."""
    is_contiguous: bool = False
    """Whether results are put into the order of their own axes in memory, for code that asks for views of them."""
    aggregation: Aggregation = Aggregation.MEAN
    receiver: int = 0
    """Which of the two ends of edges receives."""
    is_opposite: bool = False
    """Whether a message is of the sender less the receiver, rather than the other way round."""
    is_usual: bool = field(init=False, compare=False)
    """Whether one operator computes it."""

    def __post_init__(self) -> None:
        usual = self.epsilon == EPSILON and not self.is_norm and self.bias_blades == (0,)
        object.__setattr__(self, "is_usual", usual)


class Map:
    """A map of features ``[rows, features, ..., blades]`` by operators on ``[blades, rows, features]``."""

    _gradewise: Setting
    _published: ClassVar[Optional[type[nn.Module]]] = None
    """The class of somebody else's module that computes by this map."""
    _acts_as: ClassVar[Optional[type[Map]]] = None
    """The map that calls compute; None for a class that overrides what a map does, of which another module must call it as a whole."""
    _is_grade_wise: ClassVar[bool] = False
    """Whether it computes the same for blades of a grade in any order."""
    _is_short: ClassVar[bool] = False
    """Whether the published module's result has autocast's dtype, rather than its parameters'."""

    def __init_subclass__(cls, is_map: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if is_map:
            cls._acts_as = cls
        elif cls._acts_as is not None:
            own = cls._acts_as
            called = getattr(cls, "__call__", None)
            is_kept = cls.forward is own.forward and cls.planes is own.planes and called is nn.Module.__call__
            cls._acts_as = own if is_kept else None

    def planes(self, x: Tensor) -> Tensor:
        """The map of ``[blades, rows, features]`` in the operators' order of blades."""
        raise NotImplementedError

    def taken_features(self) -> Optional[int]:
        """The number of features that the parameters are for; None where a module inside decides."""
        return None

    def forward(self, *given: Any, **named: Any) -> Any:
        """Features ``[rows, features, ..., blades]`` to features."""
        published = self._published
        if published is not None and (named or len(given) != 1 or not self._takes(given[0])):
            return published.forward(self, *given, **named)
        if len(given) + len(named) != 1:
            raise TypeError(
                f"{type(self).__name__}: takes one tensor of features, and was given {len(given) + len(named)} arguments"
            )
        (input,) = (*given, *named.values())
        return self._finished(self._run(input), input)

    def _run(self, input: Tensor) -> Tensor:
        space = self._gradewise.space
        planes = to_planes(input, space.blades, type(self).__name__)
        if space.order is None or (self._is_grade_wise and self._gradewise.is_usual):
            return to_features(self.planes(planes), input.shape)
        return to_features(space.leave(self.planes(space.enter(planes))), input.shape)

    def _takes(self, input: Any) -> bool:
        """Whether an input is one of those that were compared with the published code."""
        setting = self._gradewise
        if not is_ordinary(input, setting.space.blades) or (input.dim() > 3 and not setting.is_between_allowed):
            return False
        # Published modules broadcast the parameters of one feature over the features of any input.
        expected = self.taken_features()
        return expected is None or input.shape[1] == expected

    def _finished(self, result: Tensor, input: Tensor) -> Tensor:
        """The result in the published module's dtype under autocast, and adjacent in memory if that is wanted."""
        if self._gradewise.is_contiguous:
            result = result.contiguous()
        if not is_any_autocast():
            return result
        kind = input.device.type
        if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
            return result
        if self._is_short:
            return result if input.dtype == torch.float64 else result.to(torch.get_autocast_dtype(kind))
        return result.to(wide_dtype(self, input))

    def _part(self, module: nn.Module, x: Tensor, residual: Optional[Tensor] = None) -> Tensor:
        """What a module inside makes of ``[blades, rows, features]``, plus a residual; by a call of it where something follows its calls, or
        where it is another than the maps of this package."""
        if is_followed_by_maps(module):
            return module.planes(x) if residual is None else module.planes(x, residual)
        space = self._gradewise.space
        features = to_features(space.leave(x), (x.shape[1], x.shape[2], x.shape[0]))
        result = space.enter(to_planes(module(features), x.shape[0], type(module).__name__))
        return result if residual is None else result + residual

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        # Before this module's weights are loaded.
        self._gradewise.space.check(state_dict, prefix + "algebra.")
        super()._load_from_state_dict(state_dict, prefix, *rest)


def features_of(module: nn.Module) -> Optional[int]:
    """The number of features that a module inside takes; None if it is no map of this package."""
    return module.taken_features() if isinstance(module, Map) else None


def is_ordinary(x: Any, blades: int) -> bool:
    """Whether this is a tensor of features that operators take."""
    return (
        isinstance(x, Tensor)
        and x.dim() >= 3
        and x.shape[-1] == blades
        and x.is_floating_point()
        and x.device.type in ("cpu", "cuda")
        and not torch.jit.is_tracing()
    )


def is_followed_by_maps(module: nn.Module) -> bool:
    """Whether a module's own map stands for a call of it: nothing changed what a call does."""
    if getattr(type(module), "_acts_as", None) is None or has_hooks(module):
        return False
    return torch.compiler.is_compiling() or (
        "forward" not in module.__dict__ and not nn.modules.module._has_any_global_hook()
    )


def wide_dtype(module: nn.Module, input: Tensor) -> torch.dtype:
    """The dtype of what depends on a module's parameters without a product of matrices."""
    return next((torch.promote_types(p.dtype, input.dtype) for p in module.parameters()), input.dtype)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype.itemsize == 2 else x


class LinearMap(Map, is_map=True):
    """See :class:`gradewise.torch.cgenn.MVLinear`."""

    _is_grade_wise = True
    _is_short = True

    def taken_features(self) -> Optional[int]:
        return self.weight.shape[1]

    def matrices(self) -> Viewed:
        """The weights as operators take them: ``[grades, in, out]`` or ``[in, out]``."""
        return TURNED(self.weight) if self.weight.dim() == 3 else TRANSPOSED(self.weight)

    def offset(self) -> Optional[Viewed]:
        """The bias ``[out]``."""
        return None if self.bias is None else LISTED(self.bias)

    def planes(self, x: Tensor) -> Tensor:
        setting = self._gradewise
        if setting.bias_blades == (0,) or self.bias is None:
            return ops.mv_linear(x, self.matrices(), self.offset(), setting.space.signature)
        y = ops.mv_linear(x, self.matrices(), None, setting.space.signature)
        rows = [torch.zeros_like(self.bias[0, :, 0])] * setting.space.blades
        for index, blade in enumerate(setting.bias_blades):
            place, sign = setting.space.place(blade)
            rows[place] = sign * self.bias[0, :, index % self.bias.shape[2]]
        return y + torch.stack(rows)[:, None].to(y.dtype)


class SiLUMap(Map, is_map=True):
    """See :class:`gradewise.torch.cgenn.MVSiLU`."""

    def taken_features(self) -> Optional[int]:
        return self.a.shape[1]

    def planes(self, x: Tensor) -> Tensor:
        setting = self._gradewise
        signature = setting.space.signature
        if not setting.is_norm:
            return ops.mv_silu(x, ROWS(self.a), ROWS(self.b), signature)
        wide = _wide(x)
        invariants = [wide[:1], *(smooth_norm(form) for form in quadratic_forms(wide, signature)[1:])]
        a, b = (_wide(p)[0].T[:, None, :] for p in (self.a, self.b))
        gates = torch.sigmoid(a * torch.cat(invariants) + b).split(1)
        return (wide * spread(gates, signature)).to(x.dtype)


class NormalizationMap(Map, is_map=True):
    """See :class:`gradewise.torch.cgenn.NormalizationLayer`."""

    def taken_features(self) -> Optional[int]:
        return self.a.shape[0]

    def planes(self, x: Tensor) -> Tensor:
        setting = self._gradewise
        signature = setting.space.signature
        if setting.is_usual:
            return ops.mv_normalization(x, self.a, signature)
        wide = _wide(x)
        share = torch.sigmoid(_wide(self.a)).T[:, None, :]
        norms = torch.cat([smooth_norm(form) for form in quadratic_forms(wide, signature)])
        factors = (share * (norms - 1) + 1 + setting.epsilon).split(1)
        return (wide / spread(factors, signature)).to(x.dtype)


class LayerNormMap(Map, is_map=True):
    """See :class:`gradewise.torch.cgenn.MVLayerNorm`."""

    def taken_features(self) -> Optional[int]:
        return self.a.shape[1]

    def planes(self, x: Tensor) -> Tensor:
        setting = self._gradewise
        signature = setting.space.signature
        if setting.is_usual:
            return ops.mv_layer_norm(x, ROWS(self.a), signature)
        wide = _wide(x)
        forms = quadratic_forms(wide, signature)
        size = smooth_norm(sum(forms[1:], forms[0])).mean(dim=-1, keepdim=True)
        return (_wide(self.a) * wide / (size + setting.epsilon)).to(x.dtype)


class _SteerableMap(Map):
    """What the two product layers share."""

    _is_short = True

    def taken_features(self) -> Optional[int]:
        return features_of(self.linear_right)

    def _is_normalized(self) -> bool:
        return type(self.normalization) is not nn.Identity

    def _product(self, x: Tensor, right: Tensor) -> Tensor:
        raise NotImplementedError

    def _by_parts(self, x: Tensor) -> Tensor:
        right = self._part(self.linear_right, x)
        if self._is_normalized():
            right = self._part(self.normalization, right)
        product = self._product(x, right)
        if not self.include_first_order:
            return product
        return (self._part(self.linear_left, x) + product) * math.sqrt(0.5)


class SteerableMap(_SteerableMap, is_map=True):
    """See :class:`gradewise.torch.cgenn.SteerableGeometricProductLayer`."""

    def _product(self, x: Tensor, right: Tensor) -> Tensor:
        return ops.sgp(x, right, self.weight, self._gradewise.space.signature)

    def planes(self, x: Tensor) -> Tensor:
        norm = self.normalization
        is_one = self._is_normalized() and is_followed_by_maps(norm) and norm._gradewise.is_usual
        if not is_one:
            return self._by_parts(x)
        right = self._part(self.linear_right, x)
        left = self._part(self.linear_left, x) if self.include_first_order else None
        return ops.steerable_product(x, right, norm.a, self.weight, left, self._gradewise.space.signature)


class FullMap(_SteerableMap, is_map=True):
    """See :class:`gradewise.torch.cgenn.FullyConnectedSteerableGeometricProductLayer`."""

    def _product(self, x: Tensor, right: Tensor) -> Tensor:
        return ops.fcgp(x, right, TURNED(self.weight), self._gradewise.space.signature)

    def planes(self, x: Tensor) -> Tensor:
        return self._by_parts(x)


def need_blades(x: Any, blades: int, operation: str) -> None:
    """Refuses what is no tensor of features."""
    if not isinstance(x, Tensor) or x.dim() < 3 or x.shape[-1] != blades:
        shape = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ShapeError(
            f"{operation}: the input has shape {shape}, expected [rows, features, ..., {blades}]: the last axis holds the blades"
        )

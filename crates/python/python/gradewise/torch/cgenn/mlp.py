"""Blocks of layers, and networks of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor, nn

from gradewise import _core
from gradewise._errors import at_least_one
from gradewise.torch import _composite, _messages
from gradewise.torch._composite import has_hooks, is_eager
from gradewise.torch._pretrained import Pretrained
from gradewise.torch.cgenn.algebra import CliffordAlgebra
from gradewise.torch.cgenn.layers import (
    MVLayerNorm,
    MVLinear,
    MVSiLU,
    SteerableGeometricProductLayer,
    _Own,
)
from gradewise.torch.cgenn.maps import (
    LayerNormMap,
    LinearMap,
    Map,
    NormalizationMap,
    Setting,
    SiLUMap,
    SteerableMap,
    features_of,
    is_followed_by_maps,
    need_blades,
)


class BlockMap(Map, is_map=True):
    """MVLinear, MVSiLU, SteerableGeometricProductLayer and MVLayerNorm in a row, as one operator."""

    def taken_features(self) -> Optional[int]:
        return next(map(features_of, self._modules.values()), None)

    def operands(self) -> Optional[list[Tensor]]:
        """The parameters in the order of the operator; None if its modules are not those that it stands for, or have hooks."""
        return _matrices_of_all_grades(_PARTS.read(self))

    def _operands_for_compilers(self) -> Optional[list[Tensor]]:
        if len(self._modules) != 4:
            return None
        linear, silu, steerable, norm = self._modules.values()
        if type(steerable)._acts_as is not SteerableMap:
            return None
        if not (steerable.include_first_order and steerable._is_normalized()):
            return None
        right, left = steerable.linear_right, steerable.linear_left
        everything = (linear, silu, steerable, norm, right, left, steerable.normalization)
        if linear.bias is None or not all(m._gradewise.is_usual and is_followed_by_maps(m) for m in everything):
            return None
        maps = (linear.weight, linear.bias, silu.a, silu.b, right.weight, steerable.normalization.a)
        listed = [*maps, steerable.weight, left.weight, left.bias, norm.a]
        return listed if listed[0].dim() == listed[4].dim() == listed[7].dim() == 3 else None

    def planes(self, x: Tensor, residual: Optional[Tensor] = None) -> Tensor:
        """The block of ``[blades, rows, features]``, plus a residual."""
        operands = self._operands_for_compilers() if torch.compiler.is_compiling() else self._unwatched_operands()
        if operands is not None:
            return _messages.block(x, operands, residual, self._gradewise.space.signature)
        for module in self._modules.values():
            x = self._part(module, x)
        return x if residual is None else x + residual

    def _unwatched_operands(self) -> Optional[list[Tensor]]:
        return None if nn.modules.module._has_any_global_hook() else self.operands()


_Part = tuple[Optional[int], Sequence[str], type[Map], Sequence[str], Sequence[str]]
_IN_A_BLOCK: list[_Part] = [
    (0, (), LinearMap, ("weight", "bias"), ()),
    (1, (), SiLUMap, ("a", "b"), ()),
    (2, ("linear_right",), LinearMap, ("weight",), ()),
    (2, ("normalization",), NormalizationMap, ("a",), ()),
    (2, (), SteerableMap, ("weight",), ("include_first_order",)),
    (2, ("linear_left",), LinearMap, ("weight", "bias"), ()),
    (3, (), LayerNormMap, ("a",), ()),
]
_PARTS = _core.Parts(_IN_A_BLOCK, 4)
_CALLED_PARTS = _core.Parts([(None, (), BlockMap, (), ()), *_IN_A_BLOCK], 4)
"""The same of a block that is called itself."""


def _matrices_of_all_grades(listed: Optional[list[Tensor]]) -> Optional[list[Tensor]]:
    """The parameters of a block, if the matrices of all three maps are one for each grade."""
    is_usual = listed is not None and listed[0].dim() == listed[4].dim() == listed[7].dim() == 3
    return listed if is_usual else None


class Block(BlockMap, nn.Sequential):
    """MVLinear, MVSiLU, SteerableGeometricProductLayer and MVLayerNorm in a row, as one operator."""

    def __init__(self, *modules: Any) -> None:
        super().__init__(*modules)
        first = next(iter(self._modules.values()), None)
        if isinstance(first, Map):
            self._gradewise = Setting(first._gradewise.space)


class NetworkMap(Map, is_map=True):
    """See :class:`gradewise.torch.cgenn.CEMLP`."""

    def taken_features(self) -> Optional[int]:
        return next(map(features_of, self._modules["layers"]._modules.values()), None)

    def operands(self) -> Optional[list[Tensor]]:
        """The parameters of all blocks in the order of the operators; None if a module is another than these, or has hooks."""
        layers = self._modules["layers"]
        if has_hooks(layers):
            return None
        found: list[Tensor] = []
        for block in layers._modules.values():
            own = _matrices_of_all_grades(_CALLED_PARTS.read(block))
            if own is None:
                return None
            found += own
        return found

    def planes(self, x: Tensor, residual: Optional[Tensor] = None) -> Tensor:
        """The blocks of ``[blades, rows, features]``, plus a residual."""
        *first, last = self.layers
        for block in first:
            x = self._part(block, x)
        return self._part(last, x, residual)

    def _run(self, input: Tensor) -> Tensor:
        space = self._gradewise.space
        need_blades(input, space.blades, type(self).__name__)
        if space.order is None and input.dim() == 3 and is_eager(input):
            operands = self.operands()
            if operands:
                made = _messages.cemlp(space.signature, _messages.count(operands))
                inputs = [input, *operands]
                if made.native.admits(inputs):
                    return _composite.run(made, inputs)
        return super()._run(input)


def _block(algebra: CliffordAlgebra, in_features: int, out_features: int, normalization_init: Optional[float]) -> Block:
    return Block(
        MVLinear(algebra, in_features, out_features),
        MVSiLU(algebra, out_features),
        SteerableGeometricProductLayer(algebra, out_features, normalization_init=normalization_init),
        MVLayerNorm(algebra, out_features),
    )


class CEMLP(Pretrained, NetworkMap, _Own):
    """Blocks of a linear map, an activation, a steerable product and a norm.

    Args:
        algebra: see the module.
        in_features: features of the input.
        hidden_features: features between.
        out_features: features of the output.
        n_layers: blocks.
        normalization_init: as in :class:`SteerableGeometricProductLayer`.
    """

    def __init__(
        self,
        algebra: Any,
        in_features: int,
        hidden_features: int,
        out_features: int,
        n_layers: int = 2,
        normalization_init: Optional[float] = 0,
    ) -> None:
        super().__init__()
        sizes = {"in_features": in_features, "hidden_features": hidden_features, "out_features": out_features}
        at_least_one(type(self).__name__, **sizes, n_layers=n_layers)
        self._become(algebra)
        self.in_features, self.hidden_features, self.out_features = in_features, hidden_features, out_features
        self.n_layers = n_layers
        widths = [in_features, *[hidden_features] * (n_layers - 1), out_features]
        blocks = [_block(self.algebra, a, b, normalization_init) for a, b in zip(widths, widths[1:])]
        self.layers = nn.Sequential(*blocks)

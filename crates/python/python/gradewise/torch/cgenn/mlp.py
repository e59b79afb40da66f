"""Blocks of layers, and networks of blocks."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor, nn

from gradewise.torch import _composite, _messages
from gradewise.torch._composite import has_hooks, is_eager
from gradewise.torch._layout import to_features, to_planes
from gradewise.torch.cgenn.algebra import CliffordAlgebra, _algebra
from gradewise.torch.cgenn.layers import (
    MVLayerNorm,
    MVLinear,
    MVSiLU,
    NormalizationLayer,
    SteerableGeometricProductLayer,
    _mapped,
    _Module,
)


class Block(nn.Sequential):
    """MVLinear, MVSiLU, SteerableGeometricProductLayer and MVLayerNorm in a row, as one operator."""

    def operands(self) -> Optional[list[Tensor]]:
        """The parameters in the order of the operator; None if its modules are not those that it stands for, or have hooks."""
        linear, silu, steerable, norm = self._modules.values()
        if type(steerable) is not SteerableGeometricProductLayer or not steerable.include_first_order:
            return None
        parts, of = steerable._modules, _composite.parameters
        right, left = parts["linear_right"], parts["linear_left"]
        found = (
            of(linear, MVLinear, "weight", "bias"),
            of(silu, MVSiLU, "a", "b"),
            of(right, MVLinear, "weight"),
            of(parts["normalization"], NormalizationLayer, "a"),
            of(steerable, SteerableGeometricProductLayer, "weight"),
            of(left, MVLinear, "weight", "bias"),
            of(norm, MVLayerNorm, "a"),
        )
        if None in found or not (linear.subspaces and right.subspaces and left.subspaces):
            return None
        return [parameter for parameters in found for parameter in parameters]

    def _operands_for_compilers(self) -> Optional[list[Tensor]]:
        linear, silu, steerable, norm = self
        if not (linear.subspaces and steerable.include_first_order and steerable._is_normalized()):
            return None
        if linear.bias is None:
            return None
        right, left = steerable.linear_right, steerable.linear_left
        maps = (linear.weight, linear.bias, silu.a, silu.b, right.weight, steerable.normalization.a)
        return [*maps, steerable.weight, left.weight, left.bias, norm.a]

    def planes(self, x: Tensor, residual: Optional[Tensor] = None) -> Tensor:
        """The block of ``[blades, rows, features]``, plus a residual."""
        operands = self._operands_for_compilers() if torch.compiler.is_compiling() else self.operands()
        if operands is not None:
            return _messages.block(x, operands, residual, self[0].signature)
        for module in self:
            x = _mapped(module, x)
        return x if residual is None else x + residual

    def forward(self, input: Tensor) -> Tensor:
        planes = to_planes(input, 2 ** sum(self[0].signature), "Block")
        return to_features(self.planes(planes), input.shape)


def _block(algebra: CliffordAlgebra, in_features: int, out_features: int, normalization_init: Optional[float]) -> Block:
    return Block(
        MVLinear(algebra, in_features, out_features),
        MVSiLU(algebra, out_features),
        SteerableGeometricProductLayer(algebra, out_features, normalization_init=normalization_init),
        MVLayerNorm(algebra, out_features),
    )


class CEMLP(_Module):
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
        self.algebra = _algebra(algebra)
        self.in_features, self.hidden_features, self.out_features = in_features, hidden_features, out_features
        self.n_layers = n_layers
        widths = [in_features, *[hidden_features] * (n_layers - 1), out_features]
        blocks = [_block(self.algebra, a, b, normalization_init) for a, b in zip(widths, widths[1:])]
        self.layers = nn.Sequential(*blocks)

    def operands(self) -> Optional[list[Tensor]]:
        """The parameters of all blocks in the order of the operators; None if a module is another than these, or has hooks."""
        layers = self._modules["layers"]
        if has_hooks(layers):
            return None
        found: list[Tensor] = []
        for block in layers._modules.values():
            own = block.operands() if type(block) is Block and not has_hooks(block) else None
            if own is None:
                return None
            found += own
        return found

    def planes(self, x: Tensor, residual: Optional[Tensor] = None) -> Tensor:
        """The blocks of ``[blades, rows, features]``, plus a residual."""
        *first, last = self.layers
        for block in first:
            x = _mapped(block, x)
        return _mapped(last, x, residual)

    def forward(self, input: Tensor) -> Tensor:
        if is_eager(input) and input.dim() == 3 and input.shape[-1] == 2 ** sum(self.signature):
            operands = self.operands()
            if operands is not None:
                made = _messages.cemlp(self.signature, _messages.count(operands))
                inputs = [input, *operands]
                if made.native.admits(inputs):
                    return _composite.run(made, inputs)
        return super().forward(input)

"""The published layers: linear maps, activations, normalisations and products."""

from __future__ import annotations

import math
from typing import Any, Optional

import torch
from torch import Tensor, nn

from gradewise._errors import ArgumentError
from gradewise.torch import _functional as ops
from gradewise.torch._composite import has_hooks
from gradewise.torch._layout import in_order, to_features, to_planes
from gradewise.torch._operators import Viewed
from gradewise.torch._views import LISTED, ROWS, TRANSPOSED, TURNED
from gradewise.torch.cgenn.algebra import _algebra


class _Module(nn.Module):
    """A map of features ``[rows, features, ..., blades]`` by operators on ``[blades, rows, features]``."""

    algebra: nn.Module

    @property
    def signature(self) -> tuple[int, int, int]:
        return self.algebra.signature

    def planes(self, x: Tensor) -> Tensor:
        """The map of ``[blades, rows, features]``."""
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        planes = to_planes(input, 2 ** sum(self.signature), type(self).__name__)
        return to_features(self.planes(planes), input.shape)


class MVLinear(_Module):
    """A linear map of features, with a matrix for each grade or one for all, and a bias on the scalar.

    Args:
        algebra: see the module.
        in_features: features of the input.
        out_features: features of the output.
        subspaces: whether each grade has a matrix of its own.
        bias: whether there is a bias.

    Parameters: ``weight`` ``[out, in, grades]`` or ``[out, in]``; ``bias`` ``[1, out, 1]``.
    """

    def __init__(
        self, algebra: Any, in_features: int, out_features: int, subspaces: bool = True, bias: bool = True
    ) -> None:
        super().__init__()
        self.algebra = _algebra(algebra)
        self.in_features, self.out_features, self.subspaces = in_features, out_features, subspaces
        shape = (out_features, in_features, self.algebra.n_subspaces) if subspaces else (out_features, in_features)
        self.weight = nn.Parameter(torch.empty(shape))
        self.bias = nn.Parameter(torch.empty(1, out_features, 1)) if bias else None
        self.reset_parameters()
        self._arrange()

    def _arrange(self) -> None:
        in_order(self.weight, [2, 1, 0] if self.weight.dim() == 3 else [1, 0])

    def reset_parameters(self) -> None:
        """Normal weights of deviation in^-½, and no bias."""
        nn.init.normal_(self.weight, std=1 / math.sqrt(self.in_features))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def matrices(self) -> Viewed:
        """The weights as operators take them: ``[grades, in, out]`` or ``[in, out]``."""
        return TURNED(self.weight) if self.subspaces else TRANSPOSED(self.weight)

    def offset(self) -> Optional[Viewed]:
        """The bias ``[out]``."""
        return None if self.bias is None else LISTED(self.bias)

    def planes(self, x: Tensor) -> Tensor:
        return ops.mv_linear(x, self.matrices(), self.offset(), self.signature)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, subspaces={self.subspaces}, bias={self.bias is not None}"


class MVSiLU(_Module):
    """Each grade times a sigmoid of its invariant.

    Args:
        algebra: see the module.
        channels: features.
        invariant: "mag2", the quadratic form of each grade. The published code also has "norm".
        exclude_dual: has no effect, as in the published code.

    Parameters: ``a`` and ``b`` ``[1, features, grades]``.
    """

    def __init__(self, algebra: Any, channels: int, invariant: str = "mag2", exclude_dual: bool = False) -> None:
        super().__init__()
        if invariant != "mag2":
            raise ArgumentError(f"MVSiLU: invariant {invariant!r} has no operator, expected 'mag2'")
        self.algebra = _algebra(algebra)
        self.channels, self.invariant, self.exclude_dual = channels, invariant, exclude_dual
        self.a = nn.Parameter(torch.ones(1, channels, self.algebra.dim + 1))
        self.b = nn.Parameter(torch.zeros(1, channels, self.algebra.dim + 1))

    def planes(self, x: Tensor) -> Tensor:
        return ops.mv_silu(x, ROWS(self.a), ROWS(self.b), self.signature)

    def extra_repr(self) -> str:
        return f"{self.channels}"


class NormalizationLayer(_Module):
    """Each grade divided by something between 1 and its norm, as a parameter says.

    Args:
        algebra: see the module.
        features: features.
        init: initial value of the parameter, before its sigmoid.

    Parameters: ``a`` ``[features, grades]``.
    """

    def __init__(self, algebra: Any, features: int, init: float = 0) -> None:
        super().__init__()
        self.algebra = _algebra(algebra)
        self.in_features = features
        self.a = nn.Parameter(torch.zeros(features, self.algebra.n_subspaces) + init)

    def planes(self, x: Tensor) -> Tensor:
        return ops.mv_normalization(x, self.a, self.signature)

    def extra_repr(self) -> str:
        return f"{self.in_features}"


class MVLayerNorm(_Module):
    """Features divided by the mean of their norms, times a gain.

    Args:
        algebra: see the module.
        channels: features.

    Parameters: ``a`` ``[1, features]``.
    """

    def __init__(self, algebra: Any, channels: int) -> None:
        super().__init__()
        self.algebra = _algebra(algebra)
        self.channels = channels
        self.a = nn.Parameter(torch.ones(1, channels))

    def planes(self, x: Tensor) -> Tensor:
        return ops.mv_layer_norm(x, ROWS(self.a), self.signature)

    def extra_repr(self) -> str:
        return f"{self.channels}"


class _Steerable(_Module):
    """What the two product layers share."""

    def _products(
        self, include_first_order: bool, normalization_init: Optional[float], features: int, out: int
    ) -> None:
        self.include_first_order = include_first_order
        algebra = self.algebra
        self.normalization = (
            nn.Identity() if normalization_init is None else NormalizationLayer(algebra, features, normalization_init)
        )
        self.linear_right = MVLinear(algebra, features, features, bias=False)
        if include_first_order:
            self.linear_left = MVLinear(algebra, features, out, bias=True)

    def _is_normalized(self) -> bool:
        return not isinstance(self.normalization, nn.Identity)

    def _weight(self) -> Tensor:
        raise NotImplementedError

    def _product(self, x: Tensor, right: Tensor) -> Tensor:
        raise NotImplementedError

    def _by_parts(self, x: Tensor) -> Tensor:
        right = _mapped(self.linear_right, x)
        if self._is_normalized():
            right = _mapped(self.normalization, right)
        product = self._product(x, right)
        if not self.include_first_order:
            return product
        return (_mapped(self.linear_left, x) + product) * math.sqrt(0.5)


class SteerableGeometricProductLayer(_Steerable):
    """The sum of a linear map and of the weighted product of the input with another linear map of it, over √2.

    Args:
        algebra: see the module.
        features: features of input and output.
        include_first_order: whether the linear map is added.
        normalization_init: initial value of the normalisation of the right factor; None for no normalisation.

    Parameters: ``weight`` ``[features, paths]``, and those of ``linear_right``, ``linear_left`` and ``normalization``.
    """

    def __init__(
        self,
        algebra: Any,
        features: int,
        include_first_order: bool = True,
        normalization_init: Optional[float] = 0,
    ) -> None:
        super().__init__()
        self.algebra = _algebra(algebra)
        self.features = features
        self._products(include_first_order, normalization_init, features, features)
        self.weight = nn.Parameter(torch.empty(features, self.algebra.n_paths))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal product weights of deviation (n + 1)^-½ for n generators."""
        nn.init.normal_(self.weight, std=1 / math.sqrt(self.algebra.dim + 1))

    def _product(self, x: Tensor, right: Tensor) -> Tensor:
        return ops.sgp(x, right, self.weight, self.signature)

    def planes(self, x: Tensor) -> Tensor:
        if not self._is_normalized() or _is_hooked(self.normalization):
            return self._by_parts(x)
        right = _mapped(self.linear_right, x)
        left = _mapped(self.linear_left, x) if self.include_first_order else None
        return ops.steerable_product(x, right, self.normalization.a, self.weight, left, self.signature)


class FullyConnectedSteerableGeometricProductLayer(_Steerable):
    """As :class:`SteerableGeometricProductLayer`, with a matrix over the features for each path of grades.

    Args:
        algebra: see the module.
        in_features: features of the input.
        out_features: features of the output.
        include_first_order: whether the linear map is added.
        normalization_init: initial value of the normalisation of the right factor; None for no normalisation.

    Parameters: ``weight`` ``[out, in, paths]``, and those of ``linear_right``, ``linear_left`` and ``normalization``.
    """

    def __init__(
        self,
        algebra: Any,
        in_features: int,
        out_features: int,
        include_first_order: bool = True,
        normalization_init: Optional[float] = 0,
    ) -> None:
        super().__init__()
        self.algebra = _algebra(algebra)
        self.in_features, self.out_features = in_features, out_features
        self._products(include_first_order, normalization_init, in_features, out_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features, self.algebra.n_paths))
        self.reset_parameters()
        self._arrange()

    def _arrange(self) -> None:
        in_order(self.weight, [2, 1, 0])

    def reset_parameters(self) -> None:
        """Normal product weights of deviation (in·(n + 1))^-½ for n generators."""
        nn.init.normal_(self.weight, std=1 / math.sqrt(self.in_features * (self.algebra.dim + 1)))

    def _product(self, x: Tensor, right: Tensor) -> Tensor:
        return ops.fcgp(x, right, TURNED(self.weight), self.signature)

    def planes(self, x: Tensor) -> Tensor:
        return self._by_parts(x)


def _is_hooked(module: nn.Module) -> bool:
    """Whether hooks follow a module's calls in eager code; compiled code leaves those inside of a fused module out."""
    return not torch.compiler.is_compiling() and has_hooks(module)


def _mapped(module: nn.Module, x: Tensor, residual: Optional[Tensor] = None) -> Tensor:
    """What a module makes of ``[blades, rows, features]``, plus a residual; by a call of it where hooks follow its calls."""
    if torch.compiler.is_compiling() or (hasattr(module, "planes") and not has_hooks(module)):
        return module.planes(x) if residual is None else module.planes(x, residual)
    features = to_features(x, (x.shape[1], x.shape[2], x.shape[0]))
    result = to_planes(module(features), x.shape[0], type(module).__name__)
    return result if residual is None else result + residual

"""The published layers: linear maps, activations, normalisations and products."""

from __future__ import annotations

import math
from typing import Any, Optional

import torch
from torch import nn

from gradewise._errors import ArgumentError, at_least_one
from gradewise.torch.cgenn.algebra import CliffordAlgebra, _algebra
from gradewise.torch.cgenn.maps import (
    FullMap,
    LayerNormMap,
    LinearMap,
    NormalizationMap,
    Setting,
    SiLUMap,
    SteerableMap,
)


class _Own(nn.Module):
    """What the modules of this package share beside their maps."""

    algebra: CliffordAlgebra

    def _become(self, algebra: Any, **settings: Any) -> None:
        self.algebra = _algebra(algebra)
        self._gradewise = Setting(self.algebra.space, **settings)

    @property
    def signature(self) -> tuple[int, int, int]:
        """The algebra's numbers of generators that square to 1, -1 and 0."""
        return self._gradewise.space.signature


class MVLinear(LinearMap, _Own):
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
        at_least_one(type(self).__name__, in_features=in_features, out_features=out_features)
        self._become(algebra)
        self.in_features, self.out_features, self.subspaces = in_features, out_features, subspaces
        shape = (out_features, in_features, self.algebra.n_subspaces) if subspaces else (out_features, in_features)
        self.weight = nn.Parameter(torch.empty(shape))
        self.bias = nn.Parameter(torch.empty(1, out_features, 1)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal weights of deviation in^-½, and no bias."""
        nn.init.normal_(self.weight, std=1 / math.sqrt(self.in_features))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, subspaces={self.subspaces}, bias={self.bias is not None}"


class MVSiLU(SiLUMap, _Own):
    """Each grade times a sigmoid of its invariant.

    Args:
        algebra: see the module.
        channels: features.
        invariant: "mag2", the quadratic form of each grade, or "norm", the square root of its absolute value.
        exclude_dual: has no effect, as in the published code.

    Parameters: ``a`` and ``b`` ``[1, features, grades]``.
    """

    def __init__(self, algebra: Any, channels: int, invariant: str = "mag2", exclude_dual: bool = False) -> None:
        super().__init__()
        if invariant not in ("mag2", "norm"):
            raise ArgumentError(f"MVSiLU: invariant {invariant!r}, expected 'mag2' or 'norm'")
        at_least_one(type(self).__name__, channels=channels)
        self._become(algebra, is_norm=invariant == "norm")
        self.channels, self.invariant, self.exclude_dual = channels, invariant, exclude_dual
        self.a = nn.Parameter(torch.ones(1, channels, self.algebra.dim + 1))
        self.b = nn.Parameter(torch.zeros(1, channels, self.algebra.dim + 1))

    def extra_repr(self) -> str:
        return f"{self.channels}"


class NormalizationLayer(NormalizationMap, _Own):
    """Each grade divided by something between 1 and its norm, as a parameter says.

    Args:
        algebra: see the module.
        features: features.
        init: initial value of the parameter, before its sigmoid.

    Parameters: ``a`` ``[features, grades]``.
    """

    def __init__(self, algebra: Any, features: int, init: float = 0) -> None:
        super().__init__()
        at_least_one(type(self).__name__, features=features)
        self._become(algebra)
        self.in_features = features
        self.a = nn.Parameter(torch.zeros(features, self.algebra.n_subspaces) + init)

    def extra_repr(self) -> str:
        return f"{self.in_features}"


class MVLayerNorm(LayerNormMap, _Own):
    """Features divided by the mean of their norms, times a gain.

    Args:
        algebra: see the module.
        channels: features.

    Parameters: ``a`` ``[1, features]``.
    """

    def __init__(self, algebra: Any, channels: int) -> None:
        super().__init__()
        at_least_one(type(self).__name__, channels=channels)
        self._become(algebra)
        self.channels = channels
        self.a = nn.Parameter(torch.ones(1, channels))

    def extra_repr(self) -> str:
        return f"{self.channels}"


class _Steerable(_Own):
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


class SteerableGeometricProductLayer(SteerableMap, _Steerable):
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
        at_least_one(type(self).__name__, features=features)
        self._become(algebra)
        self.features = features
        self._products(include_first_order, normalization_init, features, features)
        self.weight = nn.Parameter(torch.empty(features, self.algebra.n_paths))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal product weights of deviation (n + 1)^-½ for n generators."""
        nn.init.normal_(self.weight, std=1 / math.sqrt(self.algebra.dim + 1))


class FullyConnectedSteerableGeometricProductLayer(FullMap, _Steerable):
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
        at_least_one(type(self).__name__, in_features=in_features, out_features=out_features)
        self._become(algebra)
        self.in_features, self.out_features = in_features, out_features
        self._products(include_first_order, normalization_init, in_features, out_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features, self.algebra.n_paths))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal product weights of deviation (in·(n + 1))^-½ for n generators."""
        nn.init.normal_(self.weight, std=1 / math.sqrt(self.in_features * (self.algebra.dim + 1)))

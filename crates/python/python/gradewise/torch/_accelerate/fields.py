"""The layers for fields that are known, by their published names: what each takes, and which of ours it may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from torch import nn

from gradewise.torch.cliffordlayers import cliffordkernels
from gradewise.torch.cliffordlayers.models.basic import custom_kernels, custom_layers
from gradewise.torch.cliffordlayers.nn.modules import (
    batchnorm,
    cliffordconv,
    cliffordfourier,
    cliffordlinear,
    gcan,
    groupnorm,
)


@dataclass(frozen=True)
class FieldKind:
    """A published layer for fields, and ours."""

    layer: type[nn.Module]
    marks: tuple[str, ...]
    """Attributes that it has: many classes may have its name."""
    space: tuple[int, ...]
    """How many axes of space an input may have; a layer need not take the ones after the first."""
    channels: Callable[[Any], Optional[int]]
    """The channels that a module takes; None for any number."""
    blades: Callable[[Any], int]
    """The components that a module takes."""
    extent: Callable[[Any], Sequence[int]] = lambda module: (1, 1, 1)
    """The cells that a result needs along each axis."""
    extras: Callable[[Any], Mapping[str, Any]] = lambda module: {}
    """Attributes that ours has and the published one has not."""
    is_single: bool = False
    """Whether it is compared in float32, for its own results have no other dtype."""
    package: str = "cliffordlayers"

    @property
    def name(self) -> str:
        """The published name."""
        return self.layer.__name__

    @property
    def replacement(self) -> str:
        """Ours, with its place."""
        return f"{self.layer.__module__}.{self.name}"


def _own_kernel(module: Any) -> Mapping[str, Any]:
    """Our function beside the published one of its name; a function of another name stays."""
    name = getattr(module._get_kernel, "__name__", "")
    ours = getattr(custom_kernels, name, None) or getattr(cliffordkernels, name, None)
    return {} if ours is None else {"_own_kernel": ours}


def _extent(module: Any) -> Sequence[int]:
    return [dilation * (taps - 1) + 1 for dilation, taps in zip(module.dilation, module.kernel_size)]


def _in_channels(module: Any) -> int:
    return module.in_channels


def _three(module: Any) -> int:
    return 3


def _of_multivectors(module: Any) -> int:
    return module.n_blades


def _input_blades(module: Any) -> int:
    return len(module.input_blades)


_CONV = ("g", "weight", "bias", "n_blades", "_get_kernel", "kernel_size", "stride", "padding", "dilation", "groups")
_NORM = ("n_blades", "weight", "bias", "running_mean", "running_cov", "num_batches_tracked", "momentum", "eps")
_G3 = ("weights", "scale_param", "bias", "stride", "padding", "dilation", "groups", "in_channels")


def _convolution(layer: type[nn.Module], space: int, components: Optional[int] = None) -> FieldKind:
    blades = _of_multivectors if components is None else lambda module: components
    return FieldKind(layer, _CONV, (space,), _in_channels, blades, _extent, _own_kernel)


def _spectral(layer: type[nn.Module], space: int) -> FieldKind:
    modes = tuple(f"modes{axis + 1}" for axis in range(space))
    extent = lambda module: [2 * getattr(module, name) for name in modes]  # noqa: E731
    marks = ("g", "n_blades", "multiply", "in_channels", "out_channels", *modes)
    return FieldKind(layer, marks, (space,), _in_channels, _of_multivectors, extent, is_single=True)


def _gated_channels(module: Any) -> Optional[int]:
    return module.conv.in_channels if module.agg == "linear" else None


FIELDS = (
    FieldKind(
        cliffordlinear.CliffordLinear,
        ("g", "weight", "bias", "n_blades", "_get_kernel", "in_channels"),
        (0,),
        _in_channels,
        _of_multivectors,
        extras=_own_kernel,
    ),
    _convolution(cliffordconv.CliffordConv1d, 1),
    _convolution(cliffordconv.CliffordConv2d, 2),
    _convolution(cliffordconv.CliffordConv3d, 3),
    _convolution(custom_layers.CliffordConv2dScalarVectorEncoder, 2, 3),
    _convolution(custom_layers.CliffordConv2dScalarVectorDecoder, 2),
    _convolution(custom_layers.CliffordConv3dMaxwellEncoder, 3, 6),
    _convolution(custom_layers.CliffordConv3dMaxwellDecoder, 3),
    _spectral(cliffordfourier.CliffordSpectralConv2d, 2),
    _spectral(cliffordfourier.CliffordSpectralConv3d, 3),
    *(
        FieldKind(layer, _NORM, space, lambda module: module.channels, _of_multivectors)
        for layer, space in (
            (batchnorm.CliffordBatchNorm1d, (1, 0)),
            (batchnorm.CliffordBatchNorm2d, (2,)),
            (batchnorm.CliffordBatchNorm3d, (3,)),
        )
    ),
    *(
        FieldKind(
            layer,
            (*_NORM, "num_groups"),
            space,
            lambda module: module.channels * module.num_groups,
            _of_multivectors,
        )
        for layer, space in (
            (groupnorm.CliffordGroupNorm1d, (1,)),
            (groupnorm.CliffordGroupNorm2d, (2,)),
            (groupnorm.CliffordGroupNorm3d, (3,)),
        )
    ),
    FieldKind(
        gcan.PGAConjugateLinear,
        ("_action", "weight", "embed_e0", "input_blades", "action_blades", "in_features"),
        (0,),
        lambda module: module.in_features,
        _input_blades,
    ),
    FieldKind(gcan.MultiVectorAct, ("agg", "input_blades", "kernel_blades"), (0, 1, 2), _gated_channels, _input_blades),
    FieldKind(gcan.CliffordG3Conv2d, _G3, (2,), _in_channels, _three, _extent),
    FieldKind(gcan.CliffordG3ConvTranspose2d, _G3, (2,), _in_channels, _three, _extent),
    FieldKind(gcan.CliffordG3LinearVSiLU, ("conv",), (2,), lambda module: module.conv.in_channels, _three),
    FieldKind(
        gcan.CliffordG3GroupNorm,
        ("weight", "bias", "num_groups", "num_features", "num_blades", "scale_norm"),
        (2, 1, 3),
        lambda module: module.num_features,
        lambda module: module.num_blades,
    ),
)
BY_NAME = {kind.name: kind for kind in FIELDS}


def field_of(module: nn.Module) -> Optional[FieldKind]:
    """The published layer for fields that a module is by its name, or by that of a class it inherits from, and by its attributes."""
    for cls in type(module).__mro__:
        kind = BY_NAME.get(cls.__name__)
        if kind is not None:
            return kind if all(hasattr(module, mark) for mark in kind.marks) else None
    return None


def is_our_field(module: nn.Module) -> bool:
    """Whether this is a layer for fields of this package, or one that inherits from it."""
    return isinstance(module, tuple(kind.layer for kind in FIELDS))

"""The published layers of Clifford-group-equivariant networks as modules of Flax NNX.

Constructors are those of the published PyTorch modules, with an algebra as its signature (p, q, r), and ``rngs`` and ``dtype``; parameters
have their names and shapes, so that :func:`load` takes their checkpoints. Features are ``[rows, features, ..., blades]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional, TypeVar

from gradewise._errors import MissingPackageError

try:
    from flax import nnx
except ImportError as error:
    raise MissingPackageError("gradewise.jax.nnx needs Flax: pip install flax") from error

from gradewise.jax import _layers as maps
from gradewise.jax._layers import Space

__all__ = [
    "CEMLP",
    "EGCL",
    "FullyConnectedSteerableGeometricProductLayer",
    "MVLayerNorm",
    "MVLinear",
    "MVSiLU",
    "NormalizationLayer",
    "SteerableGeometricProductLayer",
    "load",
]


def _maker(rngs: nnx.Rngs, dtype: Any) -> maps.Maker:
    def module(name: str, *given: Any, **named: Any) -> nnx.Module:
        return globals()[name](*given, **named, rngs=rngs, dtype=dtype)

    return maps.Maker(lambda: rngs.params(), nnx.Param, getattr(nnx, "List", list), module, dtype)


class MVLinear(maps.LinearMap, nnx.Module):
    __doc__ = maps.LinearMap.__doc__

    def __init__(
        self,
        algebra: Space,
        in_features: int,
        out_features: int,
        subspaces: bool = True,
        bias: bool = True,
        *,
        rngs: nnx.Rngs,
        dtype: Any = None,
    ) -> None:
        self._begin(_maker(rngs, dtype), algebra, in_features, out_features, subspaces, bias)


class MVSiLU(maps.SiLUMap, nnx.Module):
    __doc__ = maps.SiLUMap.__doc__

    def __init__(self, algebra: Space, channels: int, *, rngs: nnx.Rngs, dtype: Any = None) -> None:
        self._begin(_maker(rngs, dtype), algebra, channels)


class NormalizationLayer(maps.NormalizationMap, nnx.Module):
    __doc__ = maps.NormalizationMap.__doc__

    def __init__(self, algebra: Space, features: int, init: float = 0, *, rngs: nnx.Rngs, dtype: Any = None) -> None:
        self._begin(_maker(rngs, dtype), algebra, features, init)


class MVLayerNorm(maps.LayerNormMap, nnx.Module):
    __doc__ = maps.LayerNormMap.__doc__

    def __init__(self, algebra: Space, channels: int, *, rngs: nnx.Rngs, dtype: Any = None) -> None:
        self._begin(_maker(rngs, dtype), algebra, channels)


class SteerableGeometricProductLayer(maps.SteerableMap, nnx.Module):
    __doc__ = maps.SteerableMap.__doc__

    def __init__(
        self,
        algebra: Space,
        features: int,
        include_first_order: bool = True,
        normalization_init: Optional[float] = 0,
        *,
        rngs: nnx.Rngs,
        dtype: Any = None,
    ) -> None:
        self._begin(_maker(rngs, dtype), algebra, features, include_first_order, normalization_init)


class FullyConnectedSteerableGeometricProductLayer(maps.FullMap, nnx.Module):
    __doc__ = maps.FullMap.__doc__

    def __init__(
        self,
        algebra: Space,
        in_features: int,
        out_features: int,
        include_first_order: bool = True,
        normalization_init: Optional[float] = 0,
        *,
        rngs: nnx.Rngs,
        dtype: Any = None,
    ) -> None:
        self._begin(_maker(rngs, dtype), algebra, in_features, out_features, include_first_order, normalization_init)


class CEMLP(maps.NetworkMap, nnx.Module):
    __doc__ = maps.NetworkMap.__doc__

    def __init__(
        self,
        algebra: Space,
        in_features: int,
        hidden_features: int,
        out_features: int,
        n_layers: int = 2,
        normalization_init: Optional[float] = 0,
        *,
        rngs: nnx.Rngs,
        dtype: Any = None,
    ) -> None:
        make = _maker(rngs, dtype)
        self._begin(make, algebra, in_features, hidden_features, out_features, n_layers, normalization_init)


class EGCL(maps.MessagesMap, nnx.Module):
    __doc__ = maps.MessagesMap.__doc__

    def __init__(
        self,
        algebra: Space,
        in_features: int,
        hidden_features: int,
        out_features: int,
        edge_attr_features: int = 0,
        node_attr_features: int = 0,
        residual: bool = True,
        normalization_init: Optional[float] = 0,
        *,
        rngs: nnx.Rngs,
        dtype: Any = None,
    ) -> None:
        sizes = (in_features, hidden_features, out_features, edge_attr_features)
        self._begin(_maker(rngs, dtype), algebra, *sizes, residual, normalization_init)


M = TypeVar("M", bound=nnx.Module)


def load(module: M, state: Mapping[str, Any]) -> M:
    """Gives a module the weights of the published PyTorch module, or of ``gradewise.torch.cgenn``.

    Args:
        module: a module of this file; its parameters are changed.
        state: its ``state_dict()``, or arrays by these names, as ``safetensors`` reads them.

    Raises:
        CheckpointError: names or shapes are others, or the checkpoint's tables are those of another algebra.
    """
    parameters = nnx.to_flat_state(nnx.state(module, nnx.Param))
    own = {".".join(map(str, path)): parameter for path, parameter in parameters}
    values = maps.fitted(own, module.signature, state)
    replaced = [(path, parameter.replace(values[".".join(map(str, path))])) for path, parameter in parameters]
    nnx.update(module, nnx.from_flat_state(replaced))
    return module

"""The published layers of Clifford-group-equivariant networks, and the transformers of geometric algebra, as modules of Equinox.

Constructors are those of the published PyTorch modules, with an algebra as its signature (p, q, r), and ``key`` and ``dtype``; parameters
have their names and shapes, so that :func:`load` takes their checkpoints. Features of layers are ``[rows, features, ..., blades]``; calls of
transformers are those of :mod:`gradewise.jax.lgatr` and :mod:`gradewise.jax.gatr` without the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Optional, TypeVar

import jax
from jax import Array

from gradewise._errors import MissingPackageError

try:
    import equinox as eqx
except ImportError as error:
    raise MissingPackageError("gradewise.jax.equinox needs Equinox: pip install equinox") from error

from gradewise.jax import _layers as maps
from gradewise.jax import gatr, lgatr
from gradewise.jax._layers import Space
from gradewise.jax._transformers import definition

__all__ = [
    "AxialGATr",
    "CEMLP",
    "EGCL",
    "ConditionalLGATr",
    "ConditionalLGATrSlim",
    "FullyConnectedSteerableGeometricProductLayer",
    "GATr",
    "LGATr",
    "LGATrSlim",
    "MVLayerNorm",
    "MVLinear",
    "MVSiLU",
    "NormalizationLayer",
    "SteerableGeometricProductLayer",
    "load",
]


def _maker(key: Array, dtype: Any) -> maps.Maker:
    def another() -> Array:
        nonlocal key
        key, made = jax.random.split(key)
        return made

    def module(name: str, *given: Any, **named: Any) -> eqx.Module:
        return globals()[name](*given, **named, key=another(), dtype=dtype)

    return maps.Maker(another, lambda value: value, tuple, module, dtype)


class MVLinear(maps.LinearMap, eqx.Module):
    __doc__ = maps.LinearMap.__doc__

    signature: maps.Signature = eqx.field(static=True)
    weight: Array
    bias: Optional[Array]

    def __init__(
        self,
        algebra: Space,
        in_features: int,
        out_features: int,
        subspaces: bool = True,
        bias: bool = True,
        *,
        key: Array,
        dtype: Any = None,
    ) -> None:
        self._begin(_maker(key, dtype), algebra, in_features, out_features, subspaces, bias)


class MVSiLU(maps.SiLUMap, eqx.Module):
    __doc__ = maps.SiLUMap.__doc__

    signature: maps.Signature = eqx.field(static=True)
    a: Array
    b: Array

    def __init__(self, algebra: Space, channels: int, *, key: Array, dtype: Any = None) -> None:
        self._begin(_maker(key, dtype), algebra, channels)


class NormalizationLayer(maps.NormalizationMap, eqx.Module):
    __doc__ = maps.NormalizationMap.__doc__

    signature: maps.Signature = eqx.field(static=True)
    a: Array

    def __init__(self, algebra: Space, features: int, init: float = 0, *, key: Array, dtype: Any = None) -> None:
        self._begin(_maker(key, dtype), algebra, features, init)


class MVLayerNorm(maps.LayerNormMap, eqx.Module):
    __doc__ = maps.LayerNormMap.__doc__

    signature: maps.Signature = eqx.field(static=True)
    a: Array

    def __init__(self, algebra: Space, channels: int, *, key: Array, dtype: Any = None) -> None:
        self._begin(_maker(key, dtype), algebra, channels)


class _Products(eqx.Module):
    """What the two product layers have."""

    signature: maps.Signature = eqx.field(static=True)
    include_first_order: bool = eqx.field(static=True)
    normalization: Optional[NormalizationLayer]
    linear_right: MVLinear
    linear_left: Optional[MVLinear]
    weight: Array


class SteerableGeometricProductLayer(maps.SteerableMap, _Products):
    __doc__ = maps.SteerableMap.__doc__

    def __init__(
        self,
        algebra: Space,
        features: int,
        include_first_order: bool = True,
        normalization_init: Optional[float] = 0,
        *,
        key: Array,
        dtype: Any = None,
    ) -> None:
        self._begin(_maker(key, dtype), algebra, features, include_first_order, normalization_init)


class FullyConnectedSteerableGeometricProductLayer(maps.FullMap, _Products):
    __doc__ = maps.FullMap.__doc__

    def __init__(
        self,
        algebra: Space,
        in_features: int,
        out_features: int,
        include_first_order: bool = True,
        normalization_init: Optional[float] = 0,
        *,
        key: Array,
        dtype: Any = None,
    ) -> None:
        make = _maker(key, dtype)
        self._begin(make, algebra, in_features, out_features, include_first_order, normalization_init)


class CEMLP(maps.NetworkMap, eqx.Module):
    __doc__ = maps.NetworkMap.__doc__

    signature: maps.Signature = eqx.field(static=True)
    layers: tuple[tuple[eqx.Module, ...], ...]

    def __init__(
        self,
        algebra: Space,
        in_features: int,
        hidden_features: int,
        out_features: int,
        n_layers: int = 2,
        normalization_init: Optional[float] = 0,
        *,
        key: Array,
        dtype: Any = None,
    ) -> None:
        make = _maker(key, dtype)
        self._begin(make, algebra, in_features, hidden_features, out_features, n_layers, normalization_init)


class EGCL(maps.MessagesMap, eqx.Module):
    __doc__ = maps.MessagesMap.__doc__

    signature: maps.Signature = eqx.field(static=True)
    residual: bool = eqx.field(static=True)
    edge_model: CEMLP
    node_model: CEMLP

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
        key: Array,
        dtype: Any = None,
    ) -> None:
        sizes = (in_features, hidden_features, out_features, edge_attr_features)
        self._begin(_maker(key, dtype), algebra, *sizes, residual, normalization_init)


class Transformer(eqx.Module):
    """A transformer with its parameters, nested dicts and lists by their published names.

    Args:
        options: those of the definition of the same name.
        key: of initial values.
        dtype: of parameters, float32 if None.
    """

    kind: ClassVar[type[definition.Definition]]
    definition: definition.Definition = eqx.field(static=True)
    parameters: dict[str, Any]

    def __init__(self, *arguments: Any, key: Array, dtype: Any = None, **options: Any) -> None:
        self.definition = self.kind(*arguments, **options)
        self.parameters = self.definition.init(key, dtype)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """See the call of the definition; its first argument, the parameters, is left out. ``key=`` has features dropped."""
        return self.definition(self.parameters, *inputs, **options)


class LGATr(Transformer):
    __doc__ = lgatr.LGATr.__doc__
    kind = lgatr.LGATr


class ConditionalLGATr(Transformer):
    __doc__ = lgatr.ConditionalLGATr.__doc__
    kind = lgatr.ConditionalLGATr


class LGATrSlim(Transformer):
    __doc__ = lgatr.LGATrSlim.__doc__
    kind = lgatr.LGATrSlim


class ConditionalLGATrSlim(Transformer):
    __doc__ = lgatr.ConditionalLGATrSlim.__doc__
    kind = lgatr.ConditionalLGATrSlim


class GATr(Transformer):
    __doc__ = gatr.GATr.__doc__
    kind = gatr.GATr


class AxialGATr(Transformer):
    __doc__ = gatr.AxialGATr.__doc__
    kind = gatr.AxialGATr


M = TypeVar("M", bound=eqx.Module)


def load(module: M, state: Mapping[str, Any]) -> M:
    """A module with the weights of the published PyTorch module, or of that of ``gradewise.torch``.

    Args:
        module: a module of this file; it stays as it is.
        state: its ``state_dict()``, or arrays by these names, as ``safetensors.numpy`` reads them.

    Raises:
        CheckpointError: names or shapes are others, or the checkpoint's tables are those of another algebra.
    """
    if isinstance(module, Transformer):
        return eqx.tree_at(lambda m: m.parameters, module, definition.load(module.parameters, state))
    leaves, structure = jax.tree_util.tree_flatten_with_path(module)
    names = [".".join(str(getattr(key, "name", getattr(key, "idx", key))) for key in path) for path, _ in leaves]
    values = maps.fitted(dict(zip(names, (leaf for _, leaf in leaves))), module.signature, state)
    return jax.tree_util.tree_unflatten(structure, [values[name] for name in names])

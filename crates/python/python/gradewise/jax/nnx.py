"""The published layers of Clifford-group-equivariant networks, and the transformers of geometric algebra, as modules of Flax NNX.

Constructors are those of the published PyTorch modules, with an algebra as its signature (p, q, r), and ``rngs`` and ``dtype``; parameters
have their names and shapes, so that :func:`load` takes their checkpoints. Features of layers are ``[rows, features, ..., blades]``; calls of
transformers are those of :mod:`gradewise.jax.lgatr` and :mod:`gradewise.jax.gatr` without the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Optional, TypeVar

from gradewise._errors import MissingPackageError

try:
    from flax import nnx
except ImportError as error:
    raise MissingPackageError("gradewise.jax.nnx needs Flax: pip install flax") from error

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


class Parameters(nnx.Module):
    """Parameters of a layer, by the names that the published one has for them."""

    def __init__(self, tree: Mapping[str, Any]) -> None:
        for name, part in tree.items():
            setattr(self, name, _held(part))


def _held(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return Parameters(tree)
    if isinstance(tree, list):
        return getattr(nnx, "List", list)([_held(part) for part in tree])
    return tree if isinstance(tree, definition.Constant) else nnx.Param(tree)


def _told(held: Any) -> Any:
    """The nested arrays of what :func:`_held` made."""
    if isinstance(held, Parameters):
        return {name: _told(part) for name, part in vars(held).items() if not name.startswith("_")}
    if isinstance(held, nnx.Variable):
        return held.get_value() if hasattr(held, "get_value") else held.value
    return held if isinstance(held, definition.Constant) else [_told(part) for part in held]


def _set(held: Any, tree: Any) -> None:
    """Gives what :func:`_held` made other values."""
    if isinstance(held, nnx.Variable):
        held.set_value(tree) if hasattr(held, "set_value") else setattr(held, "value", tree)
        return
    for name, part in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
        if isinstance(part, definition.Constant):
            setattr(held, name, part)
        else:
            _set(getattr(held, name) if isinstance(tree, Mapping) else held[name], part)


class Transformer(nnx.Module):
    """A transformer with its parameters.

    Args:
        options: those of the definition of the same name.
        rngs: of initial values, the stream "params".
        dtype: of parameters, float32 if None.
    """

    kind: ClassVar[type[definition.Definition]]

    def __init__(self, *arguments: Any, rngs: nnx.Rngs, dtype: Any = None, **options: Any) -> None:
        self.definition = self.kind(*arguments, **options)
        self.parameters = Parameters(self.definition.init(rngs.params(), dtype))

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """See the call of the definition; its first argument, the parameters, is left out. ``key=rngs.dropout()`` has features dropped."""
        return self.definition(_told(self.parameters), *inputs, **options)


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


M = TypeVar("M", bound=nnx.Module)


def load(module: M, state: Mapping[str, Any]) -> M:
    """Gives a module the weights of the published PyTorch module, or of that of ``gradewise.torch``.

    Args:
        module: a module of this file; its parameters are changed.
        state: its ``state_dict()``, or arrays by these names, as ``safetensors.numpy`` reads them.

    Raises:
        CheckpointError: names or shapes are others, or the checkpoint's tables are those of another algebra.
    """
    if isinstance(module, Transformer):
        _set(module.parameters, definition.load(_told(module.parameters), state))
        return module
    parameters = nnx.to_flat_state(nnx.state(module, nnx.Param))
    own = {".".join(map(str, path)): parameter for path, parameter in parameters}
    values = maps.fitted(own, module.signature, state)
    replaced = [(path, parameter.replace(values[".".join(map(str, path))])) for path, parameter in parameters]
    nnx.update(module, nnx.from_flat_state(replaced))
    return module

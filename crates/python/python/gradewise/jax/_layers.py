"""The published layers of Clifford-group-equivariant networks (Ruhe et al. 2023, arXiv:2305.11141) for JAX's libraries of modules.

A map says what a module has and computes; a library's module is a map and the library's own base, whose constructor passes a
:class:`Maker`. Parameters have the names and shapes of the published PyTorch modules, features their axes, ``[rows, features, ...,
blades]``, with blades in the operators' order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradewise._core import Algebra
from gradewise._errors import ArgumentError, CheckpointError, ShapeError, at_least_one
from gradewise.jax import _functional as ops

Space = Union[Algebra, Sequence[int]]
"""An algebra, or the numbers (p, q, r) of its generators that square to 1, -1 and 0."""
Signature = tuple[int, int, int]


@dataclass(frozen=True)
class Maker:
    """How a library's modules are filled."""

    key: Callable[[], Array]
    """A new key of random numbers."""
    parameter: Callable[[Array], Any]
    """A parameter with an initial value."""
    sequence: Callable[[Sequence[Any]], Any]
    """Modules in a row."""
    module: Callable[..., Any]
    """A module inside, by the name of its class and its arguments."""
    dtype: Any

    def normal(self, shape: Sequence[int], deviation: float) -> Any:
        """A parameter with normal initial values."""
        return self.parameter(deviation * jax.random.normal(self.key(), tuple(shape), self.dtype))

    def filled(self, shape: Sequence[int], value: float) -> Any:
        """A parameter with one initial value."""
        return self.parameter(jnp.full(tuple(shape), value, self.dtype))


def signature_of(algebra: Space) -> Signature:
    """An algebra's (p, q, r)."""
    if isinstance(algebra, Algebra):
        return algebra.signature
    given = tuple(algebra)
    if not 1 <= len(given) <= 3 or any(not isinstance(n, int) or n < 0 for n in given):
        raise ArgumentError(
            f"algebra {algebra}: expected gradewise.Algebra, or the numbers (p, q, r) of generators that square to 1, -1 and 0, such as "
            "(3, 0, 0) for the metric (1.0, 1.0, 1.0)"
        )
    return Algebra(*given).signature


class Map:
    """A map of features ``[rows, features, ..., blades]`` by operators on ``[blades, rows, features]``."""

    signature: Signature

    def planes(self, x: Array) -> Array:
        """The map of ``[blades, rows, features]``."""
        raise NotImplementedError

    def __call__(self, x: Array) -> Array:
        """Features ``[rows, features, ..., blades]`` to features."""
        planes = to_planes(x, self.signature, type(self).__name__)
        return to_features(self.planes(planes), x.shape)


def to_planes(x: Array, signature: Signature, layer: str) -> Array:
    """``[rows, features, ..., blades]`` as ``[blades, rows, features]``; axes between are joined to the rows."""
    blades = 2 ** sum(signature)
    if x.ndim < 3 or x.shape[-1] != blades:
        raise ShapeError(
            f"{layer}: the input has shape {list(x.shape)}, expected [rows, features, ..., {blades}]: the last axis holds the blades"
        )
    planes = jnp.moveaxis(x, (-1, 1), (0, -1))
    return planes.reshape(planes.shape[0], -1, planes.shape[-1])


def to_features(planes: Array, like: Sequence[int]) -> Array:
    """``[blades, rows, features]`` as ``[rows, features, ..., blades]``, with the axes between of the shape ``like``."""
    between = planes.reshape(planes.shape[0], like[0], *like[2:-1], planes.shape[-1])
    return jnp.moveaxis(between, (0, -1), (-1, 1))


class LinearMap(Map):
    """A linear map of features, with a matrix for each grade or one for all, and a bias on the scalar.

    Parameters: ``weight`` ``[out, in, grades]`` or ``[out, in]``; ``bias`` ``[1, out, 1]``.
    """

    def _begin(
        self, make: Maker, algebra: Space, in_features: int, out_features: int, subspaces: bool, bias: bool
    ) -> None:
        at_least_one(type(self).__name__, in_features=in_features, out_features=out_features)
        self.signature = signature_of(algebra)
        grades = (sum(self.signature) + 1,) if subspaces else ()
        self.weight = make.normal((out_features, in_features, *grades), in_features**-0.5)
        self.bias = make.filled((1, out_features, 1), 0.0) if bias else None

    def planes(self, x: Array) -> Array:
        bias = None if self.bias is None else jnp.reshape(self.bias, -1)
        return ops.mv_linear(x, jnp.transpose(self.weight), bias, self.signature)


class SiLUMap(Map):
    """Each grade times a sigmoid of its invariant. Parameters: ``a`` and ``b`` ``[1, features, grades]``."""

    def _begin(self, make: Maker, algebra: Space, channels: int) -> None:
        at_least_one(type(self).__name__, channels=channels)
        self.signature = signature_of(algebra)
        self.a, self.b = (make.filled((1, channels, sum(self.signature) + 1), value) for value in (1.0, 0.0))

    def planes(self, x: Array) -> Array:
        return ops.mv_silu(x, self.a[0], self.b[0], self.signature)


class NormalizationMap(Map):
    """Each grade divided by something between 1 and its norm, as a parameter says. Parameters: ``a`` ``[features, grades]``."""

    def _begin(self, make: Maker, algebra: Space, features: int, init: float) -> None:
        at_least_one(type(self).__name__, features=features)
        self.signature = signature_of(algebra)
        self.a = make.filled((features, sum(self.signature) + 1), init)

    def planes(self, x: Array) -> Array:
        return ops.mv_normalization(x, self.a, self.signature)


class LayerNormMap(Map):
    """Features divided by the mean of their norms, times a gain. Parameters: ``a`` ``[1, features]``."""

    def _begin(self, make: Maker, algebra: Space, channels: int) -> None:
        at_least_one(type(self).__name__, channels=channels)
        self.signature = signature_of(algebra)
        self.a = make.filled((1, channels), 1.0)

    def planes(self, x: Array) -> Array:
        return ops.mv_layer_norm(x, self.a[0], self.signature)


class _Products(Map):
    def _begin_parts(self, make: Maker, features: int, out: int, is_first: bool, init: Optional[float]) -> None:
        algebra = self.signature
        self.include_first_order = is_first
        self.normalization = None if init is None else make.module("NormalizationLayer", algebra, features, init)
        self.linear_right = make.module("MVLinear", algebra, features, features, bias=False)
        self.linear_left = make.module("MVLinear", algebra, features, out) if is_first else None

    def _product(self, x: Array, right: Array) -> Array:
        raise NotImplementedError

    def planes(self, x: Array) -> Array:
        right = self.linear_right.planes(x)
        if self.normalization is not None:
            right = self.normalization.planes(right)
        product = self._product(x, right)
        return product if self.linear_left is None else (self.linear_left.planes(x) + product) * math.sqrt(0.5)


class SteerableMap(_Products):
    """The sum of a linear map and of the weighted product of the input with another linear map of it, over √2.

    Parameters: ``weight`` ``[features, paths]``, and those of ``linear_right``, ``linear_left`` and ``normalization``.
    """

    def _begin(self, make: Maker, algebra: Space, features: int, is_first: bool, init: Optional[float]) -> None:
        at_least_one(type(self).__name__, features=features)
        self.signature = signature_of(algebra)
        self._begin_parts(make, features, features, is_first, init)
        paths = len(Algebra(*self.signature).paths)
        self.weight = make.normal((features, paths), (sum(self.signature) + 1) ** -0.5)

    def _product(self, x: Array, right: Array) -> Array:
        return ops.sgp(x, right, self.weight, self.signature)

    def planes(self, x: Array) -> Array:
        if self.normalization is None:
            return super().planes(x)
        left = None if self.linear_left is None else self.linear_left.planes(x)
        right = self.linear_right.planes(x)
        return ops.steerable_product(x, right, self.normalization.a, self.weight, left, self.signature)


class FullMap(_Products):
    """As the steerable layer, with a matrix over the features for each path of grades.

    Parameters: ``weight`` ``[out, in, paths]``, and those of ``linear_right``, ``linear_left`` and ``normalization``.
    """

    def _begin(
        self, make: Maker, algebra: Space, in_features: int, out_features: int, is_first: bool, init: Optional[float]
    ) -> None:
        at_least_one(type(self).__name__, in_features=in_features, out_features=out_features)
        self.signature = signature_of(algebra)
        self._begin_parts(make, in_features, out_features, is_first, init)
        paths = len(Algebra(*self.signature).paths)
        deviation = (in_features * (sum(self.signature) + 1)) ** -0.5
        self.weight = make.normal((out_features, in_features, paths), deviation)

    def _product(self, x: Array, right: Array) -> Array:
        return ops.fcgp(x, right, jnp.transpose(self.weight), self.signature)


class NetworkMap(Map):
    """Blocks of a linear map, an activation, a steerable product and a norm, each of which is one operator."""

    def _begin(
        self, make: Maker, algebra: Space, in_features: int, hidden: int, out: int, n_layers: int, init: Optional[float]
    ) -> None:
        sizes = {"in_features": in_features, "hidden_features": hidden, "out_features": out}
        at_least_one(type(self).__name__, **sizes, n_layers=n_layers)
        self.signature = signature_of(algebra)
        widths = [in_features, *[hidden] * (n_layers - 1), out]

        def block(before: int, after: int) -> Any:
            own = self.signature
            linear = make.module("MVLinear", own, before, after)
            product = make.module("SteerableGeometricProductLayer", own, after, normalization_init=init)
            silu, norm = (make.module(name, own, after) for name in ("MVSiLU", "MVLayerNorm"))
            return make.sequence([linear, silu, product, norm])

        self.layers = make.sequence([block(a, b) for a, b in zip(widths, widths[1:])])

    def planes(self, x: Array, residual: Optional[Array] = None) -> Array:
        """The blocks of ``[blades, rows, features]``, plus a residual."""
        blocks = list(self.layers)
        for index, block in enumerate(blocks):
            x = _block(block, x, residual if index == len(blocks) - 1 else None)
        return x


def _block(modules: Sequence[Any], x: Array, residual: Optional[Array]) -> Array:
    linear, silu, product, norm = modules
    if product.normalization is None:
        for module in modules:
            x = module.planes(x)
        return x if residual is None else x + residual
    right, left = product.linear_right, product.linear_left
    return ops.mv_block(
        x,
        (jnp.transpose(linear.weight), jnp.reshape(linear.bias, -1)),
        (silu.a[0], silu.b[0]),
        jnp.transpose(right.weight),
        product.normalization.a,
        product.weight,
        (jnp.transpose(left.weight), jnp.reshape(left.bias, -1)),
        norm.a[0],
        residual,
        linear.signature,
    )


class MessagesMap:
    """A layer of message passing: messages of differences along edges, their mean at each node, an update of the nodes."""

    signature: Signature

    def _begin(
        self,
        make: Maker,
        algebra: Space,
        in_features: int,
        hidden: int,
        out: int,
        edges: int,
        residual: bool,
        init: Any,
    ) -> None:
        self.signature, self.residual = signature_of(algebra), residual
        network = lambda before: make.module("CEMLP", self.signature, before, hidden, out, normalization_init=init)  # noqa: E731
        self.edge_model = network(in_features + edges)
        self.node_model = network(in_features + out)

    def __call__(
        self,
        h: Array,
        edge_index: Union[Array, Sequence[Array]],
        edge_attr: Optional[Array] = None,
        node_attr: Optional[Array] = None,
    ) -> Array:
        """Nodes ``[nodes, features, blades]``, edges as two lists of nodes (receiver and sender), attributes ``[edges, …, blades]`` and
        ``[nodes, …, blades]``; the nodes afterwards."""
        entered = [None if x is None else to_planes(x, self.signature, "EGCL") for x in (h, edge_attr, node_attr)]
        x, of_edges, of_nodes = entered
        receivers, senders = (jnp.asarray(ends) for ends in edge_index)
        message = x[:, receivers] - x[:, senders]
        made = self.edge_model.planes(message if of_edges is None else jnp.concatenate([message, of_edges], 2))
        total = jnp.zeros((*x.shape[:2], made.shape[2]), made.dtype).at[:, receivers].add(made)
        members = jnp.zeros(x.shape[1], made.dtype).at[receivers].add(1)
        parts = [x, total / jnp.maximum(members, 1)[:, None]]
        if of_nodes is not None:
            parts.append(of_nodes)
        update = self.node_model.planes(jnp.concatenate(parts, 2), x if self.residual else None)
        return to_features(update, h.shape)


def fitted(own: Mapping[str, Any], signature: Signature, state: Mapping[str, Any]) -> dict[str, Array]:
    """The values of a published checkpoint for the parameters of these names.

    Raises:
        CheckpointError: names or shapes are others, or the checkpoint's tables are those of another algebra.
    """
    metric = [1.0] * signature[0] + [-1.0] * signature[1] + [0.0] * signature[2]
    given = {}
    for name, value in state.items():
        if ".algebra." not in f".{name}":
            given[name] = np.asarray(value)
        elif name.endswith("metric") and [float(x) for x in value] != metric:
            raise CheckpointError(f"{name}: the metric {[float(x) for x in value]}, and the module's is {metric}")
    if given.keys() != own.keys():
        raise CheckpointError(f"{sorted(given.keys() ^ own.keys())} are not in both, the checkpoint and the module")
    for name, value in given.items():
        if value.shape != own[name].shape:
            raise CheckpointError(f"{name} has shape {list(value.shape)}, expected {list(own[name].shape)}")
    return {name: jnp.asarray(value, own[name].dtype) for name, value in given.items()}

"""Layers as functions of their parameters.

A definition has the options of a layer and no arrays. Its parameters are nested dicts and lists under the published names of the layers
and tensors, which ``init`` draws and a call takes first.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Optional, TypeVar, Union

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradewise._errors import CheckpointError

Parameters = Any
"""Nested dicts and lists of arrays and constants."""
F = TypeVar("F", bound=Callable[..., Any])


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class Constant:
    """Numbers of a checkpoint that are no parameters: no transformation of JAX sees them."""

    values: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the published tensor."""
        return (len(self.values),)

    def tree_flatten(self) -> tuple[tuple[()], tuple[float, ...]]:
        """No arrays, and the numbers as what a program is made for."""
        return (), self.values

    @classmethod
    def tree_unflatten(cls, values: tuple[float, ...], _: Any) -> Constant:
        """The constant of what :meth:`tree_flatten` gives."""
        return cls(values)


class Draws:
    """What initial values are drawn from: one array of random numbers, so that drawing compiles no program for each shape.

    Args:
        dtype: of the parameters.
        pool: numbers between -1 and 1, as many as are drawn, an array of NumPy or one that JAX traces; without, zeros are drawn and counted.
    """

    def __init__(self, dtype: Any, pool: Optional[Union[np.ndarray, Array]] = None) -> None:
        self.dtype, self.count, self._pool = dtype, 0, pool

    def uniform(self, shape: Sequence[int], bound: float, center: float = 0.0) -> Any:
        """Values between ``center - bound`` and ``center + bound``."""
        first, self.count = self.count, self.count + math.prod(shape)
        if self._pool is None:
            return self.filled(shape, 0.0)
        return self._pool[first : self.count].reshape(tuple(shape)) * bound + center

    def filled(self, shape: Sequence[int], value: float) -> np.ndarray:
        """One value."""
        return np.full(tuple(shape), value, self.dtype)

    def with_coefficient(self, weight: Any, coefficient: int, values: Any) -> Any:
        """A weight with other values at one of its last indices."""
        if isinstance(values, jax.core.Tracer):
            return jnp.asarray(weight).at[..., coefficient].set(values)
        weight[..., coefficient] = values
        return weight


class Definition:
    """A layer's options, equal to others of the same arguments."""

    _told: str

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        made = object.__new__(cls)
        bound = inspect.signature(cls.__init__).bind(made, *arguments, **options)
        bound.apply_defaults()
        made._told = repr(list(bound.arguments.items())[1:])
        return made

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and self._told == other._told

    def __hash__(self) -> int:
        return hash((type(self), self._told))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._told})"

    def init(self, key: Array, dtype: Any = None) -> Parameters:
        """Parameters with initial values, float32 unless ``dtype`` says otherwise."""
        dtype = jnp.dtype(jnp.float32 if dtype is None else dtype)
        counted = Draws(dtype)
        self._parameters(counted)
        pool = jax.random.uniform(key, (counted.count,), dtype, -1.0, 1.0)
        drawn = self._parameters(Draws(dtype, pool if isinstance(pool, jax.core.Tracer) else np.asarray(pool)))
        return jax.tree.map(lambda values: jnp.asarray(values, dtype), drawn)

    def _parameters(self, draws: Draws) -> Parameters:
        raise NotImplementedError


def exact(call: F) -> F:
    """Products of matrices in the features' own precision on accelerators too, unless ``jax_default_matmul_precision`` says otherwise."""

    @wraps(call)
    def run(*arguments: Any, **options: Any) -> Any:
        if jax.config.jax_default_matmul_precision is not None:
            return call(*arguments, **options)
        with jax.default_matmul_precision("highest"):
            return call(*arguments, **options)

    return run  # type: ignore[return-value]


def wide(x: Array) -> Array:
    """Numbers of 16 bits in float32."""
    return x.astype(jnp.float32) if x.dtype.itemsize == 2 else x


def keys(key: Optional[Array], count: int) -> Sequence[Optional[Array]]:
    """Keys for parts that drop features, None for each where nothing is dropped."""
    return [None] * count if key is None else list(jax.random.split(key, count))


def named(tree: Parameters, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The arrays and constants of parameters by their published names."""
    if isinstance(tree, Mapping):
        parts: Any = tree.items()
    elif isinstance(tree, (list, tuple)):
        parts = enumerate(tree)
    else:
        yield prefix, tree
        return
    for name, part in parts:
        yield from named(part, f"{prefix}.{name}" if prefix else str(name))


def load(parameters: Parameters, state: Mapping[str, Any]) -> Parameters:
    """Parameters with the values of a published checkpoint.

    Args:
        parameters: as ``init`` gives them, or their shapes, as ``jax.eval_shape`` gives them; they stay as they are.
        state: ``state_dict()`` of the published module or of ``gradewise.torch``, or arrays by these names, as ``safetensors.numpy`` reads
            them.

    Raises:
        CheckpointError: names or shapes are others.
    """
    own = dict(named(parameters))
    if own.keys() != state.keys():
        raise CheckpointError(f"{sorted(own.keys() ^ state.keys())} are not in both, the checkpoint and the model")
    for name, value in state.items():
        if tuple(value.shape) != tuple(own[name].shape):
            raise CheckpointError(f"{name} has shape {list(value.shape)}, expected {list(own[name].shape)}")

    def filled(tree: Parameters, prefix: str) -> Parameters:
        inner = lambda name: f"{prefix}.{name}" if prefix else str(name)  # noqa: E731
        if isinstance(tree, Mapping):
            return {name: filled(part, inner(name)) for name, part in tree.items()}
        if isinstance(tree, (list, tuple)):
            return [filled(part, inner(number)) for number, part in enumerate(tree)]
        value = np.asarray(state[prefix])
        return Constant(tuple(map(float, value))) if isinstance(tree, Constant) else jnp.asarray(value, tree.dtype)

    return filled(parameters, "")

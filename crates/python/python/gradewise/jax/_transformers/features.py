"""Multivectors and scalars of the rows of a transformer, as its layers hand them on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradewise._errors import ArgumentError, ShapeError
from gradewise._transformers.algebra import Tables
from gradewise.jax._operators import apply

Pair = tuple[Array, Optional[Array]]


@dataclass(frozen=True)
class Features:
    """Multivectors as planes, and scalars if there are any, of rows that were ``[..., items]``."""

    mv: Array
    """``[16, channels, rows]``"""
    s: Optional[Array]
    """``[channels, rows]``"""
    shape: tuple[int, ...]
    """``(..., items)``, whose product is the number of rows."""
    blades: Tables

    def with_(self, mv: Array, s: Optional[Array]) -> Features:
        """Other features of the same rows."""
        return replace(self, mv=mv, s=s)

    def __add__(self, other: Features) -> Features:
        """A residual sum. Scalars that one of both does not have are those of the other."""
        if self.s is None or other.s is None:
            s = other.s if self.s is None else self.s
        else:
            s = self.s + other.s
        return self.with_(self.mv + other.mv, s)

    def beside(self, other: Optional[Features]) -> Features:
        """These channels, and behind them those of other features of the same rows."""
        if other is None:
            return self
        s = self.s
        if s is not None and other.s is not None:
            s = jnp.concatenate((s, other.s))
        return self.with_(jnp.concatenate((self.mv, other.mv), 1), s)

    def leave(self) -> Pair:
        """As the published packages have them: ``[..., items, channels, 16]`` and ``[..., items, channels]``."""
        mv = leave(self.mv, self.blades)
        s = None if self.s is None else self.s.T.reshape(*self.shape, self.s.shape[0])
        return mv.reshape(*self.shape, *mv.shape[1:]), s


def enter(blades: Tables, mv: Array, s: Optional[Array], operation: str) -> Features:
    """Features of published arrays ``[..., items, channels, 16]`` and ``[..., items, channels]``."""
    if mv.ndim < 2 or mv.shape[-1] != blades.size:
        raise ShapeError(
            f"{operation}: multivectors of shape {list(mv.shape)}, expected [..., items, channels, {blades.size}]: the last axis "
            "holds the blades; embed vectors and scalars first"
        )
    shape = tuple(mv.shape[:-2])
    rows = math.prod(shape)
    if s is not None:
        if tuple(s.shape[:-1]) != shape:
            raise ShapeError(
                f"{operation}: scalars of shape {list(s.shape)} beside multivectors of shape {list(mv.shape)}, expected "
                f"{[*shape, 'channels']}: one row of scalars for each item"
            )
        s = s.reshape(rows, s.shape[-1]).T
    planes = planes_of(mv.reshape(rows, *mv.shape[-2:]), blades)
    return Features(planes, s, shape, blades)


def planes_of(mv: Array, blades: Tables) -> Array:
    """Planes ``[16, channels, rows]`` of multivectors ``[rows, channels, 16]``."""
    planes = mv.transpose(2, 1, 0)[np.asarray(blades.order)]
    return planes * _signs(blades, planes.dtype) if any(sign != 1 for sign in blades.signs) else planes


def leave(planes: Array, blades: Tables) -> Array:
    """Multivectors ``[rows, channels, 16]`` of planes."""
    if any(sign != 1 for sign in blades.signs):
        planes = planes * _signs(blades, planes.dtype)
    return planes[np.argsort(blades.order)].transpose(2, 1, 0)


def _signs(blades: Tables, dtype: Any) -> Array:
    return jnp.asarray(blades.signs, dtype)[:, None, None]


def product(name: str, blades: Tables, x: Array, y: Array) -> Array:
    """The "geometric" or the "regressive" product of planes ``[16, channels, rows]``, position by position."""
    return apply("table_product", blades.products[name], [x, y])


def grades_of_planes(blades: Tables) -> np.ndarray:
    """The grade of each plane."""
    return np.asarray([blades.grades[blade] for blade in blades.order])


def reinserted(
    x: Features, mv_channels: Optional[Sequence[int]], s_channels: Optional[Sequence[int]], operation: str
) -> Optional[Features]:
    """Channels of a model's input, by number, that its blocks' queries and keys are made of too; None if there are none."""
    if mv_channels is None and s_channels is None:
        return None
    counts = x.mv.shape[1], 0 if x.s is None else x.s.shape[0]
    for name, channels, count in (("mv", mv_channels, counts[0]), ("s", s_channels, counts[1])):
        for channel in channels or ():
            if not -count <= channel < count:
                raise ArgumentError(
                    f"{operation}: reinsert_{name}_channels has {channel}, and the input has {count} channels of that kind"
                )
    mv = x.mv[:, np.asarray(mv_channels or (), int)]
    s = None if s_channels is None or x.s is None else x.s[np.asarray(s_channels, int)]
    return x.with_(mv, s)


def computed_again(function: Callable[..., Features], x: Features, *arguments: Any) -> Features:
    """A function of features whose inner results are computed again by the backward pass.

    Args:
        function: of features, and of arguments that are arrays, features, nested dicts and lists of arrays, or None.
        x: the features.
        arguments: those arguments.
    """
    rows: list[Optional[Features]] = [x]
    given: list[Any] = [(x.mv, x.s)]
    for argument in arguments:
        is_features = isinstance(argument, Features)
        rows.append(argument if is_features else None)
        given.append((argument.mv, argument.s) if is_features else argument)

    def again(*arrays: Any) -> Pair:
        made = [a if row is None else row.with_(*a) for a, row in zip(arrays, rows)]
        y = function(*made)
        return y.mv, y.s

    return x.with_(*jax.checkpoint(again)(*given))

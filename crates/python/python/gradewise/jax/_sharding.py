"""Foreign functions on several devices: each works on its own rows, and gradients of parameters are added up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Optional

import jax
from jax import Array
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec

try:
    # What asks for its devices while it is lowered has to say so; JAX has no public name for that.
    from jax._src.dispatch import prim_requires_devices_during_lowering as _need_devices
except ImportError:
    _need_devices = None

Flags = tuple[bool, ...]


def need_devices(primitive: Any) -> bool:
    """Lets a primitive be lowered to what :func:`by_rows` makes. False for a version of JAX in which that is not to be had: there, arguments
    on several devices are gathered."""
    if _need_devices is None:
        return False
    _need_devices.add(primitive)
    return True


@lru_cache(maxsize=4096)
def by_rows(
    function: Callable[..., Sequence[Array]],
    of_arguments: Flags,
    of_results: Flags,
    dims: tuple[tuple[int, ...], tuple[int, ...]],
) -> Callable[..., Sequence[Array]]:
    """A function whose rows, on axis 1, are computed where they are.

    Args:
        function: computes results of arguments; each row by itself, and results without rows as sums over rows.
        of_arguments: which arguments have rows.
        of_results: which results have rows.
        dims: the numbers of axes of the arguments and of the results.
    """
    call = custom_partitioning(function)

    def specs(axis: Any) -> tuple[tuple[PartitionSpec, ...], tuple[PartitionSpec, ...]]:
        rows = PartitionSpec(None, axis)
        of = lambda flags: tuple(rows if flag else PartitionSpec() for flag in flags)  # noqa: E731
        return of(of_arguments), of(of_results)

    def infer(mesh: Mesh, arguments: Sequence[Any], _: Any) -> list[NamedSharding]:
        _, results = specs(_axis_of_rows(mesh, arguments, of_arguments))
        return [NamedSharding(mesh, spec) for spec in results]

    def partition(mesh: Mesh, arguments: Sequence[Any], _: Any) -> Any:
        axis = _axis_of_rows(mesh, arguments, of_arguments)

        def shard(*parts: Array) -> list[Array]:
            made = zip(function(*parts), of_results)
            return [y if has_rows or axis is None else jax.lax.psum(y, axis) for y, has_rows in made]

        given, made = ([NamedSharding(mesh, spec) for spec in some] for some in specs(axis))
        return mesh, shard, made, tuple(given)

    call.def_partition(
        partition=partition,
        infer_sharding_from_operands=infer,
        sharding_rule=_rule(of_arguments, of_results, dims),
    )
    return call


def varying_alike(inputs: Sequence[Array]) -> Sequence[Array]:
    """In a function for shards, inputs that all vary over the axes of the mesh over which one does: gradients of those that are the same
    everywhere are then added up."""
    if not hasattr(jax.lax, "pvary") and not hasattr(jax.lax, "pcast"):
        return inputs
    axes = [_axes(jax.typeof(x)) for x in inputs]
    every = frozenset().union(*axes)
    return [_varying(x, tuple(every - own)) if every - own else x for x, own in zip(inputs, axes)]


def _axes(kind: Any) -> frozenset[str]:
    """The axes of a mesh over which an array varies. Versions of JAX before 0.10 have them as an attribute of their own."""
    found = getattr(kind, "vma", None)
    return getattr(getattr(kind, "mat", None), "varying", frozenset()) if found is None else found


def _varying(x: Array, axes: tuple[str, ...]) -> Array:
    return jax.lax.pcast(x, axes, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary(x, axes)


def _axis_of_rows(mesh: Mesh, arguments: Sequence[Any], flags: Flags) -> Optional[Any]:
    """The axis of the mesh, or several, over which rows are spread; None if they are not, or not evenly."""
    for x, has_rows in zip(arguments, flags):
        spec = getattr(x.sharding, "spec", ()) if has_rows else ()
        if len(spec) > 1 and spec[1] is not None:
            axes = (spec[1],) if isinstance(spec[1], str) else tuple(spec[1])
            shards = 1
            for axis in axes:
                shards *= mesh.shape[axis]
            return axes if x.shape[1] % shards == 0 else None
    return None


def _rule(of_arguments: Flags, of_results: Flags, dims: tuple[tuple[int, ...], tuple[int, ...]]) -> str:
    """How Shardy spreads shardings: rows are rows of all that has them, and all other axes are their own."""
    number = 0

    def side(flags: Flags, counts: Sequence[int]) -> str:
        nonlocal number
        texts = []
        for has_rows, count in zip(flags, counts):
            names = []
            for axis in range(count):
                number += 1
                names.append("r" if has_rows and axis == 1 else f"o{number}")
            texts.append(" ".join(names))
        return ", ".join(texts)

    arguments, results = dims
    return f"{side(of_arguments, arguments)} -> {side(of_results, results)}"

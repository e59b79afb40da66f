"""Signatures of the published layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Union

import torch
from torch import Tensor

from gradewise._errors import ArgumentError, CheckpointError


class CliffordSignature:
    """The squares of one to three generators.

    Args:
        g: the squares, as numbers or as a tensor. At least one of them is 1 or −1.

    Attributes:
        g: the squares, a tensor.
        dim: the number of generators.
        n_blades: the number of blades.
    """

    def __init__(self, g: Union[Sequence[float], Tensor]) -> None:
        if not isinstance(g, (tuple, list, Tensor)):
            raise ArgumentError(f"CliffordSignature: {type(g).__name__} {g!r}, expected a list of squares or a tensor")
        self.g = g if isinstance(g, Tensor) else torch.as_tensor(g, dtype=torch.float32)
        self.dim = self.g.numel()
        if self.g.dim() != 1 or self.dim not in (1, 2, 3):
            raise ArgumentError(
                f"CliffordSignature: shape {list(self.g.shape)}, expected the squares of 1 to 3 generators"
            )
        if not bool((self.g.abs() == 1).any()):
            raise ArgumentError(
                f"CliffordSignature: {self.g.tolist()}, expected at least one generator that squares to 1 or -1"
            )
        self.n_blades = 2**self.dim


def signature_of(g: Any, dim: int, layer: str) -> CliffordSignature:
    """The signature of a layer for ``dim`` generators."""
    signature = CliffordSignature(g)
    if signature.dim != dim:
        raise ArgumentError(
            f"{layer}: the signature {signature.g.tolist()} has {signature.dim} generators, and the layer is for {dim}"
        )
    return signature


def check_signature(g: Tensor, state: Mapping[str, Any], prefix: str) -> None:
    """Refuses weights of another signature: the layer would compute another function with them."""
    theirs = state.get(prefix + "g")
    if isinstance(theirs, Tensor) and not theirs.is_meta and not g.is_meta:
        if theirs.shape != g.shape or theirs.tolist() != g.tolist():
            raise CheckpointError(
                f"{prefix}g is the signature {theirs.tolist()} of the checkpoint, and the layer's is {g.tolist()}: the same weights would "
                "compute another function. Make the layer with the checkpoint's signature."
            )

"""The multivector from which joins take their behaviour under reflections."""

from __future__ import annotations

from typing import Union

from torch import Tensor

from gradewise._errors import ArgumentError


def construct_reference_multivector(reference: Union[Tensor, str], inputs: Tensor) -> Tensor:
    """A reference that broadcasts to multivectors.

    Args:
        reference: "data" for the mean of the inputs, "canonical" for a multivector of the plane at infinity, which breaks the equivariance
            under reflections, or a multivector ``[..., 16]``.
        inputs: ``[batch, ..., channels, 16]``.
    """
    if isinstance(reference, Tensor):
        return reference
    if reference == "data":
        return inputs.mean(dim=tuple(range(1, inputs.dim() - 1)), keepdim=True)
    if reference == "canonical":
        made = inputs.new_zeros(16)
        made[14:] = 1.0
        return made
    raise ArgumentError(f"join_reference {reference!r}, expected 'data', 'canonical' or a multivector as a tensor")

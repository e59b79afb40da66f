"""The algebra, at its published place."""

from gradewise.torch.cgenn.algebra import CliffordAlgebra

__all__ = ["CliffordAlgebra"]

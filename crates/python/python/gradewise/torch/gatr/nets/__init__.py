"""GATr, along one axis and along two."""

from gradewise.torch.gatr.nets.axial import AxialGATr
from gradewise.torch.gatr.nets.gatr import GATr

__all__ = ["AxialGATr", "GATr"]

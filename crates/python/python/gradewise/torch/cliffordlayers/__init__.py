"""Clifford layers for fields (Brandstetter et al. 2023, arXiv:2209.04934; Ruhe et al. 2023, arXiv:2302.06594), under their published names
and at the places of the package ``cliffordlayers``."""

from gradewise.torch.cliffordlayers.nn.modules.cliffordconv import CliffordConv1d, CliffordConv2d, CliffordConv3d
from gradewise.torch.cliffordlayers.nn.modules.cliffordlinear import CliffordLinear

__all__ = ["CliffordConv1d", "CliffordConv2d", "CliffordConv3d", "CliffordLinear"]

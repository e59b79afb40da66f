"""Clifford layers for fields (Brandstetter et al. 2023, arXiv:2209.04934; Ruhe et al. 2023, arXiv:2302.06594), under their published names.

Constructors, parameters, their names, shapes and initial values are those of the published code, and so are inputs and outputs, ``[batch,
channels, *space, blades]``. Everything is at its published place too: ``cliffordlayers.nn.modules.cliffordconv`` is
``gradewise.torch.cliffordlayers.nn.modules.cliffordconv``, so that a program changes its imports alone.
"""

from gradewise.torch.cliffordlayers.cliffordalgebra import CliffordAlgebra
from gradewise.torch.cliffordlayers.nn.modules.batchnorm import (
    CliffordBatchNorm1d,
    CliffordBatchNorm2d,
    CliffordBatchNorm3d,
    ComplexBatchNorm1d,
    ComplexBatchNorm2d,
    ComplexBatchNorm3d,
)
from gradewise.torch.cliffordlayers.nn.modules.cliffordconv import CliffordConv1d, CliffordConv2d, CliffordConv3d
from gradewise.torch.cliffordlayers.nn.modules.cliffordfourier import CliffordSpectralConv2d, CliffordSpectralConv3d
from gradewise.torch.cliffordlayers.nn.modules.cliffordlinear import CliffordLinear
from gradewise.torch.cliffordlayers.nn.modules.gcan import (
    CliffordG3Conv2d,
    CliffordG3ConvTranspose2d,
    CliffordG3GroupNorm,
    CliffordG3LinearVSiLU,
    CliffordG3MeanVSiLU,
    CliffordG3SumVSiLU,
    MultiVectorAct,
    PGAConjugateLinear,
)
from gradewise.torch.cliffordlayers.nn.modules.groupnorm import (
    CliffordGroupNorm1d,
    CliffordGroupNorm2d,
    CliffordGroupNorm3d,
    ComplexGroupNorm1d,
    ComplexGroupNorm2d,
    ComplexGroupNorm3d,
)
from gradewise.torch.cliffordlayers.signature import CliffordSignature

__all__ = [
    "CliffordAlgebra",
    "CliffordBatchNorm1d",
    "CliffordBatchNorm2d",
    "CliffordBatchNorm3d",
    "CliffordConv1d",
    "CliffordConv2d",
    "CliffordConv3d",
    "CliffordG3Conv2d",
    "CliffordG3ConvTranspose2d",
    "CliffordG3GroupNorm",
    "CliffordG3LinearVSiLU",
    "CliffordG3MeanVSiLU",
    "CliffordG3SumVSiLU",
    "CliffordGroupNorm1d",
    "CliffordGroupNorm2d",
    "CliffordGroupNorm3d",
    "CliffordLinear",
    "CliffordSignature",
    "CliffordSpectralConv2d",
    "CliffordSpectralConv3d",
    "ComplexBatchNorm1d",
    "ComplexBatchNorm2d",
    "ComplexBatchNorm3d",
    "ComplexGroupNorm1d",
    "ComplexGroupNorm2d",
    "ComplexGroupNorm3d",
    "MultiVectorAct",
    "PGAConjugateLinear",
]

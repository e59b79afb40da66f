"""The modules of Clifford-group-equivariant networks (Ruhe et al. 2023, arXiv:2305.11141), under their published names.

Constructors, parameters, their names and shapes are those of the published code, and so are inputs and outputs,
``[rows, features, ..., blades]``: its checkpoints load with ``load_state_dict``, checkpoints of these modules load there, and its
models need no change but an import.

``algebra`` is a :class:`CliffordAlgebra` of this module, one of the published code, or a metric such as ``(1.0, 1.0, 1.0)``.
"""

from gradewise.torch.cgenn.algebra import CliffordAlgebra
from gradewise.torch.cgenn.layers import (
    FullyConnectedSteerableGeometricProductLayer,
    MVLayerNorm,
    MVLinear,
    MVSiLU,
    NormalizationLayer,
    SteerableGeometricProductLayer,
)
from gradewise.torch.cgenn.lorentz import CGLayer, LorentzCGGNN
from gradewise.torch.cgenn.messages import EGCL
from gradewise.torch.cgenn.mlp import CEMLP, Block
from gradewise.torch.cgenn.models import ConvexHullCGMLP, O3CGMLP, O5CGMLP
from gradewise.torch.cgenn.nbody import NBodyCGGNN

__all__ = [
    "CEMLP",
    "CGLayer",
    "CliffordAlgebra",
    "ConvexHullCGMLP",
    "EGCL",
    "FullyConnectedSteerableGeometricProductLayer",
    "LorentzCGGNN",
    "MVLayerNorm",
    "MVLinear",
    "MVSiLU",
    "NBodyCGGNN",
    "NormalizationLayer",
    "O3CGMLP",
    "O5CGMLP",
    "SteerableGeometricProductLayer",
]

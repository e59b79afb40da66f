"""Clifford group equivariant simplicial message passing networks (Liu et al. 2024, arXiv:2402.10011), under their published names.

Constructors, parameters, their names, shapes and initial values are those of the published code, and so are inputs and outputs: its checkpoints
load with ``load_state_dict``, and checkpoints of these modules load there. Everything is at its published place too:
``csmpn.models.cegnn_utils`` is ``gradewise.torch.csmpn.models.cegnn_utils``. The layers are those of :mod:`gradewise.torch.cgenn`; message
passing is another. PyTorch Geometric is not needed: a batch is anything that has the attributes of its batches.
"""

from gradewise.torch.csmpn.algebra.cliffordalgebra import CliffordAlgebra
from gradewise.torch.csmpn.models.cegnn_utils import (
    CEMLP,
    EGCL,
    MVLayerNorm,
    MVLinear,
    MVSiLU,
    NormalizationLayer,
    SteerableGeometricProductLayer,
)
from gradewise.torch.csmpn.models.hulls_cssmpnn import HullsCliffordSharedSimplicialMPNN
from gradewise.torch.csmpn.models.md17_cssmpnn import CliffordSharedSimplicialMPNN_md17
from gradewise.torch.csmpn.models.motion_cssmpnn import MotionCliffordSharedSimplicialMPNN
from gradewise.torch.csmpn.models.nba_cssmpnn import NBACliffordSharedSimplicialMPNN

__all__ = [
    "CEMLP",
    "CliffordAlgebra",
    "CliffordSharedSimplicialMPNN_md17",
    "EGCL",
    "HullsCliffordSharedSimplicialMPNN",
    "MVLayerNorm",
    "MVLinear",
    "MVSiLU",
    "MotionCliffordSharedSimplicialMPNN",
    "NBACliffordSharedSimplicialMPNN",
    "NormalizationLayer",
    "SteerableGeometricProductLayer",
]

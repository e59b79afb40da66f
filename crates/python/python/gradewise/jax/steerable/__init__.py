"""Clifford-steerable convolutional networks (Zhdanov et al. 2024, arXiv:2402.14730) as modules of Flax linen, under their published names.

Constructors, the names, shapes and initial values of parameters, and results are those of
https://github.com/maxxxzdn/clifford-group-equivariant-cnns: a program changes its imports. Where the published modules ask for an algebra,
they take :class:`CliffordAlgebra`, the published object, or the squares of the generators, one for each axis of the grid: ``(1, 1)``,
``(-1, 1, 1)``. Fields are ``[batch, channels, *space, blades]``.

Products and linear maps of the kernel networks are the operators of :mod:`gradewise.jax`, convolutions those of XLA.
"""

from gradewise._errors import MissingPackageError

try:
    import flax.linen  # noqa: F401
except ImportError as error:
    raise MissingPackageError("gradewise.jax.steerable needs Flax: pip install flax") from error

from gradewise.jax.steerable.algebra import CliffordAlgebra
from gradewise.jax.steerable.convolution import (
    CliffordSteerableConv,
    CliffordSteerableKernel,
    KernelNetwork,
    ScalarShell,
)
from gradewise.jax.steerable.layers import (
    MVGELU,
    FullyConnectedSteerableGeometricProductLayer,
    GradeNorm,
    MVLayerNorm,
    MVLinear,
    WeightedCayley,
)
from gradewise.jax.steerable.resnet import CSBasicBlock, CSResNet
from gradewise.jax.steerable.weights import flatten, load

__all__ = [
    "MVGELU",
    "CSBasicBlock",
    "CSResNet",
    "CliffordAlgebra",
    "CliffordSteerableConv",
    "CliffordSteerableKernel",
    "FullyConnectedSteerableGeometricProductLayer",
    "GradeNorm",
    "KernelNetwork",
    "MVLayerNorm",
    "MVLinear",
    "ScalarShell",
    "WeightedCayley",
    "flatten",
    "load",
]

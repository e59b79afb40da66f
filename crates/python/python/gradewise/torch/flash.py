"""The layer of Flash Clifford, with its constructor, its parameters and their names, for any signature.

A checkpoint of ``modules.layer.Layer`` loads with ``load_state_dict``, and the other way round.
"""

from __future__ import annotations

import math
from typing import Union

import torch
from torch import Tensor, nn

from gradewise._errors import ArgumentError
from gradewise._front import Bias
from gradewise.torch import _functional as ops
from gradewise.torch._composite import read
from gradewise.torch._layout import n_paths
from gradewise.torch._views import LAST

__all__ = ["Layer"]


class Layer(nn.Module):
    """A grade-wise linear map, gates, the weighted geometric product and a normalisation, in one operator.

    Args:
        n_features: features.
        dims: the dimension of Euclidean space, or a signature such as (1, 3, 0).
        normalize: whether the result is divided, for each row and grade, by its root mean square.
        use_fc: whether the product has a matrix over the features for each path of grades.
        bias_on: the blades to which the bias is added. "all_blades" as in Flash Clifford, which is not equivariant once the bias is
            trained; "scalar" is.

    Parameters: ``gp_weight`` ``[features, paths]``, fully connected ``[paths, features, features]``; ``linear_weight``
    ``[grades, features, features]``; ``linear_bias`` ``[1, 1, features]``.
    """

    def __init__(
        self,
        n_features: int,
        dims: Union[int, tuple[int, int, int]],
        normalize: bool = True,
        use_fc: bool = False,
        bias_on: Bias = "all_blades",
    ) -> None:
        super().__init__()
        signature = (dims, 0, 0) if isinstance(dims, int) else (*dims, 0, 0)[:3]
        if bias_on not in ("all_blades", "scalar"):
            raise ArgumentError(f"Layer: bias_on is {bias_on!r}, expected 'all_blades' or 'scalar'")
        self.n_features, self.signature = n_features, signature
        self.normalize, self.use_fc, self.bias_on = normalize, use_fc, bias_on
        dim, paths = sum(signature), n_paths(signature)
        self.gp_weight = nn.Parameter(torch.empty((paths, n_features, n_features) if use_fc else (n_features, paths)))
        self.linear_weight = nn.Parameter(torch.empty(dim + 1, n_features, n_features))
        self.linear_bias = nn.Parameter(torch.zeros(1, 1, n_features))
        grades = [grade for grade in range(dim + 1) for _ in range(math.comb(dim, grade))]
        # Not used here; there because checkpoints have it.
        self.register_buffer("weight_expansion", torch.tensor(grades))
        nn.init.normal_(self.gp_weight, std=1 / math.sqrt(dim + 1))
        nn.init.normal_(self.linear_weight, std=1 / math.sqrt(n_features * (1 if use_fc else dim + 1)))

    def forward(self, x: Tensor) -> Tensor:
        """Features ``[blades, rows, features]`` to features of the same shape."""
        linear, weight, bias = read(self, "linear_weight", "gp_weight", "linear_bias")
        return ops.clifford_layer(
            x,
            linear,
            weight,
            LAST(bias),
            self.signature,
            normalize=self.normalize,
            fully_connected=self.use_fc,
            bias_on=self.bias_on,
        )

    def extra_repr(self) -> str:
        return f"{self.n_features}, {self.signature}, normalize={self.normalize}, use_fc={self.use_fc}, bias_on={self.bias_on!r}"

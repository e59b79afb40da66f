"""The layer of Flash Clifford, with its constructor, its parameters and their names, for any signature.

A checkpoint of ``modules.layer.Layer`` loads with ``load_state_dict``, and the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Union

import torch
from torch import Tensor, nn

from gradewise._errors import ArgumentError, CheckpointError, at_least_one
from gradewise._front import Bias
from gradewise.torch import _functional as ops
from gradewise.torch._composite import read
from gradewise.torch._layout import n_paths
from gradewise.torch._pretrained import Pretrained
from gradewise.torch._space import Space, grade_sizes
from gradewise.torch._views import LAST
from gradewise.torch.cgenn.maps import Map, Setting, is_ordinary

__all__ = ["Layer"]


class FlashMap(Map, is_map=True):
    """See :class:`Layer`."""

    bias_on: Bias = "all_blades"

    def forward(self, *given: Any, **named: Any) -> Any:
        """Features ``[blades, rows, features]`` to features of the same shape."""
        published = self._published
        if published is not None and (named or len(given) != 1 or not self._takes(given[0])):
            return published.forward(self, *given, **named)
        (x,) = (*given, *named.values())
        linear, weight, bias = read(self, "linear_weight", "gp_weight", "linear_bias")
        return ops.clifford_layer(
            x,
            linear,
            weight,
            LAST(bias),
            self._gradewise.space.signature,
            normalize=self.normalize,
            fully_connected=weight.dim() == 3,
            bias_on=self.bias_on,
        )

    def _takes(self, input: Any) -> bool:
        return (
            isinstance(input, Tensor)
            and input.dim() == 3
            and is_ordinary(input.movedim(0, -1), self._gradewise.space.blades)
        )

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        grades, expected = state_dict.get(prefix + "weight_expansion"), expansion(self._gradewise.space.signature)
        if isinstance(grades, Tensor) and not (grades.shape == expected.shape and torch.equal(grades.cpu(), expected)):
            raise CheckpointError(
                f"{prefix}weight_expansion gives the grades {grades.tolist()} of the checkpoint's blades, and the layer's are "
                f"{expected.tolist()}: it is a layer of another algebra"
            )
        super()._load_from_state_dict(state_dict, prefix, *rest)


def expansion(signature: tuple[int, int, int]) -> Tensor:
    """The grade of each blade."""
    return torch.tensor([grade for grade, size in enumerate(grade_sizes(signature)) for _ in range(size)])


class Layer(Pretrained, FlashMap, nn.Module):
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
        at_least_one(type(self).__name__, n_features=n_features)
        self.n_features, self.signature = n_features, signature
        self._gradewise = Setting(Space(tuple([1.0] * signature[0] + [-1.0] * signature[1] + [0.0] * signature[2])))
        self.normalize, self.use_fc, self.bias_on = normalize, use_fc, bias_on
        dim, paths = sum(signature), n_paths(signature)
        self.gp_weight = nn.Parameter(torch.empty((paths, n_features, n_features) if use_fc else (n_features, paths)))
        self.linear_weight = nn.Parameter(torch.empty(dim + 1, n_features, n_features))
        self.linear_bias = nn.Parameter(torch.zeros(1, 1, n_features))
        # Not used here; there because checkpoints have it.
        self.register_buffer("weight_expansion", expansion(signature))
        nn.init.normal_(self.gp_weight, std=1 / math.sqrt(dim + 1))
        nn.init.normal_(self.linear_weight, std=1 / math.sqrt(n_features * (1 if use_fc else dim + 1)))

    def extra_repr(self) -> str:
        return f"{self.n_features}, {self.signature}, normalize={self.normalize}, use_fc={self.use_fc}, bias_on={self.bias_on!r}"

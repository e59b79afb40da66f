"""The published networks for hulls, tetrahedra and invariants of two vectors."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from gradewise._errors import ShapeError
from gradewise.torch._pretrained import Pretrained
from gradewise.torch.cgenn.algebra import CliffordAlgebra
from gradewise.torch.cgenn.layers import (
    FullyConnectedSteerableGeometricProductLayer,
    MVLinear,
    MVSiLU,
    SteerableGeometricProductLayer,
)


class ConvexHullCGMLP(Pretrained, nn.Module):
    """The published network for the volume of the convex hull of points in five dimensions.

    Args:
        in_features: points.
        hidden_features: width.
        out_features: predictions.
        num_layers: has no effect, as in the published code: there are four product layers.
        init_normalization: has no effect, as in the published code.
    """

    def __init__(
        self,
        in_features: int = 16,
        hidden_features: int = 32,
        out_features: int = 1,
        num_layers: int = 4,
        init_normalization: float = 0,
    ) -> None:
        super().__init__()
        self.algebra = CliffordAlgebra((1.0,) * 5)
        self.in_features, self.hidden_features, self.out_features = in_features, hidden_features, out_features
        self.num_layers, self.init_normalization = num_layers, init_normalization
        products = (SteerableGeometricProductLayer(self.algebra, hidden_features) for _ in range(4))
        self.net = nn.Sequential(MVLinear(self.algebra, in_features, hidden_features, subspaces=False), *products)
        self.mlp = nn.Sequential(
            nn.Linear(hidden_features, hidden_features), nn.SiLU(), nn.Linear(hidden_features, out_features)
        )

    def predict(self, points: Tensor) -> Tensor:
        """The volumes ``[samples]`` for points ``[samples, points, 5]``."""
        return self.mlp(self.net(self.algebra.embed_grade(points, 1)).norm(dim=-1)).squeeze(-1)

    def forward(self, batch: Sequence[Tensor], step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean squared error of a batch (points, volumes), and that of each sample."""
        return _regression(self.predict(batch[0]), batch[1])


class O3CGMLP(Pretrained, nn.Module):
    """The published network for signed volumes of tetrahedra.

    Args:
        in_features: vectors.
        hidden_features: width.
        out_features: features of the prediction.
        num_layers: layers, of which all between the first and the last are activations, as in the published code.
        init_normalization: has no effect, as in the published code.
    """

    def __init__(
        self,
        in_features: int = 3,
        hidden_features: int = 32,
        out_features: int = 1,
        num_layers: int = 6,
        init_normalization: float = 0,
    ) -> None:
        super().__init__()
        self.algebra = CliffordAlgebra((1.0, 1.0, 1.0))
        self.in_features, self.hidden_features, self.out_features = in_features, hidden_features, out_features
        self.num_layers, self.init_normalization = num_layers, init_normalization
        full = FullyConnectedSteerableGeometricProductLayer
        between = (MVSiLU(self.algebra, hidden_features) for _ in range(num_layers - 1))
        self.net = nn.Sequential(
            full(self.algebra, in_features, hidden_features),
            *between,
            full(self.algebra, hidden_features, out_features),
        )

    def predict(self, points: Tensor) -> Tensor:
        """The signed volumes ``[samples]`` for vectors ``[samples, vectors, 3]``."""
        return self.net(self.algebra.embed_grade(points, 1))[:, 0, -1]

    def forward(self, batch: Sequence[Tensor], step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean squared error of a batch (vectors, volumes), and that of each sample."""
        return _regression(self.predict(batch[0]), batch[1])


class O5CGMLP(Pretrained, nn.Module):
    """The published network for the O(5)-invariant function of two vectors.

    Args:
        ymean: mean of the targets.
        ystd: deviation of the targets.
    """

    def __init__(self, ymean: float, ystd: float) -> None:
        super().__init__()
        self.algebra = CliffordAlgebra((1.0,) * 5)
        self.gp = nn.Sequential(
            MVLinear(self.algebra, 2, 8, subspaces=False), SteerableGeometricProductLayer(self.algebra, 8)
        )
        self.mlp = nn.Sequential(nn.Linear(8, 580), nn.ReLU(), nn.Linear(580, 580), nn.ReLU(), nn.Linear(580, 1))
        self.ymean, self.ystd = ymean, ystd

    def predict(self, points: Tensor) -> Tensor:
        """The normalised function ``[samples, 1]`` for pairs of vectors ``[samples, 10]`` or ``[samples, 2, 5]``."""
        input = self.algebra.embed_grade(points.reshape(len(points), 2, 5), 1)
        return self.mlp(self.gp(input)[..., 0])

    def forward(self, batch: Sequence[Tensor], step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean squared error, in units of the targets, of a batch (vectors, normalised targets), and that of each sample."""
        prediction = self.predict(batch[0])
        prediction, target = (y * self.ystd + self.ymean for y in (prediction, batch[1]))
        return _regression(prediction, target.to(prediction.dtype))


def _regression(prediction: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    if prediction.shape != target.shape:
        raise ShapeError(
            f"the targets have shape {list(target.shape)}, expected that of the predictions, {list(prediction.shape)}"
        )
    loss = F.mse_loss(prediction, target, reduction="none")
    return loss.mean(), {"loss": loss}

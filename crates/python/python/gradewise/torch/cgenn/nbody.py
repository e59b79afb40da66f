"""The published network for charged particles, and the weights of a run of this project in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradewise._errors import CheckpointError
from gradewise.torch._pretrained import Pretrained
from gradewise.torch.cgenn.algebra import CliffordAlgebra
from gradewise.torch.cgenn.layers import MVLinear
from gradewise.torch.cgenn.messages import EGCL
from gradewise.torch.cgenn.stack import Stack, run_as_one


class NBodyCGGNN(Pretrained, nn.Module):
    """The published network for charged particles in three dimensions.

    Args:
        in_features: features of a particle: charge, position from the centre, velocity.
        hidden_features: width.
        out_features: features of the prediction.
        edge_features_in: features of an edge: the product of the charges.
        n_layers: layers of message passing.
        normalization_init: as in :class:`SteerableGeometricProductLayer`.
        residual: as in :class:`EGCL`.
    """

    def __init__(
        self,
        in_features: int = 3,
        hidden_features: int = 28,
        out_features: int = 1,
        edge_features_in: int = 1,
        n_layers: int = 3,
        normalization_init: Optional[float] = 0,
        residual: bool = True,
    ) -> None:
        super().__init__()
        self.algebra = CliffordAlgebra((1.0, 1.0, 1.0))
        self.hidden_features, self.n_layers = hidden_features, n_layers
        self.embedding = MVLinear(self.algebra, in_features, hidden_features, subspaces=False)
        self.projection = nn.Sequential(MVLinear(self.algebra, hidden_features, out_features))
        layers = [
            EGCL(
                self.algebra,
                hidden_features,
                hidden_features,
                hidden_features,
                edge_features_in,
                residual=residual,
                normalization_init=normalization_init,
            )
            for _ in range(n_layers)
        ]
        self.layers = nn.Sequential(*layers)
        self._gradewise = Stack(self.algebra.space, n_layers, True, ("h", "edges", "edge_attr"))

    @classmethod
    def from_run(cls, checkpoint: Any) -> NBodyCGGNN:
        """The model with the weights of a run of ``gradewise train nbody``, or with their moving average if the run keeps one, in the dtype
        of its checkpoint.

        Args:
            checkpoint: the file of weights, or the :class:`gradewise.Run`. Needs the package safetensors.

        Raises:
            CheckpointError: a checkpoint of another model, or of one that the published network has no place for, such as with
                ``model.velocities``.
        """
        from safetensors import safe_open

        path = getattr(checkpoint, "checkpoint", checkpoint)
        with safe_open(str(path), "pt") as file:
            metadata = json.loads((file.metadata() or {}).get("gradewise", "{}"))
            config = metadata.get("model_config", {})
            # What of the settings changes the network; the others say how these work, or how it is trained.
            extensions = ("velocities", "conjugation", "geometry", "substeps", "pushes", "kicks")
            others = sorted(key for key in extensions if config.get(key))
            if metadata.get("model") != "nbody" or others:
                what = f"a model with {', '.join(others)}" if others else f"the model {metadata.get('model')!r}"
                raise CheckpointError(f"{path}: {what}, and the published network has no place for it")
            # Weights stand alone; what else a checkpoint has, such as an optimiser's state, is named after what it is. A moving
            # average of the weights takes their place, as in the program's `eval` and `infer`.
            names = set(file.keys())
            weights = {
                name: file.get_tensor(f"ema::{name}" if f"ema::{name}" in names else name)
                for name in names
                if "::" not in name
            }
        model = cls(hidden_features=config["hidden"], n_layers=config["layers"]).to(next(iter(weights.values())).dtype)
        parameters = dict(model.named_parameters())
        # Matrices turn, `[grades, in, out]` to `[out, in, grades]`, that of the embedding, which all grades share, from `[in, out]`.
        turned = {name: t.permute(2, 1, 0) if t.dim() == 3 else t for name, t in weights.items()}
        turned["embedding.weight"] = turned["embedding.weight"].T
        given = {_published_name(name): tensor for name, tensor in turned.items()}
        if given.keys() != parameters.keys():
            raise CheckpointError(
                f"{path}: {sorted(given.keys() ^ parameters.keys())} are not in both, the checkpoint and the published network"
            )
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(given[name].reshape(parameter.shape))
        return model

    def _forward(self, h: Tensor, edges: Sequence[Tensor], edge_attr: Tensor) -> Tensor:
        result = run_as_one(self, self._gradewise, {"h": h, "edges": edges, "edge_attr": edge_attr})
        if result is not None:
            return result
        h = self.embedding(h)
        for layer in self.layers:
            h = layer(h, edges, edge_attr=edge_attr)
        return self.projection(h)

    def predict(self, batch: Sequence[Tensor]) -> Tensor:
        """The positions at the end, ``[systems·particles, 3]``, of a batch as :meth:`forward` takes it; its target is not read."""
        loc, vel, edge_attr, charges, _, edges = batch
        systems, particles, _ = loc.size()
        centred = loc - loc.mean(dim=1, keepdim=True)
        flat = [
            t.to(self.embedding.weight.dtype).reshape(-1, *t.shape[2:]) for t in (centred, loc, vel, edge_attr, charges)
        ]
        centred, loc, vel, edge_attr, charges = flat
        offsets = particles * torch.arange(systems, device=loc.device)
        edges = (edges + offsets[:, None, None]).transpose(0, 1).flatten(1)
        covariants = self.algebra.embed(torch.stack([centred, vel], dim=1), (1, 2, 3))
        invariants = self.algebra.embed(charges, (0,))
        nodes = torch.cat([invariants[:, None], covariants], dim=1)
        prediction = self._forward(nodes, (edges[0], edges[1]), self.algebra.embed(edge_attr[..., None], (0,)))
        return loc + prediction[..., 0, 1:4]

    def forward(self, batch: Sequence[Tensor], step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean squared error of a batch (positions, velocities, products of charges, charges, positions at the end, edges), and the
        error of each particle."""
        target = batch[4]
        target = target.to(self.embedding.weight.dtype).reshape(-1, *target.shape[2:])
        loss = F.mse_loss(self.predict(batch), target, reduction="none").mean(dim=1)
        return loss.mean(), {"loss": loss}


def _published_name(name: str) -> str:
    """The name of a run's parameter in the published network: there, four modules make a block."""
    match name.split("."):
        case ["layers", layer, ("edge" | "node") as which, number, *rest]:
            block, module = divmod(int(number), 4)
            return ".".join(["layers", layer, f"{which}_model", "layers", str(block), str(module), *rest])
        case ["projection", *rest]:
            return ".".join(["projection", "0", *rest])
    return name

#!/usr/bin/env python3
"""Weights and predictions of the published n-body network, to compare ours with: tests/published.

    benches/golden_cgenn.py CHECKOUT [FOLDER]

CHECKOUT is the published code (clifford-group-equivariant-neural-networks, arXiv:2305.11141); it runs unchanged, in double precision.
Needs torch and safetensors.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file, save_model

SYSTEMS, PARTICLES, HIDDEN, LAYERS = 6, 5, 8, 2


def main():
    checkout = Path(sys.argv[1])
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else "tests/published")
    sys.path.insert(0, str(checkout))
    from models.nbody_cggnn import NBodyCGGNN

    torch.manual_seed(20261123)
    model = NBodyCGGNN(hidden_features=HIDDEN, n_layers=LAYERS)
    for parameter in model.parameters():
        # Biases, gains and gates as training leaves them: anything but zeros and ones.
        torch.nn.init.normal_(parameter, std=0.4)
    # As users keep it: single precision, tensors that modules share once.
    folder.mkdir(exist_ok=True)
    save_model(model, str(folder / "nbody.safetensors"))

    model = model.double()
    # The published forward pass casts its input to single precision.
    torch.Tensor.float = torch.Tensor.double
    loc, vel = torch.randn(2, SYSTEMS, PARTICLES, 3, dtype=torch.float64)
    charges = torch.randint(0, 2, (SYSTEMS, PARTICLES, 1)).double() * 2 - 1
    pairs = torch.tensor([(i, j) for i in range(PARTICLES) for j in range(PARTICLES) if i != j]).T
    edges = pairs.expand(SYSTEMS, -1, -1)
    products = (charges[:, pairs[0]] * charges[:, pairs[1]])
    # The loss is all that the published model returns; its minimum is where the target is the prediction, and its gradient there tells
    # which: d mean((p - t)²) / dt = 2 (t - p) / 3n.
    target = torch.zeros_like(loc, requires_grad=True)
    loss, _ = model((loc, vel, products, charges, target, edges), 0)
    (gradient,) = torch.autograd.grad(loss, target)
    prediction = target - gradient * (target.numel() / 2)
    check, _ = model((loc, vel, products, charges, prediction.detach(), edges), 0)
    assert check < 1e-24, check

    planes = lambda x: x.detach().transpose(1, 2).contiguous()
    tensors = {"loc": planes(loc), "vel": planes(vel), "charges": charges[..., 0].contiguous(), "prediction": planes(prediction)}
    save_file(tensors, str(folder / "nbody-predictions.safetensors"))


main()

#!/usr/bin/env python3
"""Weights and predictions of the published networks for fields, to compare ours with: tests/published.

    benches/golden_cliffordlayers.py CHECKOUT [FOLDER]

CHECKOUT is the published code (cliffordlayers, arXiv:2209.04934 and 2302.06594); it runs unchanged, in double precision. Needs torch and
safetensors.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file, save_model


def main():
    checkout = Path(sys.argv[1])
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else "tests/published")
    sys.path.insert(0, str(checkout))
    from cliffordlayers.models.basic.threed import CliffordFourierBasicBlock3d, CliffordMaxwellNet3d
    from cliffordlayers.models.basic.twod import CliffordBasicBlock2d, CliffordFluidNet2d, CliffordFourierBasicBlock2d
    from cliffordlayers.models.gca.twod import CliffordG3ResNet2d, CliffordG3UNet2d
    from cliffordlayers.models.utils import partialclass

    gelu = torch.nn.functional.gelu
    fourier2d = partialclass("Fourier2d", CliffordFourierBasicBlock2d, modes1=3, modes2=2)
    fourier3d = partialclass("Fourier3d", CliffordFourierBasicBlock3d, modes1=2, modes2=2, modes3=1)
    fluid = lambda block, g=(1, 1), rotation=False, norm=False, groups=1: CliffordFluidNet2d(
        list(g), block, [1, 2], 2, 1, 4, gelu, rotation=rotation, norm=norm, num_groups=groups
    )
    # The number of samples is 1 where there are norms: the published bias of a group norm depends on the place in the batch.
    models = {
        "fluid": (fluid(CliffordBasicBlock2d, norm=True, groups=2), (1, 2, 9, 8, 3)),
        "fluid-rotation": (fluid(CliffordBasicBlock2d, g=(-1, -1), rotation=True), (2, 2, 7, 8, 3)),
        "fluid-fourier": (fluid(fourier2d), (2, 2, 8, 7, 3)),
        "maxwell": (
            CliffordMaxwellNet3d([1, 1, 1], fourier3d, [1, 1], 2, 1, 2, gelu),
            (2, 2, 4, 5, 3, 6),
        ),
        "g3-resnet": (CliffordG3ResNet2d([1, 2], 2, 1, 4, norm=True), (2, 2, 6, 5, 3)),
        "g3-unet": (CliffordG3UNet2d(2, 1, 2, norm=True, ch_mults=(1, 2), n_blocks=1), (2, 2, 8, 6, 3)),
    }
    folder.mkdir(exist_ok=True)
    predictions = {}
    for number, (name, (model, shape)) in enumerate(models.items()):
        torch.manual_seed(20261123 + number)
        for parameter in model.parameters():
            # The kernels of zeros that some layers have are no parameters, and stay.
            if parameter.requires_grad:
                torch.nn.init.normal_(parameter, std=0.3)
        # As users keep it: single precision; tensors that a module has under two names once.
        save_model(model, str(folder / f"{name}.safetensors"))
        model = model.double().eval()
        x = torch.randn(shape, dtype=torch.float64)
        # The published Fourier layers allocate their result in this type.
        torch.float = torch.float64
        with torch.no_grad():
            y = model(x)
        torch.float = torch.float32
        assert y.dtype == torch.float64, name
        predictions[f"{name}.input"], predictions[f"{name}.output"] = x, y.contiguous()
    save_file(predictions, str(folder / "fields-predictions.safetensors"))


main()

"""The modules of cliffordlayers and CSMPN that golden vectors are kept of: with which arguments and inputs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    name: str
    package: str
    place: str
    kind: str
    arguments: dict
    shapes: dict
    """Of the inputs by name, in the order of ``forward``; those of a network are attributes of its batch."""
    metric: tuple = ()
    """That of the argument ``algebra``."""
    graph: tuple = ()
    """Graphs and nodes of a batch; nodes and edges of a layer of messages."""
    is_evaluated: bool = False


_CONV = "nn.modules.cliffordconv"
_GCAN = "nn.modules.gcan"


def _clifford(name, place, kind, arguments, *shape, **more):
    return Case(name, "cliffordlayers", place, kind, arguments, {"x": shape}, **more)


def _csmpn(name, place, kind, arguments, **more):
    return Case(name, "csmpn", place, kind, arguments, **more)


def _norms():
    for prefix, first in (("Batch", {}), ("Group", {"num_groups": 2})):
        for g in ([1], [-1, 1], [1, 1, 1]):
            n = len(g)
            for is_evaluated in (False, True) if prefix == "Batch" and n < 3 else (False,):
                yield _clifford(
                    f"{prefix.lower()}_norm_{n}d{'_eval' if is_evaluated else ''}",
                    f"nn.modules.{prefix.lower()}norm",
                    f"Clifford{prefix}Norm{n}d",
                    {"g": g, **first, "channels": 2},
                    *(2, 2, *((8,), (4, 2), (2, 2, 3))[n - 1], 2**n),
                    is_evaluated=is_evaluated,
                )


CASES = (
    _clifford(
        "linear_1",
        "nn.modules.cliffordlinear",
        "CliffordLinear",
        {"g": [-1], "in_channels": 2, "out_channels": 3},
        3,
        2,
        2,
    ),
    _clifford(
        "linear_3",
        "nn.modules.cliffordlinear",
        "CliffordLinear",
        {"g": [0, -1, 1], "in_channels": 2, "out_channels": 2},
        2,
        2,
        8,
    ),
    _clifford("conv_1d", _CONV, "CliffordConv1d", {"g": [-1], "in_channels": 2, "out_channels": 3}, 2, 2, 6, 2),
    _clifford(
        "conv_1d_groups",
        _CONV,
        "CliffordConv1d",
        {"g": [1], "in_channels": 2, "out_channels": 2, "groups": 2},
        2,
        2,
        5,
        2,
    ),
    _clifford(
        "conv_2d",
        _CONV,
        "CliffordConv2d",
        {"g": [-1, 1], "in_channels": 2, "out_channels": 3, "kernel_size": [2, 3], "stride": 2, "padding": 1},
        *(2, 2, 5, 4, 4),
    ),
    _clifford(
        "conv_2d_same",
        _CONV,
        "CliffordConv2d",
        {"g": [0, 1], "in_channels": 2, "out_channels": 1, "padding": "same", "bias": False, "dilation": 2},
        *(1, 2, 4, 5, 4),
    ),
    _clifford(
        "conv_2d_rotation",
        _CONV,
        "CliffordConv2d",
        {"g": [-1, -1], "in_channels": 2, "out_channels": 2, "kernel_size": 2, "rotation": True},
        *(2, 2, 3, 4, 4),
    ),
    _clifford(
        "conv_3d",
        _CONV,
        "CliffordConv3d",
        {"g": [-1, 1, 1], "in_channels": 1, "out_channels": 2, "kernel_size": 2},
        *(2, 1, 3, 3, 2, 8),
    ),
    _clifford(
        "spectral_2d",
        "nn.modules.cliffordfourier",
        "CliffordSpectralConv2d",
        {"g": [-1, 1], "in_channels": 2, "out_channels": 1, "modes1": 2, "modes2": 1},
        *(1, 2, 5, 4, 4),
    ),
    _clifford(
        "spectral_2d_overlap",
        "nn.modules.cliffordfourier",
        "CliffordSpectralConv2d",
        {"g": [1, 1], "in_channels": 1, "out_channels": 1, "modes1": 3, "modes2": 2},
        *(1, 1, 4, 3, 4),
    ),
    _clifford(
        "spectral_3d",
        "nn.modules.cliffordfourier",
        "CliffordSpectralConv3d",
        {"g": [1, 1, 1], "in_channels": 1, "out_channels": 1, "modes1": 1, "modes2": 2, "modes3": 1},
        *(1, 1, 3, 4, 3, 8),
    ),
    _clifford(
        "g3_conv",
        _GCAN,
        "CliffordG3Conv2d",
        {"in_channels": 2, "out_channels": 3, "kernel_size": 2, "bias": True},
        *(2, 2, 3, 4, 3),
    ),
    _clifford(
        "g3_transposed",
        _GCAN,
        "CliffordG3ConvTranspose2d",
        {"in_channels": 2, "out_channels": 1, "kernel_size": 3, "stride": 2, "padding": 1, "bias": True},
        *(1, 2, 3, 2, 3),
    ),
    _clifford("g3_gate", _GCAN, "CliffordG3LinearVSiLU", {"channels": 2}, 2, 2, 3, 2, 3),
    _clifford(
        "g3_norm",
        _GCAN,
        "CliffordG3GroupNorm",
        {"num_groups": 2, "num_features": 4, "num_blades": 3, "scale_norm": True},
        2,
        4,
        3,
        2,
        3,
    ),
    _clifford(
        "pga_linear",
        _GCAN,
        "PGAConjugateLinear",
        {"in_features": 2, "out_features": 3, "input_blades": [0, 1, 5, 11, 13, 14]},
        *(2, 2, 6),
        metric=(0, 1, 1, 1),
    ),
    _clifford(
        "act",
        _GCAN,
        "MultiVectorAct",
        {"channels": 2, "input_blades": [1, 2, 3, 9], "kernel_blades": [2, 7, 9]},
        *(3, 2, 4),
        metric=(0, 1, 1, 1),
    ),
    _clifford(
        "act_mean",
        _GCAN,
        "MultiVectorAct",
        {"channels": 2, "input_blades": [1, 2, 3], "agg": "mean"},
        3,
        2,
        3,
        metric=(1, 1, 1),
    ),
    *_norms(),
    _clifford(
        "fluid_net",
        "models.basic.twod",
        "CliffordFluidNet2d",
        {
            "g": [-1, -1],
            "block": ["CliffordBasicBlock2d", {}],
            "num_blocks": [1],
            "in_channels": 1,
            "out_channels": 1,
            "hidden_channels": 1,
            "activation": "gelu",
            "rotation": True,
            "norm": True,
        },
        *(1, 1, 5, 4, 3),
    ),
    _clifford(
        "maxwell_net",
        "models.basic.threed",
        "CliffordMaxwellNet3d",
        {
            "g": [1, 1, 1],
            "block": ["CliffordFourierBasicBlock3d", {"modes1": 1, "modes2": 1, "modes3": 1}],
            "num_blocks": [1],
            "in_channels": 1,
            "out_channels": 1,
            "hidden_channels": 1,
            "activation": "gelu",
        },
        *(1, 1, 2, 3, 2, 6),
    ),
    _clifford(
        "u_net",
        "models.gca.twod",
        "CliffordG3UNet2d",
        {"in_channels": 1, "out_channels": 1, "hidden_channels": 1, "norm": True, "ch_mults": [1, 1], "n_blocks": 1},
        *(1, 1, 4, 2, 3),
    ),
    *(
        _csmpn(
            f"egcl_{aggr}",
            "models.cegnn_utils",
            "EGCL",
            {
                "in_features": 2,
                "hidden_features": 2,
                "out_features": 2,
                "edge_attr_features": 1,
                "node_attr_features": nodes,
                "aggr": aggr,
            },
            shapes={"h": (5, 2, 8), "edge_attr": (9, 1, 8), **({"node_attr": (5, 1, 8)} if nodes else {})},
            metric=(1.0, -1.0, 1.0),
            graph=(5, 9),
        )
        for aggr, nodes in (("mean", 1), ("sum", 0), ("max", 1))
    ),
    _csmpn(
        "hulls",
        "models.hulls_cssmpnn",
        "HullsCliffordSharedSimplicialMPNN",
        {"hidden_features": 2, "num_layers": 1},
        shapes={"input": 5, "target": (2,)},
        graph=(2, 4),
    ),
    _csmpn(
        "motion",
        "models.motion_cssmpnn",
        "MotionCliffordSharedSimplicialMPNN",
        {"num_hidden": 2, "num_layers": 1},
        shapes={"pos": 3, "vel": 3, "y": (8, 3)},
        graph=(2, 4),
    ),
    _csmpn(
        "md17",
        "models.md17_cssmpnn",
        "CliffordSharedSimplicialMPNN_md17",
        {"num_input": 6, "num_hidden": 2, "num_out": 2, "num_layers": 1},
        shapes={"loc": (None, 2, 3), "vel": (None, 2, 3), "charges": (None, 2, 1), "y": (8, 2, 3)},
        graph=(2, 4),
    ),
    _csmpn(
        "nba",
        "models.nba_cssmpnn",
        "NBACliffordSharedSimplicialMPNN",
        {"num_input": 4, "num_hidden": 2, "num_out": 8, "num_layers": 1},
        shapes={"pos": (None, 2, 2), "vel": (None, 2, 2), "y": (10, 8, 2)},
        graph=(2, 6),
    ),
)
BY_NAME = {case.name: case for case in CASES}

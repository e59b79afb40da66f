"""Transformers against the published packages, where these are installed, over random options."""

import os

import pytest
import torch

import transformer_cases
from transformer_cases import default_dtype, evaluate, worst

COUNT = int(os.environ.get("GRADEWISE_TRANSFORMERS", 40))
"""How many draws of options each package is compared with."""
FIRST = int(os.environ.get("GRADEWISE_TRANSFORMERS_FIRST", 0))
DRAWS = {"lgatr": transformer_cases.lgatr_options, "gatr": transformer_cases.gatr_options}


def pair(package, kind, arguments):
    """Ours and the published model of the same seed, in double precision."""
    published = pytest.importorskip(package, exc_type=ImportError)
    made = []
    for library in (transformer_cases.OURS[package], published):
        torch.manual_seed(1)
        with default_dtype(torch.float64):
            made.append(getattr(library, kind)(**arguments).double())
    return made


def conditioning(model, inputs, cotangents, result):
    """How far a model's numbers go when its inputs are changed by a rounding: GATr's distances of points amplify them a thousandfold."""
    torch.manual_seed(2)
    moved = {name: x * (1 + 2e-16 * torch.randn(x.shape, dtype=x.dtype).sign()) for name, x in inputs.items()}
    torch.manual_seed(2)
    with default_dtype(torch.float64):
        return worst(evaluate(model, moved, cotangents), result)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
@pytest.mark.parametrize("package", ["lgatr", "gatr"])
def test_numbers(package, seed):
    kind, arguments, shapes = DRAWS[package](seed)
    ours, published = pair(package, kind, arguments)
    for name, value in published.state_dict().items():
        assert torch.allclose(ours.state_dict()[name], value, rtol=1e-6), f"{name}: drawn otherwise"
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in published.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    assert list(ours.state_dict()) == list(published.state_dict())
    ours.load_state_dict(published.state_dict(), strict=True)
    published.load_state_dict(ours.state_dict(), strict=True)
    inputs = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    with torch.no_grad():
        there = [y for y in ours(**inputs) if y is not None]
    cotangents = [torch.randn(y.shape, generator=generator, dtype=torch.float64) for y in there]
    results = []
    for model in (ours, published):
        torch.manual_seed(2)  # the same numbers for dropout
        with default_dtype(torch.float64):
            results.append(evaluate(model, inputs, cotangents))
    error = worst(*results)
    assert error < max(1e-11, 10 * conditioning(published, inputs, cotangents, results[1])), (error, kind, arguments)
    trainable = [{n for n, p in m.named_parameters() if p.requires_grad} for m in (ours, published)]
    assert trainable[0] == trainable[1]


@pytest.mark.parametrize("package", ["lgatr", "gatr"])
def test_single_precision(package):
    published = None
    for seed in range(FIRST, FIRST + 12):
        kind, arguments, shapes = DRAWS[package](seed)
        arguments |= {"dropout_prob": None} if kind != "AxialGATr" else {}
        ours, published = pair(package, kind, arguments)
        ours.load_state_dict(published.state_dict())
        inputs = {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}
        with torch.no_grad():
            cotangents = [torch.randn_like(y) for y in ours(**inputs) if y is not None]
        exact = evaluate(ours, inputs, cotangents)
        single = {name: x.float() for name, x in inputs.items()}
        error = worst(evaluate(ours.float(), single, cotangents), exact)
        theirs = worst(evaluate(published.float(), single, cotangents), exact)
        assert error < max(1e-5, 2 * theirs), (error, theirs, kind, arguments)


def test_configurations_of_the_package():
    lgatr = pytest.importorskip("lgatr")
    model = transformer_cases.OURS["lgatr"].LGATr(
        1,
        1,
        1,
        4,
        1,
        1,
        4,
        lgatr.SelfAttentionConfig(num_heads=2),
        lgatr.MLPConfig(),
        lgatr.PrimitivesConfig(subgroup=False),
    )
    assert model.linear_in.weight.shape == (4, 1, 5)


LGATR_LAYERS = {
    "EquiLinear": lambda lib, m, y: y.EquiLinear(2, 3, m.PrimitivesConfig(), 3, 4),
    "EquiLinear full": lambda lib, m, y: y.EquiLinear(2, 3, m.PrimitivesConfig(subgroup=False), 3, 0),
    "EquiLayerNorm": lambda lib, m, y: y.EquiLayerNorm(2, 3, elementwise_affine=True, gain=1.5),
    "GeometricBilinear": lambda lib, m, y: y.GeometricBilinear(
        2, 4, m.PrimitivesConfig(), in_s_channels=3, out_s_channels=1
    ),
    "GeoMLP": lambda lib, m, y: y.GeoMLP(m.MLPConfig(mv_channels=2, s_channels=3), m.PrimitivesConfig()),
    "SelfAttention": lambda lib, m, y: y.SelfAttention(
        m.SelfAttentionConfig(in_mv_channels=2, out_mv_channels=2, in_s_channels=3, out_s_channels=3, num_heads=2),
        m.PrimitivesConfig(),
    ),
    "ScalarGatedNonlinearity": lambda lib, m, y: y.ScalarGatedNonlinearity("silu"),
    "LGATrBlock": lambda lib, m, y: y.LGATrBlock(
        2, 3, m.SelfAttentionConfig(num_heads=2, multi_query=True), m.MLPConfig(), m.PrimitivesConfig()
    ),
}
GATR_LAYERS = {
    "EquiLinear": lambda lib, m, y: y.EquiLinear(2, 3, 3, 4),
    "EquiLinear none": lambda lib, m, y: y.EquiLinear(2, 3, None, 4),
    "EquiLayerNorm": lambda lib, m, y: y.EquiLayerNorm(),
    "ScalarGatedNonlinearity": lambda lib, m, y: y.ScalarGatedNonlinearity("gelu"),
    "SelfAttention": lambda lib, m, y: y.SelfAttention(
        m.SelfAttentionConfig(
            in_mv_channels=2, out_mv_channels=2, in_s_channels=3, out_s_channels=3, num_heads=2, pos_encoding=True
        )
    ),
}
LAYERS = [("lgatr", name) for name in LGATR_LAYERS] + [("gatr", name) for name in GATR_LAYERS]


@pytest.mark.parametrize(("package", "name"), LAYERS)
def test_layers(package, name):
    import importlib

    published = pytest.importorskip(package, exc_type=ImportError)
    make = (LGATR_LAYERS if package == "lgatr" else GATR_LAYERS)[name]
    made = []
    for library, path in ((transformer_cases.OURS[package], f"gradewise.torch.{package}"), (published, package)):
        with default_dtype(torch.float64):
            made.append(make(library, library, importlib.import_module(f"{path}.layers")).double())
    ours, theirs = made
    ours.load_state_dict(theirs.state_dict(), strict=True)
    inputs = {
        "multivectors": torch.randn(2, 5, 2, 16, dtype=torch.float64),
        "scalars": torch.randn(2, 5, 3, dtype=torch.float64),
    }
    if name == "EquiLinear none":
        inputs.pop("scalars")
    with torch.no_grad():
        cotangents = [torch.randn_like(y) for y in ours(**inputs) if y is not None]
    with default_dtype(torch.float64):
        result = evaluate(theirs, inputs, cotangents)
        error = worst(evaluate(ours, inputs, cotangents), result)
    assert error < max(1e-12, 10 * conditioning(theirs, inputs, cotangents, result))


MASKS = {
    "boolean": lambda: {"attn_mask": torch.rand(2, 1, 5, 5) > 0.4},
    "added": lambda: {"attn_mask": torch.randn(5, 5, dtype=torch.float64)},
    "causal": lambda: {"is_causal": True},
    "scale": lambda: {"scale": 0.3},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", ["LGATr", "LGATrSlim", "GATr"])
def test_masks(kind, mask):
    package = "gatr" if kind == "GATr" else "lgatr"
    torch.manual_seed(3)
    options = MASKS[mask]()
    if package == "gatr":
        if "attn_mask" not in options:
            pytest.skip("no such option")
        options = {"attention_mask": options["attn_mask"]}
    if isinstance(options.get("attn_mask", options.get("attention_mask")), torch.Tensor):
        value = next(iter(options.values()))
        if value.dtype == torch.bool:
            value |= torch.eye(5, dtype=torch.bool)  # softmax over nothing is no number
    common = {"num_blocks": 2, "in_s_channels": 3, "out_s_channels": 1, "hidden_s_channels": 8}
    if kind == "LGATrSlim":
        arguments = common | {"in_v_channels": 2, "out_v_channels": 1, "hidden_v_channels": 4, "num_heads": 2}
        inputs = {"vectors": torch.randn(2, 5, 2, 4, dtype=torch.float64)}
    else:
        arguments = common | {"in_mv_channels": 2, "out_mv_channels": 1, "hidden_mv_channels": 4}
        arguments |= {"attention": {"num_heads": 2}, "mlp": {}}
        inputs = {"multivectors": torch.randn(2, 5, 2, 16, dtype=torch.float64)}
    inputs["scalars"] = torch.randn(2, 5, 3, dtype=torch.float64)
    ours, theirs = pair(package, kind, arguments)
    ours.load_state_dict(theirs.state_dict())
    with torch.no_grad():
        cotangents = [torch.randn_like(y) for y in ours(**inputs, **options)]
    with default_dtype(torch.float64):
        results = [evaluate(model, inputs, cotangents, **options) for model in (ours, theirs)]
    assert worst(*results) < 1e-11


@pytest.mark.parametrize("naive", [False, True])
def test_autocast(naive):
    """Multivectors stay in float32 unless asked otherwise, so that the error is the scalars'."""
    torch.manual_seed(0)
    arguments = dict(
        num_blocks=2,
        in_mv_channels=2,
        out_mv_channels=1,
        hidden_mv_channels=8,
        in_s_channels=3,
        out_s_channels=1,
        hidden_s_channels=16,
        attention={"num_heads": 2},
        mlp={},
        naive_amp=naive,
    )
    ours, theirs = pair("lgatr", "LGATr", arguments)
    ours.load_state_dict(theirs.state_dict())
    mv, s = torch.randn(4, 5, 2, 16), torch.randn(4, 5, 3)
    exact = ours(mv.double(), s.double())
    with torch.autocast("cpu", torch.bfloat16):
        made, published = ours.float()(mv, s), theirs.float()(mv, s)
    for y, other, right in zip(made, published, exact):
        error, reference = (transformer_cases.deviation(x, right) for x in (y, other))
        assert error < 2 * reference + 1e-3, (error, reference)

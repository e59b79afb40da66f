"""cliffordlayers and CSMPN against the published packages, where these are installed, over random options."""

import itertools
import os
import random
from dataclasses import replace

import pytest
import torch

from family_cases import (
    default_dtype,
    disturb,
    doubled,
    drawn,
    drawn_state,
    evaluate,
    ours,
    published,
    statistics,
    worst,
)
from family_list import CASES, Case

COUNT = int(os.environ.get("GRADEWISE_FAMILIES", 60))
"""How many draws of options the packages are compared with."""


def _convolution(draw):
    n = draw.choice([1, 2, 3])
    g = [draw.choice([1, -1, 0]) for _ in range(n)]
    g[draw.randrange(n)] = draw.choice([1, -1])
    groups = draw.choice([1, 1, 2])
    arguments = {
        "g": g,
        "in_channels": groups * draw.choice([1, 2]),
        "out_channels": groups * draw.choice([1, 3]),
        "kernel_size": draw.choice([1, 2, 3, [3, 2, 1][:n]]),
        "stride": draw.choice([1, 2]),
        "padding": draw.choice([0, 1, 2]),
        "dilation": draw.choice([1, 2]),
        "groups": groups,
        "bias": draw.random() < 0.7,
    }
    if n == 2 and draw.random() < 0.3:
        arguments |= {"g": [-1, -1], "rotation": True}
    shape = (2, arguments["in_channels"], *(draw.randint(5, 7) for _ in range(n)), 2**n)
    return Case(
        "convolution", "cliffordlayers", "nn.modules.cliffordconv", f"CliffordConv{n}d", arguments, {"x": shape}
    )


def _norm(draw):
    n, kind = draw.choice([1, 2, 3]), draw.choice(["Batch", "Group"])
    arguments = {"g": [draw.choice([1, -1]) for _ in range(n)], "channels": 4, "eps": draw.choice([1e-5, 1e-2])}
    arguments |= {"affine": draw.random() < 0.7, "momentum": draw.choice([0.1, 0.7])}
    if kind == "Group":
        arguments["num_groups"] = draw.choice([1, 2, 4])
    else:
        arguments["track_running_stats"] = draw.random() < 0.7
    shape = (draw.choice([2, 3]), 4, *(4,) * (n - 1), 12, 2**n)
    place = f"nn.modules.{kind.lower()}norm"
    return Case(
        "norm",
        "cliffordlayers",
        place,
        f"Clifford{kind}Norm{n}d",
        arguments,
        {"x": shape},
        is_evaluated=draw.random() < 0.3,
    )


def _spectral(draw):
    n = draw.choice([2, 3])
    modes = {f"modes{axis + 1}": draw.randint(1, 3) for axis in range(n)}
    channels = draw.choice([(1, 2), (2, 2)])
    arguments = {
        "g": [draw.choice([1, -1]) for _ in range(n)],
        "in_channels": channels[0],
        "out_channels": channels[1],
        **modes,
    }
    if channels == (2, 2):
        arguments["multiply"] = draw.random() < 0.7
    shape = (2, channels[0], *(draw.randint(3, 7) for _ in range(n)), 2**n)
    return Case(
        "spectral", "cliffordlayers", "nn.modules.cliffordfourier", f"CliffordSpectralConv{n}d", arguments, {"x": shape}
    )


def _vectors(draw):
    is_transposed, groups = draw.random() < 0.5, draw.choice([1, 2])
    arguments = {
        "in_channels": 2 * groups,
        "out_channels": groups,
        "kernel_size": draw.choice([1, 3]),
        "groups": groups,
    }
    arguments |= {"stride": draw.choice([1, 2]), "padding": draw.choice([0, 1]), "bias": draw.random() < 0.5}
    kind = "CliffordG3ConvTranspose2d" if is_transposed else "CliffordG3Conv2d"
    return Case("vectors", "cliffordlayers", "nn.modules.gcan", kind, arguments, {"x": (2, 2 * groups, 5, 4, 3)})


def _motions(draw):
    blades = sorted(draw.sample(range(16), draw.randint(1, 16)))
    arguments = {"in_features": 3, "out_features": 2, "input_blades": blades}
    shape = {"x": (4, 3, len(blades))}
    return Case("motions", "cliffordlayers", "nn.modules.gcan", "PGAConjugateLinear", arguments, shape, (0, 1, 1, 1))


def _gate(draw):
    blades = sorted(draw.sample(range(8), draw.randint(1, 8)))
    arguments = {"channels": 3, "input_blades": blades, "agg": draw.choice(["linear", "sum", "mean"])}
    if draw.random() < 0.5:
        arguments["kernel_blades"] = draw.sample(range(8), draw.randint(1, 8))
    return Case(
        "gate", "cliffordlayers", "nn.modules.gcan", "MultiVectorAct", arguments, {"x": (4, 3, len(blades))}, (1, -1, 0)
    )


def _messages(draw):
    edges, nodes = draw.choice([0, 2]), draw.choice([0, 2])
    shapes = {"h": (6, 2, 8)} | ({"edge_attr": (13, edges, 8)} if edges else {})
    # Attributes of nodes follow those of edges among the arguments.
    shapes |= {"node_attr": (6, nodes, 8)} if nodes and edges else {}
    arguments = {"in_features": 2, "hidden_features": 3, "out_features": 2, "edge_attr_features": edges}
    arguments |= {"node_attr_features": nodes if edges else 0, "aggr": draw.choice(["mean", "sum", "add", "max"])}
    arguments |= {"residual": draw.random() < 0.7, "normalization_init": draw.choice([0, None, -1.0])}
    metric = [draw.choice([1.0, -1.0]) for _ in range(3)]
    return Case("messages", "csmpn", "models.cegnn_utils", "EGCL", arguments, shapes, metric, (6, 13))


DRAWS = [_convolution, _norm, _spectral, _vectors, _motions, _gate, _messages]


def compared(case):
    """Ours and the published module of one seed, and their greatest difference in double precision."""
    mine, theirs = ours(case), published(case)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    for name, x in drawn_state(theirs).items():
        found = drawn_state(mine)[name]
        assert found.dtype == x.dtype and torch.allclose(found, x, rtol=1e-6, atol=0), f"{name}: drawn otherwise"
    mine.load_state_dict(theirs.state_dict(), strict=True)
    theirs.load_state_dict(mine.state_dict(), strict=True)
    assert [n for n, p in mine.named_parameters() if p.requires_grad] == [
        n for n, p in theirs.named_parameters() if p.requires_grad
    ]
    inputs, whole = drawn(case)
    with default_dtype(torch.float64):
        one = evaluate(disturb(mine.double()), inputs, whole)
        other = evaluate(disturb(doubled(theirs, case)), inputs, whole)
    for name, x in statistics(theirs).items():
        assert torch.allclose(statistics(mine)[name], x, rtol=1e-12, atol=1e-14), name
    return worst(one, other)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_cases(case):
    pytest.importorskip(case.package, exc_type=ImportError)
    assert compared(case) < 1e-11


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_options(seed):
    draw = random.Random(seed)
    case = DRAWS[seed % len(DRAWS)](draw)
    pytest.importorskip(case.package, exc_type=ImportError)
    assert compared(case) < 1e-11, case


def test_functions():
    """Kernels of convolutions, and tables and functions of algebras."""
    pytest.importorskip("cliffordlayers", exc_type=ImportError)
    import cliffordlayers.cliffordalgebra
    import cliffordlayers.cliffordkernels as theirs
    import cliffordlayers.nn.modules.gcan

    import gradewise.torch.cliffordlayers.cliffordalgebra as algebras
    import gradewise.torch.cliffordlayers.cliffordkernels as mine
    import gradewise.torch.cliffordlayers.nn.modules.gcan as gcan

    w = torch.randn(8, 3, 2, 5, dtype=torch.float64)
    for name, count in (("complex", 2), ("quaternion", 4), ("quaternion_rotation", 6), ("octonion", 8)):
        name = f"get_{name}_kernel"
        assert torch.allclose(getattr(mine, name)(w[:count]), getattr(theirs, name)(w[:count]), rtol=1e-14)
    for n in (1, 2, 3):
        for g in itertools.product((1.0, -1.0, 0.0, 0.5), repeat=n):
            name = f"get_{n}d_clifford_kernel"
            pair = [getattr(library, name)(list(w[: 2**n]), torch.tensor(g)) for library in (mine, theirs)]
            assert pair[0][0] == pair[1][0] and torch.allclose(pair[0][1], pair[1][1], rtol=1e-14)
    with default_dtype(torch.float64):
        one = algebras.CliffordAlgebra((0, 1, -1, 1))
        other = cliffordlayers.cliffordalgebra.CliffordAlgebra((0, 1, -1, 1))
        x, y = torch.randn(2, 5, 3, 16)
        for of in (
            lambda a: a.cayley,
            lambda a: a.metric,
            lambda a: a.bbo.bitmap_to_index,
            lambda a: a.bbo.index_to_bitmap,
            lambda a: a.bbo.grades,
            lambda a: a.geometric_product(x, y),
            lambda a: a.sandwich(x, y),
            lambda a: a.norm(x),
            lambda a: a.reverse(x[..., :2], (3, 8)),
            lambda a: a.embed(x[..., :3], (1, 3, 7)),
            lambda a: a.get(x, (2, 5)),
        ):
            assert torch.allclose(of(one).double(), of(other).double(), rtol=1e-12, atol=1e-13)
        for side in ("left", "right"):
            name = f"get_clifford_{side}_kernel"
            for flatten in (True, False):
                pair = [
                    getattr(library, name)(other.cayley, x, flatten)
                    for library in (gcan, cliffordlayers.nn.modules.gcan)
                ]
                assert torch.equal(*pair)


@pytest.mark.parametrize("kind", ["Batch", "Group"])
def test_complex_norms(kind):
    pytest.importorskip("cliffordlayers", exc_type=ImportError)
    for n, is_affine in itertools.product((1, 2, 3), (True, False)):
        arguments = {"channels": 2, "affine": is_affine} | ({"num_groups": 2} if kind == "Group" else {})
        case = Case(
            "complex", "cliffordlayers", f"nn.modules.{kind.lower()}norm", f"Complex{kind}Norm{n}d", arguments, {}
        )
        x = torch.randn(4, 2, *(5, 3, 2)[:n], dtype=torch.complex128)
        results = []
        for make in (ours, published):
            model, given = disturb(make(case).double()), x.clone().requires_grad_()
            y = model(given)
            (y * y.detach().conj() * torch.arange(y.numel()).reshape(y.shape)).sum().real.backward()
            results.append([y.detach(), given.grad, *(p.grad for p in model.parameters()), *statistics(model).values()])
        assert all(torch.allclose(a, b, rtol=1e-11, atol=1e-12) for a, b in zip(*results))


def test_momentum_of_all_batches():
    pytest.importorskip("cliffordlayers", exc_type=ImportError)
    case = next(case for case in CASES if case.name == "batch_norm_2d")
    case = replace(case, arguments=case.arguments | {"momentum": None})
    inputs, whole = drawn(case)
    pair = [make(case).double() for make in (ours, published)]
    for scale in (1.0, 2.0, 0.5):
        for model in pair:
            model(inputs["x"] * scale + scale)
    for name, x in statistics(pair[1]).items():
        assert torch.allclose(statistics(pair[0])[name], x, rtol=1e-12)
    assert int(pair[0].num_batches_tracked) == 3

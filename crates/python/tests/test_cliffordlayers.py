"""cliffordlayers under its published names: golden vectors, weights in both directions, dtypes, refusals and symmetries."""

import copy
import pickle

import pytest
import torch

import gradewise
import gradewise.torch.cliffordlayers as cl
from family_cases import (
    FOLDER,
    call,
    deviation,
    disturb,
    drawn,
    drawn_state,
    evaluate,
    golden,
    joined,
    ours,
    parted,
    statistics,
    worst,
)
from family_list import CASES
from gradewise.torch.cliffordlayers import _blades, _motions, cliffordkernels
from gradewise.torch.cliffordlayers.nn.functional.batchnorm import whiten_data

OURS = [case for case in CASES if case.package == "cliffordlayers"]
NAMES = [case.name for case in OURS]


@pytest.fixture(scope="module")
def vectors():
    if not FOLDER.exists():
        pytest.skip(f"no golden vectors in {FOLDER}")
    found = golden("cliffordlayers")
    assert set(found) == set(NAMES)
    return found


@pytest.mark.parametrize("case", OURS, ids=NAMES)
def test_initial_values(case, vectors):
    expected, names = vectors[case.name]["initial"]
    flat, found = joined(drawn_state(ours(case)), torch.float32)
    assert found == names
    # Divided by a norm, whose sum has another order.
    assert torch.allclose(flat, expected, rtol=1e-6 if case.kind == "PGAConjugateLinear" else 0, atol=0)


@pytest.mark.parametrize("case", OURS, ids=NAMES)
def test_double(case, vectors, device):
    model = ours(case)
    model.load_state_dict(parted(vectors[case.name]["initial"][0], drawn_state(model)), strict=True)
    model = disturb(model.double()).to(device)
    inputs, whole = drawn(case)
    found = evaluate(model, {name: x.to(device) for name, x in inputs.items()}, whole)
    expected, names = vectors[case.name]["result"]
    assert joined(found)[1] == names
    assert worst(found, parted(expected, found)) < 1e-11
    assert ("after" in vectors[case.name]) == bool(statistics(model))
    if statistics(model):
        after, _ = vectors[case.name]["after"]
        assert torch.allclose(joined(statistics(model))[0].cpu(), after, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("case", OURS, ids=NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_short_numbers(case, dtype, device, monkeypatch):
    # PyTorch's convolutions have three digits on a GPU otherwise.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    model = disturb(ours(case).double()).to(device)
    inputs, whole = drawn(case)
    exact = evaluate(model, {name: x.to(device) for name, x in inputs.items()}, whole)
    model = disturb(ours(case).double()).to(device).to(dtype)
    found = evaluate(model, {name: x.to(device).to(dtype) for name, x in inputs.items()}, whole)
    assert found["out.0"].dtype == dtype
    # Whitening divides by small eigenvalues.
    is_norm = "norm_" in case.name
    tolerance = (1e-3 if is_norm else 1e-5) if dtype == torch.float32 else (0.5 if is_norm else 0.06)
    assert deviation(found["out.0"], exact["out.0"]) < tolerance
    assert all(torch.isfinite(x).all() for x in found.values())


@pytest.mark.parametrize("case", OURS, ids=NAMES)
def test_autocast(case, device):
    """Products in 16 bits, whitening and Fourier transforms in 32."""
    model = disturb(ours(case)).to(device)
    inputs, whole = drawn(case)
    inputs = {name: x.to(device).float() for name, x in inputs.items()}
    expected = call(model, inputs, whole)[0]
    if case.kind.startswith("CliffordBatchNorm"):
        model = disturb(ours(case)).to(device)
    with torch.autocast(device, torch.bfloat16):
        found = call(model, inputs, whole)[0]
    assert deviation(found, expected) < (1e-6 if "_norm_" in case.name else 0.1)
    assert "spectral" not in case.name or found.dtype == torch.float32


@pytest.mark.parametrize("case", OURS, ids=NAMES)
def test_copies_and_checkpoints(case):
    model = disturb(ours(case).double())
    inputs, whole = drawn(case)
    expected = call(model.eval(), inputs, whole)[0]
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(call(other, inputs, whole)[0], expected)
    other = ours(case).double().eval()
    other.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(call(other, inputs, whole)[0], expected)
    assert case.kind in repr(model)


def test_signature_of_a_checkpoint_is_checked():
    pairs = [
        (cl.CliffordConv2d((1, 1), 2, 2), cl.CliffordConv2d((-1, 1), 2, 2)),
        (cl.CliffordLinear((1, 1), 2, 2), cl.CliffordLinear((0, 1), 2, 2)),
        (cl.CliffordSpectralConv2d((1, 1), 2, 2, 1, 1), cl.CliffordSpectralConv2d((-1, -1), 2, 2, 1, 1)),
    ]
    for one, other in pairs:
        with pytest.raises(gradewise.CheckpointError, match="signature"):
            one.load_state_dict(other.state_dict())


REFUSED = {
    "three generators in a plane": lambda: cl.CliffordConv2d((1, 1, 1), 2, 2),
    "four generators": lambda: cl.CliffordLinear((1, 1, 1, 1), 2, 2),
    "only null generators": lambda: cl.CliffordConv1d((0,), 2, 2),
    "no signature": lambda: cl.CliffordConv1d("1", 2, 2),
    "rotation of another algebra": lambda: cl.CliffordConv2d((1, 1), 2, 2, rotation=True),
    "padding mode": lambda: cl.CliffordConv2d((1, 1), 2, 2, padding_mode="circular"),
    "groups": lambda: cl.CliffordConv2d((1, 1), 3, 2, groups=2),
    "kernel sizes": lambda: cl.CliffordConv2d((1, 1), 2, 2, kernel_size=(3, 3, 3)),
    "no channels": lambda: cl.CliffordConv3d((1, 1, 1), 0, 2),
    "spectral channels": lambda: cl.CliffordSpectralConv2d((1, 1), 2, 3, 1, 1, multiply=False),
    "spectral signature": lambda: cl.CliffordSpectralConv3d((1, 1), 2, 3, 1, 1, 1),
    "groups of a norm": lambda: cl.CliffordGroupNorm2d((1, 1), 2, 5),
    "groups of a G3 norm": lambda: cl.CliffordG3GroupNorm(2, 5, 3),
    "aggregation": lambda: cl.MultiVectorAct(2, cl.CliffordAlgebra((1, 1)), (1, 2), agg="max"),
    "blades of a gate": lambda: cl.MultiVectorAct(2, cl.CliffordAlgebra((1, 1)), (1, 4)),
    "algebra of motions": lambda: cl.PGAConjugateLinear(2, 2, cl.CliffordAlgebra((1, 1, 1, 0)), (1, 2)),
    "squares of 2": lambda: cl.CliffordAlgebra((2.0, 1.0)),
    "weights of another number": lambda: cliffordkernels.get_2d_clifford_kernel(torch.zeros(8, 2, 2), torch.ones(2)),
    "signature of a kernel": lambda: cliffordkernels.get_3d_clifford_kernel(torch.zeros(8, 2, 2), torch.ones(2)),
    "channels": lambda: cl.CliffordConv2d((1, 1), 2, 2)(torch.zeros(1, 3, 5, 5, 4)),
    "blades": lambda: cl.CliffordConv2d((1, 1), 2, 2)(torch.zeros(1, 2, 5, 5, 8)),
    "axes": lambda: cl.CliffordConv2d((1, 1), 2, 2)(torch.zeros(1, 2, 5, 4)),
    "linear axes": lambda: cl.CliffordLinear((1, 1), 2, 2)(torch.zeros(2, 4)),
    "linear blades": lambda: cl.CliffordLinear((1, 1), 2, 2)(torch.zeros(2, 2, 2)),
    "few cells": lambda: cl.CliffordSpectralConv2d((1, 1), 1, 1, 4, 1)(torch.zeros(1, 1, 3, 3, 4)),
    "norm axes": lambda: cl.CliffordBatchNorm2d((1, 1), 2)(torch.zeros(1, 2, 5, 4)),
    "norm blades": lambda: cl.CliffordGroupNorm2d((1, 1), 1, 2)(torch.zeros(1, 2, 5, 5, 2)),
    "norm channels": lambda: cl.CliffordBatchNorm1d((1,), 2)(torch.zeros(4, 3, 2)),
    "real numbers": lambda: cl.ComplexBatchNorm1d(2)(torch.zeros(4, 2)),
    "a mean alone": lambda: whiten_data(torch.randn(4, 2, 2), running_mean=torch.zeros(3, 2)),
    "motions' blades": lambda: cl.PGAConjugateLinear(2, 2, cl.CliffordAlgebra((0, 1, 1, 1)), (1, 2))(
        torch.zeros(1, 2, 3)
    ),
    "G3 components": lambda: cl.CliffordG3Conv2d(2, 2)(torch.zeros(1, 2, 3, 3, 4)),
    "G3 channels": lambda: cl.CliffordG3LinearVSiLU(2)(torch.zeros(1, 3, 3, 3, 3)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what):
    """Each says what was given and what is expected."""
    with pytest.raises((gradewise.ArgumentError, gradewise.ShapeError), match="expected|has|must"):
        REFUSED[what]()


def product(g, x, y):
    """The geometric product of the last axes, by this package's algebra."""
    algebra = cl.CliffordAlgebra(g)
    return algebra.geometric_product(x.reshape(-1, 1, x.shape[-1]), y.reshape(-1, 1, y.shape[-1])).reshape(x.shape)


@pytest.mark.parametrize("g", [(1,), (-1, 1), (0, 1), (1, -1, 0), (-1, -1, -1)], ids=str)
def test_weights_multiply_from_the_right(g, device):
    """So that products by a multivector from the left commute with layers without bias."""
    n, blades = len(g), 2 ** len(g)
    layers = [
        cl.CliffordLinear(g, 3, 2, bias=False).double().to(device),
        getattr(cl, f"CliffordConv{n}d")(g, 3, 2, kernel_size=2, bias=False).double().to(device),
    ]
    for layer, space in zip(layers, ((), (4, 3, 5)[:n])):
        x = torch.randn(2, 3, *space, blades, dtype=torch.float64, device=device)
        left = torch.randn(blades, dtype=torch.float64, device=device)
        moved = product(g, left.expand_as(x), x)
        y = layer(x)
        assert deviation(layer(moved), product(g, left.expand_as(y), y)) < 1e-13


def test_spectral_layers_commute_with_shifts(device):
    layer = cl.CliffordSpectralConv2d((1, 1), 2, 2, 2, 2).double().to(device)
    with torch.no_grad():
        # The weight of one component multiplies complex numbers: with it alone the published layer is a convolution.
        layer.weights[1:] = 0.0
    x = torch.randn(1, 2, 8, 6, 4, dtype=torch.float64, device=device)
    shifted = layer(x.roll((3, 2), (2, 3)))
    assert deviation(shifted, layer(x).roll((3, 2), (2, 3))) < 1e-13


def test_rotations_turn_vectors(device):
    """A kernel of rotations keeps lengths up to its scale."""
    layer = cl.CliffordG3Conv2d(1, 1, kernel_size=1).double().to(device)
    x = torch.randn(1, 1, 4, 4, 3, dtype=torch.float64, device=device)
    with torch.no_grad():
        for weight in list(layer.weights)[:4]:
            weight *= 1e4  # so that the published 10⁻⁴ beside the norm vanishes
    scale = layer.scale_param.abs().reshape(())
    assert deviation(layer(x).norm(dim=-1), scale * x.norm(dim=-1)) < 1e-8


def test_motions_commute_with_products_on_their_side(device):
    """k·x·k̃ of two motions after one another is that of their product."""
    algebra = cl.CliffordAlgebra((0, 1, 1, 1))
    blades = tuple(range(16))
    one, two, both = (cl.PGAConjugateLinear(1, 1, algebra, blades).double().to(device) for _ in range(3))
    with torch.no_grad():
        for layer in (one, two):
            layer._action += 0.3 * torch.randn_like(layer._action)
            layer.embed_e0.fill_(0.7)
        k = product((0, 1, 1, 1), two.action, one.action)
        both._action.copy_(k[..., list(both.action_blades)])
        both.weight.copy_(two.weight * one.weight)
        both.embed_e0.fill_(0.7)
        x = torch.randn(3, 1, 16, dtype=torch.float64, device=device)
        middle = one(x)
        # The weight of points is replaced by each layer: here it is what the first one made of it.
        scales = middle[:, :, 14:15]
        for row in range(3):
            two.embed_e0.copy_(scales[row])
            assert deviation(two(middle[row : row + 1]), both(x[row : row + 1])) < 1e-12


def test_whitening_divides_by_the_upper_factor(device):
    """Of the covariance UᵀU the published code inverts U, not Uᵀ: features are white where their blades are independent."""
    x = (
        torch.randn(40, 3, 5, 8, dtype=torch.float64, device=device)
        @ torch.randn(8, 8, dtype=torch.float64, device=device)
        + 3
    )
    rows = whiten_data(x, eps=0.0).movedim(1, 0).flatten(1, -2)
    covariance = rows.mT @ rows / rows.shape[1]
    assert rows.mean(dim=1).abs().max() < 1e-12
    upper = torch.linalg.cholesky(torch.cov(x[:, 0].reshape(-1, 8).T, correction=0)).mH
    expected = torch.linalg.inv(upper) @ upper.mT @ upper @ torch.linalg.inv(upper).mT
    assert deviation(covariance[0], expected) < 1e-9


def test_running_statistics_of_samples(device):
    """The mean over samples, for any number of them."""
    norm = cl.CliffordGroupNorm1d((1, 1), 2, 4, momentum=1.0, track_running_stats=True).double().to(device)
    x = torch.randn(3, 4, 20, 4, dtype=torch.float64, device=device)
    norm(x)
    by_group = x.reshape(3, 2, 2, 20, 4).flatten(2, 3)
    assert deviation(norm.running_mean, by_group.mean(dim=2).mean(dim=0).T) < 1e-12
    covariance = torch.stack([torch.stack([torch.cov(c.T, correction=0) for c in sample]) for sample in by_group]).mean(
        0
    )
    assert deviation(norm.running_cov, covariance.permute(1, 2, 0)) < 1e-12
    before = norm.running_mean.clone()
    norm.eval()(x + 1)
    assert torch.equal(norm.running_mean, before)


@pytest.mark.parametrize("name", ["linear_3", "conv_2d_rotation", "spectral_2d", "pga_linear", "group_norm_2d"])
def test_compiled(name):
    """Without a graph break, tables and all."""
    case = next(case for case in OURS if case.name == name)
    model = disturb(ours(case))
    inputs, whole = drawn(case)
    inputs = {key: x.float() for key, x in inputs.items()}
    torch.compiler.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert deviation(compiled(*inputs.values()), call(model, inputs, whole)[0]) < 1e-6
    exported = torch.export.export(model, tuple(inputs.values()), strict=False).module()
    assert deviation(exported(*inputs.values()), call(model, inputs, whole)[0]) < 1e-6


@pytest.mark.parametrize("name", ["conv_2d", "spectral_2d", "pga_linear"])
def test_first_use_in_a_mode(name):
    """Tables that are made under a mode of PyTorch are not kept for code outside of it."""
    case = next(case for case in OURS if case.name == name)
    model = disturb(ours(case))
    inputs, whole = drawn(case)
    inputs = {key: x.float() for key, x in inputs.items()}
    for forget in (_blades._TABLES.clear, _motions._CONSTANTS.clear, _motions._sandwiches.cache_clear):
        forget()
    torch.export.export(model, tuple(inputs.values()), strict=False)
    with torch.inference_mode():
        expected = call(model, inputs, whole)[0]
    found = evaluate(model, inputs, whole)
    assert torch.equal(found["out.0"], expected) and all(torch.isfinite(x).all() for x in found.values())


@pytest.mark.parametrize("name", ["conv_2d", "spectral_3d", "pga_linear", "batch_norm_2d_eval", "g3_conv"])
def test_functional_transformations(name):
    """Dual numbers and batches of inputs, against finite differences and loops."""
    case = next(case for case in OURS if case.name == name)
    model = disturb(ours(case).double()).eval()
    x = drawn(case)[0]["x"]
    direction = torch.sin(torch.arange(x.numel(), dtype=torch.float64)).reshape(x.shape)
    _, tangent = torch.func.jvp(model, (x,), (direction,))
    h = 1e-5
    assert deviation(tangent, (model(x + h * direction) - model(x - h * direction)) / (2 * h)) < 1e-7
    batch = torch.stack([x, direction])
    assert deviation(torch.func.vmap(model)(batch), torch.stack([model(y) for y in batch])) < 1e-12

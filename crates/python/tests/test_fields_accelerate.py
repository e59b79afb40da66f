"""accelerate() on layers for fields: stand-ins, faults that it must see, and the published package where it is installed."""

import contextlib
import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradewise
import gradewise.torch as gt
import published_fields as theirs
from family_cases import default_dtype, deviation, disturb, doubled, drawn, evaluate, published, statistics, worst
from family_list import CASES

LAYERS = {
    "CliffordConv1d": (lambda: theirs.CliffordConv1d((-1,), 2, 3), (2, 2, 7, 2)),
    "CliffordConv2d": (lambda: theirs.CliffordConv2d((-1, 1), 2, 3, stride=2, padding=1), (2, 2, 5, 6, 4)),
    "CliffordConv3d": (lambda: theirs.CliffordConv3d((0, 1, -1), 2, 1, bias=False), (2, 2, 4, 3, 5, 8)),
    "CliffordLinear": (lambda: theirs.CliffordLinear((1, 1, 1), 3, 2), (4, 3, 8)),
    "CliffordSpectralConv2d": (lambda: theirs.CliffordSpectralConv2d((-1, 1), 2, 3, 2, 1), (2, 2, 5, 6, 4)),
    "CliffordBatchNorm2d": (lambda: theirs.CliffordBatchNorm2d((1, 1), 3), (2, 3, 5, 4, 4)),
    "CliffordGroupNorm2d": (lambda: theirs.CliffordGroupNorm2d((1, 1), 2, 4), (2, 4, 5, 4, 4)),
    "PGAConjugateLinear": (
        lambda: theirs.PGAConjugateLinear(3, 2, theirs.Algebra((0, 1, 1, 1)), (1, 2, 3, 14)),
        (5, 3, 4),
    ),
    "MultiVectorAct": (lambda: theirs.MultiVectorAct(3, theirs.Algebra((1, 1)), (0, 1, 3), (1, 2)), (5, 3, 3)),
}


def made(name, seed=0):
    torch.manual_seed(seed)
    make, shape = LAYERS[name]
    return make(), torch.randn(shape)


def results(module, x):
    return evaluate(module, {"x": x}, {})


@pytest.mark.parametrize("name", LAYERS)
def test_replaced(name, device):
    module, x = made(name)
    module, x = module.to(device), x.to(device)
    original, state = copy.deepcopy(module), list(module.state_dict())
    report = gt.accelerate(module, verbose=False)
    assert [r.original for r in report.replaced] == [name] and not report.left
    assert report.replaced[0].replacement.endswith(f".{name}")
    assert isinstance(module, type(original)) and type(module) is not type(original)
    assert list(module.state_dict()) == state
    for is_training in (True, False):
        found, expected = results(module.train(is_training), x), results(original.train(is_training), x)
        assert worst(found, expected) < 1e-4
        for key, value in statistics(original).items():
            assert deviation(statistics(module)[key], value) < 1e-5
        assert found["out.0"].is_contiguous() or not expected["out.0"].is_contiguous()
    assert not gt.accelerate(module, verbose=False).replaced
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(x), module(x))
        assert type(other) is type(module)
    assert gt.restore(module) == 1 and type(module) is type(original)
    assert vars(module).keys() == vars(original).keys()


@pytest.mark.parametrize("name", LAYERS)
def test_ours_computes(name, monkeypatch):
    """Inputs like those compared go to our layer, others to the published code."""
    module, x = made(name)
    gt.accelerate(module, verbose=False)
    published = type(module)._published
    called = []
    own = published.forward
    monkeypatch.setattr(published, "forward", lambda self, x: called.append(x) or own(self, x))
    module(x)
    assert not called
    with torch.autocast("cpu", torch.bfloat16):
        try:
            module(x)
        except RuntimeError:
            assert "Norm" in name  # factorisations have no 16-bit numbers
    assert len(called) == 1
    with contextlib.suppress(Exception):  # whatever the published code says of it
        module(torch.randn(*x.shape[:-1], x.shape[-1] + 1))
    assert len(called) == 2


class Residual(theirs.CliffordConv2d):
    def forward(self, x):
        return super().forward(x) + 1e-3


class Scaled(theirs.CliffordGroupNorm2d):
    def forward(self, x):
        return super().forward(x) * (1.0 if self.training else 1.001)


class Slower(theirs.CliffordBatchNorm2d):
    def forward(self, x):
        y = super().forward(x)
        if self.training:
            self.running_mean *= 1.0001
        return y


class Damped(theirs.CliffordSpectralConv2d):
    def forward(self, x):
        return super().forward(x) * 0.999


class Clipped(theirs.MultiVectorAct):
    def forward(self, input):
        return super().forward(input).clamp(-2.5, 2.5)


def left_kernel(weights, g):
    """Weights on the other side."""
    weights = torch.stack(list(weights))
    k = torch.einsum("kji,ko...->jo...i", theirs.table(g.to(weights.dtype)), weights).movedim(-1, 2)
    return len(weights), k.flatten(2, 3).flatten(0, 1)


def other_side():
    module = theirs.CliffordConv2d((1, 1), 2, 2)
    module._get_kernel = left_kernel
    left_kernel.__name__ = "get_2d_clifford_kernel"
    return module


class OtherPoint(theirs.PGAConjugateLinear):
    def forward(self, input):
        return super().forward(input) + 1e-6 * self.embed_e0.sum()


FAULTS = {
    "a residual": lambda: Residual((1, 1), 2, 2),
    "evaluation": lambda: Scaled((1, 1), 1, 2),
    "statistics": lambda: Slower((1, 1), 2),
    "Fourier layers": lambda: Damped((1, 1), 2, 2, 1, 1),
    "clipping": lambda: Clipped(2, theirs.Algebra((1, 1)), (0, 1, 2)),
    "the other side": other_side,
    "a parameter": lambda: OtherPoint(2, 2, theirs.Algebra((0, 1, 1, 1)), (1, 2, 3)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_differs_is_left(fault):
    torch.manual_seed(0)
    module = FAULTS[fault]()
    kind = type(module)
    report = gt.accelerate(module, verbose=False)
    assert not report.replaced and len(report.left) == 1 and "differs" in report.left[0].reason
    assert type(module) is kind


def test_a_kernel_of_ones_own_stays():
    """A layer with another function of its weights computes by that function."""
    module = theirs.CliffordConv2d((1, 1), 2, 2)
    module._get_kernel = lambda weights, g: theirs.kernel([2 * w for w in weights], g)
    x = torch.randn(1, 2, 5, 5, 4)
    expected = module(x)
    report = gt.accelerate(module, verbose=False)
    assert report.replaced and deviation(module(x), expected) < 1e-6


def test_a_network_goes_on(device):
    """An optimiser made before, hooks, and parameters that are the same objects."""
    torch.manual_seed(0)
    model = nn.Sequential(
        theirs.CliffordConv2d((1, 1), 2, 4, padding=1), theirs.CliffordGroupNorm2d((1, 1), 1, 4), nn.Tanh()
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parameters = list(model.parameters())
    seen = []
    model[1].register_forward_hook(lambda *_: seen.append(1))
    other = copy.deepcopy(model)
    x = torch.randn(2, 2, 6, 5, 4, device=device)
    report = gt.accelerate(model, verbose=False, example=(x,))
    assert len(report.replaced) == 2 and report.difference < 1e-9
    assert all(a is b for a, b in zip(model.parameters(), parameters))
    seen.clear()
    model(x).square().mean().backward()
    optimizer.step()
    other(x).square().mean().backward()
    torch.optim.SGD(other.parameters(), lr=0.1).step()
    assert len(seen) == 2
    assert all(deviation(a, b) < 1e-5 for a, b in zip(model.parameters(), other.parameters()))


def test_our_layers_are_there_before():
    model = gradewise.torch.cliffordlayers.CliffordConv2d((1, 1), 2, 2)
    report = gt.accelerate(model, verbose=False)
    assert not report.replaced and report.there_before == 1


def test_weights_of_another_signature_are_refused():
    module = theirs.CliffordConv2d((1, 1), 2, 2)
    gt.accelerate(module, verbose=False)
    with pytest.raises(gradewise.CheckpointError, match="signature"):
        module.load_state_dict(theirs.CliffordConv2d((-1, 1), 2, 2).state_dict())


PUBLISHED = [case for case in CASES if case.package == "cliffordlayers"]


@pytest.mark.parametrize("case", PUBLISHED, ids=[case.name for case in PUBLISHED])
def test_published(case):
    """Every layer of the package, and every one in its networks."""
    pytest.importorskip("cliffordlayers", exc_type=ImportError)
    module = published(case)
    report = gt.accelerate(module, verbose=False)
    assert report.replaced and not report.left
    inputs, whole = drawn(case)
    original = published(case)
    if "spectral" in case.name:
        # Which return float32 whatever they are given, and are compared and replaced in that.
        inputs = {name: x.float() for name, x in inputs.items()}
        assert worst(evaluate(module, inputs, whole), evaluate(original, inputs, whole)) < 1e-5
        return
    with default_dtype(torch.float64):
        found = evaluate(disturb(doubled(module, case)), inputs, whole)
        expected = evaluate(disturb(doubled(original, case)), inputs, whole)
    assert worst(found, expected) < 1e-10


def test_a_published_network():
    pytest.importorskip("cliffordlayers", exc_type=ImportError)
    from cliffordlayers.models.basic.twod import CliffordBasicBlock2d, CliffordFluidNet2d

    torch.manual_seed(0)
    model = CliffordFluidNet2d([1, 1], CliffordBasicBlock2d, [1, 1], 2, 1, 4, F.gelu, False, norm=True, num_groups=2)
    report = gt.accelerate(model, verbose=False, example=(torch.randn(2, 2, 9, 8, 3),))
    assert len(report.replaced) == 10 and not report.left and report.difference < 1e-9

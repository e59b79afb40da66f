"""Published transformers of geometric algebra that compute by ours."""

import copy
import io
import os
import pickle

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import transformer_cases
from gradewise import ArgumentError
from gradewise.torch import accelerate, restore
from gradewise.torch import lgatr as ours
from transformer_cases import default_dtype, evaluate, worst

COUNT = int(os.environ.get("GRADEWISE_ACCELERATE", 20))
"""How many draws of options of each package are accelerated."""
FIRST = int(os.environ.get("GRADEWISE_ACCELERATE_FIRST", 0))
DRAWS = {"lgatr": transformer_cases.lgatr_options, "gatr": transformer_cases.gatr_options}
LGATR = {
    "num_blocks": 1,
    "in_mv_channels": 2,
    "out_mv_channels": 1,
    "hidden_mv_channels": 4,
    "in_s_channels": 3,
    "out_s_channels": 1,
    "hidden_s_channels": 8,
    "attention": {"num_heads": 2},
    "mlp": {},
}


def package(name):
    return pytest.importorskip(name, exc_type=ImportError)


def drawn(name, seed):
    kind, arguments, shapes = DRAWS[name](seed)
    torch.manual_seed(seed)
    with default_dtype(torch.float64):
        model = getattr(package(name), kind)(**arguments).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model, {key: torch.randn(shape, dtype=torch.float64) for key, shape in shapes.items()}


def lgatr(**options):
    torch.manual_seed(0)
    return package("lgatr").LGATr(**LGATR | options)


def features(dtype=torch.float32, lead=(2, 5)):
    generator = torch.Generator().manual_seed(4)
    shapes = {"multivectors": (*lead, 2, 16), "scalars": (*lead, 3)}
    return {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in shapes.items()}


def difference(model, published, inputs, **call):
    """Of outputs and all gradients, for one seed."""
    with torch.no_grad(), default_dtype(next(iter(inputs.values())).dtype):
        cotangents = [torch.randn_like(y) for y in published(**inputs, **call) if y is not None]
    results = []
    for each in (model, published):
        torch.manual_seed(2)
        with default_dtype(next(iter(inputs.values())).dtype):
            results.append(evaluate(each, inputs, cotangents, **call))
    return worst(*results)


def by_own_code(monkeypatch, kind):
    """Counts the calls of a published forward."""
    calls = []
    forward = kind.forward

    def counted(self, *given, **named):
        calls.append(type(self).__name__)
        return forward(self, *given, **named)

    monkeypatch.setattr(kind, "forward", counted)
    return calls


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
@pytest.mark.parametrize("name", ["lgatr", "gatr"])
def test_random_options(name, seed):
    model, inputs = drawn(name, seed)
    published = copy.deepcopy(model)
    report = accelerate(model, verbose=False)
    assert [part.path for part in report.parts()] == [""] and not report.left, str(report)
    assert difference(model, published, inputs) < 1e-10


def test_what_stays():
    model = lgatr()
    parameters, keys, buffers = list(model.parameters()), list(model.state_dict()), dict(model.named_buffers())
    published = copy.deepcopy(model)
    kinds = [type(part) for part in model.modules()]
    attributes = [dict(part.__dict__) for part in model.modules()]
    shown = repr(model)
    accelerate(model, verbose=False)
    assert all(a is b for a, b in zip(parameters, model.parameters()))
    assert list(model.state_dict()) == keys and dict(model.named_buffers()).keys() == buffers.keys()
    assert all(isinstance(part, kind) for part, kind in zip(model.modules(), kinds))
    assert [type(part).__name__ for part in model.modules()] == [kind.__name__ for kind in kinds]
    assert repr(model) == shown
    model.load_state_dict(published.state_dict(), strict=True)
    assert not torch.equal(model.linear_in.weight, torch.zeros(()))
    model.linear_in.reset_parameters("default")
    assert "nothing left to do" in str(accelerate(model, verbose=False))
    assert restore(model) > 10 and restore(model) == 0
    assert [type(part) for part in model.modules()] == kinds
    assert [part.__dict__.keys() for part in model.modules()] == [found.keys() for found in attributes]
    assert all(a is b for a, b in zip(parameters, model.parameters()))


def copied(model):
    return copy.deepcopy(model)


def pickled(model):
    return pickle.loads(pickle.dumps(model))


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("way", [copied, pickled, saved])
def test_copies(way):
    model = lgatr(primitives={"geometric_product": False}).double()
    published = copy.deepcopy(model)
    accelerate(model, verbose=False)
    made = way(model)
    assert type(made) is type(model)
    assert difference(made, published, features(torch.float64)) < 1e-10
    restore(made)
    assert type(made) is type(published)


def test_calls_that_were_compared(monkeypatch):
    model = lgatr()
    accelerate(model, verbose=False)
    calls = by_own_code(monkeypatch, package("lgatr").LGATr)
    keys = torch.rand(2, 1, 5, 5) > 0.3
    keys[..., 0] = True
    for options in (
        {},
        {"attn_mask": keys},
        {"attn_mask": torch.randn(5, 5)},
        {"is_causal": True},
        {"attn_mask": None},
    ):
        model(**features(), **options)
    model(*features().values())
    model(**features(lead=(2, 3, 4)))
    model.double()(**features(torch.float64))
    model.bfloat16()(**features(torch.bfloat16))
    assert not calls


@pytest.mark.parametrize(
    "case", ["mask of heads", "dropout", "two dtypes", "naive", "package's naive", "wrong channels"]
)
def test_other_calls_run_the_published_code(case, monkeypatch):
    lib = package("lgatr")
    model = lgatr()
    published = copy.deepcopy(model)
    accelerate(model, verbose=False)
    calls = by_own_code(monkeypatch, lib.LGATr)
    inputs, options = features(), {}
    if case == "mask of heads":
        options["attn_mask"] = torch.ones(2, 2, 5, 5).tril() > 0
    if case == "dropout":
        options["dropout_p"] = 0.5
    if case in ("two dtypes", "wrong channels"):
        change = {"two dtypes": lambda x: x.double(), "wrong channels": lambda x: x[..., :1, :]}[case]
        inputs["multivectors"] = change(inputs["multivectors"])
        for each in (model, published):
            with pytest.raises((RuntimeError, AssertionError, ValueError)) as error:
                each(**inputs)
            assert not isinstance(error.value, ArgumentError)
        assert calls == ["LGATr", "LGATr"]
        return
    results = []
    for each in (model, published):
        torch.manual_seed(0)
        if case in ("naive", "package's naive"):
            each._naive_amp = case == "naive"
            with torch.autocast("cpu", torch.bfloat16), lib.naive_amp(case != "naive"):
                results.append(each(**inputs)[0])
        else:
            results.append(each(**inputs, **options)[0])
    assert results[0].dtype == results[1].dtype
    assert torch.allclose(*results, atol=0.2 if "naive" in case else 1e-5)
    if case != "naive":
        assert calls == ["LGATr", "LGATr"]


def test_autocast():
    model = lgatr()
    published, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    accelerate(model, verbose=False)
    right = exact(**features(torch.float64))
    with torch.autocast("cpu", torch.bfloat16):
        made, theirs = model(**features()), published(**features())
    for a, b, x in zip(made, theirs, right):
        assert a.dtype == b.dtype
        assert transformer_cases.deviation(a, x) < 2 * transformer_cases.deviation(b, x) + 1e-3


class Tagger(nn.Module):
    """Somebody's model, with layers of the package among others."""

    def __init__(self, lib, layers):
        super().__init__()
        sizes = {"in_mv_channels": 4, "out_mv_channels": 4, "in_s_channels": 8, "out_s_channels": 8}
        self.into = layers.EquiLinear(2, 4, lib.PrimitivesConfig(), 3, 8)
        self.norm = layers.EquiLayerNorm()
        self.attention = layers.SelfAttention(lib.SelfAttentionConfig(num_heads=2, **sizes), lib.PrimitivesConfig())
        self.mlp = layers.GeoMLP(lib.MLPConfig(mv_channels=4, s_channels=8), lib.PrimitivesConfig())
        self.head = nn.Linear(4 * 16 + 8, 3)

    def forward(self, multivectors, scalars):
        mv, s = self.into(multivectors, scalars)
        a, b = self.attention(*self.norm(mv, s))
        mv, s = self.mlp(mv + a, s + b)
        mv += a  # in place
        return (self.head(torch.cat((mv.view(*mv.shape[:-2], -1), s), -1)).mean(-2),)


def test_layers_in_somebodys_model():
    lib, layers = package("lgatr"), package("lgatr.layers")
    model = Tagger(lib, layers).double()
    published = copy.deepcopy(model)
    inputs = features(torch.float64)
    report = accelerate(model, verbose=False, example=tuple(inputs.values()))
    assert {part.path for part in report.parts()} == {"into", "norm", "attention", "mlp"} and not report.left
    assert report.difference < 1e-10
    assert difference(model, published, inputs) < 1e-10


def edited(lib, edit):
    """A model with one change in a place."""
    layers = package("lgatr.layers")

    model = lgatr(num_blocks=2).double()
    part = model.blocks[0].mlp.layers[0].norm if edit.startswith("norm") else model.blocks[0].norm1
    if edit.endswith("epsilon"):
        part.epsilon.fill_(0.02)
    elif edit.endswith("subclass"):

        class Scaled(layers.EquiLayerNorm):
            def forward(self, multivectors, scalars=None):
                mv, s = super().forward(multivectors, scalars)
                return 1.001 * mv, s

        part.__class__ = Scaled
    elif edit.endswith("patched"):
        part.forward = lambda multivectors, scalars=None: (2 * multivectors, scalars)
    elif edit.endswith("hook"):
        part.register_forward_hook(lambda module, given, made: (made[0] * 1.5, made[1]))
    elif edit == "activation":
        model.blocks[1].mlp.layers[1].nonlinearity = torch.nn.functional.softplus
    elif edit == "head":
        model.blocks[1].attention.use_head_scale = True
        model.blocks[1].attention.head_scale = nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float64))
    elif edit == "block":

        class Half(layers.LGATrBlock):
            def forward(self, multivectors, scalars=None, **more):
                mv, s = super().forward(multivectors, scalars=scalars, **more)
                return (mv + multivectors) / 2, s

        model.blocks[0].__class__ = Half
    elif edit == "network":

        class Summed(lib.LGATr):
            def forward(self, multivectors, scalars=None, **more):
                mv, s = super().forward(multivectors, scalars, **more)
                return mv + multivectors[..., :1, :], s

        model.__class__ = Summed
    elif edit == "helper":

        class Helped(lib.LGATr):
            def _run(self, x):
                return x

        model.__class__ = Helped
    elif edit == "replaced":
        model.blocks[0].norm2 = nn.Module()
        model.blocks[0].norm2.forward = lambda multivectors, scalars=None: (multivectors * 0.5, scalars)
    return model


EDITS = ["epsilon", "subclass", "patched", "hook", "activation", "head", "block", "network", "helper", "replaced"]
LEFT = {"subclass": "blocks.0.norm1", "patched": "blocks.0.norm1", "block": "blocks.0", "network": "", "helper": ""}


@pytest.mark.parametrize("edit", [*EDITS, "norm subclass", "norm hook", "norm patched", "norm epsilon"])
def test_edits(edit):
    model = edited(package("lgatr"), edit)
    published = copy.deepcopy(model)
    report = accelerate(model, verbose=False)
    assert difference(model, published, features(torch.float64)) < 1e-10
    left = {part.path: part for part in report.left}
    if edit in LEFT:
        assert LEFT[edit] in left, str(report)
        assert edit not in ("subclass", "block", "network") or left[LEFT[edit]].difference > 1e-4
    if edit == "network":
        assert {part.path for part in report.parts()} == {"linear_in", "linear_out", "blocks.0", "blocks.1"}


def test_hooks_inside_are_called():
    model = lgatr()
    accelerate(model, verbose=False)
    seen = []
    model.blocks[0].attention.register_forward_hook(lambda module, given, made: seen.append(made[0].shape))
    model(**features())
    assert seen == [(2, 5, 4, 16)]


def test_compiled_networks_are_left():
    model = lgatr(compile=True)
    report = accelerate(model, verbose=False)
    assert [part.path for part in report.left] == [""] and "compiled" in report.left[0].reason
    assert not report.replaced


def test_second_derivatives():
    model = lgatr().double()
    published = copy.deepcopy(model)
    accelerate(model, verbose=False)
    found = []
    for each in (model, published):
        inputs = {name: x.requires_grad_() for name, x in features(torch.float64).items()}
        # PyTorch's fused attention, which the package calls, has no second derivative.
        with sdpa_kernel(SDPBackend.MATH):
            (force,) = torch.autograd.grad(each(**inputs)[0].sin().sum(), inputs["multivectors"], create_graph=True)
            found.append(torch.autograd.grad(force.square().sum(), inputs["multivectors"])[0])
    assert transformer_cases.deviation(*found) < 1e-7  # the published constants are in single precision


def test_our_own_networks():
    model = ours.LGATr(**LGATR)
    assert "nothing left to do" in str(accelerate(model, verbose=False))


# Without the packages: classes built as the published ones.


class EquiLayerNorm(nn.Module):
    """As GATr's."""

    factor = 1.0

    def __init__(self):
        super().__init__()
        self.mv_channel_dim, self.epsilon = -2, 0.01

    def forward(self, multivectors, scalars):
        # The blades of which squares are not zero: those without the first generator.
        there = torch.tensor([1, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 0], dtype=multivectors.dtype)
        squares = (multivectors.square() * there).sum(-1, keepdim=True).mean(-2, keepdim=True)
        made = multivectors / squares.clamp(min=self.epsilon).sqrt()
        return self.factor * made, nn.functional.layer_norm(scalars, scalars.shape[-1:])


class Edited(EquiLayerNorm):
    factor = 1.01


def test_classes_built_alike():
    model = nn.ModuleList([EquiLayerNorm(), Edited()])
    report = accelerate(model, verbose=False)
    assert [part.path for part in report.replaced] == ["0"], str(report)
    assert [part.path for part in report.left] == ["1"] and report.left[0].difference == pytest.approx(0.01, rel=0.1)
    assert type(model[0]).__name__ == "EquiLayerNorm" and isinstance(model[0], EquiLayerNorm)
    mv, s = torch.randn(2, 3, 4, 16), torch.randn(2, 3, 5)
    for a, b in zip(pickle.loads(pickle.dumps(model[0]))(mv, scalars=s), EquiLayerNorm()(mv, s)):
        assert torch.allclose(a, b, atol=1e-6)
    assert restore(model) == 1 and type(model[0]) is EquiLayerNorm

"""Blocks of L-GATr and GATr as composites: on the CPU in any number of rows here, where their layers are run one by one otherwise."""

import itertools

import pytest
import torch
from torch import nn
from torch.func import functional_call, hessian

from gradewise.torch import gatr, lgatr
from gradewise.torch._transformers import composites
from gradewise.torch.gatr.layers import block as gatr_block
from gradewise.torch.lgatr.layers import block as lgatr_block
from gradewise.torch.lgatr.nets import lgatr as lgatr_net
from test_transformers_golden import CASES, expected, run
from transformer_cases import evaluate, worst

F64 = torch.float64
BASE = dict(
    num_blocks=2,
    in_mv_channels=2,
    out_mv_channels=1,
    hidden_mv_channels=4,
    in_s_channels=3,
    out_s_channels=1,
    hidden_s_channels=6,
    attention={"num_heads": 2},
    mlp={"mlp_ratio": 2},
)
OPTIONS = {
    "GATr": {"package": gatr, "mlp": {}},
    "GATr, one layer more": {
        "package": gatr,
        "mlp": {"activation": "relu"},
        "attention": {"num_heads": 1, "multi_query": False},
    },
    "GATr, positions": {
        "package": gatr,
        "mlp": {},
        "attention": {"num_heads": 2, "multi_query": False, "pos_encoding": True},
    },
    "usual": {},
    "no gains": {"norm_elementwise_affine": False},
    "head scale": {"attention": {"num_heads": 2, "head_scale": True}},
    "three layers, silu": {"mlp": {"mlp_ratio": 3, "num_layers_mlp": 3, "nonlinearity": "silu"}},
    "one layer": {"mlp": {"num_layers_mlp": 1}},
    "full group": {"primitives": {"subgroup": False}},
    "no product": {"primitives": {"geometric_product": False}},
    "relu": {"mlp": {"nonlinearity": "relu"}},
    "one head": {"attention": {"num_heads": 1}},
}


@pytest.fixture
def counted(monkeypatch):
    """Composites on the CPU, and how many blocks ran as such."""
    count = [0]

    def counting(own):
        def count_one(*arguments, **options):
            made = own(*arguments, **options)
            count[0] += made is not None
            return made

        return count_one

    monkeypatch.setattr(composites, "DEVICES", {"cpu": None, "cuda": None})
    for module in (lgatr_block, gatr_block, lgatr_net):
        monkeypatch.setattr(module, "block_of", counting(module.block_of))
    return count


def model_of(package=lgatr, **options):
    torch.manual_seed(0)
    kind = lgatr.LGATr if package is lgatr else gatr.GATr
    model = kind(**BASE | options).double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model


def inputs_of(model, batch=(3,), items=5):
    scalars = model.linear_in.s2mvs is not None
    x = {"multivectors": torch.randn(*batch, items, 2, 16, dtype=F64)}
    return x | ({"scalars": torch.randn(*batch, items, 3, dtype=F64)} if scalars else {})


def one_by_one(monkeypatch, model, inputs, cotangents, **call):
    with monkeypatch.context() as context:
        context.setattr(composites, "DEVICES", {})
        return evaluate(model, inputs, cotangents, **call)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("batch", [(3,), (), (2, 2)])
def test_what_the_layers_compute(name, batch, counted, monkeypatch):
    model = model_of(**OPTIONS[name])
    inputs = inputs_of(model, batch)
    cotangents = [torch.randn_like(y) for y in model(**inputs)]
    counted[0] = 0
    found = evaluate(model, inputs, cotangents)
    assert counted[0] == 2
    assert worst(found, one_by_one(monkeypatch, model, inputs, cotangents)) < 1e-12


def test_checkpointed_blocks_have_the_same_bits(counted, device):
    model = model_of().to(device)
    again = model_of(checkpoint_blocks=True).to(device)
    inputs = {name: x.to(device) for name, x in inputs_of(model).items()}
    cotangents = [torch.randn_like(y) for y in model(**inputs)]
    wanted = evaluate(model, inputs, cotangents)
    counted[0] = 0
    found = evaluate(again, inputs, cotangents)
    assert counted[0] == 2 and all(torch.equal(x, found[name]) for name, x in wanted.items())


def test_single_precision(counted, monkeypatch):
    model = model_of()
    inputs = inputs_of(model)
    cotangents = [torch.randn_like(y) for y in model(**inputs)]
    expected = one_by_one(monkeypatch, model, inputs, cotangents)
    found = evaluate(model.float(), {k: x.float() for k, x in inputs.items()}, [c.float() for c in cotangents])
    assert worst(found, expected) < 1e-4


@pytest.mark.parametrize("heads, mv, s", [(2, 4, 6), (8, 16, 32), (1, 16, 32), (1, 3, 1)])
@pytest.mark.parametrize("package", [lgatr, gatr])
def test_heads_of_every_length_on_every_device(package, heads, mv, s, counted, monkeypatch, device):
    """Long heads have kernels of their own on a GPU, and so have maps of few channels."""
    options = {"package": package, "mlp": {}, "attention": {"num_heads": heads}}
    model = model_of(hidden_mv_channels=mv, hidden_s_channels=s, **options).to(device)
    inputs = {name: x.to(device) for name, x in inputs_of(model, (2,), 37).items()}
    cotangents = [torch.randn_like(y) for y in model(**inputs)]
    found, again = (evaluate(model, inputs, cotangents) for _ in range(2))
    assert all(torch.equal(x, again[name]) for name, x in found.items())
    assert worst(found, one_by_one(monkeypatch, model, inputs, cotangents)) < 1e-11


def test_autocast(counted, monkeypatch):
    model, plain = model_of().float(), model_of()
    inputs = {name: x.float() for name, x in inputs_of(model).items()}
    cotangents = [torch.randn_like(y) for y in model(**inputs)]
    expected = evaluate(plain, {name: x.double() for name, x in inputs.items()}, cotangents)
    counted[0] = 0
    with torch.autocast("cpu", torch.bfloat16):
        outputs = model(**inputs)
        found = evaluate(model, inputs, cotangents)
    assert counted[0] == 4
    with monkeypatch.context() as context, torch.autocast("cpu", torch.bfloat16):
        context.setattr(composites, "DEVICES", {})
        published, others = model(**inputs), evaluate(model, inputs, cotangents)
    assert [y.dtype for y in outputs] == [y.dtype for y in published] == [torch.float32, torch.bfloat16]
    of_outputs = {name: x for name, x in expected.items() if name.startswith("out.")}
    error, theirs = (worst({name: y[name] for name in of_outputs}, of_outputs) for y in (found, others))
    assert error < max(theirs, 1e-2)
    with torch.autocast("cpu", torch.bfloat16), lgatr.naive_amp():
        counted[0] = 0
        model(**inputs)
    assert counted[0] == 0


def test_masks(counted, monkeypatch):
    model = model_of()
    inputs = inputs_of(model)
    mask = torch.rand(3, 1, 5, 5) > 0.3
    mask |= torch.eye(5, dtype=torch.bool)
    cotangents = [torch.randn_like(y) for y in model(**inputs)]
    found = evaluate(model, inputs, cotangents, attn_mask=mask)
    assert worst(found, one_by_one(monkeypatch, model, inputs, cotangents, attn_mask=mask)) < 1e-12


@pytest.mark.parametrize("case", [case for case in CASES if case[2] in ("LGATr", "GATr", "AxialGATr")], ids=lambda case: case[0])
def test_golden_vectors(case, counted):
    assert worst(run(case, F64, "cpu"), expected(case[4])) < 1e-11


@pytest.mark.parametrize("name", ["usual", "GATr"])
def test_second_derivatives(name, counted, monkeypatch):
    model = model_of(**OPTIONS[name])
    inputs = inputs_of(model, (), 3)
    x = inputs["multivectors"].requires_grad_()

    def force_loss():
        energy = model(x, inputs["scalars"])[1].sum()
        (force,) = torch.autograd.grad(energy, x, create_graph=True)
        loss = force.square().sum()
        return torch.autograd.grad(loss, [x, *model.parameters()], allow_unused=True)

    found = force_loss()
    assert counted[0] == 2
    with monkeypatch.context() as context:
        context.setattr(composites, "DEVICES", {})
        expected = force_loss()
    for a, b in zip(found, expected):
        assert (a is None) == (b is None)
        if a is not None:
            assert (a - b).norm() <= 1e-10 * b.norm() + 1e-14


def test_transformations_run_the_layers(counted):
    model = model_of()
    inputs = inputs_of(model, (), 2)
    parameters = dict(model.named_parameters())

    def energy(x):
        return functional_call(model, parameters, (x, inputs["scalars"]))[1].sum()

    assert hessian(energy)(inputs["multivectors"]).isfinite().all()
    assert counted[0] == 0


def test_frozen_parameters_and_no_gradients(counted):
    model = model_of()
    inputs = inputs_of(model)
    with torch.no_grad():
        expected = model(**inputs)
    for p in itertools.islice(model.parameters(), 0, None, 2):
        p.requires_grad_(False)
    outputs = model(**inputs)
    assert all(torch.equal(a, b) for a, b in zip(outputs, expected))
    sum(y.sum() for y in outputs).backward()
    for p in model.parameters():
        assert p.requires_grad or p.grad is None


def test_who_watches_or_replaces_a_layer_is_heard(counted):
    model = model_of()
    inputs = inputs_of(model)
    seen = []
    handle = model.blocks[0].mlp.layers[0].linear_out.register_forward_hook(lambda *_: seen.append(1))
    expected = model(**inputs)
    assert seen == [1] and counted[0] == 1
    handle.remove()
    counted[0] = 0

    class Doubled(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, multivectors, scalars=None):
            mv, s = self.inner(multivectors, scalars=scalars)
            return 2 * mv, s

    model.blocks[1].norm2 = Doubled(model.blocks[1].norm2)
    changed = model(**inputs)
    assert counted[0] == 1 and not torch.allclose(changed[0], expected[0])


def test_dropout_runs_the_layers_in_training_alone(counted):
    model = model_of(dropout_prob=0.3)
    inputs = inputs_of(model)
    model(**inputs)
    assert counted[0] == 0
    model.eval()(**inputs)
    assert counted[0] == 2


def test_a_call_may_be_longer_than_another(counted):
    model = model_of()
    for items in (1, 7, 2):
        made = model(**inputs_of(model, (2,), items))
        assert made[0].shape == (2, items, 1, 16)
    empty = model(**inputs_of(model, (0,), 4))
    assert empty[0].shape == (0, 4, 1, 16)

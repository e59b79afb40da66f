"""Blocks of L-GATr-slim as composites: on the CPU too here, where its layers are otherwise run one by one."""

import pytest
import torch
from torch.func import functional_call, hessian

from gradewise.torch import lgatr
from gradewise.torch._transformers import composites
from gradewise.torch.lgatr.layers import slim_composite
from test_transformers_golden import CASES, expected, run
from transformer_cases import evaluate, worst

F64 = torch.float64
BASE = dict(
    num_blocks=2,
    in_v_channels=2,
    out_v_channels=1,
    hidden_v_channels=4,
    in_s_channels=3,
    out_s_channels=1,
    hidden_s_channels=8,
    num_heads=2,
)
OPTIONS = {
    "usual": {},
    "no gains": {"norm_elementwise_affine": False},
    "one function": {"nonlinearity": "silu", "nonlinearity_v": None},
    "three layers, relu": {"num_layers_mlp": 3, "mlp_ratio": 3, "nonlinearity": "relu", "nonlinearity_v": "tanh"},
    "one head": {"num_heads": 1},
    "more heads than vectors": {"num_heads": 8},
    "wider heads": {"attn_ratio": 2},
}


@pytest.fixture
def counted(monkeypatch):
    """Composites on the CPU, and how many blocks ran as such."""
    count = [0]
    own = slim_composite._block_of

    def counting(*arguments):
        made = own(*arguments)
        count[0] += made is not None
        return made

    monkeypatch.setattr(composites, "DEVICES", {"cpu": None, "cuda": None})
    monkeypatch.setattr(slim_composite, "_block_of", counting)
    return count


def model_of(**options):
    torch.manual_seed(0)
    model = lgatr.LGATrSlim(**BASE | options).double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model


def inputs_of(batch=(3,), items=5):
    return {
        "vectors": torch.randn(*batch, items, 2, 4, dtype=F64),
        "scalars": torch.randn(*batch, items, 3, dtype=F64),
    }


def one_by_one(monkeypatch, model, inputs, cotangents, **call):
    with monkeypatch.context() as context:
        context.setattr(composites, "DEVICES", {})
        return evaluate(model, inputs, cotangents, **call)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("batch", [(3,), (), (2, 2)])
def test_what_the_layers_compute(name, batch, counted, monkeypatch):
    model, inputs = model_of(**OPTIONS[name]), inputs_of(batch)
    cotangents = [torch.randn_like(y) for y in model(**inputs)]
    counted[0] = 0
    found = evaluate(model, inputs, cotangents)
    assert counted[0] == 2
    assert worst(found, one_by_one(monkeypatch, model, inputs, cotangents)) < 1e-12


@pytest.mark.parametrize("heads, v, s", [(2, 4, 8), (8, 32, 96), (1, 32, 96), (1, 3, 1), (4, 1, 4)])
def test_widths_on_every_device(heads, v, s, counted, monkeypatch, device):
    """Maps of few channels and of many have kernels of their own on a GPU. The same inputs give the same bits."""
    model = model_of(num_heads=heads, hidden_v_channels=v, hidden_s_channels=s).to(device)
    inputs = {name: x.to(device) for name, x in inputs_of((2,), 37).items()}
    cotangents = [torch.randn_like(y) for y in model(**inputs)]
    found, again = (evaluate(model, inputs, cotangents) for _ in range(2))
    assert all(torch.equal(x, again[name]) for name, x in found.items())
    assert counted[0] == 6
    assert worst(found, one_by_one(monkeypatch, model, inputs, cotangents)) < 1e-11


def test_single_precision(counted, monkeypatch):
    model, inputs = model_of(), inputs_of()
    cotangents = [torch.randn_like(y) for y in model(**inputs)]
    wide = one_by_one(monkeypatch, model, inputs, cotangents)
    found = evaluate(model.float(), {k: x.float() for k, x in inputs.items()}, [c.float() for c in cotangents])
    assert worst(found, wide) < 1e-4


@pytest.mark.parametrize("case", [case for case in CASES if case[2] == "LGATrSlim"], ids=lambda case: case[0])
def test_golden_vectors(case, counted):
    assert worst(run(case, F64, "cpu"), expected(case[4])) < 1e-11
    assert counted[0] > 0


def test_checkpointed_blocks_have_the_same_bits(counted, device):
    model, inputs = model_of().to(device), {name: x.to(device) for name, x in inputs_of().items()}
    again = model_of(checkpoint_blocks=True).to(device)
    cotangents = [torch.randn_like(y) for y in model(**inputs)]
    wanted = evaluate(model, inputs, cotangents)
    counted[0] = 0
    found = evaluate(again, inputs, cotangents)
    assert counted[0] == 2 and all(torch.equal(x, found[name]) for name, x in wanted.items())


def test_masks(counted, monkeypatch):
    model, inputs = model_of(), inputs_of()
    mask = (torch.rand(3, 1, 5, 5) > 0.3) | torch.eye(5, dtype=torch.bool)
    cotangents = [torch.randn_like(y) for y in model(**inputs)]
    found = evaluate(model, inputs, cotangents, attn_mask=mask)
    assert worst(found, one_by_one(monkeypatch, model, inputs, cotangents, attn_mask=mask)) < 1e-12


def test_second_derivatives(counted, monkeypatch):
    model, inputs = model_of(), inputs_of((), 3)
    x = inputs["vectors"].requires_grad_()

    def force_loss():
        energy = model(x, inputs["scalars"])[1].sum()
        (force,) = torch.autograd.grad(energy, x, create_graph=True)
        return torch.autograd.grad(force.square().sum(), [x, *model.parameters()], allow_unused=True)

    found = force_loss()
    assert counted[0] == 2
    with monkeypatch.context() as context:
        context.setattr(composites, "DEVICES", {})
        wanted = force_loss()
    for a, b in zip(found, wanted):
        # What has no effect has no gradient, or one of zeros: a composite does not see that a part of its result is not used.
        assert a is not None or b is None
        expected = 0 if b is None else b
        assert a is None or (a - expected).norm() <= 1e-10 * (a if b is None else b).norm() + 1e-14


def test_what_follows_a_call_runs_the_layers(counted):
    """Transformations, autocast and dropout in training."""
    model, inputs = model_of(), inputs_of((), 2)
    parameters = dict(model.named_parameters())

    def energy(x):
        return functional_call(model, parameters, (x, inputs["scalars"]))[1].sum()

    assert hessian(energy)(inputs["vectors"]).isfinite().all()
    with torch.autocast("cpu", torch.bfloat16):
        model.float()(*(x.float() for x in inputs.values()))
    dropped = model_of(dropout_prob=0.3)
    dropped(**inputs)
    assert counted[0] == 0
    dropped.eval()(**inputs)
    assert counted[0] == 2


def test_who_watches_or_replaces_a_layer_is_heard(counted, monkeypatch):
    model, inputs = model_of(), inputs_of()
    with monkeypatch.context() as context:
        context.setattr(composites, "DEVICES", {})
        wanted = model(**inputs)
    seen = []
    handle = model.blocks[0].mlp.layers[0].linear.linear_s.register_forward_hook(lambda *_: seen.append(1))
    found = model(**inputs)
    assert seen == [1] and counted[0] == 1
    assert worst(dict(enumerate(found)), dict(enumerate(wanted))) < 1e-12
    handle.remove()
    model.blocks[1].norm2.forward = lambda v, s: (2 * v, s)
    counted[0] = 0
    changed = model(**inputs)
    assert counted[0] == 1 and not torch.allclose(changed[0], wanted[0])


def test_sizes_from_call_to_call(counted):
    model = model_of()
    for items in (1, 7, 2):
        assert model(**inputs_of((2,), items))[0].shape == (2, items, 1, 4)
    assert model(**inputs_of((0,), 4))[0].shape == (0, 4, 1, 4)

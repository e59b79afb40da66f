"""Transformers as modules of PyTorch: copies, hooks, transformations, compilers, odd sizes, and what they refuse."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

import gradewise
from gradewise.torch import gatr, lgatr

F64 = torch.float64
LGATR = dict(
    num_blocks=1,
    in_mv_channels=2,
    out_mv_channels=1,
    hidden_mv_channels=3,
    in_s_channels=2,
    out_s_channels=1,
    hidden_s_channels=5,
    attention={"num_heads": 2},
    mlp={"mlp_ratio": 2},
)
SLIM = dict(
    num_blocks=1,
    in_v_channels=2,
    out_v_channels=1,
    hidden_v_channels=3,
    in_s_channels=2,
    out_s_channels=1,
    hidden_s_channels=5,
    num_heads=2,
)
COND = {"mv_channels_cond": 3, "s_channels_cond": 2, "crossattention": {"num_heads": 2}}


def models():
    torch.manual_seed(0)
    return {
        "LGATr": (lgatr.LGATr(**LGATR), (2, 16)),
        "multi query": (
            lgatr.LGATr(**LGATR | {"attention": {"num_heads": 2, "multi_query": True, "head_scale": True}}),
            (2, 16),
        ),
        "full": (lgatr.LGATr(**LGATR | {"primitives": {"subgroup": False}}), (2, 16)),
        "LGATrSlim": (lgatr.LGATrSlim(**SLIM), (2, 4)),
        "GATr": (gatr.GATr(**LGATR | {"mlp": {}, "hidden_mv_channels": 3}), (2, 16)),
        "positions": (
            gatr.GATr(**LGATR | {"mlp": {}, "attention": {"num_heads": 2, "multi_query": False, "pos_encoding": True}}),
            (2, 16),
        ),
    }


NAMES = list(models())


def case(name, batch=(2,), items=3, dtype=F64, device="cpu"):
    model, tail = models()[name]
    x = torch.randn(*batch, items, *tail, dtype=F64)
    s = torch.randn(*batch, items, 2, dtype=F64)
    return model.to(dtype).to(device), x.to(dtype).to(device), s.to(dtype).to(device)


def same(first, second, tolerance=1e-13):
    return all(torch.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in zip(first, second))


@pytest.mark.parametrize("name", NAMES)
def test_copies(name):
    model, x, s = case(name)
    expected = model(x, s)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert same(other(x, s), expected, 0)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert same(torch.load(file, weights_only=False)(x, s), expected, 0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [((), 3), ((2,), 1), ((0,), 3), ((1, 2, 2), 2)])
def test_shapes(name, shape, device):
    batch, items = shape
    if name in ("GATr", "positions") and not batch:
        pytest.skip("the mean of the data is of each batch")
    model, x, s = case(name, batch, items, device=device)
    out, scalars = model(x, s)
    assert out.shape == (*batch, items, 1, x.shape[-1]) and scalars.shape == (*batch, items, 1)
    (out.sum() + scalars.sum()).backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())
    if name not in ("GATr", "positions") and len(batch) == 3:
        assert same(model(x.flatten(0, 2), s.flatten(0, 2))[0].view(out.shape), out)


@pytest.mark.parametrize("name", NAMES)
def test_hooks_and_replaced_layers_see_published_arrays(name):
    model, x, s = case(name)
    expected = model(x, s)
    seen = []
    for module in model.modules():
        module.register_forward_hook(lambda module, inputs, output: seen.append((type(module).__name__, output)))
    assert same(model(x, s), expected)
    names = {name for name, _ in seen}
    assert {"Linear", "ModuleList"} - names == {"ModuleList"} and len(names) > 5
    for kind, output in seen:
        if kind == "EquiLinear":
            assert output[0].shape[:2] == (2, 3) and output[0].shape[-1] == 16

    class Wrapped(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, *arguments, **options):
            return self.inner(*arguments, **options)

    fresh, _, _ = case(name)
    for child, module in list(fresh.named_children()):
        if isinstance(module, nn.ModuleList):
            module[0] = Wrapped(module[0])
        else:
            setattr(fresh, child, Wrapped(module))
    assert same(fresh(x, s), expected)


@pytest.mark.parametrize("name", NAMES)
def test_second_derivatives(name):
    model, x, s = case(name, (1,), 2)
    inputs = [t.requires_grad_() for t in (x, s)]
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    some = list(parameters)[:: max(1, len(parameters) // 3)]

    def run(x, s, *changed):
        given = dict(zip(some, changed))
        return torch.func.functional_call(model, given, (x, s))

    everything = [*inputs, *(parameters[name] for name in some)]
    assert torch.autograd.gradcheck(run, everything, fast_mode=True, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(run, everything, fast_mode=True)


@pytest.mark.parametrize("name", NAMES)
def test_transformations(name):
    model, x, s = case(name, (2,), 2)

    def energy(parameters, x, s):
        mv, scalars = torch.func.functional_call(model, parameters, (x[None], s[None]))
        return mv.square().sum() + scalars.sin().sum()

    parameters = {n: p.detach() for n, p in model.named_parameters()}
    each = torch.func.vmap(torch.func.grad(energy), in_dims=(None, 0, 0))(parameters, x, s)
    one = torch.func.grad(energy)(parameters, x[1], s[1])
    assert all(torch.allclose(each[n][1], one[n], atol=1e-12) for n in parameters)
    tangent = torch.randn_like(x[0])
    _, along = torch.func.jvp(lambda x: energy(parameters, x, s[0]), (x[0],), (tangent,))
    slope = torch.func.grad(lambda x: energy(parameters, x, s[0]))(x[0])
    assert torch.allclose(along, (slope * tangent).sum(), rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits(name, dtype, device):
    model, x, s = case(name, dtype=F64, device=device)
    expected = model(x, s)
    out = model.to(dtype)(x.to(dtype), s.to(dtype))
    assert all(y.dtype == dtype for y in out)
    assert all(float((y.double() - e).norm()) < 0.15 * float(e.norm()) for y, e in zip(out, expected))
    sum(y.sum() for y in out).backward()


@pytest.mark.parametrize("name", NAMES)
def test_autocast(name, device):
    model, x, s = case(name, dtype=torch.float32, device=device)
    expected = model(x, s)
    with torch.autocast(device, torch.bfloat16):
        out = model(x, s)
    assert all(float((y.double() - e).norm()) < 0.1 * float(e.norm()) for y, e in zip(out, expected))


@pytest.mark.parametrize("name", ["LGATr", "LGATrSlim", "GATr"])
def test_checkpointing(name):
    results = []
    for options in ({}, {"checkpoint": ["block"]} if name == "GATr" else {"checkpoint_blocks": True}):
        torch.manual_seed(0)
        make, arguments = {
            "LGATr": (lgatr.LGATr, LGATR),
            "LGATrSlim": (lgatr.LGATrSlim, SLIM),
            "GATr": (gatr.GATr, LGATR | {"mlp": {}}),
        }[name]
        model = make(**arguments | options | {"dropout_prob": 0.2}).double()
        x = torch.randn(2, 3, 2, 4 if name == "LGATrSlim" else 16, dtype=F64, requires_grad=True)
        out = model(x, torch.randn(2, 3, 2, dtype=F64))
        (grad,) = torch.autograd.grad(sum(y.square().sum() for y in out), x)
        results.append((*out, grad))
    assert same(*results)


@pytest.mark.parametrize("name", ["LGATr", "LGATrSlim", "GATr"])
def test_compilers(name):
    model, x, s = case(name)
    expected = model(x, s)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    out = compiled(x, s)
    assert same(out, expected)
    sum(y.sum() for y in out).backward()


def test_compile_option():
    model = lgatr.LGATr(**LGATR, compile=True, compile_kwargs={"backend": "aot_eager"})
    x, s = torch.randn(2, 3, 2, 16), torch.randn(2, 3, 2)
    plain = lgatr.LGATr(**LGATR)
    plain.load_state_dict(model.state_dict())
    assert same(model(x, s), plain(x, s), 1e-5)


def test_conditional():
    model = lgatr.ConditionalLGATr(**LGATR | COND).double()
    mv, s = torch.randn(2, 3, 2, 16, dtype=F64), torch.randn(2, 3, 2, dtype=F64)
    mv_cond, s_cond = torch.randn(2, 4, 3, 16, dtype=F64), torch.randn(2, 4, 2, dtype=F64)
    mask = torch.ones(2, 1, 3, 4, dtype=torch.bool)
    mask[..., -1] = False
    first = model(mv, mv_cond, s, s_cond, crossattn_kwargs={"attn_mask": mask})
    mv_cond[:, -1] += 1
    assert same(model(mv, mv_cond, s, s_cond, crossattn_kwargs={"attn_mask": mask}), first, 0)


def test_flex_attention_of_the_native_kind():
    model, x, s = case("LGATr", dtype=torch.float32)
    with torch.no_grad():  # on the CPU it has no backward pass
        assert same(model(x, s, score_mod=lambda score, *_: score), model(x, s), 1e-4)


def test_dropout_changes_training_alone():
    model = lgatr.LGATr(**LGATR, dropout_prob=0.5).double()
    x, s = torch.randn(2, 3, 2, 16, dtype=F64), torch.randn(2, 3, 2, dtype=F64)
    assert not same(model(x, s), model(x, s))
    assert same(model.eval()(x, s), model(x, s), 0)


def test_spurions():
    assert lgatr.get_spurions().shape == (lgatr.get_num_spurions(), 16) == (2, 16)
    assert lgatr.get_spurions(None, add_time_spurion=False).shape == (0, 16)
    beam = lgatr.extract_vector(lgatr.get_spurions("lightlike", dtype=F64))
    assert beam.tolist() == [[1, 0, 0, 1], [1, 0, 0, -1], [1, 0, 0, 0]]


REFUSED = {
    "blades": (
        lambda: lgatr.LGATr(**LGATR)(torch.zeros(2, 3, 2, 8), torch.zeros(2, 3, 2)),
        "expected [..., items, channels, 16]",
    ),
    "channels": (lambda: lgatr.LGATr(**LGATR)(torch.zeros(2, 3, 5, 16), torch.zeros(2, 3, 2)), "expected 2 channels"),
    "rows": (
        lambda: lgatr.LGATr(**LGATR)(torch.zeros(2, 3, 2, 16), torch.zeros(2, 4, 2)),
        "one row of scalars for each item",
    ),
    "scalars": (lambda: lgatr.LGATr(**LGATR)(torch.zeros(2, 3, 2, 16)), "give scalars"),
    "option": (lambda: lgatr.LGATr(**LGATR | {"attention": {"heads": 2}}), "no option 'heads'"),
    "activation": (
        lambda: lgatr.LGATr(**LGATR | {"mlp": {"nonlinearity": "swish"}}),
        "'swish', expected one of 'relu'",
    ),
    "beam": (lambda: lgatr.get_spurions("beam"), "expected one of 'lightlike'"),
    "backend": (
        lambda: lgatr.LGATr(**LGATR)(torch.zeros(2, 3, 2, 16), torch.zeros(2, 3, 2), backend="fast"),
        "'fast', expected one of",
    ),
    "mask": (
        lambda: lgatr.LGATr(**LGATR)(torch.zeros(2, 3, 2, 16), torch.zeros(2, 3, 2), attn_mask=torch.ones(7)),
        "broadcasts to [2, 2, 3, 3]",
    ),
    "slim": (lambda: lgatr.LGATrSlim(**SLIM)(torch.zeros(2, 3, 2, 4), None), "one channel or more"),
    "slim shape": (
        lambda: lgatr.LGATrSlim(**SLIM)(torch.zeros(2, 3, 2, 3), torch.zeros(2, 3, 2)),
        "expected [..., 4, channels]",
    ),
    "even": (lambda: gatr.GeometricBilinear(3, 5, in_s_channels=2), "expected an even number"),
    "scalars of attention": (
        lambda: gatr.GATr(**LGATR | {"mlp": {}, "hidden_s_channels": None}),
        "attention needs scalars",
    ),
    "checkpoint": (lambda: gatr.GATr(**LGATR | {"mlp": {}, "checkpoint": ["block", "mlp"]}), "Checkpointing both"),
    "reference": (
        lambda: gatr.GATr(**LGATR | {"mlp": {}})(torch.zeros(2, 3, 2, 16), torch.zeros(2, 3, 2), join_reference="mean"),
        "expected 'data', 'canonical'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, text = REFUSED[name]
    with pytest.raises(gradewise.GradewiseError) as caught:
        call()
    assert text in str(caught.value), caught.value


def test_subspaces_of_interfaces():
    point = torch.randn(5, 3, dtype=F64)
    i = gatr.interface
    assert torch.allclose(i.extract_point(i.embed_point(point)), point)
    turn = torch.nn.functional.normalize(torch.randn(5, 4, dtype=F64), dim=-1)
    position, orientation = i.extract_3d_object(
        i.embed_3d_object(point[:, None], turn[:, None]), sign_reference=turn[:, None]
    )
    assert torch.allclose(position[:, 0], point) and torch.allclose(orientation[:, 0], turn)
    position, vectors = i.extract_3d_object_two_vec(
        i.embed_3d_object_two_vec(point[:, None], torch.ones(5, 1, 6, dtype=F64))
    )
    assert torch.allclose(position[:, 0], point) and torch.equal(vectors, torch.ones(5, 1, 6, dtype=F64))
    ray = torch.randn(5, 6)
    assert torch.equal(i.extract_pluecker_ray(i.embed_pluecker_ray(ray)), ray)
    for function, count in (("scalar", 1), ("vector", 4), ("bivector", 6), ("axialvector", 4), ("pseudoscalar", 1)):
        x = torch.randn(3, count)
        assert torch.equal(getattr(lgatr, f"extract_{function}")(getattr(lgatr, f"embed_{function}")(x)), x)


@pytest.mark.parametrize("name", ["sdp_attention", "geometric_attention", "lgatr"])
def test_attention_of_items_without_heads(name):
    """One head's; and a normalizer may be a number."""
    from gradewise.torch.gatr import primitives
    from gradewise.torch.lgatr.primitives import sdp_attention

    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 2, 16), (4, 2, 16), (4, 1, 16), (3, 5), (4, 5), (4, 2)]
    given = [torch.randn(shape, generator=generator, dtype=F64) for shape in shapes]
    function = sdp_attention if name == "lgatr" else getattr(primitives, name)
    normalizers = (lambda w: 0.5, lambda w: torch.full_like(w, 0.5)) if name == "geometric_attention" else (None, None)
    alone, one = (
        function(*inputs, **({} if normalizer is None else {"normalizer": normalizer}))
        for inputs, normalizer in zip((given, [x[None] for x in given]), normalizers)
    )
    for a, b in zip(alone, one):
        torch.testing.assert_close(a, b[0], rtol=1e-14, atol=1e-14)

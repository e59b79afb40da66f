"""What transformers are for: outputs turn with their inputs, for parameters away from their initial values."""

import math

import pytest
import torch

from gradewise.torch import gatr, lgatr
from gradewise.torch.gatr import primitives as pga
from gradewise.torch.lgatr import primitives as sta

F64 = torch.float64


def trained(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=F64).to(parameter)
    return model


def rotor(plane, angle, hyperbolic):
    """exp of a plane of square 1 or -1."""
    scalar, part = (math.cosh, math.sinh) if hyperbolic else (math.cos, math.sin)
    made = torch.zeros(16, dtype=F64)
    made[0] = scalar(angle / 2)
    return made + part(angle / 2) * plane


def blade(number, value=1.0):
    made = torch.zeros(16, dtype=F64)
    made[number] = value
    return made


def sandwich(primitives, versor, x, odd=False):
    inner = primitives.grade_involute(x) if odd else x
    return primitives.geometric_product(primitives.geometric_product(versor, inner), primitives.reverse(versor))


def lorentz(gamma):
    """A boost of this γ along z after a rotation and a smaller boost."""
    turns = [(rotor(blade(8), 0.7, False)), rotor(blade(5), 0.4, True), rotor(blade(9), -1.1, False)]
    made = rotor(blade(7), math.acosh(gamma), True)
    for turn in turns:
        made = sta.geometric_product(made, turn)
    return made


def particles(batch, items, channels, generator):
    """Momenta of particles of some mass, as multivectors."""
    momenta = torch.randn(batch, items, channels, 3, generator=generator, dtype=F64)
    energy = (momenta.square().sum(-1, keepdim=True) + 0.5).sqrt()
    return lgatr.embed_vector(torch.cat((energy, momenta), -1))


def invariant(model, kind):
    generator = torch.Generator().manual_seed(1)
    return particles(3, 6, 2, generator), torch.randn(3, 6, 3, generator=generator, dtype=F64)


COMMON = dict(num_blocks=2, in_s_channels=3, out_s_channels=2, hidden_s_channels=8)
OPTIONS = {
    "plain": {},
    "multi query": {"attention": {"num_heads": 2, "multi_query": True, "head_scale": True}},
    "full": {"primitives": {"subgroup": False}},
    "no product": {"primitives": {"geometric_product": False}},
    "reinsertion": {"reinsert_mv_channels": (0, 1), "norm_elementwise_affine": False},
}


def model_of(options):
    arguments = COMMON | dict(
        in_mv_channels=2, out_mv_channels=2, hidden_mv_channels=6, attention={"num_heads": 2}, mlp={}
    )
    return trained(lgatr.LGATr(**arguments | options).double())


def distance(turned, expected):
    """Of outputs, over the size of what is expected."""
    return max(float((a.double() - b.double()).norm() / b.double().norm()) for a, b in zip(turned, expected))


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("gamma", [1.5, 10.0, 100.0])
def test_lorentz(name, gamma, device):
    model = model_of(OPTIONS[name]).to(device)
    mv, s = (x.to(device) for x in invariant(model, "LGATr"))
    versor = lorentz(gamma).to(device)
    out_mv, out_s = model(mv, s)
    expected = sandwich(sta, versor, out_mv), out_s
    turned = sandwich(sta, versor, mv)
    assert distance(model(turned, s), expected) < 1e-10
    # A boosted particle rounded to float32 is another one: its mass is a difference of squares that are γ² times as large. What computes
    # in float32 rounds a few times more.
    single = turned.float()
    there = model(single.double(), s)
    rounding = distance(there, expected)
    assert distance(model.float()(single, s.float()), there) < max(1e-4, 10 * rounding)


@pytest.mark.parametrize("group", ["reflection", "time"])
def test_full_group_has_reflections(group):
    mv, s = invariant(None, None)
    versor = blade(2) if group == "reflection" else blade(1)

    def turn(x):
        # versor x versor^-1, for versors of square -1 and of 1.
        made = sta.geometric_product(sta.geometric_product(versor, sta.grade_involute(x)), versor)
        return -made if group == "reflection" else made

    full, proper = model_of({"primitives": {"subgroup": False}}), model_of({})
    for model, is_equivariant in ((full, True), (proper, False)):
        out_mv, out_s = model(mv, s)
        error = distance(model(turn(mv), s), (turn(out_mv), out_s))
        assert error < 1e-12 if is_equivariant else error > 1e-3


@pytest.mark.parametrize("gamma", [10.0, 100.0])
@pytest.mark.parametrize("conditional", [False, True])
def test_slim(gamma, conditional, device):
    arguments = COMMON | dict(in_v_channels=2, out_v_channels=2, hidden_v_channels=6, num_heads=2)
    if conditional:
        arguments |= {"v_channels_cond": 2, "s_channels_cond": 3}
    kind = lgatr.ConditionalLGATrSlim if conditional else lgatr.LGATrSlim
    model = trained(kind(**arguments).double()).to(device)
    mv, s = (x.to(device) for x in invariant(model, "slim"))
    versor = lorentz(gamma).to(device)

    def run(v, s):
        return model(v, v.flip(1), s, s.flip(1)) if conditional else model(v, s)

    v = lgatr.extract_vector(mv)
    out_v, out_s = run(v, s)
    turned = lgatr.extract_vector(sandwich(sta, versor, mv))
    expected = lgatr.extract_vector(sandwich(sta, versor, lgatr.embed_vector(out_v))), out_s
    assert distance(run(turned, s), expected) < 1e-10
    single = turned.float()
    there = run(single.double(), s)
    rounding = distance(there, expected)
    model = model.float()
    assert distance(run(single, s.float()), there) < max(1e-4, 10 * rounding)


def points(generator, size):
    return gatr.interface.embed_point(size * torch.randn(2, 7, 2, 3, generator=generator, dtype=F64))


E3 = {
    "rotation": (pga.geometric_product(rotor(blade(8), 0.8, False), rotor(blade(9), -0.3, False)), False),
    "reflection": (0.6 * blade(2) + 0.8 * blade(4), True),
    "translation": (gatr.interface.embed_translation(torch.tensor([1e3, -2e3, 5e2], dtype=F64)), False),
}


@pytest.mark.parametrize("transformation", E3)
@pytest.mark.parametrize("kind", ["GATr", "multi head", "AxialGATr"])
def test_euclid(transformation, kind, device):
    arguments = COMMON | dict(in_mv_channels=2, out_mv_channels=2, hidden_mv_channels=6, mlp={})
    attention = {"num_heads": 2, "multi_query": kind != "multi head"}
    network = gatr.AxialGATr if kind == "AxialGATr" else gatr.GATr
    model = trained(network(**arguments, attention=attention).double()).to(device)
    generator = torch.Generator().manual_seed(2)
    mv, s = points(generator, 1.0), torch.randn(2, 7, 3, generator=generator, dtype=F64)
    if kind == "AxialGATr":
        mv, s = torch.stack((mv, 2 * mv), 1), torch.stack((s, -s), 1)
    mv, s = mv.to(device), s.to(device)
    versor, odd = E3[transformation]
    versor = versor.to(device)
    out_mv, out_s = model(mv, s)
    turned = sandwich(pga, versor, mv, odd)
    found, expected = model(turned, s), (sandwich(pga, versor, out_mv, odd), out_s)
    # Squared distances of points 1e3 away are differences of numbers 1e6 times as large.
    assert distance(found, expected) < (1e-8 if transformation == "translation" else 1e-11)
    assert distance(model.float()(turned.float(), s.float()), found) < (
        0.5 if transformation == "translation" else 1e-4
    )

"""Operators and modules under torch.func and with dual numbers: both modes, batches, to third order."""

import os
import textwrap
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.autograd import forward_ad

import gradewise.torch as gt
from gradewise.torch import cgenn, flash
from gradewise.torch._definitions import define
from gradewise.torch._operators import OPERATORS, apply
from golden import deviation
from test_torch_operators import every, requiring, samples

SMALL = [(1, 1, 0), (1, 0, 1)]
EXACT = 1e-11


def runs(operator, attributes):
    return lambda *inputs: apply(operator.name, attributes, inputs)


@pytest.mark.parametrize("operator, signature", every(signatures=[*SMALL, (3, 0, 0), (1, 3, 0), (0, 0, 1)]))
def test_definitions_are_what_kernels_compute(device, operator, signature):
    for rows in (1, 3):
        for attributes, inputs in samples(operator, signature, rows=rows, device=device):
            leaves = requiring(inputs)
            output, expected = define(operator.name, attributes, leaves), apply(operator.name, attributes, leaves)
            assert deviation(output.detach().cpu(), expected.detach().cpu()) < 1e-13
            grad = torch.randn_like(output)
            for a, b in zip(*(torch.autograd.grad(y, leaves, grad) for y in (output, expected))):
                assert deviation(a.cpu(), b.cpu()) < 1e-10


@pytest.mark.parametrize("operator, signature", every(signatures=[(1, 0, 1)]))
def test_derivatives_in_both_modes_and_batched(device, operator, signature):
    for attributes, inputs in samples(operator, signature, device=device):
        options = dict(check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True, fast_mode=True)
        assert torch.autograd.gradcheck(runs(operator, attributes), requiring(inputs), **options)
        options = dict(check_fwd_over_rev=True, check_rev_over_rev=True, fast_mode=True)
        assert torch.autograd.gradgradcheck(runs(operator, attributes), requiring(inputs), **options)


@pytest.mark.parametrize("operator, signature", every(signatures=[(1, 1, 0)]))
def test_transformations_are_those_of_the_definition(device, operator, signature):
    for attributes, inputs in samples(operator, signature, rows=2, features=2, device=device):
        ours = runs(operator, attributes)

        def theirs(*xs, attributes=attributes):
            return define(operator.name, attributes, xs)

        tangents = [torch.randn_like(x) for x in inputs]
        every_input = tuple(range(len(inputs)))

        def compare(transform):
            found, expected = transform(ours), transform(theirs)
            for a, b in zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(expected)):
                assert deviation(a.detach().cpu(), b.detach().cpu()) < EXACT, operator.name

        compare(lambda f: torch.func.jvp(f, tuple(inputs), tuple(tangents)))
        compare(lambda f: torch.func.vjp(f, *inputs)[1](torch.ones_like(f(*inputs))))
        compare(lambda f: torch.func.linearize(f, *inputs)[1](*tangents))
        weights = torch.randn_like(ours(*inputs))
        loss = lambda f: lambda *xs: (f(*xs).sin() * weights).sum()  # noqa: E731
        compare(lambda f: torch.func.grad(loss(f), argnums=every_input)(*inputs))
        # Third order, of a product of directions: the first in reverse mode, the others as they come.
        along = lambda g: lambda *xs: torch.func.jvp(g, xs, tuple(tangents))[1]  # noqa: E731
        dot = lambda g: lambda *xs: sum((a * b).sum() for a, b in zip(g(*xs), tangents))  # noqa: E731
        gradient = lambda g: torch.func.grad(g, argnums=every_input)  # noqa: E731
        compare(lambda f: along(along(along(f)))(*inputs))
        compare(lambda f: gradient(dot(gradient(dot(gradient(loss(f))))))(*inputs))
        compare(lambda f: along(gradient(dot(gradient(loss(f)))))(*inputs))
        compare(lambda f: gradient(along(along(loss(f))))(*inputs))


@pytest.mark.parametrize("operator, signature", every(signatures=[(2, 0, 0)]))
def test_batches_over_any_inputs(device, operator, signature):
    for attributes, inputs in samples(operator, signature, rows=2, features=2, device=device):
        f, weights = runs(operator, attributes), torch.randn_like(apply(operator.name, attributes, inputs))
        everything = set(range(len(inputs)))
        for axis, batched in [(0, {0}), (1, {len(inputs) - 1}), (-1, everything), (0, {0, 1})]:
            xs = [
                torch.randn(3, *x.shape, dtype=x.dtype, device=device) if i in batched else x
                for i, x in enumerate(inputs)
            ]
            dims = tuple(axis if i in batched else None for i in range(len(inputs)))
            moved = [x.movedim(0, axis) if i in batched else x for i, x in enumerate(xs)]
            one = lambda b: [x[b] if i in batched else x for i, x in enumerate(xs)]  # noqa: E731
            expected = torch.stack([f(*one(b)) for b in range(3)])
            assert deviation(torch.func.vmap(f, in_dims=dims)(*moved).cpu(), expected.cpu()) < EXACT
            gradient = torch.func.grad(
                lambda *a, f=f, w=weights: (f(*a).sin() * w).sum(), argnums=tuple(range(len(inputs)))
            )
            found = torch.func.vmap(gradient, in_dims=dims)(*moved)
            for index, g in enumerate(found):
                wanted = torch.stack([gradient(*one(b))[index] for b in range(3)])
                assert deviation(g.cpu(), wanted.cpu()) < EXACT


@pytest.mark.parametrize("operator, signature", every(signatures=[(1, 0, 1)]))
def test_third_derivatives_in_ordinary_reverse_mode(device, operator, signature):
    for attributes, inputs in samples(operator, signature, rows=1, features=2, device=device):
        leaves = requiring(inputs)

        def twice(*xs, attributes=attributes):
            y = apply(operator.name, attributes, xs)
            first = torch.autograd.grad(y.square().sum(), xs, create_graph=True)
            return torch.autograd.grad(sum((g * g).sum() for g in first), xs, create_graph=True)

        assert torch.autograd.gradcheck(twice, leaves, fast_mode=True, atol=1e-4, rtol=1e-3)


def modules(device):
    metric = (1.0, 1.0, 1.0)
    torch.manual_seed(0)
    edges = torch.tensor([[0, 1, 2, 3, 0, 2], [1, 2, 0, 1, 3, 3]], device=device)
    made = {
        "MVLinear": (cgenn.MVLinear(metric, 2, 3), (4, 2, 8)),
        "MVSiLU": (cgenn.MVSiLU(metric, 2), (4, 2, 8)),
        "NormalizationLayer": (cgenn.NormalizationLayer(metric, 2), (4, 2, 8)),
        "MVLayerNorm": (cgenn.MVLayerNorm(metric, 2), (4, 2, 8)),
        "SteerableGeometricProductLayer": (cgenn.SteerableGeometricProductLayer(metric, 2), (4, 2, 8)),
        "FullyConnectedSteerableGeometricProductLayer": (
            cgenn.FullyConnectedSteerableGeometricProductLayer(metric, 2, 3),
            (4, 2, 8),
        ),
        "CEMLP": (cgenn.CEMLP(metric, 2, 3, 2), (4, 2, 8)),
        "Layer": (flash.Layer(3, 3), (8, 4, 3)),
    }
    for name, (module, shape) in made.items():
        yield name, module.double().to(device), torch.randn(shape, dtype=torch.float64, device=device)
    network = cgenn.EGCL(metric, 2, 3, 2).double().to(device)
    yield "EGCL", lambda h: network(h, edges), torch.randn(4, 2, 8, dtype=torch.float64, device=device)


@pytest.mark.parametrize("name", [name for name, *_ in modules("cpu")])
def test_modules(device, name):
    module, x = next((m, x) for n, m, x in modules(device) if n == name)
    t = torch.randn_like(x)
    jacobian = torch.autograd.functional.jacobian(module, x)
    product = torch.tensordot(jacobian, t, dims=x.dim())
    assert product.abs().max() > 0
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(module(forward_ad.make_dual(x, t))).tangent
    for found in (torch.func.jvp(module, (x,), (t,))[1], dual, torch.autograd.functional.jvp(module, x, t)[1]):
        assert deviation(found.detach().cpu(), product.cpu()) < EXACT
    for transform in (torch.func.jacfwd, torch.func.jacrev):
        assert deviation(transform(module)(x).detach().cpu(), jacobian.cpu()) < EXACT
    weights = torch.randn_like(module(x))
    loss = lambda x: (module(x).sin() * weights).sum()  # noqa: E731
    hessian = torch.autograd.functional.hessian(loss, x)
    assert deviation(torch.func.hessian(loss)(x).detach().cpu(), hessian.cpu()) < EXACT
    batch = torch.stack([x, t, x - t])
    expected = torch.stack([module(b) for b in batch])
    assert deviation(torch.func.vmap(module)(batch).detach().cpu(), expected.detach().cpu()) < EXACT


def test_gradients_of_parameters_by_sample_and_ensembles(device):
    nets = [cgenn.CEMLP((1.0, 1.0, 1.0), 2, 3, 2).double().to(device) for _ in range(3)]
    x = torch.randn(5, 2, 8, dtype=torch.float64, device=device)
    parameters = {name: p.detach() for name, p in nets[0].named_parameters()}

    def loss(parameters, row):
        return torch.func.functional_call(nets[0], parameters, (row[None],)).square().sum()

    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    for name, g in found.items():
        for index, row in enumerate(x):
            wanted = torch.func.grad(loss)(parameters, row)[name]
            assert deviation(g[index].cpu(), wanted.cpu()) < EXACT
    stacked, buffers = torch.func.stack_module_state(nets)
    together = torch.func.vmap(lambda p, b: torch.func.functional_call(nets[0], (p, b), (x,)))(stacked, buffers)
    for index, net in enumerate(nets):
        assert deviation(together[index].detach().cpu(), net(x).detach().cpu()) < EXACT


def test_forces_and_hessians_of_an_energy(device):
    positions = torch.randn(3, 4, 2, dtype=torch.float64, device=device)
    weight = torch.randn(2, 20, dtype=torch.float64, device=device)
    shares = torch.randn(8, 4, 2, dtype=torch.float64, device=device)

    def energy(points):
        x = torch.cat([torch.ones_like(points[:1]), points, torch.zeros_like(points), torch.ones_like(points[:1])])
        return (gt.sgp(x, x, weight, gate=True, normalize=True).sin() * shares).sum()

    leaf = positions.clone().requires_grad_()
    (force,) = torch.autograd.grad(energy(leaf), leaf)
    assert deviation(torch.func.grad(energy)(positions).cpu(), force.cpu()) < EXACT
    reverse = torch.autograd.functional.hessian(energy, positions)
    for outer in (torch.func.jacfwd, torch.func.jacrev):
        for inner in (torch.func.jacfwd, torch.func.jacrev):
            assert deviation(outer(inner(energy))(positions).cpu(), reverse.cpu()) < EXACT


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_dtypes_keep_theirs(device, dtype):
    x, t = (torch.randn(8, 5, 4, device=device).to(dtype) for _ in range(2))
    weight = torch.randn(4, 20, device=device).to(dtype)
    value, tangent = torch.func.jvp(partial(gt.sgp, normalize=True), (x, x, weight), (t, t, torch.zeros_like(weight)))
    exact = torch.func.jvp(
        partial(gt.sgp, normalize=True),
        (x.double(), x.double(), weight.double()),
        (t.double(), t.double(), weight.double() * 0),
    )[1]
    assert value.dtype == tangent.dtype == dtype
    assert (
        deviation(tangent.double().cpu(), exact.cpu())
        < {torch.float32: 1e-6, torch.bfloat16: 2e-2, torch.float16: 4e-3}[dtype]
    )


def test_compiled_code_under_a_transformation_is_never_silently_zero(device):
    torch._dynamo.reset()
    x, t = (torch.randn(8, 2, 2, dtype=torch.float64, device=device) for _ in range(2))
    expected = torch.func.jvp(lambda a: gt.geometric_product(a, a), (x,), (t,))[1]
    compiled = torch.compile(
        lambda x, t: torch.func.jvp(lambda a: gt.geometric_product(a, a), (x,), (t,))[1], backend="aot_eager"
    )
    try:
        found = compiled(x, t)
    except Exception as error:
        assert "gradewise" in str(error)
    else:
        assert deviation(found.cpu(), expected.cpu()) < EXACT
    gradient = lambda x: torch.func.grad(lambda a: gt.geometric_product(a, a).square().sum())(x)  # noqa: E731
    try:
        found = torch.compile(gradient, backend="aot_eager")(x)
    except Exception as error:
        assert "gradewise" in str(error)
    else:
        assert deviation(found.cpu(), gradient(x).cpu()) < EXACT


PAGE = Path(__file__).resolve().parents[3] / "docs" / "python.md"
BEGIN, END = "<!-- transformations: written by test_torch_func.py -->", "<!-- end -->"


def entries(operator):
    """What each transformation of torch.func makes of an operator, beside PyTorch's ordinary reverse mode: "yes", or what is wrong."""
    found = {}
    for attributes, inputs in samples(operator, (2, 0, 0), rows=1, features=2):
        f = runs(operator, attributes)
        tangents = tuple(torch.randn_like(x) for x in inputs)
        shares = torch.randn_like(f(*inputs))
        first = lambda x, f=f, rest=inputs[1:]: f(x, *rest)  # noqa: E731
        loss = lambda x, g=first, w=shares: (g(x).sin() * w).sum()  # noqa: E731
        ordinary = torch.autograd.functional
        checks = {
            "jvp": (
                lambda: torch.func.jvp(f, tuple(inputs), tangents)[1],
                lambda: ordinary.jvp(f, tuple(inputs), tangents)[1],
            ),
            "vjp": (lambda: torch.func.vjp(f, *inputs)[1](shares), lambda: ordinary.vjp(f, tuple(inputs), shares)[1]),
            "jacfwd": (lambda: torch.func.jacfwd(first)(inputs[0]), lambda: ordinary.jacobian(first, inputs[0])),
            "jacrev": (lambda: torch.func.jacrev(first)(inputs[0]), lambda: ordinary.jacobian(first, inputs[0])),
            "hessian": (lambda: torch.func.hessian(loss)(inputs[0]), lambda: ordinary.hessian(loss, inputs[0])),
            "vmap": (
                lambda: torch.func.vmap(first)(torch.stack([inputs[0], tangents[0]])),
                lambda: torch.stack([first(inputs[0]), first(tangents[0])]),
            ),
        }
        for name, (ours, expected) in checks.items():
            pairs = zip(*(y if isinstance(y, tuple) else (y,) for y in (ours(), expected())))
            is_right = all(deviation(a.detach(), b.detach()) < EXACT for a, b in pairs)
            found[name] = "yes" if is_right and found.get(name, "yes") == "yes" else "wrong"
    return found


def test_the_list_of_the_documentation():
    """Each operator under each transformation: what is wrong is no entry of a list, but a failure."""
    found = {operator.name: entries(operator) for operator in OPERATORS.values()}
    wrong = [f"{name}: {kind}" for name, row in found.items() for kind, verdict in row.items() if verdict != "yes"]
    assert not wrong
    names = [", ".join(f"`{name}`" for name in row) for row in (found, next(iter(found.values())))]
    text = f"Each is compared with ordinary reverse mode, and nested to third order with the definition: {names[1]}, of {names[0]}."
    listed = textwrap.fill(text, 140, break_on_hyphens=False)
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    written = f"{before}{BEGIN}\n{listed}\n{END}{after}"
    if os.environ.get("GRADEWISE_WRITE_DOCS") == "1":
        PAGE.write_text(written, encoding="utf-8")
    assert text == written or os.environ.get("GRADEWISE_WRITE_DOCS") == "1", (
        "run with GRADEWISE_WRITE_DOCS=1 to write it"
    )

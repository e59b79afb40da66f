"""Models changed in place: only what computes the same is replaced, what is left is told, and everything can be undone."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

import fuzz_accelerate
import gradewise
import gradewise.torch as gt
import published
from gradewise.torch import cgenn, flash

F64 = torch.float64
A = published.CliffordAlgebra((1.0, 1.0, 1.0))


def trained(module, seed=0):
    """With every parameter away from its initial value."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=F64).to(parameter)
    return module


def network(dtype=F64, metric=(1.0, 1.0, 1.0)):
    return trained(published.CEMLP(published.CliffordAlgebra(metric), 3, 4, 2).to(dtype))


def results(model, *given):
    """Outputs and gradients."""
    leaves = [x.clone().requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in given]
    output = model(*leaves)
    cotangent = torch.linspace(-1.0, 1.0, output.numel(), dtype=output.dtype, device=output.device).view(output.shape)
    wanted = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad] + list(model.parameters())
    return [output.detach(), *torch.autograd.grad((output * cotangent).sum(), wanted, allow_unused=True)]


def need_same(found, expected, tolerance=1e-10):
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.shape == b.shape and a.dtype == b.dtype
            assert (a - b).abs().max() <= tolerance * max(b.abs().max(), 1e-12)


class Somebodys(nn.Module):
    def __init__(self, activation=published.MVSiLU):
        super().__init__()
        self.algebra = algebra = published.CliffordAlgebra((1.0, 1.0, 1.0))
        self.first = published.MVLinear(algebra, 2, 4, subspaces=False)
        self.block = nn.Sequential(
            published.MVLinear(algebra, 4, 5),
            activation(algebra, 5),
            published.SteerableGeometricProductLayer(algebra, 5),
            published.MVLayerNorm(algebra, 5),
        )
        self.head = nn.Sequential(nn.Linear(8, 3), nn.ReLU())

    def forward(self, vectors):
        return self.head(self.block(self.first(self.algebra.embed(vectors, (1, 2, 3)))))


class Halved(published.MVLinear):
    def forward(self, x):
        return 0.5 * super().forward(x)


class Tanh(published.MVSiLU):
    def gate(self, x):
        return torch.tanh(x)


@pytest.fixture
def double():
    before = torch.get_default_dtype()
    torch.set_default_dtype(F64)
    yield
    torch.set_default_dtype(before)


def test_accelerate_changes_a_model_in_place(double, capsys):
    model = trained(Somebodys())
    x = torch.randn(6, 2, 3)
    parameters, keys = list(model.parameters()), list(model.state_dict())
    optimizer = torch.optim.Adam(parameters)
    seen = []
    model.block.register_forward_hook(lambda *_: seen.append(1))
    expected = model(x)
    gradients = torch.autograd.grad(expected.square().sum(), parameters)
    report = gt.accelerate(model)
    assert all(a is b for a, b in zip(parameters, model.parameters())) and list(model.state_dict()) == keys
    kinds = {r.path: r.replacement.rpartition(".")[2] for r in report.replaced}
    assert kinds["block"] == "Block" and kinds["first"] == "MVLinear" and not report.left
    assert "head" not in kinds and "block" in capsys.readouterr().out
    assert [r.path for r in report.parts()] == ["block", "first"]
    actual = model(x)
    assert (actual - expected).norm() <= 1e-12 * expected.norm() and len(seen) == 2
    others = torch.autograd.grad(actual.square().sum(), parameters)
    for a, e in zip(others, gradients):
        assert (a - e).norm() <= 1e-11 * e.norm()
    model(x).square().sum().backward()
    before = actual.square().sum()
    for _ in range(3):
        optimizer.step()
    assert model(x).square().sum() < before
    copied = copy.deepcopy(model)
    assert torch.equal(copied(x), model(x))
    # A second time there is nothing left to do.
    again = gt.accelerate(model, verbose=False)
    assert not again.replaced and not again.left and "nothing left to do" in str(again)


def test_copies_at_borders_are_measured(double):
    model = Somebodys()
    x = torch.randn(6, 2, 3)
    report = gt.accelerate(model, verbose=False, example=(x,))
    # Vectors are embedded in the operators' order, and the block takes what the first map leaves.
    assert report.borders == [] and "0 copies" in str(report)
    found = gt.borders(model.block, torch.randn(6, 4, 8))
    assert [(b.path, b.shape, b.bytes) for b in found] == [("", (6, 4, 8), 6 * 4 * 8 * 8)]
    assert found[0].microseconds > 0
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_accelerate_says_what_it_left_and_why(double):
    model = Somebodys(Tanh)
    model.block[1].__class__.__name__ = "MVSiLU"
    report = gt.accelerate(model, verbose=False)
    left = {item.path: item for item in report.left}
    assert (
        list(left) == ["block.1", "block"] and "output" in left["block.1"].reason and left["block.1"].difference > 1e-3
    )
    assert "near miss" in left["block"].reason and "MVSiLU" in left["block"].reason
    assert "block.1" in str(report) and f"{left['block.1'].difference:.1e}" in str(report)
    page = report._repr_html_()
    assert page.startswith(f"<p>{str(report).splitlines()[0]}</p>") and page.count("<tr>") == page.count("</tr>") >= 2
    assert f"<code>block.1</code></td><td>{left['block.1'].original}</td><td>left: " in page
    left["block.1"].__dict__["reason"] = "<script>"
    assert "<td>left: &lt;script&gt;</td>" in report._repr_html_()
    assert type(model.block) is nn.Sequential


def test_accelerate_leaves_a_product_whose_parts_stay(double):
    model = trained(Somebodys())
    model.block[2].linear_left.__class__ = Halved
    x = torch.randn(6, 2, 3)
    expected = results(model, x)
    left = {item.path: item.reason for item in gt.accelerate(model, verbose=False).left}
    assert list(left) == ["block.2.linear_left", "block.2", "block"] and "parts" in left["block.2"]
    need_same(results(model, x), expected)


# Found among the first 13,000: an input with more features than a module of one feature is for, over which the published module spreads its
# weights; and models near the root of a norm, which amplify the last bit of their input.
@pytest.mark.parametrize("seed", [1_581, 11_729, 12_430])
def test_models_that_once_differed_are_equal(seed):
    wrong, edits, _ = fuzz_accelerate.check(seed)
    assert wrong is None, (wrong, edits)


@pytest.mark.parametrize("seed", range(200))
def test_random_models_compute_the_same(seed):
    wrong, edits, _ = fuzz_accelerate.check(50_000 + seed)
    assert wrong is None, edits


def test_random_models_are_changed():
    """The models of the test above are not left as they are, and some of what is edited is."""
    counts = [fuzz_accelerate.check(60_000 + seed)[2] or (0, 0) for seed in range(12)]
    assert sum(replaced for replaced, _ in counts) > 50 and sum(left for _, left in counts) > 0


METRICS = [(-1.0, 1.0, 1.0), (0.0, 1.0, 1.0), (1.0, -1.0, 1.0), (0.0, -1.0, 1.0), (-1.0, 1.0, 1.0, 1.0)]


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_signs_in_any_order(device, metric):
    model = network(metric=metric).to(device)
    x = torch.randn(5, 3, 2 ** len(metric), dtype=F64, device=device)
    expected = results(model, x)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    report = gt.accelerate(model, verbose=False)
    assert not report.left and len(report.replaced) == 17
    need_same(results(model, x), expected)
    own = cgenn.CEMLP(metric, 3, 4, 2).to(device, F64)
    own.load_state_dict(state)
    need_same(results(own, x), expected)
    assert all(torch.equal(a.cpu().double(), state[key].cpu().double()) for key, a in own.state_dict().items())


def test_other_invariants_biases_and_constants(device):
    class MVLayerNorm(published.MVLayerNorm):
        def forward(self, input):
            norm = self.algebra.smooth(self.algebra.forms(input).sum(-1)).mean(dim=1, keepdim=True)
            return self.a[..., None] * input / (norm[..., None] + 0.1)

    class NormalizationLayer(published.NormalizationLayer):
        def forward(self, input):
            norms = self.algebra.smooth(self.algebra.forms(input))
            return input / (self.algebra.by_blade(torch.sigmoid(self.a) * (norms - 1) + 1) + 1e-12)

    for metric in ((1.0, 1.0, 1.0), (-1.0, 0.0, 1.0)):
        algebra = published.CliffordAlgebra(metric)
        modules = [
            published.MVSiLU(algebra, 3, "norm"),
            published.MVLinear(algebra, 3, 4, b_dims=(0, 7)),
            published.MVLinear(algebra, 3, 4, b_dims=(4,)),
            MVLayerNorm(algebra, 3),
            NormalizationLayer(algebra, 3),
        ]
        for module in modules:
            module = trained(module.double()).to(device)
            x = torch.randn(5, 3, 8, dtype=F64, device=device)
            expected = results(module, x)
            report = gt.accelerate(module, verbose=False)
            assert len(report.replaced) == 1, report
            need_same(results(module, x), expected)
            x.requires_grad_()
            assert torch.autograd.gradgradcheck(module, x, fast_mode=True)


def graph(directed=True):
    torch.manual_seed(1)
    if directed:
        return torch.randint(0, 7, (2, 20))
    return torch.tensor([(i, j) for i in range(7) for j in range(7) if i != j]).T


@pytest.mark.parametrize("aggregation", ["mean", "sum", "add", "max"])
@pytest.mark.parametrize("attributes", [(0, 0), (2, 0), (0, 3), (2, 3)], ids=str)
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_simplicial_layers(device, aggregation, attributes, flow):
    layer = published.Simplicial.EGCL(A, 4, 6, 4, *attributes, aggr=aggregation, flow=flow)
    layer = trained(layer.double()).to(device)
    for directed in (True, False):
        edges = graph(directed).to(device)
        features = [(7, 4), (edges.shape[1], attributes[0]), (7, attributes[1])]
        h, e, n = (torch.randn(*f, 8, dtype=F64, device=device) if f[1] else None for f in features)
        gt.restore(layer)
        expected = results(layer, h, edges, e, n)
        report = gt.accelerate(layer, verbose=False)
        assert len(report.replaced) == 35 and not report.left
        assert isinstance(layer, published.MessagePassing)
        need_same(results(layer, h, edges, e, n), expected)


def test_layers_that_aggregate_otherwise_are_left():
    class EGCL(published.EGCL):
        def forward(self, h, edge_index, edge_attr=None, node_attr=None):
            rows, cols = edge_index
            message = self.message(h[rows], h[cols], edge_attr)
            best = published.reduced(message, rows, len(h), "max") + published.reduced(message, rows, len(h), "mean")
            return self.update(best, h, node_attr)

    layer = trained(EGCL(A, 4, 6, 4).double())
    h, edges = torch.randn(7, 4, 8, dtype=F64), graph()
    expected = results(layer, h, edges)
    report = gt.accelerate(layer, verbose=False)
    (left,) = report.left
    assert left.path == "" and left.difference > 1e-3 and len(report.replaced) == 34
    need_same(results(layer, h, edges), expected)


def edits():
    class Residual(published.CEMLP):
        def forward(self, x):
            for layer in self.layers:
                x = x + layer(x)
            return x

    class Skip(published.SteerableGeometricProductLayer):
        def forward(self, x):
            return x + super().forward(x)

    class Dropout(published.MVLinear):
        def forward(self, x):
            return nn.functional.dropout(super().forward(x), 0.5, self.training)

    class Remembers(published.MVSiLU):
        def forward(self, x):
            self.last = x
            return super().forward(x)

    class Counts(published.MVLayerNorm):
        def __init__(self, *given):
            super().__init__(*given)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    patched = published.MVLinear(A, 4, 4)
    patched.forward = lambda x: 2 * x
    return {
        "residual": (Residual(A, 4, 4, 4), "output"),
        "skip": (Skip(A, 4), "output"),
        "activation": (Tanh(A, 4), "output"),
        "dropout": (Dropout(A, 4, 4), "output"),
        "memory": (Remembers(A, 4), "attributes: last"),
        "counter": (Counts(A, 4), "buffer calls"),
        "patched": (patched, "patched"),
    }


@pytest.mark.parametrize("name", list(edits()))
def test_edits_are_left_and_told(name):
    module, reason = edits()[name]
    module = trained(module.double())
    state = {key: value.clone() for key, value in module.state_dict().items()}
    random = torch.get_rng_state()
    report = gt.accelerate(module, verbose=False)
    left = {item.path: item.reason for item in report.left}
    assert reason in left[""], left
    assert module.training and torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, state[key]) for key, value in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters()) and not hasattr(module, "last")


def test_subclasses_and_renamed_classes_are_replaced_and_keep_their_names():
    class Fast(published.SteerableGeometricProductLayer):
        def describe(self):
            return f"fast {self.features}"

    class Renamed(nn.Module):
        def __init__(self):
            super().__init__()
            self.__dict__.update(copy.deepcopy(published.MVLinear(A, 4, 4)).__dict__)

        embed = None

        def forward(self, input):
            result = torch.einsum("bm...i,nmi->bn...i", input, self.algebra.by_blade(self.weight))
            return result + self.algebra.embed(self.bias, self.b_dims)

    for module in (Fast(A, 4), Renamed()):
        kind = type(module)
        module = trained(module.double())
        x = torch.randn(5, 4, 8, dtype=F64)
        expected = results(module, x)
        report = gt.accelerate(module, verbose=False)
        assert report.replaced[-1].path == "" and report.replaced[-1].original == kind.__name__
        assert isinstance(module, kind) and type(module).__name__ == kind.__name__
        need_same(results(module, x), expected)
        if kind is Fast:
            assert module.describe() == "fast 4" and module._get_weight().shape[0] == 4
        assert gt.restore(module) > 0 and type(module) is kind
        assert torch.equal(results(module, x)[0], expected[0])


def test_unknown_layers_are_told():
    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.algebra, self.w = A, nn.Parameter(torch.ones(1))

        def forward(self, x):
            return self.w * x

    report = gt.accelerate(nn.Sequential(published.MVLinear(A, 2, 2), Other()), verbose=False)
    assert [(item.path, item.original) for item in report.left] == [("1", "Other")]
    with pytest.raises(gradewise.ArgumentError, match="none of the modules"):
        gt.accelerate(nn.Sequential(nn.Linear(3, 3)), verbose=False)


def test_copies_pickles_and_files(double):
    model = network()
    x = torch.randn(5, 3, 8)
    expected = results(model, x)
    gt.accelerate(model, verbose=False)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    copies = [
        copy.deepcopy(model),
        copy.copy(model),
        pickle.loads(pickle.dumps(model)),
        torch.load(file, weights_only=False),
    ]
    for other in copies:
        assert type(other) is type(model) and isinstance(other, published.CEMLP)
        need_same(results(other, x), expected)
    assert gt.restore(copies[0]) == 18 and type(copies[0]) is published.CEMLP
    need_same(results(copies[0], x), expected, 0.0)
    # Other modules made of an accelerated one's class are published ones.
    assert type(model.layers[0][:2]) is nn.Sequential
    assert type(type(model)(A, 3, 4, 2)) is published.CEMLP
    replica = model._replicate_for_data_parallel()
    assert type(replica) is type(model)


def test_restore_undoes_everything(double):
    model = Somebodys()
    before = {name: (type(m), set(m.__dict__)) for name, m in model.named_modules()}
    gt.accelerate(model, verbose=False)
    assert gt.restore(model) == 10 and gt.restore(model) == 0
    assert {name: (type(m), set(m.__dict__)) for name, m in model.named_modules()} == before
    assert len(gt.accelerate(model, verbose=False).replaced) == 9


class _Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


def _parametrized(module):
    nn.utils.parametrize.register_parametrization(module, "weight", _Doubled())


def _observed(module):
    class Observed(type(module)):
        """Somebody's class over that of the module."""

        calls = 0

        def forward(self, *given):
            self.calls += 1
            return 2 * type(self).__mro__[1].forward(self, *given)

    module.__class__ = Observed


@pytest.mark.parametrize("put_over", [_parametrized, _observed], ids=["a parametrization", "a subclass"])
def test_restore_keeps_what_was_put_over_a_module_meanwhile(double, put_over):
    algebra = published.CliffordAlgebra((1.0, 1.0, 1.0))
    layer = published.MVLinear(algebra, 3, 4, bias=False)
    x = torch.randn(5, 3, 8)
    expected = 2 * layer(x)
    kind = type(layer)
    gt.accelerate(layer, verbose=False)
    put_over(layer)
    over = type(layer).__name__
    assert torch.allclose(layer(x), expected, rtol=1e-12)
    assert gt.restore(layer) == 2 and gt.restore(layer) == 0
    assert torch.allclose(layer(x), expected, rtol=1e-12)
    assert type(layer).__name__ == over and type(layer).__bases__ == (kind,)
    if put_over is _parametrized:
        nn.utils.parametrize.remove_parametrizations(layer, "weight")
        assert type(layer) is kind and torch.allclose(layer(x), expected, rtol=1e-12)


def test_own_modules_have_nothing_left_to_do():
    report = gt.accelerate(cgenn.NBodyCGGNN(), verbose=False)
    assert (
        not report.replaced and not report.left and report.there_before == 107 and "nothing left to do" in str(report)
    )


def test_an_example_that_computes_something_else_restores_the_model():
    class OnlyLarge(published.MVLinear):
        """Computes something else where nobody looks."""

        def forward(self, input):
            return super().forward(input) * (2.0 if input.shape[0] == 11 else 1.0)

    algebra = published.CliffordAlgebra((1.0, 1.0, 1.0))
    model = nn.Sequential(OnlyLarge(algebra, 3, 3), published.MVSiLU(algebra, 3))
    kinds = [type(m) for m in model.modules()]
    for dtype in (F64, torch.float32):
        model = trained(model.to(dtype))
        x = torch.randn(11, 3, 8, dtype=dtype)
        with pytest.raises(gradewise.ArgumentError, match="differs from that before"):
            gt.accelerate(model, verbose=False, example=(x,))
        assert [type(m) for m in model.modules()] == kinds
        report = gt.accelerate(model, verbose=False, example=(x[:5],))
        assert report.difference <= 1e-10 and len(report.replaced) == 2 and "differ by" in str(report)
        gt.restore(model)


def test_hooks_of_all_modules_and_random_numbers_are_left_alone(double):
    calls = []
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, given, result: calls.append(type(module).__name__)
    )
    try:
        model = network()
        x = torch.randn(5, 3, 8)
        expected = model(x)
        count = len(calls)
        torch.manual_seed(3)
        drawn = torch.randn(4)
        torch.manual_seed(3)
        gt.accelerate(model, verbose=False)
        assert torch.equal(torch.randn(4), drawn) and len(calls) == count
        need_same([model(x)], [expected])
        assert calls[count:] == calls[:count], "hooks of all modules see the modules inside"
    finally:
        handle.remove()
    with torch.no_grad():
        assert gt.accelerate(network(), verbose=False).replaced, "also where gradients are off"


class Flattened(nn.Module):
    """Asks for views of what its modules return."""

    def __init__(self):
        super().__init__()
        algebra = published.CliffordAlgebra((1.0, 1.0, 1.0))
        self.parts = nn.ModuleList([trained(published.MVSiLU(algebra, 3)), published.MVLayerNorm(algebra, 3)])

    def forward(self, x):
        for part in self.parts:
            x = part(x).view(len(x), -1).view(len(x), -1, 8)
        return x


def last(x):
    return x.view(len(x), -1)


class Behind(nn.Module):
    """Asks for views in a function elsewhere."""

    def __init__(self):
        super().__init__()
        self.part = trained(published.MVSiLU(published.CliffordAlgebra((1.0, 1.0, 1.0)), 3))

    def forward(self, x):
        return last(self.part(x))


def test_views_of_results(double):
    x = torch.randn(5, 3, 8)
    for model in (Flattened(), nn.Sequential(*Flattened().parts, View())):
        expected = results(model, x)
        gt.accelerate(model, verbose=False)
        need_same(results(model, x), expected)
    model = Behind()
    expected = results(model, x)
    report = gt.accelerate(model, verbose=False, example=(x,))
    assert report.difference <= 1e-10 and len(report.replaced) == 1
    need_same(results(model, x), expected)


class View(nn.Module):
    def forward(self, x):
        return x.view(len(x), -1)


def test_weight_norm_is_seen(double):
    model = network()
    nn.utils.parametrizations.weight_norm(model.layers[0][0], "weight")
    x = torch.randn(5, 3, 8)
    expected = results(model, x)
    left = {item.path: item.reason for item in gt.accelerate(model, verbose=False).left}
    assert "parametrized" in left["layers.0.0"] and set(left) == {"layers.0.0", "layers.0", ""}
    need_same(results(model, x), expected)
    # Afterwards too.
    model = network()
    other = copy.deepcopy(model)
    gt.accelerate(other, verbose=False)
    for m in (model, other):
        nn.utils.parametrizations.weight_norm(m.layers[1][0], "weight")
        m.layers[1][0].parametrizations.weight.original0.data.mul_(1.5)
    need_same(results(other, x), results(model, x))
    nn.utils.parametrize.remove_parametrizations(other.layers[1][0], "weight")
    assert isinstance(other.layers[1][0], published.MVLinear)


def test_a_forward_pass_that_is_patched_afterwards_is_called(double):
    model = network()
    gt.accelerate(model, verbose=False)
    x = torch.randn(5, 3, 8)
    for part in (model.layers[0][1], model.layers[1][2].linear_right, model.layers[1]):
        before = model(x)
        forward = part.forward
        part.forward = lambda given: 2 * forward(given)
        assert not torch.allclose(model(x), before, rtol=1e-3)
        del part.forward
        assert torch.equal(model(x), before)


def optimizers():
    p = lambda kind, **options: lambda parameters: kind(parameters, 1e-2, **options)
    return {
        "Adam": p(torch.optim.Adam),
        "Adam, foreach": p(torch.optim.Adam, foreach=True),
        "Adam, fused": p(torch.optim.Adam, fused=True),
        "AdamW, fused": p(torch.optim.AdamW, fused=True),
        "SGD, fused": p(torch.optim.SGD, momentum=0.9, fused=True),
    }


@pytest.mark.parametrize("name", list(optimizers()))
def test_optimizers_with_a_state_go_on(device, name):
    make = optimizers()[name]
    x = torch.randn(10, 3, 8, dtype=F64, device=device)

    def train(model, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()

    start = network().to(device)
    reference = copy.deepcopy(start)
    optimizer = make(reference.parameters())
    train(reference, optimizer, 3)
    file = io.BytesIO()
    torch.save((reference.state_dict(), optimizer.state_dict()), file)
    train(reference, optimizer, 3)

    def resumed(model, accelerated):
        if accelerated:
            gt.accelerate(model, verbose=False)
        file.seek(0)
        weights, state = torch.load(file)
        model.load_state_dict(weights)
        optimizer = make(model.parameters())
        optimizer.load_state_dict(state)
        train(model, optimizer, 3)
        return model

    midway = copy.deepcopy(start)
    optimizer = make(midway.parameters())
    train(midway, optimizer, 3)
    gt.accelerate(midway, verbose=False)
    train(midway, optimizer, 3)
    models = [
        midway,
        resumed(copy.deepcopy(start), True),
        resumed(cgenn.CEMLP((1.0, 1.0, 1.0), 3, 4, 2).to(device, F64), False),
    ]
    for model in models:
        for a, b in zip(model.parameters(), reference.parameters(), strict=True):
            assert (a - b).abs().max() <= 1e-12


OTHERS = [(-1.0, -1.0, -1.0), (1.0, -1.0, 1.0), (1.0, 1.0, 0.0)]


@pytest.mark.parametrize("metric", OTHERS, ids=str)
def test_weights_of_another_algebra_are_refused(metric):
    own, foreign = cgenn.CEMLP((1.0, 1.0, 1.0), 3, 4, 2).double(), cgenn.CEMLP(metric, 3, 4, 2).double()
    fast = network()
    gt.accelerate(fast, verbose=False)
    if metric == (1.0, 1.0, 0.0):
        # With other paths of grades, PyTorch would refuse the shapes; those that agree are enough.
        own, foreign, fast = own.layers[0][1], foreign.layers[0][1], fast.layers[0][1]
    for model in (own, fast):
        before = [p.clone() for p in model.parameters()]
        for strict in (True, False):
            with pytest.raises(gradewise.CheckpointError, match="another function"):
                model.load_state_dict(foreign.state_dict(), strict=strict)
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before)), "nothing is lost"
        model.load_state_dict(own.state_dict())
        without = {key: value for key, value in own.state_dict().items() if "algebra" not in key}
        model.load_state_dict(without, strict=False)


def test_weights_of_another_algebra_are_followed_by_a_model_accelerated_afterwards():
    """As the published code does, which takes the tables from the checkpoint."""
    source = network(metric=(-1.0, 1.0, 1.0))
    model = network()
    model.load_state_dict(source.state_dict())
    x = torch.randn(5, 3, 8, dtype=F64)
    expected = results(model, x)
    assert not gt.accelerate(model, verbose=False).left
    need_same(results(model, x), expected)
    need_same(results(source, x), expected)


def test_flash_layers_refuse_blades_of_another_algebra():
    layer = flash.Layer(4, 2)
    state = layer.state_dict()
    state["weight_expansion"] = torch.tensor([0, 1, 2, 1])
    with pytest.raises(gradewise.CheckpointError, match="weight_expansion"):
        layer.load_state_dict(state)


def test_autocast_gives_the_published_dtypes(device):
    # Its own: another test's tables may be in float64.
    algebra = published.CliffordAlgebra((1.0, 1.0, 1.0))
    linear, silu, norm = (
        published.MVLinear(algebra, 3, 3),
        published.MVSiLU(algebra, 3),
        published.MVLayerNorm(algebra, 3),
    )
    product = published.SteerableGeometricProductLayer(algebra, 3)
    layer = published.EGCL(algebra, 3, 3, 3)
    x, edges = torch.randn(7, 3, 8, device=device), graph().to(device)
    for model in (linear, silu, norm, product, network(torch.float32), layer):
        model = trained(copy.deepcopy(model)).to(device)
        given = (x, edges) if model._get_name() == "EGCL" else (x,)
        own = copy.deepcopy(model)
        assert not gt.accelerate(own, verbose=False).left
        for kind in (torch.bfloat16, torch.float16):
            with torch.autocast(device, dtype=kind):
                expected, found = model(*given), own(*given)
            assert found.dtype == expected.dtype, model._get_name()
            assert (found.float() - expected.float()).norm() <= 0.1 * expected.float().norm()


def test_calls_that_were_not_compared_are_the_published_ones(double):
    """Axes that the published code takes otherwise, other devices, traces."""
    model = network()
    gt.accelerate(model, verbose=False)
    x = torch.randn(5, 3, 8)
    traced = torch.jit.trace(model, x)
    other = torch.randn(5, 3, 8)
    assert (traced(other) - model(other)).abs().max() <= 1e-12
    norm = trained(published.NormalizationLayer(A, 2).double())
    between = torch.randn(3, 2, 2, 8)
    outcome = lambda m: m(between) if True else None
    try:
        expected = outcome(norm)
    except Exception as error:
        expected = type(error)
    gt.accelerate(norm, verbose=False)
    if isinstance(expected, type):
        with pytest.raises(expected):
            outcome(norm)
    else:
        assert (outcome(norm) - expected).abs().max() <= 1e-12
    with pytest.raises(Exception) as theirs:
        network()(torch.randn(5, 4, 8))
    with pytest.raises((type(theirs.value), gradewise.GradewiseError)):
        model(torch.randn(5, 4, 8))


def test_compiled_models(double):
    for metric in ((1.0, 1.0, 1.0), (-1.0, 1.0, 1.0)):
        model = network(metric=metric)
        x = torch.randn(5, 3, 8)
        expected = results(model, x)
        gt.accelerate(model, verbose=False)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        need_same(results(compiled, x), expected)


def test_embeddings_of_an_accelerated_algebra_are_the_published_ones():
    model = Somebodys()
    other = copy.deepcopy(model)
    gt.accelerate(model, verbose=False)
    fast, slow = model.algebra, other.algebra
    for dtype in (torch.float32, F64, torch.bfloat16, torch.int64):
        x = (10 * torch.randn(2, 5, 3)).to(dtype)
        for where in ((1, 2, 3), [7, 0, 3], torch.tensor([1, 2, 5]), (-1, 0, 1), (1, 1, 2), slice(1, 4)):
            a, b = fast.embed(x, where), slow.embed(x, where)
            assert a.dtype == b.dtype and torch.equal(a, b), (dtype, where)
        for grade in (1, 2):
            a, b = fast.embed_grade(x, grade), slow.embed_grade(x, grade)
            assert a.dtype == b.dtype and torch.equal(a, b), (dtype, grade)
    assert torch.equal(fast.embed(x[..., :1], (1, 2)), slow.embed(x[..., :1], (1, 2))), (
        "one component for several blades"
    )

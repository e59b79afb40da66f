"""Networks whose layers of message passing run as one node of PyTorch's graph of gradients: bit for bit what the layers compute one by one,
proven for somebody's network by what its own method computes, and undone wherever something follows the modules inside."""

import copy
import functools
import pickle

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import gradewise.torch as gt
import published
from gradewise.torch import _composite, _operators, cgenn

F64 = torch.float64
ALGEBRA = published.CliffordAlgebra((1.0, 1.0, 1.0))


class Charged(nn.Module):
    """As the published network for charged particles."""

    def __init__(self, layers=2, residual=True, metric=(1.0, 1.0, 1.0)):
        super().__init__()
        self.algebra = published.CliffordAlgebra(metric)
        self.embedding = published.MVLinear(self.algebra, 2, 4, subspaces=False)
        self.projection = nn.Sequential(published.MVLinear(self.algebra, 4, 1))
        sizes = (4, 5, 4, 1)
        made = [published.EGCL(self.algebra, *sizes, residual=residual) for _ in range(layers)]
        self.layers = nn.Sequential(*made)

    def _forward(self, h, edges, edge_attr):
        h = self.embedding(h)
        for layer in self.layers:
            h = layer(h, edges, edge_attr=edge_attr)
        return self.projection(h)

    def forward(self, h, edges, edge_attr=None, node_attr=None):
        return self._forward(h, edges, edge_attr)


class Simplices(nn.Module):
    """As the published network for hulls: no map before the layers, attributes of both kinds in another order."""

    def __init__(self):
        super().__init__()
        self.projection = published.MVLinear(ALGEBRA, 4, 2, bias=False)
        self.layers = nn.ModuleList(published.Simplicial.EGCL(ALGEBRA, 4, 5, 4, 1, 2) for _ in range(3))

    def _forward(self, h, edges, node_attr=None, edge_attr=None):
        for layer in self.layers:
            h = layer(h, edges, node_attr=node_attr, edge_attr=edge_attr)
        return self.projection(h)

    def forward(self, h, edges, edge_attr=None, node_attr=None):
        return self._forward(h, edges, node_attr, edge_attr=edge_attr)


def trained(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return module


def arguments(device="cpu", dtype=F64, features=2, attributes=(1, 0)):
    torch.manual_seed(3)
    edges = torch.tensor([[0, 0, 1, 2, 2, 2, 4], [1, 2, 0, 2, 1, 1, 0]], device=device)
    sizes = (5, features), (7, attributes[0]), (5, attributes[1])
    h, *others = (
        torch.randn(*size, 8, device=device, dtype=dtype, requires_grad=True) if size[1] else None for size in sizes
    )
    return h, (edges[0], edges[1]), *others


def three_layers():
    return Charged(3)


def five_layers():
    return Charged(5, residual=False)


NETWORKS = {
    "charged": (Charged, {}),
    "no residual, five layers": (five_layers, {}),
    "simplices": (Simplices, {"features": 4, "attributes": (1, 2)}),
}


@pytest.fixture
def nodes(monkeypatch):
    """The composites that ran, one entry for each call."""
    seen = []
    run = _composite.run

    def count(made, *rest):
        seen.append(made)
        return run(made, *rest)

    for module, name in ((_composite, "run"), (_operators, "run_composite")):
        monkeypatch.setattr(module, name, count)
    return seen


def results(network, given):
    output = network(*given)
    wanted = [x for x in given if isinstance(x, torch.Tensor)] + list(network.parameters())
    return [output, *torch.autograd.grad(output.square().sum(), wanted, allow_unused=True)]


def layer_by_layer(network, call):
    """The call with a hook on a layer, which keeps layers apart."""
    handle = network.layers[0].register_forward_hook(lambda *_: None)
    try:
        return call()
    finally:
        handle.remove()


def are_same(found, expected):
    return all(
        (a is None) == (b is None) and (a is None or torch.equal(a, b)) for a, b in zip(found, expected, strict=True)
    )


@functools.lru_cache
def proven(make):
    torch.manual_seed(7)
    network = trained(make()).double()
    report = gt.accelerate(network, verbose=False)
    (joined,) = report.joined
    assert not joined.reason and joined.path == "" and joined.layers == len(network.layers), report
    assert f"{joined.layers} layers of message passing run as one" in str(report)
    return network


def accelerated(make, device="cpu", dtype=F64):
    """A copy of a network that was compared once."""
    return copy.deepcopy(proven(make)).to(device, dtype)


@pytest.mark.parametrize("dtype", [F64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_one_node_has_the_bits_of_the_layers(device, nodes, name, dtype):
    make, sizes = NETWORKS[name]
    network, given = accelerated(make, device, dtype), arguments(device, dtype, **sizes)
    nodes.clear()
    expected = layer_by_layer(network, lambda: results(network, given))
    assert len(nodes) == len(network.layers) + (2 if hasattr(network, "embedding") else 1)
    nodes.clear()
    found = results(network, given)
    assert len(nodes) == 1 and are_same(found, expected)
    with torch.no_grad():
        assert torch.equal(network(*given), found[0])


@pytest.mark.parametrize("name", NETWORKS)
def test_one_node_computes_what_the_published_network_does(device, name):
    make, sizes = NETWORKS[name]
    network, given = accelerated(make, device), arguments(device, **sizes)
    found = results(network, given)
    assert gt.restore(network) > 20 and type(network)._forward in (Charged._forward, Simplices._forward)
    for a, b in zip(found, results(network, given), strict=True):
        assert (a is None and b is None) or (a - b).norm() <= 1e-10 * (b.norm() + 1e-12)


def test_own_networks(device, nodes):
    network = trained(cgenn.NBodyCGGNN(hidden_features=6, n_layers=3)).to(device)
    loc, vel = torch.randn(2, 3, 5, 3, device=device)
    pairs = [(i, j) for i in range(5) for j in range(5) if i != j]
    edges = torch.tensor(pairs, device=device).T.repeat(3, 1, 1)
    batch = (loc, vel, torch.randn(3, 20, 1, device=device), torch.randn(3, 5, 1, device=device), loc + vel, edges)

    def step():
        loss = network(batch, 0)[0]
        return [loss, *torch.autograd.grad(loss, list(network.parameters()))]

    expected = layer_by_layer(network, step)
    nodes.clear()
    assert are_same(step(), expected) and len(nodes) == 1
    assert not gt.accelerate(network, verbose=False).joined, "there is nothing to do"


def edits():
    class Residual(Charged):
        def _forward(self, h, edges, edge_attr):
            first = h = self.embedding(h)
            for layer in self.layers:
                h = layer(h, edges, edge_attr=edge_attr)
            return self.projection(h + first)

    class Reversed(Charged):
        def _forward(self, h, edges, edge_attr):
            h = self.embedding(h)
            for layer in reversed(self.layers):
                h = layer(h, edges, edge_attr=edge_attr)
            return self.projection(h)

    class Short(Charged):
        def _forward(self, h, edges, edge_attr):
            return self.projection(self.layers[0](self.embedding(h), edges, edge_attr))

    class Turned(Charged):
        def _forward(self, h, edges, edge_attr):
            h = self.embedding(h)
            for layer in self.layers:
                h = layer(h, edges[::-1], edge_attr=edge_attr)
            return self.projection(h)

    class Scaled(Charged):
        def _forward(self, h, edges, edge_attr):
            return 2 * super()._forward(h, edges, edge_attr)

    class Trains(Charged):
        def _forward(self, h, edges, edge_attr):
            result = super()._forward(h, edges, edge_attr)
            return 2 * result if self.training else result

    class Remembers(Charged):
        def _forward(self, h, edges, edge_attr):
            self.last = self.embedding(h)
            return super()._forward(h, edges, edge_attr)

    class Detached(Charged):
        def _forward(self, h, edges, edge_attr):
            return super()._forward(h.detach(), edges, edge_attr)

    return [Residual, Reversed, Short, Turned, Scaled, Trains, Remembers, Detached]


@pytest.mark.parametrize("edited", edits(), ids=lambda edited: edited.__name__)
def test_a_method_that_computes_something_else_runs_its_own_code(edited):
    network, given = trained(edited().double()), arguments()
    expected = results(network, given)
    report = gt.accelerate(network, verbose=False)
    (joined,) = report.joined
    assert joined.reason and "one by one" in str(report) and len(report.replaced) > 20
    assert type(network) is edited
    for a, b in zip(results(network, given), expected, strict=True):
        assert (a is None and b is None) or (a - b).norm() <= 1e-10 * (b.norm() + 1e-12)


def test_a_fork_that_keeps_a_layer_runs_one_by_one():
    class EGCL(published.EGCL):
        def update(self, h_agg, h, node_attr=None):
            return 0.5 * super().update(h_agg, h, node_attr)

    network = trained(Charged().double())
    network.layers[1] = trained(EGCL(ALGEBRA, 4, 5, 4, 1).double())
    report = gt.accelerate(network, verbose=False)
    assert not report.joined and report.left


@pytest.mark.parametrize(
    "inner",
    ["embedding", "layers.1", "layers.0.edge_model", "layers.1.node_model.layers.0.2.linear_left", "projection"],
)
def test_hooks_of_inner_modules_are_called(nodes, inner):
    network, given = accelerated(Charged), arguments()
    expected = results(network, given)
    calls = []
    handle = network.get_submodule(inner).register_forward_hook(lambda module, inputs, output: calls.append(module))
    assert are_same(results(network, given), expected) or inner.count(".") > 1
    assert len(calls) == 1
    handle.remove()
    doubled = network.get_submodule(inner).register_forward_hook(lambda module, inputs, output: 2 * output)
    assert not torch.allclose(network(*given), expected[0])
    doubled.remove()
    nodes.clear()
    assert are_same(results(network, given), expected) and len(nodes) == 1


def test_other_code_around_it(nodes):
    network, given = accelerated(Charged), arguments()
    expected = network(*given)
    nodes.clear()
    again = checkpoint(network, *given, use_reentrant=False)
    assert (again - expected).norm() <= 1e-12 * expected.norm() and not nodes
    seen = []
    with nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module).__name__)):
        network(*given)
    assert seen.count("EGCL") == 2 and seen.count("CEMLP") == 4
    weights = {name: 2 * p.detach() for name, p in network.named_parameters()}
    other = torch.func.functional_call(network, weights, given)
    network.load_state_dict(weights, strict=False)
    assert torch.equal(network(*given), other) and not torch.allclose(other, expected)
    batched = torch.func.vmap(lambda h: network(h, *given[1:]))(torch.stack([given[0].detach()] * 2))
    assert (batched[1] - other).norm() <= 1e-12 * other.norm()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        short = network(*given)
    assert (short - other).norm() <= 0.1 * other.norm()


@pytest.mark.parametrize(
    "make", [Charged, lambda: cgenn.NBodyCGGNN(1, 4, 1, 1, n_layers=1)], ids=["accelerated", "own"]
)
def test_compilers_see_the_modules(nodes, make):
    network = accelerated(make) if make is Charged else make().double()
    h, edges, edge_attr, _ = arguments(features=2 if make is Charged else 1)
    expected = layer_by_layer(network, lambda: network._forward(h, edges, edge_attr))
    torch._dynamo.reset()
    nodes.clear()
    compiled = torch.compile(network._forward, backend="eager", fullgraph=True)(h, edges, edge_attr)
    assert (compiled - expected).norm() <= 1e-12 * expected.norm() and not nodes


def test_what_was_not_compared_runs_the_published_method(nodes):
    network, given = accelerated(three_layers), arguments()
    nodes.clear()
    network(*given)
    assert len(nodes) == 1
    with pytest.raises(TypeError, match="_forward"):
        network._forward(*given[:3], None)
    with pytest.raises(TypeError, match="_forward"):
        network._forward(given[0], given[1], h=given[0], edge_attr=given[2])
    with pytest.raises(TypeError, match="edge_attr"):
        network._forward(*given[:2])
    nodes.clear()
    assert torch.equal(network._forward(edge_attr=given[2], edges=given[1], h=given[0]), network(*given))
    assert len(nodes) == 2, "arguments by name"

    for name, change in {
        "a layer less": lambda n: n.layers.pop(2),
        "another module before": lambda n: setattr(n, "embedding", nn.Sequential(n.embedding)),
        "a bias that is parametrised": lambda n: nn.utils.parametrize.register_parametrization(
            n.embedding, "bias", nn.Softplus()
        ),
        "a published layer": lambda n: gt.restore(n.layers[1]),
    }.items():
        network = accelerated(three_layers)
        change(network)
        expected = layer_by_layer(network, lambda: results(network, given))
        nodes.clear()
        found = results(network, given)
        assert len(nodes) > 1 and are_same(found, expected), name


def test_derivatives_to_second_order(nodes):
    network = accelerated(Charged)
    h, ends, edge_attr, _ = arguments()
    chosen = ["embedding.weight", "embedding.bias", "layers.0.edge_model.layers.1.0.weight", "projection.0.weight"]
    weights = {name: p.detach().clone().requires_grad_() for name, p in network.named_parameters()}

    def energy(h, edge_attr, *given):
        return torch.func.functional_call(network, {**weights, **dict(zip(chosen, given))}, (h, ends, edge_attr))

    nodes.clear()
    network(h, ends, edge_attr)
    (one,) = nodes
    inputs = (h, edge_attr, *(weights[name] for name in chosen))
    assert torch.autograd.gradcheck(energy, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(energy, inputs, fast_mode=True)
    assert nodes.count(one) > 2


def test_copies_and_pickles(nodes):
    network, given = accelerated(Charged), arguments()
    expected = network(*given)
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        nodes.clear()
        assert torch.equal(other(*given), expected) and len(nodes) == 1
        assert isinstance(other, Charged) and gt.restore(other) == gt.restore(copy.deepcopy(network))


def test_an_example_that_differs_takes_everything_back():
    class OnlyLarge(Charged):
        def _forward(self, h, edges, edge_attr):
            result = super()._forward(h, edges, edge_attr)
            return 2 * result if len(h) > 100 else result

    network = trained(OnlyLarge().double())
    h = torch.randn(200, 2, 8, dtype=F64)
    edges = torch.randint(0, 200, (2, 30))
    example = (h, (edges[0], edges[1]), torch.randn(30, 1, 8, dtype=F64))
    with pytest.raises(gt._accelerate.ArgumentError, match="example"):
        gt.accelerate(network, verbose=False, example=example)
    assert type(network) is OnlyLarge and gt.restore(network) == 0


def test_memory_is_that_of_the_layers():
    """The greatest number of bytes that PyTorch's allocator had out at once, in a forward pass alone and in both passes."""
    network = accelerated(five_layers, dtype=torch.float32)
    count = 2000
    h, edge_attr = torch.randn(count, 2, 8), torch.randn(4 * count, 1, 8)
    edges = torch.randint(0, count, (2, 4 * count))

    def peak(call):
        call()
        with torch.profiler.profile(profile_memory=True) as profile:
            call()
        events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
        out, greatest = 0, 0
        for event in sorted(events, key=lambda e: e.start_ns()):
            out += event.nbytes()
            greatest = max(greatest, out)
        assert greatest > 1e6
        return greatest

    def forward():
        with torch.no_grad():
            network(h, (edges[0], edges[1]), edge_attr)

    def both():
        network(h, (edges[0], edges[1]), edge_attr).square().sum().backward()
        network.zero_grad()

    for call in (forward, both):
        assert peak(call) <= 1.02 * layer_by_layer(network, lambda: peak(call)), call.__name__

"""Layers that run as one node of PyTorch's graph of gradients: equal to their modules one by one, and followed where somebody looks on."""

import copy
import json
import pickle
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import gradewise
from gradewise.torch import _composite, cgenn

F64 = torch.float64
METRIC = (1.0, 1.0, 1.0)


def trained(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return module


@pytest.fixture
def nodes(monkeypatch):
    """The operators that composites had, one entry for each call."""
    seen = []
    run = _composite.run

    def count(made, *rest):
        seen.append(made)
        return run(made, *rest)

    monkeypatch.setattr(_composite, "run", count)
    return seen


def one_by_one(call):
    """The call with operators that PyTorch follows."""
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        return call()


def layer(device, dtype=F64, attributes=2, node_attributes=0, residual=True, metric=METRIC):
    """A layer, and arguments for it: a node that receives nothing, one that sends to itself, an edge that occurs twice."""
    made = cgenn.EGCL(metric, 3, 4, 3, attributes, residual=residual)
    if node_attributes:
        made.node_model = cgenn.CEMLP(metric, 6 + node_attributes, 4, 3)
    made = trained(made.to(device, dtype))
    blades = 2 ** len(metric)

    def features(rows, count):
        return torch.randn(rows, count, blades, device=device, dtype=dtype, requires_grad=True) if count else None

    rows = torch.tensor([0, 0, 1, 2, 2, 2, 4], device=device)
    columns = torch.tensor([1, 2, 0, 2, 1, 1, 0], device=device)
    return made, features(5, 3), (rows, columns), features(7, attributes), features(5, node_attributes)


def gradients(made, *arguments):
    output = made(*arguments)
    inputs = [x for x in arguments if isinstance(x, torch.Tensor)] + list(made.parameters())
    return [output, *torch.autograd.grad(output.square().sum(), inputs)]


@pytest.mark.parametrize("attributes,node_attributes,residual", [(2, 0, True), (0, 0, False), (1, 2, True)])
def test_a_layer_as_one_is_the_layer_by_its_parts(device, nodes, attributes, node_attributes, residual):
    made, *arguments = layer(device, F64, attributes, node_attributes, residual)
    expected = one_by_one(lambda: gradients(made, *arguments))
    assert not nodes
    found = gradients(made, *arguments)
    assert len(nodes) == 1
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape and (a - b).norm() <= 1e-12 * b.norm()
    with torch.no_grad():
        assert torch.equal(made(*arguments), found[0])


@pytest.mark.parametrize("metric", [METRIC, (1.0, -1.0, -1.0, -1.0), (1.0, 0.0)], ids=str)
def test_networks_as_one_are_their_blocks(device, nodes, metric):
    network = trained(cgenn.CEMLP(metric, 3, 4, 2, n_layers=3).to(device, F64))
    for rows in (0, 1, 7):
        x = torch.randn(rows, 3, 2 ** len(metric), device=device, dtype=F64, requires_grad=True)
        expected = one_by_one(lambda: gradients(network, x))
        found = gradients(network, x)
        for a, b in zip(found, expected, strict=True):
            assert a.shape == b.shape and (a - b).norm() <= 1e-12 * b.norm()
    assert len(nodes) == 3


def test_graphs_without_edges(device):
    made, h, (rows, columns), edge_attr, _ = layer(device)
    none = rows[:0]
    output = made(h, (none, none), edge_attr[:0])
    mean = torch.zeros_like(h)
    assert (output - h - made.node_model(torch.cat([h, mean], dim=1))).norm() <= 1e-12 * output.norm()
    for gradient in torch.autograd.grad(output.sum(), [h, *made.parameters()], allow_unused=True):
        assert gradient is None or gradient.isfinite().all()


def test_derivatives_to_second_order(device, nodes):
    made, h, ends, edge_attr, _ = layer(device)
    weights = {name: p.detach().clone().requires_grad_() for name, p in made.named_parameters()}
    chosen = [name for name in weights if name.endswith(("0.weight", "linear_left.bias", "3.a", "1.b"))]

    def energy(h, edge_attr, *given):
        return torch.func.functional_call(made, {**weights, **dict(zip(chosen, given))}, (h, ends, edge_attr))

    inputs = (h, edge_attr, *(weights[name] for name in chosen))
    assert torch.autograd.gradcheck(energy, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(energy, inputs, fast_mode=True)
    assert nodes


def test_an_input_that_was_computed_from_another(device):
    """The gradient of each is that with the others held."""
    made, h, ends, _, _ = layer(device, attributes=3)
    rows, columns = ends

    def force(follow):
        edge_attr = h[rows] * h[columns]
        output = follow(lambda: made(h, ends, edge_attr))
        (slope,) = torch.autograd.grad(output.square().sum(), h, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), [h, *made.parameters()])

    for a, b in zip(force(lambda call: call()), force(one_by_one), strict=True):
        assert (a - b).norm() <= 1e-10 * b.norm()


@pytest.mark.parametrize("inner", ["edge_model", "edge_model.layers.0", "node_model.layers.1.2.linear_right"])
def test_hooks_of_inner_modules_are_called(device, nodes, inner):
    made, *arguments = layer(device)
    expected = gradients(made, *arguments)
    count = len(nodes)
    calls = []
    module = made.get_submodule(inner)
    handle = module.register_forward_hook(lambda module, inputs, output: calls.append(output.shape))
    found = gradients(made, *arguments)
    assert len(calls) == 1 and len(calls[0]) == 3, "features, as its callers see them"
    for a, b in zip(found, expected, strict=True):
        assert (a - b).norm() <= 1e-11 * b.norm()
    doubled = module.register_forward_hook(lambda module, inputs, output: 2 * output)
    assert not torch.allclose(made(*arguments), expected[0])
    doubled.remove()
    handle.remove()
    nodes.clear()
    assert torch.equal(made(*arguments), expected[0]) and len(nodes) == 1 and count >= 1


def test_parameters_that_are_replaced_or_frozen(device):
    made, *arguments = layer(device)
    before = made(*arguments)
    weight = made.edge_model.layers[0][0].weight
    made.edge_model.layers[0][0].weight = nn.Parameter(2 * weight.detach())
    assert not torch.allclose(made(*arguments), before)
    expected = one_by_one(lambda: made(*arguments))
    assert (made(*arguments) - expected).norm() <= 1e-12 * expected.norm()
    made.edge_model.requires_grad_(False)
    made(*arguments).sum().backward()
    assert all(p.grad is None for p in made.edge_model.parameters())
    assert all(p.grad is not None for p in made.node_model.parameters())


def test_gradients_lie_as_parameters_and_apart(device):
    """An optimiser may change each in place."""
    made, *arguments = layer(device)
    made(*arguments).sum().backward()
    taken = []
    for parameter in made.parameters():
        assert parameter.grad.stride() == parameter.stride() or 1 in parameter.shape
        start = parameter.grad.data_ptr()
        taken.append((start, start + parameter.grad.numel() * parameter.grad.element_size()))
    taken.sort()
    assert all(end <= start for (_, end), (start, _) in zip(taken, taken[1:]))
    before = [p.grad.clone() for p in made.parameters()]
    first, *others = (p.grad for p in made.parameters())
    first.mul_(3.0)
    assert all(torch.equal(a, b) for a, b in zip(others, before[1:]))


def test_a_second_pass_backward(device):
    made, h, *rest = layer(device)
    output = made(h, *rest).square().sum()
    (first,) = torch.autograd.grad(output, h, retain_graph=True)
    (second,) = torch.autograd.grad(output, h)
    assert torch.equal(first, second)
    with pytest.raises(RuntimeError, match="second time|already been freed"):
        torch.autograd.grad(output, h)


def test_changes_in_place_are_noticed(device):
    made, h, *rest = layer(device)
    for change in (made.node_model.layers[0][0].bias, None):
        output = made(h, *rest)
        loss = output.square().sum()
        with torch.no_grad():
            (output if change is None else change).add_(1.0)
        with pytest.raises(RuntimeError, match="inplace|in-place"):
            loss.backward()


def test_parameters_whose_memory_moves_are_read_again(device):
    """FSDP2 frees the memory of parameters between the passes, and PyTorch's count of changes does not see it."""
    made, *arguments = layer(device)
    _, *expected = gradients(made, *arguments)
    result = made(*arguments)
    others, kept = [], []
    for parameter in made.parameters():
        values, storage = parameter.detach().clone(), parameter.untyped_storage()
        size, place = storage.size(), parameter.data_ptr()
        with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(parameter):
            storage.resize_(0)
            # What is freed is taken by others, and overwritten.
            kept += [torch.full_like(values, torch.nan) for _ in range(4)]
            storage.resize_(size)
            parameter.copy_(values)
        others.append(parameter.data_ptr() != place)
    assert any(others)
    inputs = [x for x in arguments if isinstance(x, torch.Tensor)] + list(made.parameters())
    found = torch.autograd.grad(result.square().sum(), inputs)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert kept


def test_edges_are_read_again_when_they_change(device):
    made, h, (rows, columns), edge_attr, _ = layer(device)
    first = made(h, (rows, columns), edge_attr)
    assert torch.equal(first, made(h, (rows, columns), edge_attr))
    rows[0] = 3
    expected = one_by_one(lambda: made(h, (rows, columns), edge_attr))
    found = made(h, (rows, columns), edge_attr)
    assert (found - expected).norm() <= 1e-12 * expected.norm() and not torch.allclose(found, first)


def test_edges_beyond_the_nodes_are_refused():
    made, h, (rows, columns), edge_attr, _ = layer("cpu")
    for wrong in (5, -1):
        rows[2] = wrong
        with pytest.raises((gradewise.ArgumentError, IndexError), match="5|-1|range|bound"):
            made(h, (rows, columns), edge_attr)


def test_other_code_around_it(device, nodes):
    """Checkpoints and autocast get operators that they can follow."""
    made, *arguments = layer(device, torch.float32)
    expected = made(*arguments)
    nodes.clear()
    again = checkpoint(made, *arguments, use_reentrant=False)
    assert (again - expected).norm() <= 1e-5 * expected.norm() and not nodes
    again.sum().backward()
    with torch.autocast(device, dtype=torch.bfloat16):
        short = made(*arguments)
    assert (short.float() - expected).norm() <= 0.1 * expected.norm() and not nodes


def test_copies_and_pickles(device):
    made, *arguments = layer(device)
    expected = made(*arguments)
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.equal(other(*arguments), expected)
        other.eval()
        assert torch.equal(other(*arguments), expected)


def test_threads(device):
    results = {}

    def work(seed):
        torch.manual_seed(seed)
        made, *arguments = layer(device)
        expected = one_by_one(lambda: gradients(made, *arguments))
        for _ in range(10):
            found = gradients(made, *arguments)
            worst = max(((a - b).norm() / (b.norm() + 1e-30)).item() for a, b in zip(found, expected))
            results[seed] = max(worst, results.get(seed, 0.0))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and max(results.values()) < 1e-11


def test_the_history_goes_with_the_backward_pass():
    """Not with the loss, which a loop keeps until its next step."""
    network = cgenn.CEMLP(METRIC, 8, 16, 8, n_layers=4)
    x = torch.randn(4000, 8, 8)

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    losses = []
    for step in range(12):
        losses.append(network(x).square().mean())
        losses[-1].backward()
        if step == 3:
            before = resident()
    # A history holds some 100 MB.
    assert resident() - before < 150e6


@pytest.mark.parametrize("given", [(0, 1, 2), (0, 2)])
def test_groups_of_heads_take_gradients_as_they_lie(device, given):
    """Queries, keys and values are results of one node, whose gradients come one by one, or not at all, in the strides of an attention."""
    groups, channels, scalars, heads, batch, items = 3, 2, 3, 2, 2, 5
    lines, rows = groups * heads * (4 * channels + scalars), batch * items
    sizes = {"groups": groups, "channels": channels, "scalars": scalars, "heads": heads, "batch": batch, "items": items}
    planes = {"algebra": "1,3,0", "order": [1, 2, 3, 4], "query": 0, "epsilon": None, "gain": 1.0}
    steps = [
        ("reshape", json.dumps({"shape": [lines, rows]}), [0]),
        ("split_heads", json.dumps(planes | sizes), [1]),
    ]

    def ordinary(inputs, _):
        x = inputs[0].view(lines, rows)
        first = groups * scalars * heads
        s = x[:first].view(groups, scalars, heads, batch, items).permute(0, 3, 2, 4, 1)
        v = x[first:].view(4, groups, channels, heads, batch, items).permute(1, 4, 3, 5, 0, 2)
        signs = torch.ones(groups, 1, 1, 1, 4, 1, device=x.device, dtype=x.dtype)
        signs[0, ..., 1:, :] = -1
        return torch.cat(((v * signs).flatten(-2), s), -1)

    made = _composite.composite(steps, ["same"], "same", ordinary, groups=True)
    x = torch.randn(lines * rows, device=device, dtype=F64, requires_grad=True)
    found, expected = _composite.run(made, [x]), ordinary([x], None).unbind(0)
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b)
    # As an attention leaves them: items outside of heads.
    by_items = torch.randn(groups, batch, items, heads, 4 * channels + scalars, device=device, dtype=F64).transpose(2, 3)
    for create_graph in (False, True):
        gradients = [
            torch.autograd.grad([results[g] for g in given], x, [by_items[g] for g in given], True, create_graph)[0]
            for results in (found, expected)
        ]
        torch.testing.assert_close(*gradients)
    with torch.no_grad():
        torch.testing.assert_close(_composite.run(made, [x]), expected)

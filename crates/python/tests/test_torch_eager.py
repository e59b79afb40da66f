"""What eager calls read of tensors and modules before they run: what stands in a tensor's or a parameter's place is seen there, too."""

import numpy as np
import pytest
import torch
from torch.nn.utils import parametrize

import gradewise
import gradewise.torch as gt
from gradewise.torch import cgenn, flash
from gradewise.torch._operators import apply
from golden import deviation
from test_torch_operators import every, samples

F64 = torch.float64
SIGNATURE = (3, 0, 0)


def product(x, y):
    return gt.geometric_product(x, y, SIGNATURE)


def test_tensors_that_a_transformation_left_behind(device):
    """They are ordinary tensors to whoever looks at their class, and have no memory of their own."""
    left = []

    def energy(x):
        left.append(x)
        return x.square().sum()

    x = torch.randn(8, 3, 2, device=device, dtype=F64)
    torch.func.grad(energy)(x)
    (wrapper,) = left
    assert torch._C._functorch.is_functorch_wrapped_tensor(wrapper)
    y = torch.randn(8, 3, 2, device=device, dtype=F64, requires_grad=True)
    for inputs in ((wrapper, y), (y, wrapper)):
        expected = product(*(x if part is wrapper else part for part in inputs))
        found = product(*inputs)
        assert torch.equal(found, expected)
        (gradient,) = torch.autograd.grad(found.sum(), y)
        assert torch.equal(gradient, torch.autograd.grad(expected.sum(), y)[0])
    with torch.no_grad():
        assert torch.equal(product(wrapper, y), product(x, y))


class Doubled(torch.nn.Module):
    def forward(self, weight):
        return 2 * weight


@pytest.mark.parametrize("name", ["linear_weight", "gp_weight", "linear_bias"])
def test_parametrisations_stand_in_a_parameters_place(device, name):
    layer = flash.Layer(4, 3).to(device, F64)
    with torch.no_grad():
        layer.linear_bias.normal_()
    x = torch.randn(8, 5, 4, device=device, dtype=F64)
    other = flash.Layer(4, 3).to(device, F64)
    other.load_state_dict(layer.state_dict())
    with torch.no_grad():
        getattr(other, name).mul_(2)
    parametrize.register_parametrization(layer, name, Doubled())
    assert torch.equal(layer(x), other(x))
    layer(x).square().sum().backward()
    other(x).square().sum().backward()
    gradient = layer.parametrizations[name].original.grad
    assert (gradient - 2 * getattr(other, name).grad).norm() <= 1e-12 * gradient.norm()


def test_parameters_given_for_one_call(device):
    layer = flash.Layer(4, 3).to(device, F64)
    x = torch.randn(8, 5, 4, device=device, dtype=F64)
    given = {name: torch.randn_like(p).requires_grad_() for name, p in layer.named_parameters()}
    found = torch.func.functional_call(layer, given, (x,))
    other = flash.Layer(4, 3).to(device, F64)
    other.load_state_dict(given, strict=False)
    assert torch.equal(found, other(x)) and not torch.equal(found, layer(x))
    assert all(g.norm() > 0 for g in torch.autograd.grad(found.square().sum(), list(given.values())))


def test_autocast_on_another_device_leaves_tensors_as_they_are(device):
    """Autocast is looked for on all devices at first, and then on that of the tensors."""
    x = torch.randn(8, 3, 2, device=device)
    other = "cpu" if device == "cuda" else "cuda"
    with torch.autocast(device, dtype=torch.bfloat16):
        assert product(x, x).dtype == torch.bfloat16
    torch.set_autocast_enabled(other, True)
    try:
        assert product(x, x).dtype == torch.float32
    finally:
        torch.set_autocast_enabled(other, False)


def test_dtypes_that_differ_are_refused(device):
    x = torch.randn(8, 3, 2, device=device, requires_grad=True)
    with pytest.raises(gradewise.DTypeError, match="input 1 has dtype torch.float64, and input 0 has torch.float32"):
        product(x, x.double())


def test_gradients_where_none_is_wanted(device):
    """Neither frozen inputs nor gradients that are switched off make a history."""
    layer = flash.Layer(4, 3).to(device, F64)
    x = torch.randn(8, 5, 4, device=device, dtype=F64)
    with torch.no_grad():
        assert layer(x).grad_fn is None
    first = layer(x)
    assert first.grad_fn is not None
    layer.requires_grad_(False)
    assert layer(x).grad_fn is None and torch.equal(layer(x), first)
    x.requires_grad_()
    assert torch.autograd.grad(layer(x).sum(), x)[0].shape == x.shape


class TestMemoryThatChanges:
    """What other code writes where, between calls and between passes."""

    @staticmethod
    def network():
        torch.manual_seed(0)
        return cgenn.EGCL((1.0, 1.0, 1.0), 2, 3, 2).double()

    @pytest.mark.parametrize("change", ["numpy", "data", "in place", "another tensor"])
    def test_edges_are_those_of_the_call(self, change):
        network = self.network()
        h = torch.randn(6, 2, 8, dtype=torch.float64)
        buffer = np.array([[0, 1, 2, 3], [3, 4, 5, 0]])
        edges = torch.from_numpy(buffer)
        rows, columns = edges[0], edges[1]
        network(h, (rows, columns))
        if change == "numpy":
            buffer[0] = [5, 4, 3, 2]
        elif change == "data":
            rows.data.copy_(torch.tensor([5, 4, 3, 2]))
        elif change == "in place":
            rows.copy_(torch.tensor([5, 4, 3, 2]))
        else:
            rows = torch.tensor([5, 4, 3, 2])
        found = network(h, (rows, columns))
        expected = self.network()(h, (torch.tensor([5, 4, 3, 2]), torch.tensor([3, 4, 5, 0])))
        assert torch.equal(found, expected)

    def test_inference_mode(self, device):
        network = self.network().to(device)
        with torch.inference_mode():
            edges = torch.tensor([[0, 1, 2], [1, 2, 0]], device=device)
            h = torch.randn(3, 2, 8, dtype=torch.float64, device=device)
            first = network(h, edges)
            edges[0, 0] = 2
            second = network(h, edges)
        expected = network(h.clone(), torch.tensor([[2, 1, 2], [1, 2, 0]], device=device))
        assert torch.equal(second, expected) and not torch.equal(first, second)

    @pytest.mark.parametrize(
        "name", ["CEMLP", "EGCL", "MVLinear", "MVSiLU", "MVLayerNorm", "SteerableGeometricProductLayer"]
    )
    @pytest.mark.parametrize("create_graph", [False, True])
    def test_an_output_may_be_changed_in_place(self, device, name, create_graph):
        metric, edges = (1.0, 1.0, 1.0), torch.tensor([[0, 1, 2], [1, 2, 0]], device=device)
        torch.manual_seed(0)
        arguments = {"CEMLP": (2, 3, 2), "EGCL": (2, 3, 2), "MVLinear": (2, 2)}.get(name, (2,))
        module = getattr(cgenn, name)(metric, *arguments).double().to(device)
        x = torch.randn(3, 2, 8, dtype=torch.float64, device=device, requires_grad=True)
        results = []
        for in_place in (False, True):
            h = module(x, edges) if name == "EGCL" else module(x)
            if in_place:
                h += x
            else:
                h = h + x
            (g,) = torch.autograd.grad(h.square().sum(), x, create_graph=create_graph)
            results.append(g if not create_graph else torch.autograd.grad(g.square().sum(), x)[0])
        assert deviation(results[1].cpu(), results[0].cpu()) < 1e-13

    def test_an_output_that_is_read_must_not_be(self):
        x = torch.randn(8, 3, 2, dtype=torch.float64, requires_grad=True)
        y = gt.sgp(x, x, torch.ones(2, 20, dtype=torch.float64), normalize=True)
        y += 1
        with pytest.raises(RuntimeError, match="inplace"):
            y.sum().backward()


@pytest.mark.parametrize("operator, signature", every(signatures=[(3, 0, 0), (1, 0, 1)]))
def test_empty_batches_have_derivatives_of_any_order(device, operator, signature):
    for attributes, inputs in samples(operator, signature, rows=0, device=device):
        leaves = [x.requires_grad_() for x in inputs]
        y = apply(operator.name, attributes, leaves)
        first = torch.autograd.grad(y.square().sum(), leaves, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), leaves, create_graph=True, allow_unused=True)
        third = sum(g.square().sum() for g in second if g is not None and g.requires_grad)
        if isinstance(third, torch.Tensor):
            torch.autograd.grad(third, leaves, allow_unused=True)
        for x, g, s in zip(leaves, first, second):
            assert g.shape == x.shape and not g.any() and (s is None or (s.shape == x.shape and not s.any()))


@pytest.mark.parametrize("wrong", [np.ones((8, 2, 2)), [[1.0]], "x", None], ids=["numpy", "list", "text", "none"])
def test_an_input_that_is_no_tensor_is_named(wrong):
    x = torch.ones(8, 2, 2)
    with pytest.raises(gradewise.ArgumentError, match=r"geometric_product|table_product.*input 1.*torch\.Tensor"):
        gt.geometric_product(x, wrong)


class TestEmbeddings:
    """What the published code refuses, and what it takes by accident, is refused with the reason."""

    algebra = cgenn.CliffordAlgebra((1.0, 1.0, 1.0))

    @pytest.mark.parametrize("components", [0, 1, 2, 4])
    def test_wrong_numbers_of_components(self, components):
        with pytest.raises(gradewise.ShapeError, match="embed_grade.*3"):
            self.algebra.embed_grade(torch.randn(5, components), 1)
        with pytest.raises(gradewise.ShapeError, match="embed.*3"):
            self.algebra.embed(torch.randn(5, components), (1, 2, 3))

    @pytest.mark.parametrize("blades", [(-1,), (8,), (9,), (1, 1), (0, 3, 0)])
    def test_wrong_blades(self, blades):
        with pytest.raises(gradewise.ArgumentError, match="embed.*0 to 7"):
            self.algebra.embed(torch.randn(5, len(blades)), blades)

    @pytest.mark.parametrize("grade", [-1, 4])
    def test_wrong_grades(self, grade):
        with pytest.raises(gradewise.ArgumentError, match="0 to 3"):
            self.algebra.embed_grade(torch.randn(5, 3), grade)
        with pytest.raises(gradewise.ArgumentError, match="0 to 3"):
            self.algebra.get_grade(torch.randn(5, 8), grade)

    def test_any_order_of_blades(self):
        x = torch.randn(4, 3)
        for blades in ((1, 2, 3), (3, 1, 2), (0, 7, 4)):
            expected = torch.zeros(4, 8)
            expected[..., list(blades)] = x
            assert torch.equal(self.algebra.embed(x, torch.tensor(blades)), expected)


def test_an_edge_beyond_the_nodes_is_named():
    network = cgenn.EGCL((1.0, 1.0, 1.0), 2, 3, 2)
    for end in (-1, 3):
        with pytest.raises(gradewise.ArgumentError, match=rf"{end}\b.*2|{end}"):
            network(torch.randn(3, 2, 8), torch.tensor([[0, end], [1, 0]]))

"""What eager calls read of tensors and modules before they run: what stands in a tensor's or a parameter's place is seen there, too."""

import pytest
import torch
from torch.nn.utils import parametrize

import gradewise
import gradewise.torch as gt
from gradewise.torch import flash

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

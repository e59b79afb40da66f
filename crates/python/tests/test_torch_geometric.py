"""A layer of PyTorch Geometric out of our operators computes what the library's own layer does."""

import pytest
import torch
from examples import FOLDER, example

from gradewise.torch.cgenn import EGCL, CliffordAlgebra

pytest.importorskip("torch_geometric")
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the project is not checked out around the tests")


@pytest.mark.parametrize("metric", [(1.0, 1.0, 1.0), (1.0, -1.0, -1.0, -1.0)])
def test_the_layer_is_that_of_the_library(metric):
    torch.manual_seed(0)
    algebra = CliffordAlgebra(metric)
    layer = example("pyg_egcl").EGCL(algebra, 3, 5, 3, edge_features=2).double()
    ours = EGCL(algebra, 3, 5, 3, edge_attr_features=2).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    ours.load_state_dict({**ours.state_dict(), **dict(layer.named_parameters())})
    x = torch.randn(11, 3, algebra.n_blades, dtype=torch.float64, requires_grad=True)
    # Unequal degrees, loops, double edges; node 10 receives nothing.
    edges = torch.randint(0, 10, (2, 60))
    attributes = torch.randn(60, 2, algebra.n_blades, dtype=torch.float64, requires_grad=True)
    results = [module(x, edges, attributes) for module in (layer, ours)]
    cotangent = torch.randn_like(results[0])
    taken = []
    for module, result in zip((layer, ours), results):
        parameters = dict(module.named_parameters())
        gradients = torch.autograd.grad(result, [x, attributes, *parameters.values()], cotangent)
        taken.append(dict(zip(["x", "attributes", *parameters], gradients)))
    assert torch.allclose(*results, rtol=0, atol=1e-12 * results[1].abs().max().item())
    assert taken[0].keys() == taken[1].keys()
    for name, gradient in taken[1].items():
        assert torch.allclose(taken[0][name], gradient, rtol=0, atol=1e-12 * gradient.abs().max().item() + 1e-13), name


def test_the_program_runs(capsys):
    example("pyg_egcl").main()
    assert "[10, 3, 8]" in capsys.readouterr().out

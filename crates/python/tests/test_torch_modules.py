"""Modules under published names: against dense definitions, their symmetry, their checkpoints, and models changed in place."""

import copy
import io

import numpy as np
import pytest
import torch
from torch import nn

import gradewise
import gradewise.torch as gt
import reference
from gradewise.torch import cgenn, flash

F64 = torch.float64
METRICS = [(1.0, 1.0, 1.0), (1.0, -1.0, -1.0, -1.0), (1.0, 1.0), (1.0, 1.0, 0.0)]


def signature(metric):
    return tuple(sum(square == value for square in metric) for value in (1.0, -1.0, 0.0))


@pytest.mark.parametrize("size", [0, -1])
def test_a_layer_without_features_is_refused_by_name(size):
    algebra = cgenn.CliffordAlgebra((1.0, 1.0, 1.0))
    full = cgenn.FullyConnectedSteerableGeometricProductLayer
    for layer, sizes, make in [
        ("MVLinear", ["in_features", "out_features"], lambda **n: cgenn.MVLinear(algebra, **n)),
        ("MVSiLU", ["channels"], lambda **n: cgenn.MVSiLU(algebra, **n)),
        ("NormalizationLayer", ["features"], lambda **n: cgenn.NormalizationLayer(algebra, **n)),
        ("MVLayerNorm", ["channels"], lambda **n: cgenn.MVLayerNorm(algebra, **n)),
        ("SteerableGeometricProductLayer", ["features"], lambda **n: cgenn.SteerableGeometricProductLayer(algebra, **n)),
        (full.__name__, ["in_features", "out_features"], lambda **n: full(algebra, **n)),
        ("CEMLP", ["in_features", "hidden_features", "out_features", "n_layers"], lambda **n: cgenn.CEMLP(algebra, **n)),
        ("Layer", ["n_features"], lambda **n: flash.Layer(dims=3, **n)),
    ]:
        whole = dict.fromkeys(sizes, 2)
        assert type(make(**whole)).__name__ == layer
        for name in sizes:
            with pytest.raises(gradewise.ArgumentError, match=f"{layer}: {name} is {size}, expected at least 1"):
                make(**whole | {name: size})


def trained(module, seed=0):
    """With every parameter away from its initial value, biases included."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(parameter)
    return module


def modules(metric):
    algebra = cgenn.CliffordAlgebra(metric)
    full = cgenn.FullyConnectedSteerableGeometricProductLayer
    return {
        "linear": (cgenn.MVLinear(algebra, 3, 5), lambda d, x, m: reference.linear(d, x, m.weight, m.bias)),
        "shared": (
            cgenn.MVLinear(algebra, 3, 5, subspaces=False, bias=False),
            lambda d, x, m: reference.linear(d, x, m.weight, None),
        ),
        "silu": (cgenn.MVSiLU(algebra, 3), lambda d, x, m: reference.silu(d, x, m.a, m.b)),
        "normalization": (
            cgenn.NormalizationLayer(algebra, 3),
            lambda d, x, m: reference.normalization(d, x, m.a),
        ),
        "norm": (cgenn.MVLayerNorm(algebra, 3), lambda d, x, m: reference.layer_norm(d, x, m.a)),
        "steerable": (cgenn.SteerableGeometricProductLayer(algebra, 3), reference.steerable),
        "plain": (
            cgenn.SteerableGeometricProductLayer(algebra, 3, include_first_order=False, normalization_init=None),
            reference.steerable,
        ),
        "unnormalised": (
            cgenn.SteerableGeometricProductLayer(algebra, 3, normalization_init=None),
            reference.steerable,
        ),
        "full": (full(algebra, 3, 4), reference.steerable),
        "full-plain": (full(algebra, 3, 4, include_first_order=False, normalization_init=None), reference.steerable),
        "cemlp": (
            cgenn.CEMLP(algebra, 3, 4, 5),
            lambda d, x, m: reference.block(d, reference.block(d, x, m.layers[0]), m.layers[1]),
        ),
    }


@pytest.mark.parametrize("name", list(modules((1.0, 1.0))))
@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_modules_are_their_definitions(device, metric, name):
    dense = reference.Dense(*signature(metric))
    module, definition = modules(metric)[name]
    module = trained(module.double())
    x = torch.randn(4, 3, 2 ** len(metric), dtype=F64, requires_grad=True)
    expected = definition(dense, x, module)
    gradients = torch.autograd.grad(expected.square().sum(), [x, *module.parameters()])
    on_device = copy.deepcopy(module).to(device)
    moved = x.detach().to(device).requires_grad_()
    actual = on_device(moved)
    assert actual.shape == expected.shape
    others = torch.autograd.grad(actual.square().sum(), [moved, *on_device.parameters()])
    for a, e in zip([actual, *others], [expected, *gradients]):
        assert (a.cpu() - e).norm() <= 1e-10 * e.norm() + 1e-14, name


@pytest.mark.parametrize("metric", METRICS[:3], ids=str)
def test_modules_commute_with_versors(device, metric):
    dense = reference.Dense(*signature(metric))
    for name, (module, _) in modules(metric).items():
        module = trained(module.double()).to(device)
        for count in (1, 2, 3):
            versor, inverse = dense.versor(count, torch.Generator().manual_seed(count))
            x = torch.randn(4, 3, 2 ** len(metric), dtype=F64)
            turned = module(dense.act(versor, inverse, count % 2, x).to(device)).cpu()
            expected = dense.act(versor, inverse, count % 2, module(x.to(device)).cpu())
            scale = max(expected.norm(), turned.norm())
            assert (turned - expected).norm() <= 1e-9 * scale, (name, count)


def graph(systems=3, nodes=4):
    pairs = [
        (s * nodes + i, s * nodes + j) for s in range(systems) for i in range(nodes) for j in range(nodes) if i != j
    ]
    return torch.tensor(pairs).T


def test_messages_are_their_definition(device):
    dense = reference.Dense(3, 0, 0)
    rows, columns = graph()
    for attributes, residual in ((1, True), (0, False)):
        layer = trained(cgenn.EGCL((1.0, 1.0, 1.0), 4, 5, 4, attributes, residual=residual).double())
        h = torch.randn(12, 4, 8, dtype=F64)
        edge = torch.randn(len(rows), attributes, 8, dtype=F64) if attributes else None
        message = h[rows] - h[columns]
        if attributes:
            message = torch.cat([message, edge], dim=1)
        for block in layer.edge_model.layers:
            message = reference.block(dense, message, block)
        mean = torch.stack([message[rows == node].mean(0) for node in range(12)])
        update = torch.cat([h, mean], dim=1)
        for block in layer.node_model.layers:
            update = reference.block(dense, update, block)
        expected = h + update if residual else update
        on_device = copy.deepcopy(layer).to(device)
        actual = on_device(h.to(device), (rows.to(device), columns.to(device)), edge.to(device) if attributes else None)
        assert (actual.cpu() - expected).norm() <= 1e-11 * expected.norm()


def batch(count=3, dtype=torch.float32, device="cpu"):
    rows, columns = zip(*[(i, j) for i in range(5) for j in range(5) if i != j])
    loc, vel = torch.randn(2, count, 5, 3, dtype=dtype)
    charges = torch.randn(count, 5, 1, dtype=dtype).sign()
    products = charges[:, list(rows)] * charges[:, list(columns)]
    edges = torch.tensor([rows, columns]).repeat(count, 1, 1)
    return [t.to(device) for t in (loc, vel, products, charges, loc + vel, edges)]


def models():
    jets, particles = 2, 3
    pairs = graph(jets, particles)
    nodes, edges = jets * particles, pairs.shape[1]
    lorentz = (
        torch.randn(nodes, 2),
        torch.randn(nodes, 1, 16),
        None,
        torch.randn(edges, 3, 16),
        torch.randn(nodes, 2),
        torch.randn(nodes, 1, 16),
        tuple(pairs),
        torch.ones(nodes, 1),
        None,
        particles,
    )
    return {
        "n-body": (cgenn.NBodyCGGNN(), (batch(), 0)),
        "hulls": (cgenn.ConvexHullCGMLP(), ((torch.randn(4, 16, 5), torch.randn(4)), 0)),
        "o3": (cgenn.O3CGMLP(), ((torch.randn(4, 3, 3), torch.randn(4)), 0)),
        "o5": (cgenn.O5CGMLP(0.5, 2.0), ((torch.randn(4, 10), torch.randn(4, 1)), 0)),
        "lorentz": (cgenn.LorentzCGGNN(), lorentz),
        "lorentz-blocks": (cgenn.LorentzCGGNN(layer_type="gpmlp", normalization_init=0, residual=True), lorentz),
    }


@pytest.mark.parametrize("name", list(models()))
def test_models_train(device, name):
    def to(value):
        if isinstance(value, torch.Tensor):
            return value.to(device)
        return type(value)(map(to, value)) if isinstance(value, (tuple, list)) else value

    torch.manual_seed(5)
    model, arguments = models()[name]
    model, arguments = model.to(device), to(arguments)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    for _ in range(60):
        result = model(*arguments)
        loss = result[0] if isinstance(result, tuple) else result.logsumexp(-1).mean() - result[..., 0].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters() if p.numel())
    assert losses[-1] < 0.95 * losses[0], losses


def test_the_n_body_model_moves_with_space(device):
    model = trained(cgenn.NBodyCGGNN().double()).to(device)
    loc, vel, products, charges, end, edges = batch(dtype=F64, device=device)
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=F64))[0].to(device)
    shift = torch.randn(3, dtype=F64).to(device)
    predicted = model.predict((loc, vel, products, charges, end, edges))
    moved = model.predict((loc @ turn.T + shift, vel @ turn.T, products, charges, end, edges))
    expected = predicted @ turn.T + shift
    assert (moved - expected).norm() <= 1e-11 * expected.norm()


def test_state_dicts_have_the_published_names_and_come_back():
    model = trained(cgenn.NBodyCGGNN())
    state = model.state_dict()
    assert state["layers.0.edge_model.layers.0.0.weight"].shape == (28, 29, 4)
    assert state["layers.2.node_model.layers.1.2.normalization.a"].shape == (28, 4)
    assert state["layers.1.edge_model.layers.1.2.linear_right.algebra.cayley"].shape == (8, 8, 8)
    assert sum(p.numel() for p in model.parameters()) == 134_625
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    other = cgenn.NBodyCGGNN()
    other.load_state_dict(torch.load(file))
    for a, b in zip(model.parameters(), other.parameters()):
        assert torch.equal(a, b) and a.stride() == b.stride()
    # Also from a file in which the elements lie in another order.
    turned = {
        key: value.permute(*range(value.dim())[::-1]).contiguous().permute(*range(value.dim())[::-1])
        for key, value in state.items()
    }
    other.load_state_dict(turned)
    assert torch.equal(other(batch_of := batch(), 0)[0], model(batch_of, 0)[0])
    with pytest.raises(RuntimeError, match="layers.0.edge_model"):
        other.load_state_dict({k: v for k, v in state.items() if "layers.0.edge_model" not in k})


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_weights_of_a_run_are_weights_of_the_published_model(tmp_path, ema):
    from gradewise._program import call

    run = gradewise.train(
        "nbody",
        out=tmp_path / "run",
        progress=False,
        data={"source": "simulate", "train": 100, "valid": 50, "test": 50},
        train={"steps": 20, "ema": ema},
    )
    generator = np.random.default_rng(0)
    systems = generator.normal(size=(4, 7, 5)).astype(np.float32)
    systems[:, 6] = np.sign(systems[:, 6])
    np.save(tmp_path / "in.npy", systems)
    paths = [str(tmp_path / name) for name in ("in.npy", "out.npy")]
    call(["infer", "--checkpoint", str(run.checkpoint), "--input", paths[0], "--output", paths[1]], None)
    expected = np.load(paths[1])
    model = cgenn.NBodyCGGNN.from_run(run)
    loc, vel = (torch.tensor(systems[:, i : i + 3]).transpose(1, 2) for i in (0, 3))
    charges = torch.tensor(systems[:, 6:].transpose(0, 2, 1))
    *_, edges = batch(4)
    products = charges[torch.arange(4)[:, None], edges[:, 0]] * charges[torch.arange(4)[:, None], edges[:, 1]]
    with torch.no_grad():
        predicted = model.predict((loc, vel, products, charges, loc, edges)).view(4, 5, 3).transpose(1, 2).numpy()
    assert np.linalg.norm(predicted - expected) <= 1e-6 * np.linalg.norm(expected)
    other = gradewise.train(
        "nbody",
        out=tmp_path / "other",
        progress=False,
        data={"source": "simulate", "train": 100, "valid": 50, "test": 50},
        train={"steps": 2},
        model={"velocities": True},
    )
    with pytest.raises(gradewise.CheckpointError, match="velocities"):
        cgenn.NBodyCGGNN.from_run(other.checkpoint)


def test_parameters_and_gradients_lie_as_pytorch_made_them(device):
    full = cgenn.FullyConnectedSteerableGeometricProductLayer
    for layer in (
        cgenn.MVLinear((1.0, 1.0, 1.0), 3, 5),
        full((1.0, 1.0, 1.0), 3, 5),
        cgenn.CEMLP((1.0, 1.0, 1.0), 3, 4, 5),
    ):
        layer = layer.to(device)
        x = torch.randn(2, 3, 8, device=device)
        parameters = list(layer.parameters())
        layer(x).sum().backward()
        given = torch.autograd.grad(layer(x).sum(), parameters)
        for parameter, gradient in zip(parameters, given):
            assert parameter.is_contiguous() and parameter.grad.is_contiguous() and gradient.is_contiguous()
        vector = nn.utils.parameters_to_vector(parameters)
        assert vector.numel() == sum(p.view(-1).shape[0] for p in parameters)
        optimizer = torch.optim.LBFGS(parameters, max_iter=3)

        def closure():
            optimizer.zero_grad()
            loss = layer(x).square().mean()
            loss.backward()
            return loss

        before = float(optimizer.step(closure))
        assert float(closure()) < before


def test_layers_in_a_row_hand_over_without_copies():
    first, second = (cgenn.MVLinear((1.0, 1.0, 1.0), 4, 4) for _ in range(2))
    between = first(torch.randn(5, 4, 8))
    assert between.shape == (5, 4, 8) and between.permute(2, 0, 1).is_contiguous()
    assert (second(between) - second(between.contiguous())).abs().max() == 0


def test_axes_between_features_and_blades(device):
    layer = trained(cgenn.MVLinear((1.0, 1.0, 1.0), 3, 5).double()).to(device)
    x = torch.randn(2, 3, 4, 7, 8, dtype=F64, device=device)
    y = layer(x)
    assert y.shape == (2, 5, 4, 7, 8)
    for i in range(4):
        for j in range(7):
            assert (y[:, :, i, j] - layer(x[:, :, i, j])).abs().max() < 1e-13


def test_what_does_not_fit_is_refused():
    algebra = cgenn.CliffordAlgebra((1.0, 1.0, 1.0))
    with pytest.raises(gradewise.ShapeError, match=r"\[2, 3, 16\].*8"):
        cgenn.MVLinear(algebra, 3, 5)(torch.randn(2, 3, 16))
    with pytest.raises(gradewise.ArgumentError, match="mag2"):
        cgenn.MVSiLU(algebra, 3, invariant="max")
    for metric in ((1.0, 2.0), (-1.0, 0.5), ()):
        with pytest.raises(gradewise.ArgumentError, match="metric"):
            cgenn.CliffordAlgebra(metric)
    with pytest.raises(gradewise.ArgumentError, match="none of the modules"):
        gt.accelerate(nn.Linear(3, 4))
    with pytest.raises(gradewise.ArgumentError, match="bias_on"):
        flash.Layer(4, 3, bias_on="vector")


def test_embeddings_put_components_on_their_blades():
    algebra = cgenn.CliffordAlgebra((1.0, 1.0, 1.0))
    x = torch.randn(2, 5, 3)
    for where in ((1, 2, 3), (4, 5, 6), (0, 3, 7), (7, 0, 3)):
        embedded = algebra.embed(x, where)
        assert embedded.shape == (2, 5, 8) and torch.equal(embedded[..., list(where)], x)
        assert embedded.abs().sum() == x.abs().sum() or torch.allclose(embedded.abs().sum(), x.abs().sum())
    assert torch.equal(algebra.get_grade(algebra.embed_grade(x, 2), 2), x)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("dims", [2, 3, (1, 3, 0)])
def test_flash_layer(device, dims, full):
    layer = trained(flash.Layer(6, dims, use_fc=full).double()).to(device)
    blades = 2 ** (dims if isinstance(dims, int) else sum(dims))
    x = torch.randn(blades, 5, 6, dtype=F64, device=device, requires_grad=True)
    s = (dims, 0, 0) if isinstance(dims, int) else dims
    y = torch.bmm(x, layer.linear_weight[layer.weight_expansion]) + layer.linear_bias
    gate = lambda x: x * 0.5 * (1 + torch.erf(x[:1] * 0.5**0.5))
    product = gt.fcgp if full else gt.sgp
    raw = product(gate(x), gate(y), layer.gp_weight, s)
    grades = layer.weight_expansion
    parts = [raw[grades == g] for g in range(int(grades.max()) + 1)]
    expected = torch.cat([p / (p.square().sum(0).mean(-1, keepdim=True) + 1e-6).sqrt() for p in parts])
    assert (layer(x) - expected).norm() <= 1e-12 * expected.norm()
    assert torch.autograd.gradcheck(layer, x, fast_mode=True)
    state = layer.state_dict()
    assert list(state) == ["gp_weight", "linear_weight", "linear_bias", "weight_expansion"]
    assert state["linear_bias"].shape == (1, 1, 6)


def test_models_compile_without_graph_breaks(device):
    model = cgenn.NBodyCGGNN().to(device)
    data = batch(device=device)
    compiled = torch.compile(model.predict, fullgraph=True, backend="aot_eager")
    eager, other = model.predict(data), compiled(data)
    assert (eager - other).norm() <= 1e-6 * eager.norm()
    parameters = list(model.parameters())
    a = torch.autograd.grad(eager.square().sum(), parameters)
    b = torch.autograd.grad(other.square().sum(), parameters)
    for x, y in zip(a, b):
        assert (x - y).norm() <= 1e-4 * x.norm() + 1e-7

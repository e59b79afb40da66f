"""The operators in PyTorch: values, derivatives, and what PyTorch asks of an operator."""

import gc
import resource
import threading
import weakref

import numpy as np
import pytest
import torch

import gradewise
import gradewise.torch as gt
from golden import CASES, deviation, evaluate
from gradewise import _core
from gradewise.torch import _definitions
from gradewise.torch._operators import OPERATORS, apply

SIGNATURES = [(3, 0, 0), (1, 3, 0), (2, 0, 1)]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def samples(operator, signature, rows=2, features=3, seed=0, dtype=torch.float64, device="cpu"):
    """The registry's samples of an operator."""
    for attributes, inputs in _core.samples(operator.name, signature, rows, features, seed):
        yield attributes, [torch.tensor(v, dtype=dtype, device=device).reshape(s) for s, v in inputs]


def every(operators=OPERATORS.values(), signatures=SIGNATURES):
    return [
        pytest.param(operator, signature, id=f"{operator.name}-{''.join(map(str, signature))}")
        for operator in operators
        for signature in signatures
    ]


def requiring(inputs):
    return [x.detach().clone().requires_grad_() for x in inputs]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_golden_vectors(device, dtype):
    name = str(dtype).removeprefix("torch.")
    checked = 0
    for case in CASES:
        inputs = {
            key: torch.tensor(value, dtype=dtype, device=device).requires_grad_() for key, value in case.inputs.items()
        }
        if case.operation == "fc_steerable_gp" and dtype.itemsize == 2:
            # A composition here, whose intermediate results are rounded to 16 bits.
            continue
        if dtype.itemsize == 2:
            # What the operator makes of the rounded inputs, which are what it was given.
            exact = {key: value.detach().double().cpu().requires_grad_() for key, value in inputs.items()}
            expected = evaluate(gt, case, exact)
            cotangent = torch.tensor(case.cotangent).to(dtype)
            gradients = torch.autograd.grad(expected, list(exact.values()), cotangent.double())
            expected = expected.detach().numpy()
            gradients = {key: g.numpy() for key, g in zip(exact, gradients)}
        else:
            expected, gradients, cotangent = case.output, case.gradients, torch.tensor(case.cotangent)
        output = evaluate(gt, case, inputs)
        assert output.dtype == dtype and output.device.type == device
        actual = torch.autograd.grad(output, list(inputs.values()), cotangent.to(device, dtype))
        error = deviation(output.detach().double().cpu().numpy(), expected)
        assert error <= case.tolerance(name, "y"), (case.name, error)
        for (key, _), g in zip(inputs.items(), actual):
            error = deviation(g.double().cpu().numpy(), gradients[key])
            assert error <= case.tolerance(name, f"grad.{key}"), (case.name, key, error)
        checked += 1
    assert checked >= 60


@pytest.mark.parametrize("operator, signature", every())
def test_derivatives_are_those_of_differences(device, operator, signature):
    for attributes, inputs in samples(operator, signature, device=device):

        def run(*inputs, attributes=attributes):
            return apply(operator.name, attributes, inputs)

        assert torch.autograd.gradcheck(run, requiring(inputs))
        assert torch.autograd.gradgradcheck(run, requiring(inputs), fast_mode=True)


@pytest.mark.parametrize("operator, signature", every(signatures=[(3, 0, 0)]))
def test_what_pytorch_asks_of_an_operator(device, operator, signature):
    """torch.library.opcheck: schemas, shapes for compilers, registered gradients, tracing with symbolic shapes."""
    op = getattr(torch.ops.gradewise, operator.name).default
    arity = len(operator.operands)
    for attributes, inputs in samples(operator, signature, dtype=torch.float32, device=device):
        leaves = requiring(inputs)
        torch.library.opcheck(op, (*leaves, *(None,) * (arity - len(leaves)), attributes))


@pytest.mark.parametrize("operator, signature", every(signatures=[(3, 0, 0), (1, 3, 0)]))
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_shapes_and_dtypes_for_compilers_are_those_of_results(device, operator, signature, dtype):
    arity = len(operator.operands)
    op = getattr(torch.ops.gradewise, operator.name).default
    for rows in (0, 1, 5):
        for attributes, inputs in samples(operator, signature, rows, dtype=dtype, device=device):
            arguments = (*inputs, *(None,) * (arity - len(inputs)), attributes)
            real = op(*arguments)
            with torch._subclasses.FakeTensorMode() as mode:
                fake = op(*(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments))
            real, fake = (r if isinstance(r, tuple) else (r,) for r in (real, fake))
            for r, f in zip(real, fake, strict=True):
                assert (r.shape, r.dtype, r.stride()) == (f.shape, f.dtype, f.stride()), operator.name


def block(x, *weights):
    """Several operators in a row, with PyTorch's own between."""
    w, a, b, path, gain = weights
    h = gt.mv_silu(gt.mv_linear(x, w), a, b)
    return gt.mv_layer_norm(gt.sgp(h, torch.tanh(h), path, gate=True, normalize=True) + x, gain)


def block_inputs(device, dtype=torch.float64, rows=6, features=4):
    torch.manual_seed(1)
    shapes = [(8, rows, features), (4, features, features), (features, 4), (features, 4), (features, 20), (features,)]
    return [torch.randn(shape, dtype=dtype, device=device).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_equals_eager_without_graph_breaks(device, backend):
    torch._dynamo.reset()
    inputs = block_inputs(device)
    compiled = torch.compile(block, fullgraph=True, backend=backend)
    results = []
    for run in (block, compiled):
        output = run(*inputs)
        results.append([output, *torch.autograd.grad(output.square().sum(), inputs)])
    for eager, other in zip(*results):
        assert deviation(other.detach().cpu(), eager.detach().cpu()) < 1e-12
    # Another number of rows: sizes that compilers do not know.
    torch._dynamo.reset()
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (3, 7, 1):
        inputs = block_inputs(device, rows=rows)
        assert deviation(compiled(*inputs).detach().cpu(), block(*inputs).detach().cpu()) < 1e-12


def test_compilers_need_no_context_variable(monkeypatch):
    """Dynamo of PyTorch 2.11 refuses to trace one."""
    monkeypatch.setattr(_definitions, "are_used", torch.compiler.disable(lambda: False))
    torch._dynamo.reset()
    inputs = block_inputs("cpu")
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    assert deviation(compiled(*inputs).detach(), block(*inputs).detach()) < 1e-12


def test_strides_are_followed(device):
    x = torch.randn(3, 2 * 5, 8, dtype=torch.float64, device=device)
    features = x.permute(2, 0, 1)[:, :, ::2]
    a = torch.randn(4, 5, dtype=torch.float64, device=device).T
    b = torch.randn(1, 4, dtype=torch.float64, device=device).expand(5, 4)
    assert not features.is_contiguous() and not b.is_contiguous()
    strided = gt.mv_silu(features, a, b)
    copied = gt.mv_silu(features.contiguous(), a.contiguous(), b.contiguous())
    assert torch.equal(strided, copied) and strided.is_contiguous()
    leaves = requiring([features, a, b])
    grad = torch.randn(5, 3, 8, dtype=torch.float64, device=device).permute(2, 1, 0)
    for g, leaf in zip(torch.autograd.grad(gt.mv_silu(*leaves), leaves, grad), leaves):
        assert g.shape == leaf.shape


def test_no_rows_and_no_features(device):
    for rows in (0, 1):
        for operator in OPERATORS.values():
            for attributes, inputs in samples(operator, (3, 0, 0), rows, dtype=torch.float32, device=device):
                leaves = requiring(inputs)
                output = apply(operator.name, attributes, leaves)
                assert output.shape[1] == rows
                for g, leaf in zip(torch.autograd.grad(output.sum(), leaves), leaves):
                    assert g.shape == leaf.shape
                    assert rows > 0 or not g.any()


def test_what_does_not_fit_raises_with_names_and_shapes(device):
    x = torch.randn(8, 3, 5, device=device)
    with pytest.raises(gradewise.ShapeError, match=r"mv_linear.*\[4, 6, 5\]"):
        gt.mv_linear(x, torch.randn(4, 6, 5, device=device))
    with pytest.raises(ValueError, match="mv_silu"):
        gt.mv_silu(x, torch.randn(5, 3, device=device), torch.randn(5, 4, device=device))
    with pytest.raises(gradewise.ShapeError, match="16"):
        gt.mv_layer_norm(x, torch.ones(5, device=device), signature=(1, 3, 0))
    with pytest.raises(gradewise.DTypeError, match="int64"):
        gt.geometric_product(x.long(), x.long())
    with pytest.raises(TypeError, match="float64"):
        gt.geometric_product(x, x.double())
    with pytest.raises(gradewise.ArgumentError, match="signature|generators|9"):
        gt.geometric_product(x, x, signature=(300, 0, 0))
    meta = torch.randn(8, 3, 5, device="meta")
    assert gt.geometric_product(meta, meta).device.type == "meta"


def test_autocast_computes_in_its_dtype_by_the_rule_of_the_operator(device):
    for operator in OPERATORS.values():
        for attributes, inputs in samples(operator, (3, 0, 0), dtype=torch.float32, device=device):
            with torch.autocast(device, dtype=torch.bfloat16):
                output = apply(operator.name, attributes, inputs)
            expected = torch.bfloat16 if operator.rule == "16-bit" else torch.float32
            assert output.dtype == expected, operator.name
            assert _core.Operation(operator.name, attributes).rule == operator.rule
    leaves = block_inputs(device, torch.float32)
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = block(*leaves).float().square().sum()
    for g in torch.autograd.grad(loss, leaves):
        assert g.dtype == torch.float32 and torch.isfinite(g).all()


def test_threads_do_not_meet(device):
    expected = block(*block_inputs(device)).detach()
    failures = []

    def work():
        for _ in range(20):
            inputs = block_inputs(device)
            output = block(*inputs)
            output.sum().backward()
            if not torch.equal(output.detach(), expected):
                failures.append(output)

    # The generator of random numbers is one for all threads, so inputs are made beforehand.
    made = block_inputs(device)
    globals_block_inputs = globals()["block_inputs"]
    globals()["block_inputs"] = lambda device: requiring(made)
    try:
        threads = [threading.Thread(target=work) for _ in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    finally:
        globals()["block_inputs"] = globals_block_inputs
    assert not failures


def test_memory_of_many_calls_does_not_grow(device):
    inputs = block_inputs(device, torch.float32, rows=64, features=16)

    def calls(count):
        for _ in range(count):
            block(*inputs).sum().backward()
            for x in inputs:
                x.grad = None
        gc.collect()

    def resident():
        if device == "cuda":
            torch.cuda.synchronize()
            return torch.cuda.memory_allocated()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    calls(300)
    before = resident()
    # Four operators forward and backward each.
    calls(1250)
    assert resident() - before < (1 << 12 if device == "cuda" else 24 << 20)


def test_borrowed_tensors_are_let_go(device):
    x = torch.randn(8, 3, 5, device=device)
    gone = weakref.ref(x)
    y = gt.geometric_product(x, x)
    del x
    gc.collect()
    # A reference that was let go of outside of Python's lock is dropped at the next call.
    gt.geometric_product(y, y)
    assert gone() is None


def test_results_share_no_memory_with_inputs(device):
    x, y = (torch.randn(8, 3, 5, dtype=torch.float64, device=device, requires_grad=True) for _ in range(2))
    output = gt.geometric_product(x, y)
    expected = output.detach().clone()
    with torch.no_grad():
        x.zero_()
    assert torch.equal(output.detach(), expected)


def test_numbers_are_those_of_the_oracle_in_numpy():
    """The geometric product of Cl(3,0,0) written down in NumPy from the blades' bits."""
    rng = np.random.default_rng(0)
    masks = sorted(range(8), key=lambda m: (bin(m).count("1"), [i for i in range(3) if m >> i & 1]))
    x, y = rng.normal(size=(2, 8, 4, 2))
    expected = np.zeros_like(x)
    for i, a in enumerate(masks):
        for k, b in enumerate(masks):
            swaps = sum(bin(a >> shift & b).count("1") for shift in range(1, 4))
            expected[masks.index(a ^ b)] += (-1) ** swaps * x[i] * y[k]
    actual = gt.geometric_product(torch.tensor(x), torch.tensor(y)).numpy()
    assert deviation(actual, expected) < 1e-14


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("exponent", [5, 10, 13, 16])
@pytest.mark.parametrize("signature", [(3, 0, 0), (2, 0, 1)], ids=["300", "201"])
def test_norms_of_large_features(device, dtype, exponent, signature):
    """Their squares are beyond the range of float32, and their norms are not."""
    torch.manual_seed(exponent)
    grades = sum(signature) + 1
    x = (10.0**exponent * torch.randn(2 ** sum(signature), 5, 4, device=device)).to(dtype)
    gain, a = torch.randn(4, device=device).to(dtype), torch.randn(4, grades, device=device).to(dtype)
    for norm, parameter in ((gt.mv_layer_norm, gain), (gt.mv_normalization, a)):
        results = []
        for precise in (False, True):
            leaves = requiring([t.double() if precise else t for t in (x, parameter)])
            y = norm(*leaves, signature)
            share = torch.linspace(-1, 1, y.numel(), device=device, dtype=torch.float64).reshape(y.shape)
            results.append([y, *torch.autograd.grad((y.double() * share).sum(), leaves)])
        for found, exact in zip(*results):
            error = deviation(found.detach().double().cpu(), exact.detach().cpu())
            assert error < (1e-5 if dtype == torch.float32 else 2e-2), (norm.__name__, error)

"""What only a GPU has: captured graphs, streams, precision of products, gradients among several processes."""

import copy
import gc

import pytest
import torch

import gradewise
import gradewise.torch as gt
from gradewise.torch import cgenn, flash, gatr
from gradewise.torch._transformers import attention

# Where a GPU is required, conftest.py fails without one.
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no CUDA device")


def batch(count=20):
    rows, columns = zip(*[(i, j) for i in range(5) for j in range(5) if i != j])
    loc, vel = torch.randn(2, count, 5, 3, device="cuda")
    charges = torch.randn(count, 5, 1, device="cuda").sign()
    products = charges[:, list(rows)] * charges[:, list(columns)]
    return loc, vel, products, charges, loc + vel, torch.tensor([rows, columns], device="cuda").repeat(count, 1, 1)


def train_step(model, optimizer, data):
    loss, _ = model(data, 0)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss


def test_training_steps_are_captured():
    torch.manual_seed(3)
    eager, replayed = (cgenn.NBodyCGGNN().cuda() for _ in range(2))
    replayed.load_state_dict(eager.state_dict())
    data = batch()
    optimizers = [torch.optim.Adam(m.parameters(), 1e-4, capturable=True) for m in (eager, replayed)]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            train_step(replayed, optimizers[1], data)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = train_step(replayed, optimizers[1], data)
    for _ in range(5):
        graph.replay()
    for _ in range(8):
        expected = train_step(eager, optimizers[0], data)
    # Sums over edges have no fixed order in PyTorch.
    assert abs(loss.item() / expected.item() - 1) < 1e-3
    for a, b in zip(eager.parameters(), replayed.parameters()):
        assert (a - b).norm() <= 1e-3 * a.norm() + 1e-6


def test_a_replay_reads_what_is_in_its_inputs_then():
    layer = flash.Layer(32, 3).cuda()
    x = torch.randn(8, 16, 32, device="cuda")
    layer(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = layer(x)
    for _ in range(3):
        new = torch.randn_like(x)
        x.copy_(new)
        graph.replay()
        assert torch.equal(y, layer(new))


def test_a_replay_reads_the_edges_of_then():
    """Lists of edges that eager calls keep are no part of a graph."""
    # Moving the layer itself would free the parameters that the graph reads.
    reference = cgenn.EGCL((1.0, 1.0, 1.0), 4, 8, 4)
    layer = copy.deepcopy(reference).cuda()
    h = torch.randn(6, 4, 8, device="cuda")
    ends = torch.randint(6, (2, 20), device="cuda")
    rows, columns = ends[0], ends[1]
    with torch.no_grad():
        for _ in range(2):
            layer(h, (rows, columns))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = layer(h, (rows, columns))
        for _ in range(3):
            ends.copy_(torch.randint(6, (2, 20)))
            graph.replay()
            expected = reference(h.cpu(), (rows.cpu(), columns.cpu()))
            assert (y.cpu() - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_captured_heads_have_the_bits_of_eager_ones(dtype):
    """What GATr's heads are made of is computed by fused kernels under a capture, and by the first call in a stream of one's own."""
    torch.manual_seed(1)
    channels = dict(in_mv_channels=2, out_mv_channels=1, hidden_mv_channels=4)
    scalars = dict(in_s_channels=3, out_s_channels=1, hidden_s_channels=6)
    model = gatr.GATr(num_blocks=2, **channels, **scalars, attention={"num_heads": 2}, mlp={}).to("cuda", dtype)
    inputs = torch.randn(3, 7, 2, 16, dtype=dtype, device="cuda"), torch.randn(3, 7, 3, dtype=dtype, device="cuda")

    def step():
        model.zero_grad(set_to_none=True)
        outputs = model(*inputs)
        torch.autograd.backward(outputs, [torch.ones_like(y) for y in outputs])
        return [y.detach() for y in outputs] + [p.grad for p in model.parameters() if p.grad is not None]

    expected = [x.clone() for x in step()]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            found = step()
            assert all(torch.equal(x, y) for x, y in zip(found, expected))
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    for _ in range(2):
        graph.replay()
        assert len(results) == len(expected) and all(torch.equal(x, y) for x, y in zip(results, expected))


def test_layers_as_one_in_other_streams():
    """Memory of a history is that of the stream of its forward pass, in which autograd runs the backward pass, too."""
    layer = cgenn.EGCL((1.0, 1.0, 1.0), 4, 8, 4).cuda()
    h = torch.randn(600, 4, 8, device="cuda", requires_grad=True)
    ends = torch.randint(600, (2, 5000), device="cuda")

    def run():
        output = layer(h, (ends[0], ends[1]))
        return [output, *torch.autograd.grad(output.square().sum(), [h, *layer.parameters()])]

    expected = run()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        found = run()
    # Meanwhile the default stream takes and gives memory.
    others = [run() for _ in range(5)]
    torch.cuda.current_stream().wait_stream(stream)
    for a, b, c in zip(found, expected, others[-1]):
        assert torch.equal(a, b) and torch.equal(c, b), "sums have a fixed order"


def test_a_first_call_in_a_capture_says_what_to_do():
    x = torch.randn(64, 3, 2, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with pytest.raises((gradewise.DeviceError, torch.AcceleratorError)) as raised:
        with torch.cuda.graph(graph):
            # An algebra that nobody else here uses.
            gt.geometric_product(x, x, (2, 2, 2))
    chain = f"{raised.value} {raised.value.__context__}"
    assert "before the capture" in chain, chain
    torch.cuda.synchronize()
    assert gt.geometric_product(x, x, (2, 2, 2)).isfinite().all()


def test_work_is_in_the_current_stream():
    """An operator behind a gate that is closed: what reads its result waits, what does not, does not."""
    x = torch.randn(8, 1000, 64, device="cuda")
    expected = gt.geometric_product(x, x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    source = torch.zeros_like(x)
    with torch.cuda.stream(stream):
        # Long enough that an operator in another stream would read zeros.
        torch.cuda._sleep(200_000_000)
        source.copy_(x)
        result = gt.geometric_product(source, source)
        done = torch.cuda.Event()
        done.record()
    assert not done.query(), "the stream should still be held up"
    # Meanwhile the default stream computes.
    assert torch.equal(gt.geometric_product(x, x), expected)
    assert not done.query()
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(result, expected)


def test_memory_is_pytorchs():
    gc.collect()
    x = torch.randn(8, 4096, 64, device="cuda")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    y = gt.geometric_product(x, x)
    assert torch.cuda.memory_allocated() - before == y.numel() * 4
    del y
    assert torch.cuda.memory_allocated() == before


def test_products_follow_pytorchs_precision():
    x, w = torch.randn(8, 512, 256, device="cuda"), torch.randn(4, 256, 256, device="cuda")
    exact = gt.mv_linear(x.double(), w.double()).float()
    errors = {}
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for allowed in (False, True):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            errors[allowed] = ((gt.mv_linear(x, w) - exact).norm() / exact.norm()).item()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert errors[False] < 1e-6 < 1e-5 < errors[True] < 1e-3, errors


def test_results_are_the_same_bits_each_time():
    layer = flash.Layer(64, 3, use_fc=True).cuda()
    x = torch.randn(8, 333, 64, device="cuda", requires_grad=True)

    def run():
        y = layer(x)
        return [y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])]

    first = run()
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(first, run()))


def test_tensors_of_two_devices_are_refused():
    x = torch.randn(8, 3, 5, device="cuda")
    with pytest.raises((gradewise.DeviceError, RuntimeError), match="cpu|device"):
        gt.geometric_product(x, x.cpu())
    if torch.cuda.device_count() > 1:
        with pytest.raises(gradewise.DeviceError, match="cuda:1"):
            gt.geometric_product(x, x.to("cuda:1"))
        other = gt.geometric_product(x.to("cuda:1"), x.to("cuda:1"))
        assert other.device.index == 1 and torch.equal(other.cpu(), gt.geometric_product(x, x).cpu())


def distributed(rank, world, folder, results):
    """One of several processes that train one model, each on its part of the batch."""
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = cgenn.CEMLP((1.0, 1.0, 1.0), 3, 8, 4).cuda()
    wrapped = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    data = torch.randn(8 * world, 3, 8, device="cuda")
    wrapped(data[rank * 8 : rank * 8 + 8]).square().mean().backward()
    own = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(data).square().mean().backward()
    worst = max(((a - p.grad).norm() / (p.grad.norm() + 1e-9)).item() for a, p in zip(own, model.parameters()))
    results[rank] = worst
    dist.destroy_process_group()


def test_gradients_are_averaged_among_devices(tmp_path):
    world = torch.cuda.device_count()
    if world < 2:
        pytest.skip("one CUDA device")
    import torch.multiprocessing as mp

    results = mp.get_context("spawn").Manager().dict()
    mp.spawn(distributed, (world, str(tmp_path), results), nprocs=world)
    assert len(results) == world and max(results.values()) < 1e-4, dict(results)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [3, 500])
def test_blocks_in_16_bits(dtype, rows):
    """Features in 16 bits, with parameters as they are under autocast, and converted with the module."""
    torch.manual_seed(3)
    model = cgenn.CEMLP((1.0, 1.0, 1.0), 29, 28, 28).cuda()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    x = torch.randn(rows, 29, 8, device="cuda").to(dtype).float()
    grad = torch.randn(rows, 28, 8, device="cuda").to(dtype).float()
    bound = 3e-2 if dtype == torch.bfloat16 else 4e-3

    def run(module, features, seed):
        features = features.detach().requires_grad_()
        output = module(features)
        return [output, *torch.autograd.grad(output, [features, *module.parameters()], seed)]

    def check(found, kind):
        for a, b in zip(found, expected):
            assert a.dtype == kind(b), (a.dtype, b.dtype)
            assert (a.float() - b).norm() <= bound * b.norm()

    expected = run(model, x, grad)
    with torch.autocast("cuda", dtype=dtype):
        found = run(model, x, grad.to(dtype).float())
    # Computed in 16 bits, and given in the dtype of the published module (test_autocast_gives_the_published_dtypes).
    check(found, lambda _: torch.float32)
    assert torch.equal(found[0], found[0].to(dtype).float())
    short = copy.deepcopy(model).to(dtype)
    check(run(short, x.to(dtype), grad.to(dtype)), lambda _: dtype)


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("queries,values", [(36, 36), (80, 96), (33, 20)])
def test_attention_of_transformers_is_that_of_the_library(tf32, queries, values, monkeypatch):
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", tf32)
    torch.manual_seed(5)
    heads = 4
    for shared in (heads, 1):
        q = torch.randn(3, 70, heads, queries, device="cuda").transpose(1, 2)
        k = torch.randn(3, shared, 70, queries, device="cuda")
        v = torch.randn(3, shared, 70, values, device="cuda")
        given = [x.detach().requires_grad_() for x in (q, k, v)]
        assert attention._is_served(*given, {"attn_mask": None, "scale": 0.2})
        assert not attention._is_served(*given, {"attn_mask": torch.ones(70, 70, device="cuda")})
        assert not attention._is_served(*given, {"dropout_p": 0.5})
        for scale in (0.0, -0.2):
            assert not attention._is_served(*given, {"scale": scale})
        for causal in (False, True):
            found = derivatives(attention.weigh, given, scale=0.2, is_causal=causal)
            again = derivatives(attention.weigh, given, scale=0.2, is_causal=causal)
            assert all(torch.equal(a, b) for a, b in zip(found, again))
            exact = derivatives(definition, [x.double() for x in given], scale=0.2, is_causal=causal)
            for a, b in zip(found, exact):
                assert (a.double() - b).norm() <= (5e-3 if tf32 else 1e-5) * b.norm()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            derivatives(attention.weigh, given)
    torch.cuda.synchronize()
    expected = derivatives(attention.weigh, given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = derivatives(attention.weigh, given)
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(captured, expected))


def definition(q, k, v, scale, is_causal):
    k, v = (x.expand(*q.shape[:2], *x.shape[2:]) for x in (k, v))
    scores = scale * q @ k.mT
    if is_causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1) @ v


def derivatives(call, given, **options):
    """The result, and first and second derivatives."""
    inputs = [x.detach().requires_grad_() for x in given]
    output = call(*inputs, **options)
    first = torch.autograd.grad(output.square().sum(), inputs, retain_graph=True)
    twice = torch.autograd.grad(output.sin().sum(), inputs, create_graph=True)
    second = torch.autograd.grad(sum(x.square().sum() for x in twice), inputs)
    return [output.detach(), *first, *second]


def test_attention_of_transformers_has_forward_mode():
    q, k, v = (torch.randn(2, 2, 40, 36, device="cuda") for _ in range(3))
    tangents = tuple(torch.randn_like(x) for x in (q, k, v))
    _, found = torch.func.jvp(attention.weigh, (q, k, v), tangents)
    doubles = [tuple(x.double() for x in xs) for xs in ((q, k, v), tangents)]
    _, exact = torch.func.jvp(lambda *x: definition(*x, 36**-0.5, False), *doubles)
    assert (found.double() - exact).norm() <= 1e-5 * exact.norm()

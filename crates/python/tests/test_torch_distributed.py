"""FSDP2: parameters that are spread over two processes take the step of one process."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from examples import FOLDER, example

import gradewise.torch as gt
from gradewise import CheckpointError

pytest.importorskip("torch.distributed.fsdp")
pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()), reason="PyTorch has no gloo"
)

PROCESSES = 2


def accelerated():
    """A network of published modules, accelerated."""
    import published

    torch.manual_seed(0)
    algebra = published.CliffordAlgebra((1.0, 1.0, 1.0))
    layers = [published.EGCL(algebra, 4, 6, 4) for _ in range(2)]
    model = torch.nn.ModuleList([published.MVLinear(algebra, 2, 4), *layers, published.MVLinear(algebra, 4, 1)])
    network = Network(model).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    report = gt.accelerate(network, verbose=False)
    assert len(report.replaced) >= 4, report
    return network


class Network(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.blocks = layers

    def forward(self, x, edges):
        first, *between, last = self.blocks
        x = first(x)
        for layer in between:
            x = layer(x, edges)
        return last(x)


def graph(part):
    """A graph of one process: features ``[nodes, features, blades]`` and edges."""
    generator = torch.Generator().manual_seed(part)
    x = torch.randn(7, 2, 8, dtype=torch.float64, generator=generator)
    return x, torch.randint(0, 7, (2, 30), generator=generator)


def stepped(model, parts):
    """The mean loss of some graphs, and a step of Adam."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    loss = sum(model(*graph(part)).square().mean() for part in parts) / len(parts)
    loss.backward()
    optimizer.step()
    return loss.detach()


def worker(rank, folder):
    """One of the processes; the first writes the weights."""
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=PROCESSES)
    model = accelerated()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    losses = [stepped(model, [rank])]
    weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    is_spread = any(type(parameter).__name__ == "DTensor" for parameter in model.parameters())
    if rank == 0:
        torch.save({"weights": weights, "loss": losses[0], "is_spread": is_spread}, Path(folder) / "result.pt")
    dist.destroy_process_group()


def test_a_step_of_an_accelerated_network_is_that_of_one_process(tmp_path):
    torch.multiprocessing.spawn(worker, (str(tmp_path),), PROCESSES)
    found = torch.load(tmp_path / "result.pt", weights_only=False)
    assert found["is_spread"]
    model = accelerated()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    stepped(model, range(PROCESSES))
    for name, parameter in model.named_parameters():
        assert torch.allclose(found["weights"][name], parameter, rtol=0, atol=1e-12), name
        assert not torch.equal(before[name], parameter), name


@pytest.mark.skipif(not FOLDER.exists(), reason="the project is not checked out around the tests")
def test_the_program_writes_the_model_of_one_process(tmp_path):
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(PROCESSES)]
    words += [str(FOLDER / "fsdp2.py"), "--folder", str(tmp_path / "model")]
    said = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert said.returncode == 0, said.stderr
    found = gt.from_pretrained(tmp_path / "model")
    module = example("fsdp2")
    model = module.network()
    points = torch.randn(8, 6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    module.step(model, points)
    for (name, expected), parameter in zip(model.named_parameters(), found.parameters()):
        assert torch.allclose(parameter, expected, rtol=0, atol=1e-12), name


def sharded(rank, folder):
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=PROCESSES)
    model = fully_shard(example("fsdp2").network())
    try:
        model.save_pretrained(Path(folder) / f"model{rank}")
    except CheckpointError as error:
        (Path(folder) / f"said{rank}").write_text(str(error))
    dist.destroy_process_group()


@pytest.mark.skipif(not FOLDER.exists(), reason="the project is not checked out around the tests")
def test_weights_that_are_spread_are_not_written(tmp_path):
    torch.multiprocessing.spawn(sharded, (str(tmp_path),), PROCESSES)
    assert "get_model_state_dict" in (tmp_path / "said1").read_text()
    assert not (tmp_path / "model0").exists()

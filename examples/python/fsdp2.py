"""Parameters spread over processes by FSDP2 (``fully_shard``), of an accelerated model, and one file of its weights at the end.

torchrun --nproc-per-node 2 fsdp2.py
"""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

from gradewise.torch.gatr import GATr
from gradewise.torch.gatr.interface import embed_point


def network():
    """A small GATr in float64, the same in each process."""
    torch.manual_seed(0)
    options = {"attention": {"num_heads": 2}, "mlp": {}, "num_blocks": 2}
    return GATr(1, 1, 4, 1, 1, 8, **options).double()


def shard(model):
    """Each block, and what is around them, gathered when it is needed."""
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def step(model, points):
    """A step of training; the loss."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    multivectors, scalars = model(embed_point(points)[:, :, None], points[..., :1])
    loss = multivectors.square().mean() + scalars.square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default="model")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank, count = dist.get_rank(), dist.get_world_size()
    points = torch.randn(8, 6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    model = shard(network())
    loss = step(model, points.chunk(count)[rank])
    weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        model.save_pretrained(arguments.folder, state_dict=weights)
        print(f"loss {loss:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

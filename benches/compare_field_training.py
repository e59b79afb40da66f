#!/usr/bin/env python3
"""Trains the networks that `gradewise train navier-stokes` is compared with, on the same data, with the same loss, optimiser and
schedule, and prints one JSON object for each run: parameters, errors of one step and of rollouts as the task defines them, and the time
of a training step.

  simulate_fields navier-stokes DATA 64            # cargo run --release -p gradewise-zoo --example simulate_fields
  compare_field_training.py DATA plain --train 16,64 --seeds 3    # a run for each number of trajectories and each seed
  compare_field_training.py DATA unet
  compare_field_training.py DATA clifford --cscnn PATH --cliffordlayers PATH
  compare_field_training.py DATA steerable --cscnn PATH

`plain` and `unet` are ordinary convolutions in PyTorch, `plain` that of `model.kind=plain`. `clifford` is the published Clifford ResNet
in PyTorch, of a checkout of github.com/maxxxzdn/clifford-group-equivariant-cnns and of github.com/microsoft/cliffordlayers; `steerable`
is the published steerable ResNet in JAX, of the same checkout. All run in TF32 on a GPU, as JAX and PyTorch's convolutions do by default.
"""
import argparse
import functools
import json
import math
import sys
import time

import numpy
import torch
import torch.nn.functional as F
from torch import nn

INPUTS, ROLLOUT, STARTS = 4, 5, 6


def load(folder, split, count, size):
    """[trajectories, frames, component, x, y]: smoke and the two velocities, resampled to `size` cells as the task does."""
    arrays = [numpy.load(f"{folder}/navier-stokes_{split}_{name}.npy")[:count] for name in ("u", "vx", "vy")]
    fields = torch.from_numpy(numpy.stack(arrays, 2)).float()
    if len(fields) < count:
        sys.exit(f"{folder}: {len(fields)} trajectories of the {split} split, {count} asked for")
    if fields.shape[-1] == size:
        return fields
    flat = F.interpolate(fields.flatten(0, 1), size=(size, size), mode="bilinear", antialias=True)
    return flat.unflatten(0, fields.shape[:2])


class Block(nn.Module):
    def __init__(self, width, taps):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, taps, padding=taps // 2) for _ in range(2))
        self.norm1, self.norm2 = nn.GroupNorm(1, width), nn.GroupNorm(1, width)

    def forward(self, x):
        y = F.gelu(self.norm1(self.conv1(x)))
        return F.gelu(x + self.norm2(self.conv2(y)))


class Plain(nn.Module):
    """The residual network of ordinary convolutions: components and frames are channels."""

    def __init__(self, width, taps, blocks):
        super().__init__()
        self.enter = nn.Sequential(nn.Conv2d(3 * INPUTS, width, 1), nn.GELU(), nn.Conv2d(width, width, 1), nn.GELU())
        self.blocks = nn.Sequential(*(Block(width, taps) for _ in range(blocks)))
        self.leave = nn.Sequential(nn.Conv2d(width, width, 1), nn.GELU(), nn.Conv2d(width, 3, 1))

    def forward(self, x):
        return self.leave(self.blocks(self.enter(x.flatten(1, 2))))


class UNet(nn.Module):
    """Three levels of two 3×3 convolutions on either side, as wide as `parameters` allow."""

    def __init__(self, parameters):
        super().__init__()
        width = next(w for w in range(2, 1024, 2) if self.count(w + 2) > parameters)
        widths = [width, 2 * width, 4 * width]

        def double(inputs, outputs):
            layers = []
            for before in (inputs, outputs):
                layers += [nn.Conv2d(before, outputs, 3, padding=1), nn.GroupNorm(1, outputs), nn.GELU()]
            return nn.Sequential(*layers)

        self.down = nn.ModuleList(double(a, b) for a, b in zip([3 * INPUTS] + widths, widths))
        self.up = nn.ModuleList(double(a + b, b) for a, b in [(4 * width, 2 * width), (2 * width, width)])
        self.leave = nn.Conv2d(width, 3, 1)

    @staticmethod
    def count(w):
        inner = [(3 * INPUTS, w), (w, w), (w, 2 * w), (2 * w, 2 * w), (2 * w, 4 * w), (4 * w, 4 * w)]
        inner += [(6 * w, 2 * w), (2 * w, 2 * w), (3 * w, w), (w, w)]
        return sum(9 * a * b + 3 * b for a, b in inner) + 3 * w + 3

    def forward(self, x):
        x, kept = x.flatten(1, 2), []
        for number, block in enumerate(self.down):
            x = block(x if number == 0 else F.avg_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for block in self.up:
            x = block(torch.cat([F.interpolate(x, scale_factor=2), kept.pop()], 1))
        return self.leave(x)


class Clifford(nn.Module):
    """The published Clifford ResNet on smoke (scalar) and velocity (vector) of Cl(2,0)."""

    def __init__(self, arguments):
        super().__init__()
        sys.path[:0] = [arguments.cliffordlayers, f"{arguments.cscnn}/models/resnets"]
        import cresnet  # the module alone: the package imports JAX

        blocks = (arguments.blocks,)
        self.net = cresnet.CliffordResNet((1, 1), INPUTS, 1, arguments.hidden, arguments.taps, True, blocks)

    def forward(self, x):
        x = F.pad(x.movedim(2, -1), (0, 1))
        return self.net(x)[:, 0, ..., :3].movedim(-1, 1)


class Windows:
    """Windows of INPUTS frames and the next, in the order of (epoch, permutation)."""

    def __init__(self, fields, seed):
        self.fields, self.rng, self.queue = fields, numpy.random.default_rng(seed), []
        self.starts = fields.shape[1] - INPUTS

    def places(self, size):
        """The trajectories and the first frames of the next batch."""
        while len(self.queue) < size:
            self.queue += list(self.rng.permutation(len(self.fields) * self.starts))
        taken, self.queue = numpy.array(self.queue[:size]), self.queue[size:]
        return taken // self.starts, taken % self.starts

    def of(self, trajectories, starts, frames=INPUTS + 1):
        """Windows of as many frames, [windows, frames, component, x, y]."""
        place = [torch.as_tensor(at, device=self.fields.device) for at in (trajectories, starts)]
        return self.fields[place[0][:, None], place[1][:, None] + torch.arange(frames, device=self.fields.device)]


def evaluate(predict, windows, batch=8):
    """The mean squared errors of one step over all windows and components; rollouts summed over their steps: mean and median."""
    count, frames = windows.fields.shape[:2]

    def batches(starts, frames):
        places = numpy.indices((count, starts)).reshape(2, -1)
        for at in range(0, places.shape[1], batch):
            yield windows.of(*places[:, at:at + batch], frames)

    errors = []
    for window in batches(windows.starts, INPUTS + 1):
        errors.append((predict(window[:, :INPUTS]).double() - window[:, INPUTS].double()).square().mean((2, 3)))
    by_component = torch.cat(errors).mean(0)
    rollouts, steps = [], min(ROLLOUT, frames - INPUTS)
    for window in batches(min(STARTS, frames + 1 - INPUTS - steps), INPUTS + steps):
        seen, total = window[:, :INPUTS], 0
        for step in range(steps):
            following = predict(seen)
            total = total + (following.double() - window[:, INPUTS + step].double()).square().mean((1, 2, 3))
            seen = torch.cat([seen[:, 1:], following[:, None]], 1)
        rollouts.append(total)
    rollouts = torch.cat(rollouts)
    return {"mse": by_component.mean().item(), "smoke": by_component[0].item(), "velocity": by_component[1:].mean().item(),
            "rollout": rollouts.mean().item(), "rollout_median": rollouts.median().item()}


def rate(step, arguments):
    """A linear warm-up, then a cosine to 1e-6."""
    warm = arguments.warmup
    if step < warm:
        return arguments.lr * (step + 1) / warm
    part = (step - warm) / max(arguments.steps - warm, 1)
    return 1e-6 + (arguments.lr - 1e-6) * 0.5 * (1 + math.cos(math.pi * part))


def sync(device):
    if device == "cuda":
        torch.cuda.synchronize()


def in_torch(arguments, train, seed):
    torch.manual_seed(seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    net = {"plain": lambda: Plain(2 * arguments.hidden, arguments.taps, arguments.blocks),
           "unet": lambda: UNet(4 * arguments.hidden ** 2 * (2 * arguments.blocks * arguments.taps ** 2 + 2)),
           "clifford": lambda: Clifford(arguments)}[arguments.model]().to(arguments.device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=arguments.lr, weight_decay=1e-5)
    if arguments.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    model, warm = torch.compile(net) if arguments.compile else net, 0.0
    for step in range(arguments.steps):
        if step == arguments.steps // 10:
            sync(arguments.device)
            warm = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = rate(step, arguments)
        window = train.of(*train.places(arguments.batch))
        loss = F.mse_loss(model(window[:, :INPUTS]), window[:, INPUTS])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    sync(arguments.device)
    seconds = (time.perf_counter() - warm) / (arguments.steps - arguments.steps // 10)

    def predict(x):
        with torch.no_grad():
            return net(x)

    peak = torch.cuda.max_memory_allocated() if arguments.device == "cuda" else None
    return predict, sum(p.numel() for p in net.parameters()), seconds, peak


@functools.cache
def jax_functions(cscnn, blocks, hidden, taps, rate):
    """The published network, and its jitted functions: compiled once for all runs, which takes longer than a run."""
    import jax
    import jax.numpy as jnp
    import optax

    sys.path.insert(0, cscnn)
    # The package imports the PyTorch models first, which need more libraries.
    import importlib.util

    from algebra.cliffordalgebra import CliffordAlgebra

    spec = importlib.util.spec_from_file_location("csresnet", f"{cscnn}/models/resnets/csresnet.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    algebra = CliffordAlgebra((1, 1))
    net = module.CSResNet(
        algebra=algebra, time_history=INPUTS, time_future=1, hidden_channels=hidden, kernel_num_layers=4,
        kernel_hidden_dim=12, kernel_size=taps, bias_dims=(0,), blocks=(blocks,), norm=True,
        product_paths_sum=int(algebra.geometric_product_paths.sum()), padding_mode="SAME")
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.inject_hyperparams(optax.adamw)(rate, weight_decay=1e-5))

    @jax.jit
    def forward(params, x):
        return net.apply(params, x)[:, 0, ..., :3]

    @jax.jit
    def window_of(data, trajectories, starts):
        return data[trajectories[:, None], starts[:, None] + jnp.arange(INPUTS + 1)]

    @jax.jit
    def update(params, state, window):
        x, y = window[:, :INPUTS], window[:, INPUTS, ..., :3]
        grads = jax.grad(lambda params: jnp.mean((forward(params, x) - y) ** 2))(params)
        changes, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, changes), state

    # Unjitted, each operation of the network would be compiled for itself.
    return jax.jit(net.init), optimizer, forward, window_of, update


def in_jax(arguments, train, seed):
    import jax
    import jax.numpy as jnp

    settings = (arguments.cscnn, arguments.blocks, arguments.hidden, arguments.taps, arguments.lr)
    init, optimizer, forward, window_of, update = jax_functions(*settings)

    def multivectors(fields):
        """Smoke, velocity, and the blade that the data lack: [trajectories, frames, x, y, blade]."""
        return jnp.pad(jnp.asarray(fields.numpy()).transpose(0, 1, 3, 4, 2), [(0, 0)] * 4 + [(0, 1)])

    data = multivectors(train.fields)
    params = init(jax.random.PRNGKey(seed), data[:1, :INPUTS])
    state = optimizer.init(params)
    warm = 0.0
    for step in range(arguments.steps):
        if step == max(arguments.steps // 10, 2):
            jax.block_until_ready(params)
            warm = time.perf_counter()
        state[1].hyperparams["learning_rate"] = jnp.asarray(rate(step, arguments))
        params, state = update(params, state, window_of(data, *train.places(arguments.batch)))
    jax.block_until_ready(params)
    seconds = (time.perf_counter() - warm) / (arguments.steps - max(arguments.steps // 10, 2))

    def predict(x):
        return torch.from_numpy(numpy.asarray(forward(params, multivectors(x))).transpose(0, 3, 1, 2).copy())

    statistics = jax.devices()[0].memory_stats() or {}
    return predict, sum(p.size for p in jax.tree_util.tree_leaves(params)), seconds, statistics.get("peak_bytes_in_use")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("model", choices=["plain", "unet", "clifford", "steerable"])
    parser.add_argument("--cscnn", help="a checkout of the published networks")
    parser.add_argument("--cliffordlayers", help="a checkout of the published layers")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--compile", action="store_true", help="torch.compile around the network")
    parser.add_argument("--train", default="64", help="numbers of training trajectories, separated by commas")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each, with the seeds 0, 1, …")
    for name, value in [("test", 16), ("cells", 64), ("hidden", 48), ("blocks", 8), ("taps", 7),
                        ("steps", 8000), ("warmup", 0), ("batch", 8)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--lr", type=float, default=1e-3)
    arguments = parser.parse_args()
    # JAX moves the fields to its own device.
    at = "cpu" if arguments.model == "steerable" else arguments.device
    test = Windows(load(arguments.data, "test", arguments.test, arguments.cells).to(at), 0)
    settings = {key: getattr(arguments, key) for key in ("model", "cells", "hidden", "blocks", "steps", "compile")}
    for count in map(int, arguments.train.split(",")):
        fields = load(arguments.data, "train", count, arguments.cells).to(at)
        for seed in range(arguments.seeds):
            train = in_jax if arguments.model == "steerable" else in_torch
            began = time.perf_counter()
            predict, parameters, seconds, peak = train(arguments, Windows(fields, seed), seed)
            times = {"step_ms": seconds * 1e3, "run_s": time.perf_counter() - began}
            print(json.dumps({**settings, "train": count, "seed": seed, "parameters": parameters, "peak_bytes": peak, **times,
                              **evaluate(predict, test)}), flush=True)


if __name__ == "__main__":
    main()

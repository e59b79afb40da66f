#!/usr/bin/env python3
"""The transformer of `gradewise train gpt` in PyTorch: the same sizes, initial distributions, optimiser, schedule, text and splits, with
weights and order of windows drawn by PyTorch. Prints its losses, and those of a run of gradewise beside them.

  gradewise train gpt --out run
  benches/compare_gpt.py --run run                       on the CPU, in f32
  benches/compare_gpt.py --run run --device cuda --dtype bf16 --steps 200     time per step
"""
import argparse
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

DEVIATION = 0.02


class Block(nn.Module):
    def __init__(self, width, heads, layers):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        last = DEVIATION / math.sqrt(2 * layers)
        for layer, deviation in [(self.qkv, DEVIATION), (self.out, last), (self.up, DEVIATION), (self.down, last)]:
            nn.init.normal_(layer.weight, 0, deviation)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, block, width, heads, layers):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, width), nn.Embedding(block, width)
        nn.init.normal_(self.tokens.weight, 0, DEVIATION)
        nn.init.normal_(self.positions.weight, 0, DEVIATION)
        self.blocks = nn.ModuleList(Block(width, heads, layers) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


def rate(step, steps, lr, final, warmup, decay):
    """Half a cosine up, a plateau, half a cosine down."""
    up = 0.5 * (1 - math.cos(math.pi * min((step + 1) / max(warmup, 1), 1)))
    down = 0.5 * (1 - math.cos(math.pi * max(step - steps + decay, 0) / max(decay, 1)))
    return (final * down + lr * (1 - down)) * up


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="folder of a run of gradewise, whose losses are shown beside")
    parser.add_argument("--text", type=Path, default=Path(__file__).resolve().parent.parent / "crates/zoo/src/data/text/sample.txt")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--seed", type=int, default=0)
    for name, value in [("block", 64), ("width", 128), ("heads", 4), ("layers", 4), ("batch", 16), ("steps", 1500)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--lr", type=float, default=1e-3)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype]

    text = torch.frombuffer(bytearray(options.text.read_bytes()), dtype=torch.uint8).long()
    nine_tenths = len(text) // 10 * 9
    train, valid = text[:nine_tenths], text[nine_tenths : nine_tenths + (len(text) - nine_tenths) // 2]
    places = len(valid) - options.block
    starts = torch.arange(min(256, places)) * places // min(256, places)

    def windows(data, starts):
        rows = torch.stack([data[start : start + options.block + 1] for start in starts.tolist()]).to(options.device)
        return rows[:, :-1], rows[:, 1:]

    model = Gpt(options.block, options.width, options.heads, options.layers).to(options.device, dtype)
    count = sum(parameter.numel() for parameter in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.1)

    def loss(tokens, targets):
        return F.cross_entropy(model(tokens).float().flatten(0, 1), targets.flatten())

    records = {}
    if options.run:
        for line in (options.run / "metrics.jsonl").read_text().splitlines():
            record = json.loads(line)
            records.setdefault(record["step"], {}).update(record)
    print(f"{count} parameters; step, then train and valid loss of PyTorch and of gradewise")
    recent, order, seconds, timed = [], torch.empty(0, dtype=torch.long), 0.0, 0
    for step in range(options.steps):
        if len(order) < options.batch:
            order = torch.randperm(len(train) - options.block)
        chosen, order = order[: options.batch], order[options.batch :]
        tokens, targets = windows(train, chosen)
        for group in optimizer.param_groups:
            group["lr"] = rate(step, options.steps, options.lr, 1e-4, options.steps // 40, options.steps - options.steps // 8 * 3)
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        value = loss(tokens, targets)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if options.device.startswith("cuda"):
            torch.cuda.synchronize()
        if step >= 20:
            seconds, timed = seconds + time.perf_counter() - start, timed + 1
        recent.append(value.item())
        if (step + 1) % 100 == 0 or step + 1 == options.steps:
            with torch.no_grad():
                model.eval()
                error = sum(loss(*windows(valid, part)).item() * len(part) for part in starts.split(16)) / len(starts)
                model.train()
            ours = records.get(step + 1, {})
            beside = [f"{ours[key]:.4f}" if key in ours else "-" for key in ("train_loss", "valid_loss")]
            print(f"{step + 1:>6}  {sum(recent[-25:]) / len(recent[-25:]):.4f} {error:.4f}   {' '.join(beside)}", flush=True)
    print(json.dumps({"torch": torch.__version__, "milliseconds_per_step": round(seconds / max(timed, 1) * 1e3, 3)}))


if __name__ == "__main__":
    main()

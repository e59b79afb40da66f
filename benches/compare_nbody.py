#!/usr/bin/env python3
"""Training steps of the n-body network beside its published implementation, on one device, one after the other.

    python3 benches/compare_nbody.py --cgenn FOLDER --program target/release/gradewise                   on the CPU
    python3 benches/compare_nbody.py --cgenn FOLDER --program PROGRAM --device cuda --batch 100 1000 10000

FOLDER is a checkout of github.com/DavidRuhe/clifford-group-equivariant-neural-networks. The published network runs as its script runs
it, and under torch.compile; PROGRAM, built for the device, by `gradewise bench step`, whose network has the same number of parameters:
this is checked. Forward pass, backward pass and Adam, in f32, on random systems of five particles.

Times are medians, on a GPU between two CUDA events, of steps after a warm-up that compilation is part of. One line of JSON for each
measurement; bytes are the peak that each allocator reports, on a GPU alone.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

import torch

PARTICLES = 5


def milliseconds(step, device, steps):
    for index in range(3):
        step(index)
    times = []
    for index in range(steps):
        if device == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            step(index)
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
        else:
            start = time.perf_counter()
            step(index)
            times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def systems(count, device):
    """A batch as the published data set gives it."""
    pairs = [(i, j) for i in range(PARTICLES) for j in range(PARTICLES) if i != j]
    rows, columns = (list(side) for side in zip(*pairs))
    edges = torch.tensor([rows, columns], device=device).repeat(count, 1, 1)
    loc, vel = torch.randn(2, count, PARTICLES, 3, device=device)
    charges = torch.randn(count, PARTICLES, 1, device=device).sign()
    return loc, vel, charges[:, rows] * charges[:, columns], charges, loc + 0.5 * vel, edges


def published(folder):
    sys.path.insert(0, str(folder))
    # What the published project logs and scores with is not needed here. torch.compile must not find the stand-ins later.
    absent = [name for name in ("wandb", "yaml", "sklearn", "sklearn.metrics") if name not in sys.modules]
    sys.modules.update({name: types.ModuleType(name) for name in absent})
    if "sklearn.metrics" in absent:
        sys.modules["sklearn.metrics"].roc_auc_score = sys.modules["sklearn.metrics"].roc_curve = None
    from models.nbody_cggnn import NBodyCGGNN

    for name in absent:
        del sys.modules[name]
    return NBodyCGGNN


def measure_published(kind, compiled, count, device, steps):
    torch.manual_seed(0)
    model = kind().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, weight_decay=1e-4)
    called = torch.compile(model) if compiled else model
    batch = systems(count, device)

    def step(index):
        loss, _ = called(batch, index)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    took = milliseconds(step, device, steps)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else None
    return {
        "by": "published, torch.compile" if compiled else "published",
        "systems": count,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "milliseconds": took,
        "peak_bytes": peak,
    }


def measure_program(program, batches, device, steps):
    """Lines for each batch; on a GPU also of captured steps."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "step"
        arguments = ["bench", "step", "--device", device, "--widths", "28", "--steps", str(steps), "--out", str(out)]
        command = [program, *arguments, "--batches", ",".join(map(str, batches))]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        report = json.loads((out / "step.json").read_text())
    for time_of in report["times"]:
        yield {
            "by": "gradewise, captured" if time_of["captured"] else "gradewise",
            "systems": time_of["batch"],
            "parameters": time_of["parameters"],
            "milliseconds": time_of["milliseconds"],
            "peak_bytes": time_of["peak_bytes"] if device == "cuda" else None,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cgenn", type=Path, required=True, metavar="FOLDER", help="a checkout of the published networks")
    parser.add_argument("--program", default="gradewise", help="the program gradewise, built for the device")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--batch", type=int, nargs="+", default=[100, 1000, 10000], metavar="N", help="systems in a batch")
    parser.add_argument("--steps", type=int, default=20, help="timed steps")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out, which takes minutes")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("compare_nbody: PyTorch finds no GPU; leave out --device cuda")
    if not (options.cgenn / "models" / "nbody_cggnn.py").is_file():
        sys.exit(f"compare_nbody: {options.cgenn} has no models/nbody_cggnn.py; give a checkout of the published networks")
    kind = published(options.cgenn)
    name = torch.cuda.get_device_name() if options.device == "cuda" else f"cpu, {torch.get_num_threads()} threads"
    print(json.dumps({"device": name, "torch": torch.__version__}), flush=True)
    sizes = set()
    for count in options.batch:
        for compiled in (False, True)[: 1 if options.no_compile else 2]:
            line = measure_published(kind, compiled, count, options.device, options.steps)
            sizes.add(line["parameters"])
            print(json.dumps(line), flush=True)
    for line in measure_program(options.program, options.batch, options.device, options.steps):
        sizes.add(line["parameters"])
        print(json.dumps(line), flush=True)
    if len(sizes) > 1:
        sys.exit(f"compare_nbody: the networks differ: they have {sorted(sizes)} parameters")


if __name__ == "__main__":
    main()

"""A training step and a prediction of L-GATr, L-GATr-slim and GATr: the published packages beside gradewise.torch, eager and as a CUDA graph.

    pip install lgatr==2.0.0
    pip install git+https://github.com/Qualcomm-AI-research/geometric-algebra-transformer
    python benches/compare_transformers.py [--tokens 64] [--batch 128] [--blocks 12] [--only LGATr] [--kernels]

Prints a line of JSON for each model: medians between CUDA events in milliseconds, peak memory in GiB. Float32, products of matrices in TF32,
fused AdamW. Needs a CUDA device. A package that is not installed is left out, with a line that says so.
"""

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import warnings

import torch


def median_ms(work, repeats=20):
    for _ in range(4):
        work()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return round(statistics.median(times), 2)


def network(package, name, blocks):
    torch.manual_seed(0)
    scalars = dict(in_s_channels=1, out_s_channels=1)
    multivectors = dict(num_blocks=blocks, in_mv_channels=1, out_mv_channels=1, hidden_mv_channels=16)
    if name == "LGATrSlim":
        return package.LGATrSlim(
            num_blocks=blocks, in_v_channels=1, out_v_channels=1, hidden_v_channels=32, hidden_s_channels=96, num_heads=8, **scalars
        ).cuda()
    if name == "GATr":
        attention, mlp = package.SelfAttentionConfig(num_heads=8), package.MLPConfig()
        return package.GATr(**multivectors, **scalars, hidden_s_channels=128, attention=attention, mlp=mlp).cuda()
    return package.LGATr(**multivectors, **scalars, hidden_s_channels=32, attention={"num_heads": 8}, mlp={}).cuda()


def measure(model, inputs, by_kernel=False):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True, capturable=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        first, second = model(*inputs)
        (first.square().mean() + second.square().mean()).backward()
        optimizer.step()

    # In a stream of its own, as the capture asks for.
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        found = {"eager_ms": median_ms(step), "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2)}
        with torch.no_grad():
            found["prediction_ms"] = median_ms(lambda: model(*inputs))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            step()
    except RuntimeError as error:
        # GATr copies its constants from the host at each call.
        torch.cuda.synchronize()
        return {**found, "graph_ms": None, "reason": str(error).splitlines()[0][:100]}
    return {**found, "graph_ms": median_ms(graph.replay), **({"kernels_us": kernels(graph.replay)} if by_kernel else {})}


def kernels(work, repeats=3):
    """Microseconds of each kernel in a step, the longest first, with the number of its launches."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(repeats):
            work()
        torch.cuda.synchronize()
    found = ((e.key[:80], round(e.self_device_time_total / e.count, 1), e.count // repeats) for e in profile.key_averages())
    return sorted(found, key=lambda kernel: -kernel[1] * kernel[2])[:40]


CASES = [
    ("LGATr", "lgatr", 16, None),
    ("LGATrSlim", "lgatr", 4, None),
    ("GATr", "gatr", 16, (64, 4)),
    ("GATr", "gatr", 16, (64, 200)),
]
"""Models, packages, components of an input, and sets and items where they are not those of the options."""


def one(case, by, options):
    name, _, components, sizes = CASES[case]
    sizes, blocks = sizes or (options.batch, options.tokens), options.blocks if sizes is None else 10
    try:
        package = importlib.import_module(by)
    except ImportError as error:
        print(json.dumps({"left out": by, "reason": str(error)}), flush=True)
        return
    warnings.simplefilter("ignore")
    torch.backends.cuda.matmul.allow_tf32 = True
    inputs = (torch.randn(*sizes, 1, components, device="cuda"), torch.randn(*sizes, 1, device="cuda"))
    found = measure(network(package, name, blocks), inputs, options.kernels)
    print(json.dumps({"model": name, "sizes": sizes, "by": by, **found}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--only", help="one model: LGATr, LGATrSlim or GATr")
    parser.add_argument("--ours", action="store_true", help="without the published packages")
    parser.add_argument("--kernels", action="store_true", help="the time of each kernel of the graph as well")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        return one(int(options.case[0]), options.case[1], options)
    print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__}), flush=True)
    for number, (name, published, _, _) in enumerate(CASES):
        if options.only in (None, name):
            for by in ([] if options.ours else [published]) + [f"gradewise.torch.{published}"]:
                # A process for each: a capture that fails may leave the next one nothing to work with.
                subprocess.run([sys.executable, __file__, *sys.argv[1:], "--case", str(number), by], check=False)


if __name__ == "__main__":
    main()

"""A training step and a prediction of L-GATr and L-GATr-slim: the published package beside gradewise.torch.lgatr, eager and as a CUDA graph.

    pip install lgatr==2.0.0
    python benches/compare_transformers.py [--tokens 64] [--batch 128] [--blocks 12]

Prints a line of JSON for each model: medians between CUDA events in milliseconds, peak memory in GiB. Float32, products of matrices in TF32,
fused AdamW. Needs a CUDA device.
"""

import argparse
import json
import statistics
import warnings

import lgatr
import torch

import gradewise.torch.lgatr


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
    if name == "LGATr":
        return package.LGATr(
            num_blocks=blocks, in_mv_channels=1, out_mv_channels=1, hidden_mv_channels=16, in_s_channels=1, out_s_channels=1,
            hidden_s_channels=32, attention={"num_heads": 8}, mlp={},
        ).cuda()
    return package.LGATrSlim(
        num_blocks=blocks, in_v_channels=1, out_v_channels=1, hidden_v_channels=32, in_s_channels=1, out_s_channels=1,
        hidden_s_channels=96, num_heads=8,
    ).cuda()


def measure(model, inputs):
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
    with torch.cuda.graph(graph):
        step()
    return {**found, "graph_ms": median_ms(graph.replay)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=12)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.backends.cuda.matmul.allow_tf32 = True
    print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "lgatr": lgatr.__version__}))
    for name, components in (("LGATr", 16), ("LGATrSlim", 4)):
        shape = (options.batch, options.tokens, 1)
        inputs = (torch.randn(*shape, components, device="cuda"), torch.randn(*shape, device="cuda"))
        for by, package in (("published", lgatr), ("gradewise", gradewise.torch.lgatr)):
            print(json.dumps({"model": name, "by": by, **measure(network(package, name, options.blocks), inputs)}), flush=True)


if __name__ == "__main__":
    main()

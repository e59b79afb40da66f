#!/usr/bin/env python3
"""The published Clifford modules, and plain convolutions of as many multiply-adds, on the shapes of `cargo run --release -p gradewise-nn
--example field_speed`, one JSON object per line. Needs PyTorch and a checkout of github.com/microsoft/cliffordlayers:

  compare_fields.py PATH_OF_CLIFFORDLAYERS cpu|cuda [small] [compile]
"""
import json
import sys
import time

import torch


def seconds(call, device):
    def sync():
        if device == "cuda":
            torch.cuda.synchronize()

    def run(calls):
        sync()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        sync()
        return (time.perf_counter() - start) / calls

    run(2)
    calls = int(min(max(0.05 / run(1), 1), 100))
    return min(run(calls) for _ in range(4))


def measure(name, module, shape, dtype, device, compiled):
    x = torch.randn(shape, device=device, dtype=dtype)
    module = module.to(device=device, dtype=dtype)
    if compiled:
        module = torch.compile(module)
    with torch.no_grad():
        forward = seconds(lambda: module(x), device)
    x.requires_grad_()
    grad = torch.randn_like(module(x))
    leaves = [x] + [p for p in module.parameters() if p.requires_grad]

    def training():
        torch.autograd.grad(module(x), leaves, grad)

    print(json.dumps({"case": name, "dtype": str(dtype), "shape": list(shape), "forward_ms": forward * 1e3,
                      "training_ms": seconds(training, device) * 1e3}), flush=True)


def main():
    path, device, *rest = sys.argv[1:]
    sys.path.insert(0, path)
    from cliffordlayers.nn.modules.cliffordconv import CliffordConv2d, CliffordConv3d
    from cliffordlayers.nn.modules.cliffordfourier import CliffordSpectralConv2d, CliffordSpectralConv3d

    shrink, compiled = (4 if "small" in rest else 1), "compile" in rest
    n, m = 128 // shrink, 32 // shrink
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), "compile": compiled}))
    for dtype in [torch.float32] if device == "cpu" else [torch.float32, torch.bfloat16]:
        def run(name, module, shape):
            measure(name, module, shape, dtype, device, compiled)

        run("clifford_conv2d", CliffordConv2d((1, 1), 64, 64, 3, padding=1), (8, 64, n, n, 4))
        run("plain_conv2d", torch.nn.Conv2d(256, 256, 3, padding=1), (8, 256, n, n))
        run("clifford_conv3d", CliffordConv3d((1, 1, 1), 32, 32, 3, padding=1), (2, 32, m, m, m, 8))
        run("plain_conv3d", torch.nn.Conv3d(256, 256, 3, padding=1), (2, 256, m, m, m))
        if dtype == torch.float32:
            k = 16 // shrink
            run("clifford_spectral2d", CliffordSpectralConv2d((1, 1), 64, 64, k, k), (8, 64, n, n, 4))
            k = 8 // shrink
            run("clifford_spectral3d", CliffordSpectralConv3d((1, 1, 1), 32, 32, k, k, k), (2, 32, m, m, m, 8))


if __name__ == "__main__":
    main()

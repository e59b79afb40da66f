#!/usr/bin/env python3
"""PyTorch's scaled_dot_product_attention on the shapes of `cargo run --release --features cuda -p gradewise-kernels --example
attention_speed`, one JSON object per line. Run both on the same GPU, one after the other."""
import json
import time

import torch
import torch.nn.functional as F


def seconds(call):
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    calls = int(min(max(5e-3 / (time.perf_counter() - start), 2), 200))
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def main():
    print(json.dumps({"torch": torch.__version__, "device": torch.cuda.get_device_name()}))
    shapes = [(4, 16, 2048, 64), (4, 16, 2048, 128), (2, 16, 8192, 64), (2, 16, 8192, 128), (16, 4, 64, 32)]
    for shape in shapes:
        for causal in [False, True]:
            q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16).requires_grad_() for _ in range(3))
            with torch.no_grad():
                forward = seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal))
            out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            grad = torch.randn_like(out)
            backward = seconds(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True))
            batch, heads, tokens, features = shape
            work = 4 * batch * heads * tokens * tokens * features / (2 if causal else 1)
            print(json.dumps({
                "op": "attention", "shape": shape, "causal": causal,
                "forward_us": round(forward * 1e6, 1), "forward_tflops": round(work / forward / 1e12, 1),
                "backward_us": round(backward * 1e6, 1), "backward_tflops": round(2.5 * work / backward / 1e12, 1),
            }), flush=True)


if __name__ == "__main__":
    main()

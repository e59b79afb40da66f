"""Attention in float32 inside the transformers of gradewise.torch beside PyTorch's scaled_dot_product_attention: errors and times.

    python benches/compare_attention_f32.py [--quick]

Prints a line of JSON for each shape and precision of products: the distance from float64 of the result and of the three gradients, relative
to its norm, and times in milliseconds, forward and backward, by CUDA events. Exits with 1 if an error is larger than its table allows, if a
repetition gives other bits, or if the library's kernels were not used. Needs a CUDA device of compute capability 8.0 or later.
"""

import argparse
import json
import statistics
import sys

import torch
import torch.nn.functional as F

from gradewise.torch._transformers import attention

# Sets, items, heads, features of queries and keys, and of values.
TIMED = [(64, 200, 8, 80, 96), (64, 200, 8, 96, 96), (64, 200, 8, 80, 80), (128, 64, 8, 36, 36), (1, 10000, 8, 36, 36)]
CHECKED = [
    (2, items, 3, features, features)
    for items in (1, 31, 64, 65, 130)
    for features in (4, 33, 36, 48, 52, 64, 80, 96, 100, 128)
]
ALLOWED = {True: 2e-3, False: 3e-6}
"""For products in TF32 and in float32."""


def median_ms(work, repeats):
    for _ in range(3):
        work()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return round(statistics.median(times), 4)


def operands(shape, beside):
    sets, items, heads, wide, values = shape

    def draw(width):
        if beside:
            return torch.randn(sets, items, heads, width, device="cuda").transpose(1, 2)
        return torch.randn(sets, heads, items, width, device="cuda")

    return draw(wide), draw(wide), draw(values), draw(values)


def results(call, q, k, v, grad, **options):
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    output = call(*inputs, **options)
    return [output.detach(), *torch.autograd.grad(output, inputs, grad)]


def distance(found, expected):
    return ((found.double() - expected).norm() / expected.norm().clamp_min(1e-30)).item()


def errors(call, given, causal):
    exact = results(F.scaled_dot_product_attention, *(x.double() for x in given), is_causal=causal)
    found = results(call, *given, is_causal=causal)
    # A single key leaves queries and keys without a gradient: what remains is rounding.
    scale = max(x.norm().item() for x in exact[1:]) or 1.0
    return [
        min(distance(f, e), (f.double() - e).norm().item() / scale) if i else distance(f, e)
        for i, (f, e) in enumerate(zip(found, exact))
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and no checks of many sizes")
    quick = parser.parse_args().quick
    torch.manual_seed(0)
    print(json.dumps({"torch": torch.__version__, "device": torch.cuda.get_device_name()}), flush=True)
    ours, failures = attention._native, 0
    for tf32 in (True, False):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        worst = 0.0
        for index, shape in enumerate([] if quick else CHECKED):
            for causal in (False, True):
                given = operands(shape, beside=index % 2 == 0)
                found = errors(ours, given, causal)
                worst = max(worst, *found)
                if not all(e <= ALLOWED[tf32] for e in found):
                    failures += 1
                    print(json.dumps({"wrong": shape, "tf32": tf32, "causal": causal, "errors": found}), flush=True)
        print(json.dumps({"tf32": tf32, "worst of all sizes": worst}), flush=True)
        for shape in TIMED:
            line = {"shape": shape, "tf32": tf32}
            given = operands(shape, beside=False)
            inputs = [x.detach().requires_grad_() for x in given[:3]]
            if not attention._is_served(*inputs, {}):
                failures += 1
                line["not served"] = True
            first = results(ours, *given)
            if not all(torch.equal(a, b) for a, b in zip(first, results(ours, *given))):
                failures += 1
                line["other bits"] = True
            for name, call in (("ours", ours), ("torch", F.scaled_dot_product_attention)):
                if shape[1] <= 1000:
                    found = errors(call, given, False)
                    line[f"{name} errors"] = [float(f"{e:.2g}") for e in found]
                    failures += name == "ours" and not all(e <= ALLOWED[tf32] for e in found)
                with torch.no_grad():
                    forward = median_ms(lambda: call(*given[:3]), 8 if quick else 20)
                output = call(*inputs)
                backward = median_ms(
                    lambda: torch.autograd.grad(output, inputs, given[3], retain_graph=True), 8 if quick else 20
                )
                line[f"{name} ms"] = forward, backward
                del output
            print(json.dumps(line), flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

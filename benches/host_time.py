#!/usr/bin/env python3
"""Where the host's time goes in one Clifford layer through PyTorch in eager code, forward and backward.

    benches/host_time.py [--device cuda] [--rows 64] [--features 64] [--flash FOLDER]

Beside the layer: an autograd function that computes nothing, with as many inputs (what PyTorch itself takes for a node), a linear map with
GELU, and, with a checkout of github.com/maxxxzdn/flash-clifford, its module. On a device each is timed twice: as PyTorch runs backward
passes, in a thread for the device to which the caller's hands over, and in the caller's thread
(`torch.autograd.set_multithreading_enabled(False)`).

Times are of the host alone: medians over calls in blocks, after each of which the device is waited for. Sizes are small so that the device
never limits; with fewer than 64 rows or features a GPU gets other kernels than with many. One line of JSON each.
"""

import argparse
import json
import statistics
import sys
import time
from contextlib import nullcontext

import torch
from torch.nn import functional

now = time.perf_counter_ns


def microseconds(call, device, blocks=100, calls=20):
    """The median, and the least, of the time of a call."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for _ in range(200):
        call()
    times = []
    for _ in range(blocks):
        wait()
        began = now()
        for _ in range(calls):
            call()
        times.append((now() - began) / calls / 1e3)
    wait()
    return {"median_us": round(statistics.median(times), 1), "least_us": round(min(times), 1)}


class Nothing(torch.autograd.Function):
    """A node with four inputs that saves what a layer saves."""

    @staticmethod
    def forward(ctx, x, *parameters):
        y = x.detach()
        ctx.save_for_backward(x, *parameters, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, *parameters, y = ctx.saved_tensors
        return grad, *(p.detach() for p in parameters)


def phases(layer, x, grad, device, threads):
    """How a call divides: medians of the time from one place to the next."""
    from gradewise import _core

    bias = '"all_blades"'
    product = '{"gate":true,"normalize":true}'
    attributes = f'{{"algebra":"3,0,0","bias":{bias},"product":{product},"recompute":false}}'
    native = _core.Composite(
        [("clifford_layer", attributes, [0, 1, 2, 3])], ["same", "same", "same", "last"], "same"
    )
    seen = {}

    class Timed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            seen["apply, before the library"] = now()
            output, ctx.history = native.forward(inputs, ctx.needs_input_grad, None)
            seen["library, forward"] = now()
            ctx.save_for_backward(*inputs, output)
            return output

        @staticmethod
        def backward(ctx, grad):
            seen["engine, before the node"] = now()
            saved = ctx.saved_tensors
            assert len(saved) == 5
            seen["saved tensors"] = now()
            gradients = ctx.history.backward(grad, False)
            seen["library, backward"] = now()
            return tuple(gradients)

    inputs = [x, layer.linear_weight, layer.gp_weight, layer.linear_bias]
    times = {}
    for index in range(2000):
        if device == "cuda" and index % 20 == 0:
            torch.cuda.synchronize()
        began = now()
        output = Timed.apply(*inputs)
        applied = now()
        torch.autograd.grad(output, inputs, grad)
        seen["engine, after the node"] = now()
        place = began
        for name in list(seen):
            if name == "engine, before the node":
                times.setdefault("apply, after the library", []).append(applied - place)
                place = applied
            times.setdefault(name, []).append(seen[name] - place)
            place = seen[name]
        seen.clear()
    found = {name: round(statistics.median(values) / 1e3, 1) for name, values in times.items()}
    print(json.dumps({"phases": found, "device_thread": threads}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--flash", help="a checkout of Flash Clifford")
    options = parser.parse_args()
    device, features = options.device, options.features
    torch.set_num_threads(1)

    from gradewise.torch.flash import Layer

    layer = Layer(features, 3).to(device)
    x = torch.randn(8, options.rows, features, device=device, requires_grad=True)
    grad = torch.randn_like(x)
    parameters = [layer.linear_weight, layer.gp_weight, layer.linear_bias]
    sizes = ((features, features), (features,))
    weight, bias = (torch.randn(size, device=device, requires_grad=True) for size in sizes)
    cases = {
        "gradewise": (lambda: layer(x), [x, *parameters]),
        "nothing": (lambda: Nothing.apply(x, *parameters), [x, *parameters]),
        "linear, gelu": (lambda: functional.gelu(functional.linear(x, weight, bias)), [x, weight, bias]),
    }
    if options.flash:
        sys.path.insert(0, options.flash)
        from modules.layer import Layer as Flash

        flash = Flash(features, 3).to(device)
        cases["flash-clifford"] = (lambda: flash(x), [x, *flash.parameters()])
    if device == "cuda":
        print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__}), flush=True)
    for name, (forward, leaves) in cases.items():
        times = microseconds(forward, device)
        print(json.dumps({"case": name, "pass": "forward", **times}), flush=True)
        for threads in (True, False) if device == "cuda" else (True,):
            with nullcontext() if threads else torch.autograd.set_multithreading_enabled(False):
                times = microseconds(lambda: torch.autograd.grad(forward(), leaves, grad), device)
            print(json.dumps({"case": name, "pass": "both", "device_thread": threads, **times}), flush=True)
    plain = torch.empty(1024, device=device)
    print(json.dumps({"case": "an allocation", **microseconds(lambda: torch.empty(1024, device=device), device)}))
    print(json.dumps({"case": "an operator in place", **microseconds(lambda: plain.mul_(1.0), device)}), flush=True)
    for threads in (True, False) if device == "cuda" else (True,):
        with nullcontext() if threads else torch.autograd.set_multithreading_enabled(False):
            phases(layer, x, grad, device, threads)


if __name__ == "__main__":
    main()

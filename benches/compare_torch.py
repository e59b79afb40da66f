#!/usr/bin/env python3
"""What gradewise's operators give to models in PyTorch, beside the published implementations, in one run on one GPU.

    benches/compare_torch.py layer [--flash FOLDER]     the Clifford layer, beside Flash Clifford's own module
    benches/compare_torch.py nbody --cgenn FOLDER       a training step of the published n-body network, before and after accelerate(),
                                                        its layers as one node and one by one, and the host's time of both passes
    benches/compare_torch.py train --cgenn FOLDER --data FOLDER [--accelerate [--graph]]    its training, and its test error

FOLDER is a checkout of github.com/maxxxzdn/flash-clifford, or of github.com/DavidRuhe/clifford-group-equivariant-neural-networks.
Needs the Python package gradewise with kernels for the GPU (docs/python.md), PyTorch, and for the comparisons what those projects need.

Times are medians over repetitions of blocks of calls between two CUDA events, after a warm-up; inputs are rotated so that none stays in
the second-level cache. One line of JSON for each measurement.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch
from compare_nbody import published


def milliseconds(call, repetitions=15, calls=20, warmup=10):
    for index in range(warmup):
        call(index)
    torch.cuda.synchronize()
    times = []
    for _ in range(repetitions):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for index in range(calls):
            call(index)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / calls)
    return statistics.median(times)


def captured(call):
    """The call as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for index in range(5):
            call(index)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(0)
    return lambda index: graph.replay()


def host_milliseconds(call, repetitions=60):
    """The host's time alone: the device is idle when a call begins."""
    for _ in range(10):
        call()
    times = []
    for _ in range(repetitions):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - began))
    torch.cuda.synchronize()
    return statistics.median(times)


def report(**fields):
    print(json.dumps(fields), flush=True)


def passes(module, inputs, grads):
    """Forward and backward, the gradients replaced each time."""
    parameters = list(module.parameters())

    def call(index):
        x, grad = inputs[index % len(inputs)], grads[index % len(grads)]
        torch.autograd.grad(module(x), [x, *parameters], grad)

    return call


def layer(options):
    from gradewise.torch.flash import Layer

    classes = {"gradewise": Layer}
    if options.flash:
        sys.path.insert(0, options.flash)
        from modules.layer import Layer as Flash

        classes["flash-clifford"] = Flash
    for rows, features in ((1024, 512), (4096, 512)):
        for full in (False, True):
            made = {name: kind(features, 3, use_fc=full).cuda() for name, kind in classes.items()}
            for module in made.values():
                module.load_state_dict(made["gradewise"].state_dict())
            count = max(2, (200 << 20) // (8 * rows * features * 4))
            inputs = [torch.randn(8, rows, features, device="cuda").requires_grad_() for _ in range(count)]
            grads = [torch.randn(8, rows, features, device="cuda") for _ in range(2)]
            reference = None
            for name, module in made.items():
                output = module(inputs[0]).detach()
                reference = output if reference is None else reference
                difference = ((output - reference).norm() / reference.norm()).item()
                for tf32 in (False, True):
                    torch.backends.cuda.matmul.allow_tf32 = tf32
                    call = passes(module, inputs, grads)
                    eager = milliseconds(call)
                    # Triton kernels that tune themselves cannot be captured for the first time.
                    graph = milliseconds(captured(call)) if name == "gradewise" else None
                    report(
                        layer=name,
                        rows=rows,
                        features=features,
                        fully_connected=full,
                        tf32=tf32,
                        eager_ms=eager,
                        graph_ms=graph,
                        difference=difference,
                    )


def systems(count):
    """A batch as the published data set gives it."""
    rows, columns = zip(*[(i, j) for i in range(5) for j in range(5) if i != j])
    edges = torch.tensor([rows, columns], device="cuda").repeat(count, 1, 1)
    loc, vel = torch.randn(2, count, 5, 3, device="cuda")
    charges = torch.randn(count, 5, 1, device="cuda").sign()
    products = charges[:, list(rows)] * charges[:, list(columns)]
    return loc, vel, products, charges, loc + 0.5 * vel, edges


def train(options):
    """The published schedule, optimiser and batches; the data set's own loader reads the published files."""
    NBodyCGGNN = published(options.cgenn)
    os.environ["DATAROOT"] = options.data
    from data.nbody import NBodyDataset
    from engineer.schedulers.cosine import CosineAnnealingLR

    import gradewise.torch

    def load(partition, count):
        loaded = NBodyDataset(partition, count, "nbody_small")
        loc, vel, products, charges = (part.cuda() for part in loaded.data)
        frames = loc[:, 30], vel[:, 30], products, charges, loc[:, 40]
        # Forces between pairs leave the centre of mass in uniform motion; with coordinates in another order they do not.
        missed = (loc[:, 40] - loc[:, 30] - vel[:, 30]).mean(1).square().mean().item()
        if not missed < 1e-3:
            raise SystemExit(f"{partition}: centres of mass miss x + v by {missed:.2e}: not the published set, or its axes in another order")
        return [frame.contiguous() for frame in frames], loaded.edges.cuda()

    size, steps = 100, options.steps
    fields, edges = load("train", 3000)
    tests, _ = load("test", 2000)
    edges = edges.expand(size, *edges.shape).contiguous()
    torch.manual_seed(options.seed)
    model = NBodyCGGNN().cuda()
    if options.accelerate:
        gradewise.torch.accelerate(model, verbose=False)
    rate = torch.tensor(4e-3, device="cuda") if options.graph else 4e-3
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=1e-4, capturable=options.graph)
    # The rate of each step, from the published schedule on an optimiser that is never stepped.
    rates = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=4e-3)
    schedule = CosineAnnealingLR(rates, steps, warmup_steps=steps // 64, decay_steps=steps // 4)
    static = [field[:size].clone() for field in fields]

    def step():
        loss, _ = model((*static, edges), 0)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    run = step
    if options.graph:
        state = {name: value.clone() for name, value in model.state_dict().items()}
        replay = captured(lambda index: step())
        # The steps before the capture count as none.
        model.load_state_dict(state)
        for of_parameter in optimizer.state.values():
            for value in of_parameter.values():
                value.zero_()
        run = lambda: replay(0)
    start, order = time.perf_counter(), []
    for number in range(steps):
        if len(order) < size:
            order = torch.randperm(len(fields[0]), device="cuda")
        chosen, order = order[:size], order[size:]
        for target, field in zip(static, fields):
            torch.index_select(field, 0, chosen, out=target)
        now = float(rates.param_groups[0]["lr"])
        for group in optimizer.param_groups:
            if options.graph:
                group["lr"].fill_(now)
            else:
                group["lr"] = now
        run()
        schedule.step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    with torch.no_grad():
        errors = [model((*(t[at : at + size] for t in tests), edges), 0)[0].item() for at in range(0, len(tests[0]), size)]
    report(
        train="accelerated" if options.accelerate else "published",
        graph=options.graph,
        steps=steps,
        seed=options.seed,
        seconds=seconds,
        test_error=statistics.mean(errors),
    )


def nbody(options):
    NBodyCGGNN = published(options.cgenn)

    import gradewise.torch

    for count in options.batch:
        batch = systems(count)
        first = None
        for fused in (False, True):
            torch.manual_seed(0)
            model = NBodyCGGNN().cuda()
            if fused:
                made = gradewise.torch.accelerate(model, verbose=False)

            def steps(**options):
                """Steps with an optimiser as the published script makes it, but for these options."""
                optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, weight_decay=1e-4, **options)

                def step(index):
                    loss, _ = model(batch, index)
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()
                    optimizer.step()

                return step

            parameters = list(model.parameters())

            def both():
                for parameter in parameters:
                    parameter.grad = None
                model(batch, 0)[0].backward()

            loss = model(batch, 0)[0].item()
            first = loss if first is None else first
            torch.cuda.reset_peak_memory_stats()
            fields = {"eager_ms": milliseconds(steps(), 7, 10)}
            if fused:
                fields["replaced"] = len(made.replaced)
                fields["eager_fused_adam_ms"] = milliseconds(steps(fused=True), 7, 10)
                fields["graph_ms"] = milliseconds(captured(steps(capturable=True)), 7, 20)
                fields["host_forward_ms"] = host_milliseconds(lambda: model(batch, 0))
                fields["host_both_ms"] = host_milliseconds(both)
                # With a hook on one of them, layers run one by one.
                with model.layers[0].register_forward_hook(lambda *_: None):
                    fields["layer_by_layer_ms"] = milliseconds(steps(), 7, 10)
                    fields["layer_by_layer_host_both_ms"] = host_milliseconds(both)
            report(
                nbody="accelerated" if fused else "published",
                batch=count,
                loss=loss,
                difference=abs(loss / first - 1),
                peak_bytes=torch.cuda.max_memory_allocated(),
                **fields,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    of_layer = commands.add_parser("layer", help="the Clifford layer")
    of_layer.add_argument("--flash", help="a checkout of Flash Clifford")
    of_layer.set_defaults(run=layer)
    of_nbody = commands.add_parser("nbody", help="the published n-body network")
    of_nbody.add_argument("--cgenn", required=True, help="a checkout of the published networks")
    of_nbody.add_argument("--batch", type=int, nargs="+", default=[100, 1000], help="systems in a batch")
    of_nbody.set_defaults(run=nbody)
    of_train = commands.add_parser("train", help="training of the published n-body network")
    of_train.add_argument("--cgenn", required=True, help="a checkout of the published networks")
    of_train.add_argument("--data", required=True, help="the folder with nbody/loc_train_charged5_initvel1small.npy and the like")
    of_train.add_argument("--accelerate", action="store_true", help="replace its modules by gradewise.torch.accelerate")
    of_train.add_argument("--graph", action="store_true", help="the step as a CUDA graph; the published modules cannot be captured")
    of_train.add_argument("--steps", type=int, default=131072)
    of_train.add_argument("--seed", type=int, default=0)
    of_train.set_defaults(run=train)
    options = parser.parse_args()
    report(device=torch.cuda.get_device_name(), torch=torch.__version__)
    options.run(options)


if __name__ == "__main__":
    main()

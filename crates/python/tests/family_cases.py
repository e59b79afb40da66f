"""Modules of cliffordlayers and CSMPN under test: how ours and the published ones are made and run, and how far numbers are from one another."""

import contextlib
import functools
import hashlib
import importlib
import json
import math
import os
import types
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open

FOLDER = Path(os.environ.get("GRADEWISE_GOLDEN", Path(__file__).parent)) / "families"
GRAPH = ("node_types", "x_ind", "x_ind_batch", "batch", "x_ind_ptr", "ptr", "edge_index")


def batch(graphs, nodes):
    """The simplices of some graphs: nodes, a few edges, and a triangle in all but the second. Messages go between faces and between nodes."""
    found = {name: [] for name in GRAPH}
    starts, edges = [0], []
    for graph in range(graphs):
        simplices = [(i,) for i in range(nodes)] + [(0, 1), (1, 2), (0, 2), (2, 3)] + [(0, 1, 2)] * (graph != 1)
        pairs = [
            (a, b)
            for a, x in enumerate(simplices)
            for b, y in enumerate(simplices)
            if a != b and (set(x) < set(y) or set(y) < set(x) or len(x) == len(y) == 1)
        ]
        edges += [(starts[-1] + a, starts[-1] + b) for a, b in pairs]
        found["node_types"] += [len(s) - 1 for s in simplices]
        found["x_ind"] += [[*s, 0, 0][:3] for s in simplices]
        found["batch"] += [graph] * len(simplices)
        starts.append(starts[-1] + len(simplices))
    tensors = {name: torch.tensor(values) for name, values in found.items() if values}
    tensors |= {"x_ind_batch": tensors["batch"], "x_ind_ptr": torch.tensor(starts), "ptr": torch.tensor(starts)}
    return tensors | {"edge_index": torch.tensor(edges).T.contiguous()}


def numbers(shape, seed):
    """Numbers from -1 to 1 that are the same wherever tests run."""
    count = torch.arange(math.prod(shape))
    scattered = (count * count * 7919 + count * 104729 + seed * 15485863) % 65537
    return (scattered.double() / 32768 - 1).reshape(shape)


def drawn(case):
    """Inputs of a case in double precision, and what says who is whose neighbour."""
    whole = {}
    if case.graph and "h" in case.shapes:
        nodes, edges = case.graph
        whole["edge_index"] = ((numbers((2, edges), 99) + 1) / 2 * nodes).long()
    elif case.graph:
        whole = batch(*case.graph)
    simplices = len(whole.get("node_types", ()))
    inputs = {}
    for seed, (name, shape) in enumerate(case.shapes.items()):
        sizes = (None, shape) if isinstance(shape, int) else shape
        inputs[name] = 2 * numbers([simplices if size is None else size for size in sizes], seed + 1)
    return inputs, whole


def call(model, inputs, whole):
    """The outputs of a model."""
    if "node_types" in whole:
        named = {name: x.clone() for name, x in (inputs | whole).items()}
        loss, losses = model(types.SimpleNamespace(**named), 0, "train")
        return [loss, *(losses[name] for name in sorted(losses))]
    if "h" in inputs:
        return [model(inputs["h"], whole["edge_index"], *(inputs[name] for name in list(inputs)[1:]))]
    return [model(*inputs.values())]


def evaluate(model, inputs, whole, cotangents=None):
    """Outputs, and gradients of inputs and parameters, by name. Of a network's losses the first is differentiated."""
    inputs = {name: x.detach().clone().requires_grad_() for name, x in inputs.items()}
    model.zero_grad(set_to_none=True)
    outputs = call(model, inputs, whole)
    seeds = cotangent(outputs[0]) if cotangents is None else cotangents
    (outputs[0] * seeds).sum().backward()
    found = {f"out.{number}": y.detach() for number, y in enumerate(outputs)}
    found |= {f"grad.in.{name}": x.grad for name, x in inputs.items() if x.grad is not None}
    found |= {f"grad.{name}": p.grad for name, p in model.named_parameters() if p.grad is not None}
    return found


def cotangent(y):
    """Numbers of the shape of an output that are the same wherever tests run."""
    return torch.sin(1.0 + torch.arange(y.numel(), dtype=torch.float64)).reshape(y.shape).to(y)


def disturb(model):
    """Moves parameters and running statistics away from zeros and ones, by numbers that are the same wherever tests run."""
    with torch.no_grad():
        for number, parameter in enumerate(p for p in model.parameters() if p.requires_grad):
            count = torch.arange(parameter.numel(), dtype=torch.float64)
            parameter += (0.3 * torch.sin(2.0 + number + 1.7 * count)).reshape(parameter.shape).to(parameter)
        for name, buffer in model.named_buffers():
            if name == "running_mean":
                buffer += (
                    torch.linspace(-0.5, 0.5, buffer.numel(), dtype=torch.float64).reshape(buffer.shape).to(buffer)
                )
            elif name == "running_cov":
                blades = len(buffer)
                factor = torch.sin(torch.arange(blades * blades, dtype=torch.float64)).reshape(blades, blades)
                buffer += (0.2 * factor @ factor.T)[..., None].to(buffer)
    return model


@contextlib.contextmanager
def default_dtype(dtype):
    """The published packages make constants in the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _made(package, case):
    arguments = dict(case.arguments)
    if case.metric:
        place = "cliffordalgebra" if case.package == "cliffordlayers" else "algebra.cliffordalgebra"
        arguments["algebra"] = importlib.import_module(f"{package}.{place}").CliffordAlgebra(case.metric)
    module = importlib.import_module(f"{package}.{case.place}")
    if "block" in arguments:
        name, options = arguments["block"]
        arguments |= {"block": functools.partial(getattr(module, name), **options), "activation": F.gelu}
    torch.manual_seed(0)
    model = getattr(module, case.kind)(**arguments)
    return model.eval() if case.is_evaluated else model


def ours(case):
    """Our module as seed 0 makes it."""
    return _made(f"gradewise.torch.{case.package}", case)


def published(case):
    """The published module as seed 0 makes it."""
    return _made(case.package, case)


class _Double:
    """PyTorch for the published Fourier layers, which make their results float32 whatever they are given."""

    def __getattr__(self, name):
        return torch.float64 if name == "float" else getattr(torch, name)


def doubled(model, case):
    """A published module in double precision, with all that is no parameter."""
    model = model.double()
    if case.package == "cliffordlayers" and hasattr(model, "algebra"):
        model.algebra.cayley = model.algebra.cayley.double()
    for part in model.modules():
        if hasattr(part, "modes1") and hasattr(part, "multiply"):
            importlib.import_module(type(part).__module__).torch = _Double()
    return model


def is_table(name):
    """Whether an entry of a checkpoint is a table of an algebra."""
    return ".algebra." in f".{name}"


def deviation(actual, expected, scale=0.0):
    """‖actual − expected‖ / ‖expected‖, or over a scale where what is expected is less."""
    actual, expected = (x.detach().double().cpu() for x in (actual, expected))
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    if not torch.isfinite(actual).all():
        return math.inf
    return float((actual - expected).norm() / max(float(expected.norm()), scale, 1e-300))


def worst(actual, expected):
    """The greatest deviation of what has the same names; gradients that are 0 by a symmetry are compared with the greatest."""
    assert actual.keys() == expected.keys(), actual.keys() ^ expected.keys()
    floor = 1e-4 * max(float(x.norm()) for x in expected.values())
    return max(deviation(actual[name], x, floor) for name, x in expected.items())


def joined(tensors, dtype=torch.float64):
    """Tensors by name as one list of numbers, and what tells their names and shapes from others."""
    names = sorted(tensors)
    text = "\n".join(f"{name} {list(tensors[name].shape)}" for name in names)
    flat = [tensors[name].detach().reshape(-1).to(dtype) for name in names]
    return torch.cat(flat) if flat else torch.zeros(0, dtype=dtype), hashlib.sha256(text.encode()).hexdigest()[:16]


def parted(flat, like):
    """A list of numbers as tensors of these names and shapes."""
    names = sorted(like)
    parts = flat.split([like[name].numel() for name in names])
    return {name: part.reshape(like[name].shape) for name, part in zip(names, parts)}


def drawn_state(model):
    """What a seed decides of a model."""
    return {name: x for name, x in model.state_dict().items() if not is_table(name)}


def statistics(model):
    """What a norm keeps of its batches."""
    return {name: x for name, x in model.named_buffers() if name.startswith("running")}


def golden(package):
    """The golden vectors of a package: for each case, by "initial", "result" and, of norms, "after", numbers and what tells their names."""
    found = {}
    with safe_open(FOLDER / f"{package}.safetensors", "pt") as file:
        digests = json.loads(file.metadata()["digests"])
        for key in file.keys():
            case, kind = key.split("/")
            found.setdefault(case, {})[kind] = (file.get_tensor(key), digests[key])
    return found

"""Transformers of geometric algebra under test: golden vectors, random options, and how far numbers are from one another."""

import contextlib
import json
import math
import os
import random
from pathlib import Path

import torch
from safetensors import safe_open

import gradewise.torch.gatr
import gradewise.torch.lgatr

FOLDER = Path(os.environ.get("GRADEWISE_GOLDEN", Path(__file__).parent)) / "transformers"
OURS = {"lgatr": gradewise.torch.lgatr, "gatr": gradewise.torch.gatr}


def golden():
    """What each golden vector has: its name, the package, the class, arguments, and tensors by their names."""
    made = []
    for path in sorted(FOLDER.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
            tensors = {key: file.get_tensor(key) for key in file.keys()}
        package = metadata["package"].split()[0]
        made.append((path.stem, package, metadata["class"], json.loads(metadata["arguments"]), tensors))
    return made


@contextlib.contextmanager
def default_dtype(dtype):
    """The published packages keep constants in the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def evaluate(model, inputs, cotangents, **call):
    """Outputs, and gradients of inputs and parameters, by name."""
    inputs = {name: x.detach().clone().requires_grad_(x.is_floating_point()) for name, x in inputs.items()}
    model.zero_grad(set_to_none=True)
    outputs = model(**inputs, **call)
    there = [y for y in outputs if y is not None]
    sum((y * c.to(y.dtype)).sum() for y, c in zip(there, cotangents)).backward()
    gradients = {name: x.grad for name, x in inputs.items()}
    gradients |= {name: parameter.grad for name, parameter in model.named_parameters()}
    made = {f"out.{number}": y.detach() for number, y in enumerate(there)}
    return made | {f"grad.{name}": g for name, g in gradients.items() if g is not None}


def deviation(actual, expected, scale=0.0):
    """‖actual − expected‖ / ‖expected‖, or over a scale where what is expected is less."""
    actual, expected = actual.double(), expected.double()
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    if not torch.isfinite(actual).all():
        return math.inf
    return float((actual - expected).norm() / max(float(expected.norm()), scale, 1e-300))


def worst(actual, expected, least=1e-4):
    """The greatest deviation. Gradients that are 0 by a symmetry, such as of what is added to all keys, are compared with the greatest
    times ``least``."""
    floor = least * max(float(x.norm()) for x in expected.values())
    missing = [name for name in expected if name not in actual and float(expected[name].norm()) > floor]
    assert not missing, missing
    return max(deviation(actual[name], x, floor) for name, x in expected.items() if name in actual)


# Random options.


def _lgatr(draw):
    heads = draw.choice([1, 2, 3])
    attention = {
        "num_heads": heads,
        "multi_query": draw.random() < 0.4,
        "attn_ratio": draw.choice([1, 2]),
        "head_scale": draw.random() < 0.4,
    }
    # The published bilinear layer needs scalars.
    product = draw.random() < 0.75
    s = draw.choice([1, 3, 8]) if product else draw.choice([0, 2, 5])
    arguments = {
        "num_blocks": draw.choice([0, 1, 2]),
        "in_mv_channels": draw.choice([1, 2, 3]),
        "out_mv_channels": draw.choice([1, 2]),
        "hidden_mv_channels": draw.choice([1, 3, 4, 7]),
        "in_s_channels": draw.choice([0, 1, 3]),
        "out_s_channels": draw.choice([0, 1, 2]),
        "hidden_s_channels": s,
        "attention": attention,
        "mlp": {
            "nonlinearity": draw.choice(["relu", "sigmoid", "tanh", "gelu", "silu"]),
            "mlp_ratio": draw.choice([1, 2, 4]),
            "num_layers_mlp": draw.choice([1, 2, 3]),
        },
        "primitives": {
            "subgroup": draw.random() < 0.6,
            "bivector": draw.random() < 0.8,
            "geometric_product": product,
            "sparse_gp": draw.random() < 0.5,
            "sparse_linear": draw.random() < 0.5,
        },
        "norm_elementwise_affine": draw.random() < 0.6,
        "checkpoint_blocks": draw.random() < 0.3,
        "dropout_prob": draw.choice([None, None, 0.0, 0.3]),
    }
    return arguments


def lgatr_options(seed):
    """A class of lgatr, arguments, and the shapes of its inputs."""
    draw = random.Random(seed)
    kind = draw.choice(["LGATr", "LGATr", "ConditionalLGATr", "LGATrSlim", "ConditionalLGATrSlim"])
    batch = draw.choice([(), (2,), (3,), (2, 2)])
    items, others = draw.choice([1, 2, 5]), draw.choice([1, 4])
    if kind.endswith("Slim"):
        arguments = {
            "num_blocks": draw.choice([0, 1, 2]),
            "in_v_channels": draw.choice([1, 2]),
            "out_v_channels": draw.choice([0, 1, 3]),
            "hidden_v_channels": draw.choice([1, 4, 5]),
            "in_s_channels": draw.choice([1, 3]),
            "out_s_channels": draw.choice([0, 1, 2]),
            "hidden_s_channels": draw.choice([2, 7, 8]),
            "num_heads": draw.choice([1, 2, 3]),
            "nonlinearity": draw.choice(["relu", "sigmoid", "tanh", "gelu", "silu"]),
            "nonlinearity_v": draw.choice([None, "sigmoid", "gelu"]),
            "mlp_ratio": draw.choice([1, 2, 4]),
            "attn_ratio": draw.choice([1, 2]),
            "num_layers_mlp": draw.choice([2, 3]),
            "dropout_prob": draw.choice([None, None, 0.0, 0.3]),
            "norm_elementwise_affine": draw.random() < 0.6,
            "checkpoint_blocks": draw.random() < 0.3,
        }
        shapes = {
            "vectors": (*batch, items, arguments["in_v_channels"], 4),
            "scalars": (*batch, items, arguments["in_s_channels"]),
        }
        if kind.startswith("Cond"):
            arguments |= {"v_channels_cond": draw.choice([1, 2]), "s_channels_cond": draw.choice([1, 3])}
            shapes["vectors_cond"] = (*batch, others, arguments["v_channels_cond"], 4)
            shapes["scalars_cond"] = (*batch, others, arguments["s_channels_cond"])
        return kind, arguments, shapes
    arguments = _lgatr(draw)
    shapes = {"multivectors": (*batch, items, arguments["in_mv_channels"], 16)}
    if arguments["in_s_channels"]:
        shapes["scalars"] = (*batch, items, arguments["in_s_channels"])
    if kind == "LGATr":
        if draw.random() < 0.4:
            arguments["reinsert_mv_channels"] = (arguments["in_mv_channels"] - 1, 0)
        if arguments["in_s_channels"] and arguments["hidden_s_channels"] and draw.random() < 0.4:
            arguments["reinsert_s_channels"] = (0,)
    else:
        arguments["mv_channels_cond"] = draw.choice([1, 2])
        arguments["s_channels_cond"] = draw.choice([0, 1, 3]) if arguments["hidden_s_channels"] else 0
        arguments["crossattention"] = dict(arguments["attention"], multi_query=draw.random() < 0.4)
        shapes["multivectors_cond"] = (*batch, others, arguments["mv_channels_cond"], 16)
        if arguments["s_channels_cond"]:
            shapes["scalars_cond"] = (*batch, others, arguments["s_channels_cond"])
    return kind, arguments, shapes


def gatr_options(seed):
    """A class of gatr, arguments, and the shapes of its inputs."""
    draw = random.Random(seed)
    kind = draw.choice(["GATr", "GATr", "AxialGATr"])
    arguments = {
        "num_blocks": draw.choice([0, 1, 2, 3]),
        "in_mv_channels": draw.choice([1, 2, 3]),
        "out_mv_channels": draw.choice([1, 2]),
        "hidden_mv_channels": draw.choice([1, 2, 3, 6]),
        "in_s_channels": draw.choice([None, 1, 3]),
        "out_s_channels": draw.choice([None, 1, 2]),
        "hidden_s_channels": draw.choice([1, 4, 7]),
        "attention": {
            "num_heads": draw.choice([1, 2, 3]),
            "multi_query": draw.random() < 0.6,
            "increase_hidden_channels": draw.choice([1, 2]),
            "normalizer_eps": draw.choice([1e-3, 1e-2]),
        },
        "mlp": {"activation": draw.choice(["relu", "gelu", "sigmoid"])},
    }
    batch = draw.choice([(2,), (1,), (2, 3)])
    items = draw.choice([1, 2, 5])
    if kind == "AxialGATr":
        batch = draw.choice([(2, 3), (1, 2), (3, 1)])
        arguments["pos_encodings"] = (draw.random() < 0.5, draw.random() < 0.5)
        arguments["checkpoint_blocks"] = draw.random() < 0.3
    else:
        arguments["attention"]["pos_encoding"] = draw.random() < 0.4
        arguments["dropout_prob"] = draw.choice([None, None, 0.0, 0.3])
        arguments["checkpoint"] = draw.choice([None, None, ["block"], ["mlp"], ["mlp", "attention"]])
        if draw.random() < 0.4:
            arguments["reinsert_mv_channels"] = [arguments["in_mv_channels"] - 1, 0]
        if arguments["in_s_channels"] and draw.random() < 0.4:
            arguments["reinsert_s_channels"] = [0]
    shapes = {"multivectors": (*batch, items, arguments["in_mv_channels"], 16)}
    if arguments["in_s_channels"]:
        shapes["scalars"] = (*batch, items, arguments["in_s_channels"])
    return kind, arguments, shapes

"""Cases of the Clifford-steerable networks, and what is kept of the published modules.

    python steerable_cases.py CHECKOUT FOLDER

writes FOLDER/steerable.safetensors from a checkout of github.com/maxxxzdn/clifford-group-equivariant-cnns; FOLDER/README.md has the version.
"""

import importlib.util
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

NETWORK = {
    "time_history": 2,
    "time_future": 1,
    "hidden_channels": 3,
    "kernel_num_layers": 2,
    "kernel_hidden_dim": 3,
    "kernel_size": 3,
    "blocks": (1,),
}
CASES = {
    # The metric is not in the operators' order, biases are on a vector, too, and blocks normalise.
    "lorentz": ((-1, 1), "CSResNet", {**NETWORK, "bias_dims": (0, 2)}, (2, 2, 5, 4, 4)),
    "space": (
        (1, 1, 1),
        "CSResNet",
        {**NETWORK, "bias_dims": (0,), "norm": False, "padding_mode": "wrap"},
        (1, 2, 3, 3, 3, 8),
    ),
    # The residual goes through a convolution.
    "block": (
        (1, 1),
        "CSBasicBlock",
        {
            "in_channels": 2,
            "channels": 3,
            "norm": True,
            "num_layers": 3,
            "hidden_dim": 2,
            "kernel_size": 3,
            "bias_dims": (0,),
            "padding_mode": "reflect",
        },
        (1, 2, 4, 3, 4),
    ),
}


def published(checkout, case):
    """The published module of a case."""
    if checkout not in sys.path:
        sys.path.insert(0, checkout)
    from algebra.cliffordalgebra import CliffordAlgebra

    metric, name, options, _ = CASES[case]
    # Its package imports PyTorch's networks, too.
    spec = importlib.util.spec_from_file_location("csresnet", f"{checkout}/models/resnets/csresnet.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    algebra = CliffordAlgebra(metric)
    return getattr(module, name)(
        algebra=algebra, product_paths_sum=algebra.geometric_product_paths.sum().item(), **options
    )


def drawn(case, model):
    """Parameters that are none of them zero or one, a field, and a cotangent."""
    shape = CASES[case][3]
    rng = np.random.default_rng(sum(map(ord, case)))
    normal = lambda shape, scale=1.0: jnp.asarray(scale * rng.standard_normal(shape))
    x = normal(shape)
    initial = jax.eval_shape(model.init, jax.random.key(0), x)
    parameters = jax.tree.map(lambda p: normal(p.shape, 0.2), initial)
    return parameters, x, normal(jax.eval_shape(model.apply, parameters, x).shape)


def evaluate(model, parameters, x, cotangent):
    """The result, and the gradients by names with dots, of a module of linen."""
    from flax.traverse_util import flatten_dict

    y, pull = jax.vjp(model.apply, parameters, x)
    of_parameters, of_x = pull(cotangent.astype(y.dtype))
    return {"y": y, "x": of_x, **flatten_dict(of_parameters["params"], sep=".")}


def initial(model):
    """Initial parameters of one seed for a block of two small convolutions, in float32."""
    from flax.traverse_util import flatten_dict

    small = model.clone(in_channels=3, num_layers=2)
    return flatten_dict(small.init(jax.random.key(3), jnp.zeros((1, 3, 4, 3, 4)))["params"], sep=".")


def main(checkout, folder):
    from safetensors.numpy import save_file

    made = {}
    for case in CASES:
        model = published(checkout, case)
        with jax.enable_x64(True):
            found = jax.jit(partial(evaluate, model))(*drawn(case, model))
        made |= {f"{case}/{name}": np.asarray(value) for name, value in found.items()}
    model = published(checkout, "block")
    made |= {f"initial/{name}": np.asarray(value) for name, value in initial(model).items()}
    import flax

    path = folder / "steerable.safetensors"
    save_file(made, path, {"jax": jax.__version__, "flax": flax.__version__})
    print(f"{path}: {len(made)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    jax.config.update("jax_disable_most_optimizations", True)
    main(sys.argv[1], Path(sys.argv[2]))

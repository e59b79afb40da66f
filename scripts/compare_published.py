#!/usr/bin/env python3
"""Runs a published script as it is and with imports of gradewise in the place of its own, and compares all numbers.

    scripts/compare_published.py CHECKOUT

CHECKOUT is a clone of one of

    https://github.com/congliuUvA/Clifford-Group-Equivariant-Simplicial-Message-Passing-Networks
        csmpn/hulls.py, 4 steps of training on 16 hulls: losses and weights. Needs torch_geometric, gudhi, scikit-learn,
        tqdm and scipy.
    https://github.com/microsoft/cliffordlayers
        the linear and the convolutional layers and the networks for fluids of its tests: outputs of all modules.
    https://github.com/maxxxzdn/clifford-group-equivariant-cnns
        playbook.ipynb without its pictures and what needs escnn: kernels, convolutions, and the network. Needs Flax.

Nothing of the scripts is edited: module names lead to gradewise's modules. Exits with 1 where numbers differ by more
than rounding in float32, 1e-4 of their size, or where a number is in one run alone.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import runpy
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np

TOLERANCE = 1e-4
"""‖a − b‖ / ‖b‖ in float32, after some steps of training."""

Numbers = dict[str, np.ndarray]


class Keys(list):
    """Names that are listed with and without a call."""

    def __call__(self) -> Keys:
        return self


def csmpn(checkout: Path, folder: Path, ours: bool) -> Numbers:
    """Trains on convex hulls."""
    import torch
    import torch_geometric.data
    import torch_geometric.transforms
    import torch_geometric.utils
    from scipy.spatial import ConvexHull
    from torch.optim.optimizer import register_optimizer_step_post_hook

    draw = np.random.default_rng(0)
    (folder / "hulls").mkdir()
    for split in ("train", "val", "test"):
        points = draw.standard_normal((16, 8, 5)).astype(np.float32)
        volumes = np.array([ConvexHull(x).volume for x in points], np.float32)
        np.save(folder / "hulls" / f"hulls_{split}_input.npy", points)
        np.save(folder / "hulls" / f"hulls_{split}_target.npy", volumes)
    # Data sets of PyTorch Geometric are pickled.
    os.environ |= {"DATAROOT": f"{folder}/", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    # Abstract in later versions than the script was written for, which says __call__ in place of forward.
    torch_geometric.transforms.BaseTransform.__abstractmethods__ = frozenset()
    # A property then, a method now.
    keys = torch_geometric.data.Data.keys
    torch_geometric.data.Data.keys = property(lambda self: Keys(keys(self)))
    if importlib.util.find_spec("torch_scatter") is None:
        # Imported for lifts that hulls do not use.
        sys.modules["torch_scatter"] = types.ModuleType("torch_scatter")
        sys.modules["torch_scatter"].scatter = torch_geometric.utils.scatter  # type: ignore[attr-defined]
    if ours:
        name = "csmpn.models.hulls_cssmpnn"
        sys.modules[name] = importlib.import_module(f"gradewise.torch.{name}")
    if not torch.cuda.is_available():
        torch.nn.Module.cuda = lambda self, device=None: self  # type: ignore[method-assign]
    losses: list[float] = []
    backward = torch.Tensor.backward

    def recorded(self: torch.Tensor, *args: object, **kwargs: object) -> None:
        losses.append(self.item())
        backward(self, *args, **kwargs)

    torch.Tensor.backward = recorded  # type: ignore[method-assign]
    found: Numbers = {}

    def after(optimizer: torch.optim.Optimizer, *_: object) -> None:
        for number, p in enumerate(p for group in optimizer.param_groups for p in group["params"]):
            found[f"weight {number}"] = p.detach().numpy(force=True).copy()

    register_optimizer_step_post_hook(after)
    sys.argv = [
        "hulls.py",
        "--seed=0",
        "--trainer.module=engineer.Trainer",
        "--trainer.max_steps=4",
        "--trainer.val_check_interval=1000000",
        "--trainer.limit_val_batches=1",
        "--dataset.module=csmpn.data.hulls.ConvexHullDataset",
        "--dataset.num_samples=16",
        "--dataset.batch_size=2",
        "--dataset.simplicial=True",
        "--model.module=csmpn.models.hulls_cssmpnn.HullsCliffordSharedSimplicialMPNN",
        "--model.hidden_features=8",
        "--model.num_layers=2",
        "--optimizer.module=torch.optim.Adam",
        "--optimizer.lr=0.001",
    ]
    runpy.run_path(str(checkout / "csmpn" / "hulls.py"), run_name="__main__")
    return {"losses": np.array(losses), **found}


def cliffordlayers(checkout: Path, folder: Path, ours: bool) -> Numbers:
    """Runs functions of the published tests, and records what modules return."""
    import torch

    # A clone has no metadata of a distribution, which the package reads its version from.
    read = importlib.metadata.version
    importlib.metadata.version = lambda name: "clone" if name == "cliffordlayers" else read(name)
    if ours:
        package = importlib.import_module("gradewise.torch.cliffordlayers")
        for name in ("cliffordconv", "cliffordlinear"):
            name = f"nn.modules.{name}"
            sys.modules[f"cliffordlayers.{name}"] = importlib.import_module(f"{package.__name__}.{name}")
        for name in ("models.basic.twod", "models.utils"):
            sys.modules[f"cliffordlayers.{name}"] = importlib.import_module(f"{package.__name__}.{name}")
    found: Numbers = {}
    depth = 0

    def before(*_: object) -> None:
        nonlocal depth
        depth += 1

    def after(module: torch.nn.Module, _: object, output: object) -> None:
        nonlocal depth
        depth -= 1
        if depth == 0 and isinstance(output, torch.Tensor):
            found[f"{function} {len(found)} {type(module).__name__}"] = output.detach().numpy(force=True)

    torch.nn.modules.module.register_module_forward_pre_hook(before)
    torch.nn.modules.module.register_module_forward_hook(after)
    for name, chosen in {
        "test_clifford_linear": None,
        "test_clifford_convolution": None,
        "test_CliffordFluidNet2d": {"test_clifford_resnet_norm"},
    }.items():
        module = runpy.run_path(str(checkout / "tests" / f"{name}.py"))
        for function, test in list(module.items()):
            if function.startswith("test_") and isinstance(test, types.FunctionType):
                if chosen is None or function in chosen:
                    torch.manual_seed(0)
                    test()
    return found


def off_the_cone(kernel: np.ndarray) -> np.ndarray:
    """A kernel of space-time without the directions of light.

    There the sign of x² − y², which is 0 but for its rounding, chooses between two values.
    """
    size = kernel.shape[-1]
    x, y = np.indices((size, size))
    return np.where((x == y) | (x + y == size - 1), 0.0, kernel)


def steerable(checkout: Path, folder: Path, ours: bool) -> Numbers:
    """Runs the cells of the playbook."""
    import jax

    if ours:
        package = importlib.import_module("gradewise.jax.steerable")
        for name in ("algebra.cliffordalgebra", "modules.conv.kernel", "modules.conv.convolution", "models.resnets"):
            sys.modules[name] = package
    variables: dict[str, object] = {}
    found: Numbers = {}
    cells = json.loads((checkout / "playbook.ipynb").read_text())["cells"]
    left_out = ("escnn", "plt.", "gspace", "torch", "relative_error", "mv_gt", "TEST_EQUIVARIANCE")
    for number, cell in enumerate(cells):
        code = "".join(cell["source"])
        if cell["cell_type"] != "code" or any(word in code and "import jax\n" not in code for word in left_out):
            continue
        if "import jax\n" in code:
            code = code.replace("import matplotlib.pyplot as plt\n", "")
        # Smaller grids and a smaller batch: the numbers are of the same programs.
        code = code.replace("(16, 1, 64, 64,", "(2, 1, 16, 16,").replace("grid_size = 64", "grid_size = 16")
        exec(compile(code.replace("resolution = 128", "resolution = 21"), f"cell {number}", "exec"), variables)
        for name in ("k", "out", "params"):
            if f"{name} =" not in code:
                continue
            for path, leaf in jax.tree_util.tree_leaves_with_path(variables[name]):
                found[f"cell {number}: {name}{jax.tree_util.keystr(path)}"] = np.asarray(leaf)
            if name == "k" and np.asarray(variables["algebra"].metric).min() < 0:  # type: ignore[attr-defined]
                found[f"cell {number}: k"] = off_the_cone(np.asarray(variables["k"]))
    return found


PACKAGES: dict[str, tuple[str, Callable[[Path, Path, bool], Numbers]]] = {
    "csmpn/hulls.py": ("CSMPN", csmpn),
    "cliffordlayers/cliffordalgebra.py": ("cliffordlayers", cliffordlayers),
    "playbook.ipynb": ("clifford-group-equivariant-cnns", steerable),
}
"""By a file of the checkout."""


def compared(mine: Numbers, theirs: Numbers) -> list[str]:
    """What differs."""
    faults = [f"{name}: in one run alone" for name in sorted(mine.keys() ^ theirs.keys())]
    worst, where = 0.0, "nothing"
    for name in sorted(mine.keys() & theirs.keys()):
        a, b = mine[name].astype(np.float64), theirs[name].astype(np.float64)
        if a.shape != b.shape:
            faults.append(f"{name}: {a.shape}, published {b.shape}")
            continue
        size = np.linalg.norm(b)
        error = np.linalg.norm(a - b) / (size if size > 0 else 1.0)
        if not error <= TOLERANCE:
            faults.append(f"{name}: differs by {error:.1e} of its size")
        if error > worst:
            worst, where = error, name
    if not mine:
        faults.append("no numbers")
    print(f"{len(mine)} results; the greatest difference is {worst:.1e} of its size: {where}")
    return faults


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    checkout = Path(arguments[0]).resolve()
    kind = next((kind for file, kind in PACKAGES.items() if (checkout / file).is_file()), None)
    if kind is None:
        print(f"{checkout}: expected a checkout with one of {', '.join(PACKAGES)}", file=sys.stderr)
        return 2
    name, run = kind
    if len(arguments) == 3:
        sys.path.insert(0, str(checkout))
        os.chdir(checkout)
        with tempfile.TemporaryDirectory() as folder:
            found = run(checkout, Path(folder), arguments[1] == "ours")
        np.savez(arguments[2], **found)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        results = {}
        for whose in ("ours", "published"):
            file = Path(folder) / f"{whose}.npz"
            made = subprocess.run([sys.executable, __file__, str(checkout), whose, str(file)], stdout=subprocess.PIPE)
            if made.returncode != 0:
                print(f"{name}, {whose}: ended with {made.returncode}", file=sys.stderr)
                return 1
            with np.load(file) as found:
                results[whose] = dict(found)
        print(f"{name}: ", end="")
        faults = compared(results["ours"], results["published"])
    for fault in faults:
        print(fault)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

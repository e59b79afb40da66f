#!/usr/bin/env python3
"""Runs the test suite of the published package lgatr or gatr on the modules of gradewise.

    scripts/test_published.py CHECKOUT [pytest's options]

CHECKOUT is a clone or an unpacked source distribution: https://github.com/heidelberg-hepml/lgatr from version 2.0 on, whose source
distribution on PyPI has its tests, or https://github.com/Qualcomm-AI-research/geometric-algebra-transformer. Every public class and
function of the published package that gradewise has too is replaced, in all modules of the package, before a test imports it. Tests of a
module that uses none of them test nothing of gradewise and are left out, and those that need what is not there; the names that stay the
published ones are listed. On two cores lgatr's take 15 minutes, 10 of them for test_compile.py, and gatr's 15.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
import types
from pathlib import Path

import numpy as np
import pytest

PACKAGES = {
    "lgatr": ("", ".primitives", ".layers", ".nets", ".interface", ".config"),
    "gatr": ("", ".primitives", ".layers", ".nets", ".interface", ".config"),
}
"""Modules of gradewise.torch.<package> in which names are looked for."""


def ours(package: str) -> dict[str, object]:
    """Public names of gradewise's package."""
    found: dict[str, object] = {}
    for part in PACKAGES[package]:
        module = importlib.import_module(f"gradewise.torch.{package}{part}")
        for name, value in vars(module).items():
            if not name.startswith("_") and getattr(value, "__module__", "").startswith("gradewise."):
                found.setdefault(name, value)
    if package == "gatr":
        found["GATrDeprecationWarning"] = DeprecationWarning
    return found


def replace(package: str) -> tuple[list[str], list[str]]:
    """Puts gradewise's in the place of the published names; those replaced, and the public ones that are not."""
    own = ours(package)
    replaced, kept = set(), set()
    root = importlib.import_module(package)
    modules = [root]
    for info in pkgutil.walk_packages(root.__path__, f"{package}."):
        try:
            modules.append(importlib.import_module(info.name))
        except ImportError as error:
            # An optional library is not there; tests that need the module skip or fail by themselves.
            print(f"{info.name} cannot be imported: {error}", file=sys.stderr)
    for module in modules:
        for name, value in list(vars(module).items()):
            if name.startswith("_") or isinstance(value, types.ModuleType):
                continue
            if name in own:
                setattr(module, name, own[name])
                replaced.add(name)
            elif getattr(value, "__module__", "").split(".")[0] == package:
                kept.add(name)
    return sorted(replaced), sorted(kept)


def without_xformers() -> None:
    """Empty classes in the place of xformers' where it is not installed: the published GATr imports it first of all."""
    if importlib.util.find_spec("xformers") is not None:
        return
    for name in ("xformers", "xformers.ops", "xformers.ops.fmha", "xformers.ops.fmha.attn_bias"):
        module = types.ModuleType(name)
        for missing in ("AttentionBias", "memory_efficient_attention", "BlockDiagonalMask"):
            setattr(module, missing, type(missing, (), {"__module__": name}))
        sys.modules[name] = module
    print("xformers is not installed: tests of its masks cannot pass", file=sys.stderr)


def reasons(package: str) -> dict[str, str]:
    """Why tests are left out, by the ends of their files' names, or of those and the tests'."""
    if package == "lgatr":
        return {"test_autocast.py": "the private state of lgatr.utils.autocast"}
    found = {}
    if sys.modules["xformers"].__spec__ is None:
        for name in (
            "test_cross_attention.py::test_cross_attention",
            "test_attention.py::test_geometric_cross_attention",
        ):
            found[name] = "xformers"
    import torch

    if not torch.cuda.is_available():
        found["test_gatr_block.py::test_gatr_block_autocast"] = "a GPU"
        found["test_attention.py::test_geometric_cross_attention"] = "a GPU"
    return found


class Suite:
    """Leaves out tests of nothing that gradewise has, and those for which there is a reason.

    Args:
        reasons: see :func:`reasons`.
    """

    def __init__(self, reasons: dict[str, str]) -> None:
        self.reasons = reasons
        self.left_out: dict[str, int] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        def is_ours(item: pytest.Item) -> bool:
            values = vars(item.module).values()  # type: ignore[attr-defined]
            names = [v.__module__ if hasattr(v, "__module__") else getattr(v, "__name__", "") for v in values]
            return any(str(name).startswith("gradewise.") for name in names)

        others = set()
        for item in items:
            told = {item.path.name, f"{item.path.name}::{getattr(item, 'originalname', item.name)}"}
            reason = next((f"{name}: needs {self.reasons[name]}" for name in sorted(told & self.reasons.keys())), None)
            if reason is None and not is_ours(item):
                reason = f"{item.path.name}: of nothing that gradewise has"
            if reason is not None:
                others.add(item)
                self.left_out[reason] = self.left_out.get(reason, 0) + 1
        items[:] = [item for item in items if item not in others]
        config.hook.pytest_deselected(items=list(others))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for reason, count in sorted(self.left_out.items()):
            terminalreporter.write_line(f"left out: {reason} ({count} tests)")


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    checkout = Path(arguments[0]).resolve()
    package = next((name for name in PACKAGES if (checkout / name).is_dir() and (checkout / "tests").is_dir()), None)
    if package is None:
        print(
            f"{checkout}: expected a checkout with tests/ and {' or '.join(f'{n}/' for n in PACKAGES)}", file=sys.stderr
        )
        return 2
    os.chdir(checkout)
    sys.path.insert(0, str(checkout))
    if package == "gatr":
        without_xformers()
        if not hasattr(np, "product"):
            np.product = np.prod  # type: ignore[attr-defined]  # what NumPy 2 has left out
    replaced, kept = replace(package)
    print(f"gradewise's: {', '.join(replaced)}\nthe published: {', '.join(kept)}")
    # The helpers of the tests stay as they are: they are what the modules are compared with.
    return int(
        pytest.main(["-q", "-p", "no:cacheprovider", *arguments[1:], "tests"], plugins=[Suite(reasons(package))])
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

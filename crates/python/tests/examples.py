"""The programs of examples/python, as modules."""

import importlib.util
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "examples" / "python"


def example(name):
    """A program by its name, imported but not run."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    # PyTorch Geometric looks classes up by their modules.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module

"""The exceptions of gradewise. Their texts name the operation, the shapes, and what to do next."""

from __future__ import annotations

from pathlib import Path
from typing import Optional


class GradewiseError(Exception):
    """Whatever gradewise refuses or fails at."""


class ArgumentError(GradewiseError, ValueError):
    """An argument outside what an operator takes."""


def at_least_one(layer: str, **sizes: int) -> None:
    """Refuses a layer without features: its results would be empty or constant, and nothing behind it would say why."""
    for name, size in sizes.items():
        if size < 1:
            raise ArgumentError(f"{layer}: {name} is {size}, expected at least 1")


class ShapeError(GradewiseError, ValueError):
    """Shapes that do not fit together, or strides that an operator does not take."""


class DTypeError(GradewiseError, TypeError):
    """A dtype that an operator or a device does not compute in."""


class DeviceError(GradewiseError, RuntimeError):
    """A device that is not there, that this build has no kernels for, or that failed; operands on different devices."""


class OutOfMemoryError(GradewiseError, MemoryError):
    """No memory for a result or a workspace."""


class NotDifferentiableError(GradewiseError, RuntimeError):
    """A derivative that an operator does not have, such as a third one."""


class CheckpointError(GradewiseError, ValueError):
    """Weights that are not those of a model."""


class DataSetError(GradewiseError, ValueError):
    """Files of data that are damaged, of something else, or of other settings; a generator of data that fails."""


class MissingPackageError(GradewiseError, ImportError):
    """A package that an extra of gradewise installs, and that is not there; the text has the command that installs it."""


class RunError(GradewiseError, RuntimeError):
    """A command of the gradewise program that failed.

    Attributes:
        status: its exit status, negative for the number of a signal; None if no process ended.
        output: all that it said.
        folder: the folder of the run, if it was one.
    """

    status: Optional[int] = None
    output: str = ""
    folder: Optional[Path] = None

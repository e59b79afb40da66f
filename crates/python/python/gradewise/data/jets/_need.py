"""Packages of the extra ``gradewise[jets]``, imported when they are used."""

from __future__ import annotations

from importlib import import_module, metadata
from types import ModuleType

from gradewise._errors import MissingPackageError


def need(package: str, purpose: str) -> ModuleType:
    """Imports a package of the extra.

    Raises:
        MissingPackageError: it is not installed, or cannot be imported; with the command that installs it.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingPackageError(missing(package, purpose, str(error)), name=package) from error


def version(package: str, purpose: str) -> str:
    """The version of an installed package, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError as error:
        raise MissingPackageError(missing(package, purpose, "it is not installed"), name=package) from error


def missing(package: str, purpose: str, reason: str) -> str:
    return (
        f"gradewise.data.jets: {purpose} takes the package {package} ({reason}). Get it with\n"
        "    pip install --only-binary :all: 'gradewise[jets]'\n"
        f"or alone with pip install --only-binary :all: {package}"
    )

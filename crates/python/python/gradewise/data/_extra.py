"""Packages of the extras of gradewise, imported when they are used."""

from __future__ import annotations

from importlib import import_module, metadata
from types import ModuleType

from gradewise._errors import MissingPackageError


def need(user: str, extra: str, package: str, purpose: str) -> ModuleType:
    """Imports a package of an extra, for a module of gradewise.

    Raises:
        MissingPackageError: it is not installed, or cannot be imported; with the command that installs it.
    """
    try:
        return import_module(package)
    except ImportError as error:
        text = missing(user, extra, package, purpose, str(error))
        raise MissingPackageError(text, name=package) from error


def version(user: str, extra: str, package: str, purpose: str) -> str:
    """The version of an installed package, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError as error:
        text = missing(user, extra, package, purpose, "it is not installed")
        raise MissingPackageError(text, name=package) from error


def missing(user: str, extra: str, package: str, purpose: str, reason: str) -> str:
    package = package.split(".")[0]
    return (
        f"{user}: {purpose} takes the package {package} ({reason}). Get it with\n"
        f"    pip install --only-binary :all: 'gradewise[{extra}]'\n"
        f"or alone with pip install --only-binary :all: {package}"
    )

"""Packages of the extra ``gradewise[jets]``."""

from __future__ import annotations

from types import ModuleType

from gradewise.data import _extra

USER, EXTRA = "gradewise.data.jets", "jets"


def need(package: str, purpose: str) -> ModuleType:
    """Imports a package of the extra; :class:`gradewise.MissingPackageError` says how to get it."""
    return _extra.need(USER, EXTRA, package, purpose)


def version(package: str, purpose: str) -> str:
    """The version of an installed package, without importing it."""
    return _extra.version(USER, EXTRA, package, purpose)


def missing(package: str, purpose: str, reason: str) -> str:
    """The text about a package that is not there."""
    return _extra.missing(USER, EXTRA, package, purpose, reason)

"""Packages of the extra ``gradewise[molecules]``."""

from __future__ import annotations

from types import ModuleType

from gradewise.data import _extra

USER, EXTRA = "gradewise.data.molecules", "molecules"


def need(package: str, purpose: str) -> ModuleType:
    """Imports a package of the extra; :class:`gradewise.MissingPackageError` says how to get it."""
    return _extra.need(USER, EXTRA, package, purpose)


def version(package: str, purpose: str) -> str:
    """The version of an installed package, without importing it."""
    return _extra.version(USER, EXTRA, package, purpose)

"""Modules and functions of the published package, at its places."""

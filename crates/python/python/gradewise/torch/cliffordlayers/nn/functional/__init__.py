"""Functions of the published package, at its places."""

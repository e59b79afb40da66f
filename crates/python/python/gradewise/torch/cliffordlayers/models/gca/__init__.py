"""Models of the published package, at its places."""

"""Layers and networks, at their published places."""

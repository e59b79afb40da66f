"""The sizes of made-up inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from gradewise.torch._space import Space


@dataclass(frozen=True)
class Sizes:
    """What made-up inputs of a module look like."""

    space: Space
    features: int
    edge_features: Optional[int] = None
    """Of edges, in a layer of message passing; None for a module with one input."""
    node_features: int = 0
    are_blades_first: bool = False

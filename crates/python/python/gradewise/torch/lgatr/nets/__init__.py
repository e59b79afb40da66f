"""L-GATr and L-GATr-slim, with and without a condition."""

from gradewise.torch.lgatr.nets.conditional import ConditionalLGATr
from gradewise.torch.lgatr.nets.lgatr import LGATr
from gradewise.torch.lgatr.nets.slim import ConditionalLGATrSlim, LGATrSlim

__all__ = ["ConditionalLGATr", "ConditionalLGATrSlim", "LGATr", "LGATrSlim"]

"""Whether a layer for fields computes what ours does: both run side by side on made-up fields, on copies, in float64 where the layer has it."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from gradewise.torch._accelerate.compare import need_names
from gradewise.torch._accelerate.fields import FieldKind
from gradewise.torch._accelerate.gate import FieldProven
from gradewise.torch._accelerate.proof import (
    SINGLE_TOLERANCE,
    TOLERANCE,
    Trial,
    Unlike,
    compare,
    copy_of,
    disturbed,
    observe,
    quiet,
)
from gradewise.torch._accelerate.swap import enter_gate, restore

_CELLS = ((), (12,), (4, 5), (3, 4, 2))
"""More than there are blades, for whitening."""


def examine_field(module: nn.Module, kind: FieldKind) -> FieldProven:
    """The inputs for which a module computes the same as one of our layers.

    Raises:
        Unlike: it computes something else.
    """
    need_names(module, kind.layer)
    dtype, dtypes = torch.float64, frozenset((torch.float32, torch.float64))
    if kind.is_single:
        dtype, dtypes = torch.float32, frozenset((torch.float32,))
    with quiet(module), _default(dtype):
        base = _exact(copy_of(module, dtype), dtype)
        disturbed(base)
        _disturb_statistics(base)
        restore(base)
        channels, blades, extras = kind.channels(base), kind.blades(base), dict(kind.extras(base))
        axes, adjacent = set(), []
        for space in kind.space:
            cells = tuple(n + needed - 1 for n, needed in zip(_CELLS[space], kind.extent(base)))
            try:
                proven = FieldProven(channels, blades, frozenset({space + 3}), dtypes, False, extras)
                trials = _trials(base, channels or 3, blades, cells, dtype)
                adjacent += [_is_alike(base, kind, proven, trial) for trial in trials]
            except Exception:
                if space == kind.space[0]:
                    raise
                # Inputs that the published layer refuses, or takes for others: it gets them itself.
                continue
            axes.add(space + 3)
        return FieldProven(channels, blades, frozenset(axes), dtypes, any(adjacent), extras)


def _is_alike(base: nn.Module, kind: FieldKind, proven: FieldProven, trial: Trial) -> bool:
    """Whether the published layer's result is adjacent in memory. Raises :class:`Unlike` if ours differs."""
    published, candidate = copy.deepcopy(base), copy.deepcopy(base)
    enter_gate(candidate, kind.layer, proven)
    expected = observe(published, trial, keeps=True)
    (x,) = trial.arguments
    if not proven.accepts(candidate, x):
        raise Unlike(f"it takes inputs of another kind than the published module, such as {list(x.shape)}")
    try:
        found = observe(candidate, trial, keeps=True)
    except Unlike:
        raise
    except Exception as error:
        text = (str(error).strip().splitlines() or [""])[0][:200]
        raise Unlike(
            f"the replacement refuses what the published module takes: {type(error).__name__}: {text}"
        ) from error
    compare(found, expected, SINGLE_TOLERANCE if kind.is_single else TOLERANCE)
    return expected.output.is_contiguous()


def _trials(
    module: nn.Module, channels: int, blades: int, cells: tuple[int, ...], dtype: torch.dtype
) -> Iterator[Trial]:
    device = next((p.device for p in module.parameters()), torch.device("cpu"))

    def normal(samples: int, seed: int) -> Tensor:
        shape = (samples, channels, *cells, blades)
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    # As many samples as whitening over the batch alone takes; few large ones.
    count = (5 if math.prod(cells) < 500 else 2) if cells else 24
    sizes = torch.logspace(-2, 1.5, count, dtype=torch.float64).reshape(-1, *(1,) * (len(cells) + 2))
    for seed, is_training in ((1, True), (2, False)):
        yield Trial((normal(count, seed).to(device, dtype),), is_training)
        yield Trial(((normal(count, seed + 10) * sizes + 0.3).to(device, dtype),), is_training)


def _disturb_statistics(module: nn.Module) -> None:
    """Moves running statistics away from zeros and ones, which hide differences."""
    for name, buffer in module.named_buffers():
        values = torch.randn(buffer.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
        if name.endswith("running_mean"):
            buffer += values.to(buffer)
        elif name.endswith("running_cov"):
            buffer += torch.einsum("ikc,jkc->ijc", values, values).to(buffer)


def _exact(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy whose algebra's table, which is no buffer, has its module's precision."""
    algebra: Any = getattr(module, "algebra", None)
    if isinstance(getattr(algebra, "cayley", None), Tensor) and not isinstance(algebra, nn.Module):
        algebra.cayley = algebra.cayley.to(dtype)
    return module


@contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    """The published package makes numbers of the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)

"""A whole model on somebody's arguments, before and after."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import torch
from torch import Tensor, nn

from gradewise._errors import ArgumentError
from gradewise.torch._accelerate.constants import exact
from gradewise.torch._accelerate.proof import TOLERANCE, VANISHING, copy_of, distance, quiet, seed

_TOLERANCES = {torch.float64: TOLERANCE, torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.05}


@dataclass
class _Seen:
    outputs: list[Tensor]
    gradients: dict[str, Optional[Tensor]]


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors in somebody's arguments or results."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for item in value.values() for t in tensors_of(item)]
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in tensors_of(item)]
    return []


def _mapped(value: Any, of: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return of(value)
    if isinstance(value, dict):
        return {key: _mapped(item, of) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(item, of) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(_mapped(item, of) for item in value)
    return value


def _run(model: nn.Module, arguments: Sequence[Any], dtype: Optional[torch.dtype]) -> _Seen:
    leaves: list[Tensor] = []

    def ready(x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return x.clone()
        leaf = x.detach().clone().to(dtype or x.dtype).requires_grad_()
        leaves.append(leaf)
        # The model may change what it is given.
        return leaf.clone()

    given = _mapped(tuple(arguments), ready)
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    seed(model)
    try:
        outputs = [t for t in tensors_of(model(*given)) if t.is_floating_point()]
    finally:
        with torch.no_grad():
            for name, value in model.named_buffers():
                if name in buffers and not torch.equal(value, buffers[name]):
                    value.copy_(buffers[name])
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    names = [f"the gradient of input {index}" for index in range(len(leaves))] + [
        f"the gradient of {n}" for n in parameters
    ]
    wanted = [*leaves, *parameters.values()]
    followed = [t for t in outputs if t.requires_grad]
    gradients: list[Optional[Tensor]] = [None] * len(wanted)
    if followed and wanted:
        generator = torch.Generator().manual_seed(1)
        loss = sum((t * torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t)).sum() for t in followed)
        gradients = list(torch.autograd.grad(loss, wanted, allow_unused=True))
    return _Seen([t.detach() for t in outputs], dict(zip(names, gradients)))


class Example:
    """What a model did with the example before anything of it was replaced."""

    def __init__(self, model: nn.Module, arguments: Sequence[Any]) -> None:
        self.arguments = arguments
        self.exact: Optional[_Seen] = None
        with quiet(model):
            try:
                with exact(model):
                    self.exact = _run(copy_of(model), arguments, torch.float64)
            except Exception:
                # Models that convert their inputs, or that cannot be copied, run as they are.
                self.own = _run(model, arguments, None)
        self.first = next((p.dtype for p in model.parameters()), torch.float32)

    def difference(self, model: nn.Module) -> float:
        """How far the model is from what it was, relative to that.

        Raises:
            ArgumentError: it is further than rounding explains.
        """
        with quiet(model):
            if self.exact is not None:
                expected, tolerance = self.exact, _TOLERANCES[torch.float64]
                with exact(model):
                    found = _run(copy_of(model), self.arguments, torch.float64)
            else:
                expected, tolerance = self.own, _TOLERANCES.get(self.first, 1e-3)
                found = _run(model, self.arguments, None)
        if [t.shape for t in found.outputs] != [t.shape for t in expected.outputs]:
            raise ArgumentError("accelerate: for the example, the model returns other tensors than before")
        pairs = [(f"output {n}", a, b) for n, (a, b) in enumerate(zip(found.outputs, expected.outputs))]
        pairs += [(name, found.gradients[name], b) for name, b in expected.gradients.items()]
        largest = max((float(b.abs().max()) for _, _, b in pairs if b is not None and b.numel()), default=0.0)
        worst = 0.0
        for name, a, b in pairs:
            if (a is None) != (b is None):
                size = math.inf
            else:
                size = 0.0 if b is None else distance(a, b, floor=VANISHING * max(largest, 1e-200))
            if not size <= tolerance:
                raise ArgumentError(
                    f"accelerate: for the example, {name} differs from that before by {size:.1e}, relative to its size, and {tolerance:.0e} "
                    "is allowed; the model was restored"
                )
            worst = max(worst, size)
        return worst

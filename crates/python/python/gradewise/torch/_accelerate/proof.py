"""Whether a module computes what would take its place: both run side by side on made-up inputs, on copies."""

from __future__ import annotations

import copy
import functools
import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from torch import Tensor, nn

from gradewise.torch._accelerate.sizes import Sizes

TOLERANCE = 1e-10
SINGLE_TOLERANCE = 1e-4
"""For modules that compute in float32 alone."""
VANISHING = 1e-4
"""Gradients that are 0 by a symmetry, such as those of a bias before whitening, are compared with the largest times this."""

_GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)


class Unlike(Exception):
    """Two modules that differ.

    Attributes:
        size: by how much, relative to what is computed; None where that is no number.
    """

    def __init__(self, what: str, size: Optional[float] = None) -> None:
        super().__init__(what)
        self.size = size


@contextmanager
def quiet(module: nn.Module) -> Iterator[None]:
    """Nothing of what runs inside is seen by the model's owner, or by what follows modules and tensors: random numbers, hooks of all
    modules, autocast, modes of gradients."""
    found = nn.modules.module
    kept = {name: OrderedDict(getattr(found, name)) for name in _GLOBAL_HOOKS if hasattr(found, name)}
    devices = sorted({p.device.index for p in module.parameters() if p.device.type == "cuda"})
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=devices))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(kind, enabled=False))
        for name in kept:
            getattr(found, name).clear()
        try:
            yield
        finally:
            for name, hooks in kept.items():
                getattr(found, name).update(hooks)


def copy_of(module: nn.Module, dtype: Optional[torch.dtype] = torch.float64) -> nn.Module:
    """A module of its own, in another dtype, without hooks: these stay around a module's calls whatever computes them."""
    memo: dict[int, Any] = {}
    for part in module.modules():
        for name, value in part.__dict__.items():
            if name.endswith("_hooks") and isinstance(value, dict):
                memo[id(value)] = OrderedDict()
            elif isinstance(value, Tensor) and not value.is_leaf:
                # Such as a weight that a hook computes before each call.
                memo[id(value)] = value.detach().clone().to((value.is_floating_point() and dtype) or value.dtype)
    copied = copy.deepcopy(module, memo)
    for parameter in copied.parameters():
        parameter.grad = None
    return copied if dtype is None else copied.to(dtype)


@dataclass(frozen=True)
class Trial:
    """Arguments of a module, and whether it trains."""

    arguments: tuple[Any, ...]
    is_training: bool = False
    is_optional: bool = False
    """Whether a module may refuse these, or differ for them: it is not asked for them then."""
    method: str = "forward"
    """What is called; ``forward`` for the module itself."""


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=_generator(seed), dtype=torch.float64)


def trials(sizes: Sizes, device: torch.device, dtype: torch.dtype) -> list[Trial]:
    """Made-up inputs: one row and several, rows of zeros, small ones and large ones; graphs with all that breaks a wrong aggregation."""
    if sizes.edge_features is not None:
        return _graphs(sizes, device, dtype)
    features, blades = sizes.features, sizes.space.blades

    def rows(count: int, seed: int, *scales: float) -> tuple[Tensor, ...]:
        x = _normal(count, features, blades, seed=seed)
        for row, scale in enumerate(scales):
            x[row] *= scale
        x = x.movedim(-1, 0) if sizes.are_blades_first else x
        return (x.contiguous().to(device, dtype),)

    made = [
        Trial(rows(1, 1)),
        Trial(rows(7, 2, 1.0, 1e-4, 30.0, 0.0, 1e3, 1e-2)),
        Trial(rows(3, 3), is_training=True),
    ]
    if not sizes.are_blades_first:
        # As many axes between as features, so that one axis taken for another shows.
        between = _normal(2, features, features, blades, seed=4)
        made.append(Trial((between.to(device, dtype),), is_optional=True))
    return made


# Directed, with unequal degrees: a node that none sends to, one that neither sends nor receives, edges from a node to itself, and edges
# that occur twice.
_EDGES = ((0, 1), (0, 1), (1, 0), (2, 2), (0, 2), (3, 0), (4, 0), (4, 3), (2, 3), (0, 3), (3, 1))
_NODES = 6


def _graphs(sizes: Sizes, device: torch.device, dtype: torch.dtype) -> list[Trial]:
    def graph(nodes: int, edges: Sequence[tuple[int, int]], seed: int, is_training: bool = False) -> Trial:
        def some(count: int, features: int, seed: int) -> Optional[Tensor]:
            return _normal(count, features, sizes.space.blades, seed=seed).to(device, dtype) if features else None

        h = some(nodes, sizes.features, seed)
        attributes = some(len(edges), sizes.edge_features or 0, seed + 1), some(nodes, sizes.node_features, seed + 2)
        return Trial((h, torch.tensor(edges, device=device).T.contiguous(), *attributes), is_training)

    return [graph(_NODES, _EDGES, 10), graph(1, [(0, 0)], 20), graph(3, [(0, 1), (2, 1), (1, 2)], 30, is_training=True)]


@dataclass
class Observed:
    """What a module did with the arguments of a trial."""

    output: Tensor
    gradients: list[Optional[Tensor]]
    """Of the arguments, then of the parameters."""
    names: list[str]
    by_row: list[bool]
    """Whether each of them has an axis of rows."""
    kept: dict[str, Tensor] = field(default_factory=dict)
    """The buffers afterwards, where a module may change them."""


def _state(module: nn.Module) -> dict[tuple[str, str], Any]:
    """What a call of a module might change: attributes by identity, tensors by version, collections by their number. What is computed once
    and kept is left out, and so are buffers."""
    found = {}
    for path, part in module.named_modules():
        for name, value in part.__dict__.items():
            if not isinstance(getattr(type(part), name, None), functools.cached_property):
                found[path, name] = (value, _mark(value))
    return found


def _is_same(before: Any, after: Any) -> bool:
    return before is not None and after is not None and before[0] is after[0] and before[1] == after[1]


def _mark(value: Any) -> Optional[int]:
    if isinstance(value, Tensor):
        return value._version
    return len(value) if isinstance(value, (list, dict, set)) and not isinstance(value, OrderedDict) else None


def seed(module: nn.Module) -> None:
    """Random numbers of a call as of every other. `torch.manual_seed` takes longer than most modules."""
    torch.default_generator.manual_seed(0)
    for index in {p.device.index for p in module.parameters() if p.is_cuda}:
        torch.cuda.default_generators[index].manual_seed(0)


def observe(module: nn.Module, trial: Trial, row_axis: int = 0, keeps: bool = False) -> Observed:
    """Runs a module forward and backward; ``keeps`` says whether it may change its buffers."""
    module.train(trial.is_training)
    given = [
        x.clone().requires_grad_() if isinstance(x, Tensor) and x.is_floating_point() else x for x in trial.arguments
    ]
    # Those that the module gets may be changed in place; a change is a difference.
    passed = [x.clone() if isinstance(x, Tensor) else x for x in given]
    before = _state(module)
    buffers = {name: value.clone() for name, value in module.named_buffers()}
    seed(module)
    output = (module if trial.method == "forward" else getattr(module, trial.method))(*passed)
    after = _state(module)
    changed = [
        name for _, name in before.keys() | after.keys() if not _is_same(before.get((_, name)), after.get((_, name)))
    ]
    if changed:
        raise Unlike(f"its forward sets attributes: {', '.join(sorted(set(changed)))}")
    for name, value in module.named_buffers():
        if not keeps and (name not in buffers or not torch.equal(value, buffers[name])):
            raise Unlike(f"its forward changes its buffer {name}")
    if not isinstance(output, Tensor):
        raise Unlike(f"it returns a {type(output).__name__}, where the published module returns a tensor")
    for x, y in zip(given, passed):
        if isinstance(x, Tensor) and not torch.equal(x.detach(), y.detach()):
            raise Unlike("it changes its input in place")
    inputs = [x for x in given if isinstance(x, Tensor) and x.is_floating_point()]
    parameters = dict(module.named_parameters())
    wanted = [*inputs, *parameters.values()]
    gradients: list[Optional[Tensor]] = [None] * len(wanted)
    if output.requires_grad:
        cotangent = _normal(*output.shape, seed=5).to(output)
        gradients = list(torch.autograd.grad((output * cotangent).sum(), wanted, allow_unused=True))
    names = ["the gradient of its input"] * len(inputs) + [f"the gradient of {name}" for name in parameters]
    kept = {name: value.clone() for name, value in module.named_buffers()} if keeps else {}
    return Observed(output.detach(), gradients, names, [True] * len(inputs) + [False] * len(parameters), kept)


def distance(a: Tensor, b: Tensor, row_axis: Optional[int] = None, floor: float = 1e-200) -> float:
    """How far ``a`` is from ``b``, relative to ``b``; the greatest of the rows if there is an axis of them. NaN in the same places agrees."""
    a, b = (x.detach().to("cpu", torch.float64) for x in (a, b))
    same = (a == b) | (a.isnan() & b.isnan())
    difference = torch.where(same, 0.0, (a - b).abs())
    if row_axis is not None and a.dim():
        difference, b = (x.movedim(row_axis, 0).flatten(1) if x.dim() > 1 else x[:, None] for x in (difference, b))
    else:
        difference, b = difference.reshape(1, -1), b.reshape(1, -1)
    if difference.numel() == 0:
        return 0.0
    scale = b.abs().nan_to_num(0.0).amax(dim=1)
    # A row of zeros among others: what is computed in between has the size of rounding errors of the whole.
    greatest = (difference.amax(dim=1) / scale.clamp(min=floor)).max()
    return math.inf if greatest.isnan() else float(greatest)


def compare(found: Observed, expected: Observed, tolerance: float, row_axis: int = 0) -> float:
    """The greatest difference. Raises :class:`Unlike` where it is beyond the tolerance."""
    if found.output.shape != expected.output.shape:
        raise Unlike(
            f"it returns {list(expected.output.shape)}, where the published module returns {list(found.output.shape)}"
        )
    if found.output.dtype != expected.output.dtype:
        raise Unlike(f"it returns {expected.output.dtype}, where the published module returns {found.output.dtype}")
    worst = 0.0

    def need(size: float, what: str) -> None:
        nonlocal worst
        if not size <= tolerance:
            raise Unlike(f"{what} differs from that of the published module by {size:.1e}, relative to its size", size)
        worst = max(worst, size)

    need(distance(found.output, expected.output, row_axis, 1e-12), "its output")
    largest = max((float(g.abs().max()) for g in expected.gradients if g is not None and g.numel()), default=0.0)
    for a, b, name, by_row in zip(found.gradients, expected.gradients, expected.names, expected.by_row):
        if (a is None) != (b is None):
            raise Unlike(f"{name} is {'there' if b is not None else 'None'}, and that of the published module is not")
        if a is not None:
            need(distance(a, b, row_axis if by_row else None, 1e-9 * max(largest, 1e-200)), name)
    for name, value in expected.kept.items():
        need(distance(found.kept[name], value, floor=1e-12), f"its buffer {name} afterwards")
    return worst


def disturbed(module: nn.Module) -> None:
    """Moves every parameter away from zeros and ones, which hide differences."""
    with torch.no_grad():
        for seed, parameter in enumerate(module.parameters()):
            parameter += 0.3 * _normal(*parameter.shape, seed=100 + seed).to(parameter)
            parameter.requires_grad_(True)

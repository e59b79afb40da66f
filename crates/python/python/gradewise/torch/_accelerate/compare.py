"""Whether a layer of a transformer of geometric algebra computes what ours does: both run side by side on made-up inputs, on copies."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Optional

import torch
from torch import Tensor, nn

from gradewise.torch._accelerate.constants import exact
from gradewise.torch._accelerate.example import tensors_of
from gradewise.torch._accelerate.gate import MODES, MULTIVECTORS, SCALARS, Argument, Gate, Proven
from gradewise.torch._accelerate.layers import LayerKind
from gradewise.torch._accelerate.proof import TOLERANCE, VANISHING, Unlike, copy_of, distance, disturbed, quiet, seed
from gradewise.torch._accelerate.swap import enter_gate, is_swapped, restore

_ROUNDINGS = 10.0
"""Differences may be as many times what a rounding of the inputs makes: GATr's distances of points amplify them."""
_LARGEST = 1e-6


@dataclass(frozen=True)
class Call:
    """Arguments of a layer."""

    arguments: dict[str, Any]
    axes: int
    options: frozenset[str] = frozenset()
    is_training: bool = False
    is_optional: bool = False
    """Whether a layer may refuse these, or differ for them: such calls are made by its own code."""
    tensors: frozenset[str] = frozenset()


@dataclass
class _Seen:
    outputs: list[Optional[Tensor]]
    gradients: dict[str, Optional[Tensor]]


def examine_layer(module: nn.Module, kind: LayerKind) -> Proven:
    """The calls for which a module computes the same as one of our layers.

    Raises:
        Unlike: it computes something else.
    """
    need_names(module, kind.layer)
    with quiet(module), exact(module):
        return _Evidence(module, kind).proven()


def need_names(module: nn.Module, layer: type[nn.Module]) -> None:
    """Raises :class:`Unlike` if a module's class has names that one of our layers needs for itself."""
    published = type(module)._published if isinstance(module, Gate) else type(module)
    taken = {n for cls in layer.__mro__ if cls not in nn.Module.__mro__ for n in vars(cls) if n.startswith("_")}
    taken = {n for n in taken if not n.startswith("__")}
    theirs = {n for cls in published.__mro__ if cls not in nn.Module.__mro__ for n in vars(cls)}
    if published.__call__ is not nn.Module.__call__:
        raise Unlike("its class has a __call__ of its own")
    if taken & theirs:
        raise Unlike(f"its class has a {min(taken & theirs)}, which is a name of the replacement")


class _Evidence:
    def __init__(self, module: nn.Module, kind: LayerKind) -> None:
        self.kind = kind
        # Random numbers of dropout are the same on the CPU alone.
        has_dropout = any(getattr(part, "_dropout_prob", None) for part in module.modules())
        self.base = _copied(module, torch.float64, is_on_cpu=has_dropout)
        self.device = next((p.device for p in self.base.parameters()), torch.device("cpu"))
        self.published = copy.deepcopy(self.base)
        restore(self.published)
        self.takes = kind.takes(module)
        parameters = list(inspect.signature(type(self.published).forward).parameters.values())[1:]
        kinds = inspect.Parameter
        self.names = tuple(p.name for p in parameters if p.kind is kinds.POSITIONAL_OR_KEYWORD)
        self.takes_more = any(p.kind is kinds.VAR_KEYWORD for p in parameters)

    def proven(self) -> Proven:
        """See :func:`examine_layer`."""
        extras = dict(self.kind.extras(self.base))
        candidate = copy.deepcopy(self.base)
        everything = Proven(self.takes, self.names, self.takes_more, frozenset(), frozenset(), frozenset(), extras)
        enter_gate(candidate, self.kind.layer, everything)
        calls: set[tuple[frozenset[str], int]] = set()
        options: set[str] = set()
        for call in self._calls():
            try:
                self._need(candidate, call)
            except Exception:
                if call.is_optional:
                    continue
                raise
            calls.add((call.tensors, min(call.axes, 2)))
            options |= call.options
        modes = {"plain", *self._modes(everything)}
        return Proven(
            self.takes, self.names, self.takes_more, frozenset(calls), frozenset(options), frozenset(modes), extras
        )

    def needs_parts(self) -> None:
        """Raises :class:`Unlike` if the module differs from itself with those of its parts that were replaced."""
        for call in self._calls():
            if not call.is_optional:
                self._need(self.base, call, is_ours=False)

    def _need(self, candidate: nn.Module, call: Call, is_ours: bool = True) -> None:
        expected = _observe(self.published, call)
        try:
            found = _observe(candidate, call, self.kind.layer if is_ours else None)
        except Unlike:
            raise
        except Exception as error:
            text = (str(error).strip().splitlines() or [""])[0][:200]
            raise Unlike(
                f"the replacement refuses what the published module takes: {type(error).__name__}: {text}"
            ) from error
        try:
            _compare(found, expected, TOLERANCE)
        except Unlike as unlike:
            if unlike.size is None or unlike.size > _LARGEST:
                raise
            moved = _observe(self.published, _rounded(call))
            allowed = _ROUNDINGS * _compare(moved, expected, math.inf)
            _compare(found, expected, min(max(allowed, TOLERANCE), _LARGEST))

    def _modes(self, everything: Proven) -> Iterator[str]:
        """The modes in which both return the same dtypes, with errors alike."""
        call = next(self._calls())
        arguments = {name: _to(x, torch.float32) for name, x in call.arguments.items()}
        scalars = {name for name, argument in self.takes.items() if argument.layout == SCALARS}
        own, ours = (_in_dtype(copy.deepcopy(model), torch.float32).eval() for model in (self.published, self.base))
        enter_gate(ours, self.kind.layer, everything)
        with torch.no_grad():
            right = tensors_of(own(**arguments))
            # Under autocast first: the others change the parameters.
            for mode in reversed(MODES):
                is_autocast = mode != "short"
                shortened = scalars if is_autocast else arguments
                given = arguments
                if mode != "autocast":
                    given = {n: _to(x, torch.bfloat16) if n in shortened else x for n, x in arguments.items()}
                try:
                    if not is_autocast:
                        own, ours = (_in_dtype(model, torch.bfloat16) for model in (own, ours))
                    with torch.autocast(self.device.type, torch.bfloat16, enabled=is_autocast):
                        theirs, made = tensors_of(own(**given)), tensors_of(self.kind.layer.forward(ours, **given))
                except Exception:
                    continue
                is_alike = [t.dtype for t in made] == [t.dtype for t in theirs] and len(made) == len(right)
                if is_alike and all(
                    distance(a, x) <= 3 * distance(b, x) + 0.05 for a, b, x in zip(made, theirs, right)
                ):
                    yield mode

    def _calls(self) -> Iterator[Call]:
        deep = self.kind.axes == 2
        yield self._call((2, 3) if deep else (2,), (4, 3), 1)
        yield self._call((1, 2) if deep else (3,), (9, 6), 2, scale=0.1)
        yield self._call((2, 2) if deep else (2,), (3, 2), 3, scale=20.0, is_training=True)
        yield self._call((2, 1) if deep else (1,), (1, 1), 4, is_optional=True)
        lead = (2, 3) if deep else (2,)
        if not deep:
            yield self._call((), (4, 3), 5, is_optional=True)
            yield self._call((2, 3), (4, 3), 6, is_optional=True)
        if self.kind.optional & self.takes.keys():
            for axes in ((2,), (2, 3), ()):
                yield self._call(axes, (4, 3), 7, without=self.kind.optional, is_optional=True)
        for parameter in self.kind.attention:
            for name, more in self._attention(parameter, lead, (4, 3)):
                yield self._call(lead, (4, 3), 8, more=more, options=(name,), is_optional=True)
        if self.kind.reference == "join_reference":
            yield self._call(
                lead,
                (4, 3),
                9,
                more={"join_reference": "canonical"},
                options=("join_reference.canonical",),
                is_optional=True,
            )
            for shape in ((16,), (lead[0], *[1] * (len(lead) + 1), 16)):
                more = {"join_reference": self._normal(shape, 11)}
                yield self._call(
                    lead, (4, 3), 9, more=more, options=(f"join_reference.{len(shape)}",), is_optional=True
                )
        if self.kind.reference == "reference_mv":
            yield self._call(
                lead,
                (4, 3),
                9,
                more={"reference_mv": self._normal((16,), 11)},
                options=("reference_mv.1",),
                is_optional=True,
            )

    def _attention(self, parameter: str, lead: tuple[int, ...], items: tuple[int, int]) -> Iterator[tuple[str, dict]]:
        """Options of attention: their name, and the arguments."""
        is_cross = parameter == "crossattn_kwargs" or (parameter == "" and self.kind.name.endswith("CrossAttention"))
        size = (items[0], items[1] if is_cross else items[0])
        name = "attention_mask" if parameter == "attention_mask" else "attn_mask"
        generator = torch.Generator().manual_seed(12)
        made: list[tuple[str, dict]] = []
        for shape in (size, (*lead, 1, *size)):
            chosen = torch.rand(shape, generator=generator) > 0.4
            chosen[..., 0] = True
            made.append((f"{name}.bool.{len(shape)}", {name: chosen.to(self.device)}))
            made.append((f"{name}.float.{len(shape)}", {name: self._normal(shape, 13)}))
        if parameter != "attention_mask":
            made += [("scale", {"scale": 0.3})] + ([] if is_cross else [("is_causal", {"is_causal": True})])
        for option, arguments in made:
            if parameter in ("", "attention_mask"):
                yield option, arguments
            else:
                yield f"{parameter}:{option}", {parameter: arguments}

    def _normal(self, shape: tuple[int, ...], number: int) -> Tensor:
        made = torch.randn(shape, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
        return made.to(self.device)

    def _call(
        self,
        lead: tuple[int, ...],
        items: tuple[int, int],
        number: int,
        scale: float = 1.0,
        without: frozenset[str] = frozenset(),
        more: Optional[dict] = None,
        options: tuple[str, ...] = (),
        **settings: bool,
    ) -> Call:
        arguments: dict[str, Any] = {}
        takes = {name: a for name, a in self.takes.items() if name not in without}
        for n, (name, argument) in enumerate(takes.items()):
            arguments[name] = self._features(argument, lead, items, 100 * number + n, scale)
        if self.kind.reference == "reference_mv" and not (more and "reference_mv" in more):
            shape = (*lead[:1], *[1] * (len(lead) + 1), 16)
            arguments["reference_mv"] = self._normal(shape, 100 * number + 50)
            options = (*options, f"reference_mv.{len(shape)}")
        if without:
            arguments |= {name: None for name in without if name in self.names}
        return Call(arguments | (more or {}), len(lead), frozenset(options), tensors=frozenset(takes), **settings)

    def _features(
        self, argument: Argument, lead: tuple[int, ...], items: tuple[int, int], number: int, scale: float
    ) -> Tensor:
        """Normal numbers; items of other sizes among them, for what is added to norms."""
        channels = (3 if argument.layout == MULTIVECTORS else 2) if argument.channels is None else argument.channels
        outer = (*lead, items[argument.group])
        made = self._normal(argument.shape(outer, channels), number) * scale
        if items[argument.group] > 1:
            sizes = torch.tensor([1.0, 0.03, 2.0, *[0.3] * 9][: items[argument.group]], dtype=torch.float64)
            made = made * sizes.to(made.device).view(-1, *[1] * (made.dim() - len(outer)))
        return made


def _copied(module: nn.Module, dtype: torch.dtype, is_on_cpu: bool) -> nn.Module:
    copied = copy_of(module, dtype)
    if is_on_cpu:
        copied = copied.cpu()
    _in_dtype(copied, dtype)
    disturbed(copied)
    return copied


def _in_dtype(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    for part in module.modules():
        if hasattr(part, "seq_len_cached"):
            # Rotary positions that were kept in another dtype.
            part.seq_len_cached = None
    return module.to(dtype)


def _to(x: Any, dtype: torch.dtype) -> Any:
    return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x


def _rounded(call: Call) -> Call:
    generator = torch.Generator().manual_seed(14)

    def moved(x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.is_floating_point():
            return x
        return x * (1 + 2e-16 * torch.randn(x.shape, generator=generator, dtype=x.dtype).sign().to(x.device))

    arguments = {name: moved(x) for name, x in call.arguments.items()}
    return Call(arguments, call.axes, call.options, call.is_training, call.is_optional, call.tensors)


def _attributes(module: nn.Module) -> dict[tuple[str, str], Any]:
    return {
        (path, name): value
        for path, part in module.named_modules()
        for name, value in part.__dict__.items()
        if not name.endswith("_cached")
    }


def _observe(module: nn.Module, call: Call, ours: Optional[type[nn.Module]] = None) -> _Seen:
    """Runs a module forward and backward, by the code of one of our layers or by its own."""
    module.train(call.is_training)
    given = {
        name: x.clone().requires_grad_()
        if isinstance(x, Tensor) and x.is_floating_point() and "mask" not in name
        else x
        for name, x in call.arguments.items()
    }
    passed = {name: x.clone() if isinstance(x, Tensor) else x for name, x in given.items()}
    before = _attributes(module)
    buffers = {name: value.clone() for name, value in module.named_buffers()}
    seed(module)
    outputs = module(**passed) if ours is None else ours.forward(module, **passed)
    after = _attributes(module)
    changed = set()
    for key in before.keys() | after.keys():
        if key not in before or key not in after or before[key] is not after[key]:
            changed.add(key[1])
    if changed:
        raise Unlike(f"its forward sets attributes: {', '.join(sorted(changed))}")
    for name, value in module.named_buffers():
        if name not in buffers or not torch.equal(value, buffers[name]):
            raise Unlike(f"its forward changes its buffer {name}")
    if type(outputs) is not tuple or not all(y is None or isinstance(y, Tensor) for y in outputs):
        raise Unlike(f"it returns a {type(outputs).__name__}, where the published module returns a tuple of tensors")
    for name, x in given.items():
        if isinstance(x, Tensor) and not torch.equal(x.detach(), passed[name].detach()):
            raise Unlike(f"it changes {name} in place")
    inputs = {name: x for name, x in given.items() if isinstance(x, Tensor) and x.requires_grad}
    wanted = inputs | {name: p for name, p in module.named_parameters() if p.numel()}
    gradients: dict[str, Optional[Tensor]] = dict.fromkeys(wanted)
    summed = [y for y in outputs if y is not None and y.requires_grad]
    if summed:
        weights = [
            torch.randn(y.shape, generator=torch.Generator().manual_seed(15 + n), dtype=torch.float64).to(y)
            for n, y in enumerate(summed)
        ]
        total = sum((y * w).sum() for y, w in zip(summed, weights))
        gradients = dict(zip(wanted, torch.autograd.grad(total, list(wanted.values()), allow_unused=True)))
    return _Seen([None if y is None else y.detach() for y in outputs], gradients)


def _compare(found: _Seen, expected: _Seen, tolerance: float) -> float:
    """The greatest difference. Raises :class:`Unlike` where it is beyond the tolerance."""
    shapes = [[None if y is None else (tuple(y.shape), y.dtype) for y in seen.outputs] for seen in (found, expected)]
    if shapes[0] != shapes[1]:
        raise Unlike(f"it returns {shapes[1]}, where the replacement returns {shapes[0]}")
    worst = 0.0

    def need(a: Tensor, b: Tensor, what: str, floor: float) -> None:
        nonlocal worst
        size = distance(a, b, floor=floor)
        if not size <= tolerance:
            raise Unlike(f"{what} differs from that of the published module by {size:.1e}, relative to its size", size)
        worst = max(worst, size)

    for a, b in zip(found.outputs, expected.outputs):
        if a is not None and b is not None:
            need(a, b, "its output", 1e-12)
    there = [g for g in expected.gradients.values() if g is not None and g.numel()]
    largest = max((float(g.abs().max()) for g in there), default=0.0)
    for name, b in expected.gradients.items():
        a = found.gradients.get(name)
        if a is None and b is None:
            continue
        zero = torch.zeros(())
        a, b = (zero.to(b if a is None else a).expand_as(b if a is None else a) if g is None else g for g in (a, b))
        need(a, b, f"the gradient of {name}", VANISHING * max(largest, 1e-200))
    return worst


def takes_its_parts(module: nn.Module, kind: LayerKind) -> bool:
    """Whether a module that stays computes the same with those of its parts that were replaced. True where that cannot be seen."""
    if not any(is_swapped(part) for part in module.modules()):
        return True
    try:
        with quiet(module), exact(module):
            _Evidence(module, kind).needs_parts()
    except Unlike:
        return False
    except Exception:
        return True
    return True

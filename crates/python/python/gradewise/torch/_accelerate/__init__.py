"""Puts fused operators in the place of the modules of somebody's model, where they compute the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from torch import nn

from gradewise._errors import ArgumentError
from gradewise.torch._accelerate.algebra import take_algebras
from gradewise.torch._accelerate.borders import borders
from gradewise.torch._accelerate.examine import Memory, Outcome
from gradewise.torch._accelerate.example import Example
from gradewise.torch._accelerate.fields import field_of, is_our_field
from gradewise.torch._accelerate.gate import Gate
from gradewise.torch._accelerate.kinds import KINDS, is_unknown_layer, kind_of
from gradewise.torch._accelerate.layers import is_compiled, is_ours, layers_of
from gradewise.torch._accelerate.report import Border, Joined, Left, Replaced, Report
from gradewise.torch._accelerate.stacks import join
from gradewise.torch._accelerate.swap import AlgebraMap, enter_gate, restore, swap, undo
from gradewise.torch._accelerate.views import adjacent_where_asked, make_adjacent
from gradewise.torch.cgenn.maps import Map

__all__ = ["Border", "Joined", "Left", "Replaced", "Report", "accelerate", "borders", "restore"]


def accelerate(model: nn.Module, verbose: bool = True, example: Optional[Sequence[Any]] = None) -> Report:
    """Lets the modules of Clifford-group-equivariant networks, of Flash Clifford, lgatr, gatr and cliffordlayers in
    ``model`` compute with fused operators.

    Each module is compared with what would take its place before it is changed: copies of both run in float64, forward and backward, on
    made-up inputs and graphs and with parameters moved away from their initial values. A module that differs is left, and the report says
    by how much.

    The modules are changed in place: each becomes a subclass of its own class, under its own name. Parameters, their names, the keys of
    ``state_dict``, methods, attributes, hooks and the model itself stay, so an optimiser made before goes on, and checkpoints load as
    before. Inputs and outputs keep their shapes. Between modules that were replaced, features stay in the operators' order of axes without
    copies. A network whose method ``_forward`` is found to be layers of message passing between linear maps runs them as one node of
    PyTorch's graph of gradients where nothing follows the modules inside. :func:`restore` undoes it.

    Args:
        model: a model with modules of the published implementations, of subclasses of them, or of classes built alike.
        verbose: whether the report is printed.
        example: arguments of the model; if they are given, outputs and gradients of the model for them are compared before and after, and
            what copies at the borders of replaced parts cost is measured.

    Returns:
        What was replaced, and what was left and why. For a model that was accelerated before, or one of this package's own modules, there
        may be nothing left to do.

    Raises:
        ArgumentError: if nothing in the model is known, or if the model computes something else for the example afterwards; the model is
            restored then.
    """
    report = Report()
    before = Example(model, example) if example is not None else None
    swapped: dict[str, nn.Module] = {}
    others: list[nn.Module] = []
    memory = Memory()
    try:
        # Children first: a whole is replaced if its parts were.
        compiled = [
            f"{path}." if path else "" for path, part in model.named_modules() if is_compiled(part) and layers_of(part)
        ]
        for path, module in sorted(model.named_modules(), key=lambda item: -item[0].count(".") - bool(item[0])):
            if any(path.startswith(whole) and path != whole[:-1] for whole in compiled):
                continue
            _consider(path, module, memory, report, swapped)
        others += take_algebras(model)
        adjacent_where_asked(model)
        for path, module in model.named_modules():
            joined = join(path, module)
            if joined is not None:
                report.joined.append(joined)
                others.append(module)
        if before is not None:
            report.difference = _difference(model, before)
            report.borders = borders(model, *example)
    except BaseException:
        for module in [*swapped.values(), *others]:
            undo(module)
        raise
    if not (report.replaced or report.left or report.there_before):
        names = ", ".join(kind.name for kind in KINDS if kind.name != "Sequential")
        raise ArgumentError(
            f"accelerate: the model has none of the modules {names} that can be replaced, nor layers of lgatr, gatr or cliffordlayers"
        )
    if verbose:
        print(report)
    return report


def _difference(model: nn.Module, before: Example) -> float:
    """The difference for the example; of a model that does not run with results in the operators' order, with results in their own."""
    try:
        return before.difference(model)
    except RuntimeError:
        make_adjacent(model)
        return before.difference(model)


def _consider(path: str, module: nn.Module, memory: Memory, report: Report, swapped: dict[str, nn.Module]) -> None:
    """Replaces one module, or says why not."""
    if isinstance(module, Map):
        report.there_before += 1
        return
    if isinstance(module, AlgebraMap):
        return
    name = type(module).__name__
    layers = layers_of(module)
    field = None if layers else field_of(module)
    if isinstance(module, Gate) or (layers and is_ours(module)) or (field and is_our_field(module)):
        report.there_before += 1
        return
    kind = None if layers or field else kind_of(module)
    if layers and is_compiled(module):
        reason = "its forward is compiled: make it without compile=True, and compile what accelerate gives"
        report.left.append(Left(path, name, reason))
        return
    if layers or field:
        outcome = memory.examine_layers(module, layers) if layers else memory.examine_fields(module, field)
        if outcome.layer is not None:
            try:
                enter_gate(module, outcome.layer.layer, outcome.setting)
            except TypeError as error:
                report.left.append(Left(path, name, f"its class takes no subclass: {error}"))
                return
            swapped[path] = module
            report.replaced.append(Replaced(path, name, outcome.layer.replacement))
            return
        _leave(path, name, outcome, report, swapped)
        return
    if kind is None:
        if is_unknown_layer(module):
            report.left.append(Left(path, name, "it is none of the known layers, nor built as one"))
        return
    outcome = memory.examine(module, kind)
    if outcome.setting is not None:
        swap(module, kind.map, outcome.setting)
        swapped[path] = module
        report.replaced.append(Replaced(path, name, kind.replacement))
        return
    _leave(path, name, outcome, report, swapped)


def _leave(path: str, name: str, outcome: Outcome, report: Report, swapped: dict[str, nn.Module]) -> None:
    """Says why a module stays, and takes its parts back where it does not take what they return."""
    if outcome.reason:
        report.left.append(Left(path, name, outcome.reason, outcome.difference))
    if not outcome.are_parts_kept:
        inside = [other for other in swapped if other.startswith(f"{path}." if path else "")]
        for other in inside:
            part = swapped.pop(other)
            undo(part)
            reason = f"{path or 'the model'}, which stays, computes something else with what its replacement returns"
            report.left.append(Left(other, type(part).__name__, reason))
        report.replaced = [r for r in report.replaced if r.path not in inside]

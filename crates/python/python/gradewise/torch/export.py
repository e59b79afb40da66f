"""Models as programs that run without gradewise and without Python: ``torch.export``, AOTInductor, ONNX.

Operators of gradewise become the standard operators of their definitions, those that derivatives beyond the kernels go through as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, Optional, Union

import torch
from torch import Tensor, nn

from gradewise._errors import ArgumentError, MissingPackageError
from gradewise.torch import _definitions, _small_linalg

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["onnx", "program"]

Model = Union[nn.Module, Callable[..., Any]]
"""A module, or a method of one."""
Example = Union[Tensor, Sequence[Any], Mapping[str, Any]]

_STANDARD = ("aten", "prims", "prim")


def program(
    model: Model,
    example: Example,
    *,
    batch: Optional[int] = None,
    dynamic_shapes: Any = None,
) -> ExportedProgram:
    """A model as a program of PyTorch's own operators, for ``torch.export.save``, AOTInductor, or other backends.

    The model computes as it would for the example in its present mode: call ``model.eval()`` first where that matters. Modules of this
    package, accelerated ones and functions of ``gradewise.torch`` are written out; nothing that loads the program needs gradewise.

    Args:
        model: the model, or one of its methods such as ``model.predict``.
        example: its arguments: a tensor, a sequence of positional ones, or a mapping of named ones. Axes that vary have size 2 or more.
        batch: the axis of all of the example's tensors whose size may vary, 0 for ``[rows, features, blades]`` and 1 for
            ``[blades, rows, features]``; None if sizes are those of the example.
        dynamic_shapes: which axes may vary, as ``torch.export.export`` takes it, in place of ``batch``.

    Raises:
        ArgumentError: the example does not fit, or a module computes something that no program can say; the text names the module.
    """
    if not isinstance(model, nn.Module):
        model = _method(model)
    positional, named = _arguments(example)
    if batch is not None:
        if dynamic_shapes is not None:
            raise ArgumentError("export: both batch and dynamic_shapes are given; leave one out")
        dynamic_shapes = _varying(batch, positional, named)
    watch = _Watch(model)
    with torch.no_grad(), _definitions.used(), watch.calls():
        try:
            made = torch.export.export(model, positional, named, dynamic_shapes=dynamic_shapes, strict=False)
        except ArgumentError:
            raise
        except Exception as error:
            raise ArgumentError(f"export: {watch.where()} cannot be exported: {watch.reason(error)}") from error
    _check(made)
    return made


def onnx(
    model: Model,
    example: Example,
    path: Union[str, PathLike[str]],
    *,
    batch: Optional[int] = None,
    dynamic_shapes: Any = None,
) -> None:
    """Writes a model as a file of ONNX operators, such as onnxruntime runs. Needs the packages onnx and onnxscript.

    Args:
        model: as for :func:`program`.
        example: as for :func:`program`.
        path: of the file; large weights are put beside it.
        batch: as for :func:`program`.
        dynamic_shapes: as for :func:`program`.

    Raises:
        ArgumentError: as :func:`program`, and if ONNX has no operators for what the model computes, such as singular values.
        MissingPackageError: onnx or onnxscript is not installed.
    """
    try:
        import onnx as _onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingPackageError(f"export.onnx needs {error.name}: pip install onnx onnxscript") from error
    made = program(model, example, batch=batch, dynamic_shapes=dynamic_shapes)
    if any("linalg" in str(node.target) for node in made.graph.nodes):
        made = made.run_decompositions(_small_linalg.table())
    try:
        torch.onnx.export(made, f=str(path), dynamo=True, verbose=False)
    except torch.onnx.errors.OnnxExporterError as error:
        raise ArgumentError(f"export.onnx: {_unknown(made, error)}") from error


class _Method(nn.Module):
    """A module whose ``forward`` is a method of another one."""

    def __init__(self, module: nn.Module, method: Callable[..., Any]) -> None:
        super().__init__()
        self.module, self._method = module, method

    def forward(self, *positional: Any, **named: Any) -> Any:
        return self._method(*positional, **named)


def _method(method: Any) -> nn.Module:
    module = getattr(method, "__self__", None)
    if not isinstance(module, nn.Module) or not callable(method):
        raise ArgumentError(
            f"export: the model is a {type(method).__qualname__}, expected a torch.nn.Module or a method of one"
        )
    return _Method(module, method)


def _arguments(example: Example) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, Tensor):
        return (example,), {}
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, Sequence) and not isinstance(example, str):
        return tuple(example), {}
    raise ArgumentError(
        f"export: the example is a {type(example).__qualname__}, expected a tensor, a sequence of arguments, or a mapping of named ones"
    )


def _varying(axis: int, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """The axis of all tensors as one that varies."""
    shapes = torch.export.ShapesCollection()
    for x in _tensors((positional, named)):
        if not 0 <= axis < x.dim():
            raise ArgumentError(f"export: batch={axis}, and a tensor of the example has shape {list(x.shape)}")
        if x.shape[axis] < 2:
            raise ArgumentError(
                f"export: axis {axis} of a tensor of shape {list(x.shape)} is to vary; give an example in which its size is 2 or more"
            )
        shapes[x] = {axis: torch.export.Dim.DYNAMIC}
    return shapes


class _Watch:
    """Follows the calls of a model's modules, to name the one within which an error was raised or a size was fixed."""

    def __init__(self, model: nn.Module) -> None:
        told = model.module if isinstance(model, _Method) else model
        self._paths = {id(module): path for path, module in told.named_modules()}
        self._inside: list[nn.Module] = []
        self._varying: list[torch.SymInt] = []
        self._fixed_by: Optional[nn.Module] = None

    @contextmanager
    def calls(self) -> Iterator[None]:
        """Within, calls are followed."""
        register = nn.modules.module
        handles = [
            register.register_module_forward_pre_hook(self._enter),
            register.register_module_forward_hook(self._leave),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        if id(module) not in self._paths:
            return
        self._inside.append(module)
        if not self._varying:
            sizes = [size for x in _tensors(inputs) for size in x.shape]
            self._varying = [size for size in sizes if isinstance(size, torch.SymInt)]

    def _leave(self, module: nn.Module, *_: Any) -> None:
        if not self._inside or self._inside[-1] is not module:
            return
        self._inside.pop()
        if self._fixed_by is None and any(size.node.maybe_as_int() is not None for size in self._varying):
            self._fixed_by = module

    def where(self) -> str:
        """The module to blame, by its path and class."""
        module = self._inside[-1] if self._inside else self._fixed_by
        if module is None:
            return "the model"
        path = self._paths[id(module)]
        return f"{path or 'the model'} ({type(module).__name__})"

    def reason(self, error: BaseException) -> str:
        """What is wrong, by what was seen and by the error."""
        if self._fixed_by is not None and not self._inside:
            return "it fixes a size that is to vary, as len(x), int() and comparisons do; take sizes from x.shape, or leave batch out"
        return _reason(error)


def _tensors(value: Any) -> list[Tensor]:
    return [x for x in torch.utils._pytree.tree_leaves(value) if isinstance(x, Tensor)]


def _reason(error: BaseException) -> str:
    """What an error of PyTorch says, without its advice and its traces."""
    text = str(error).strip().split("\n\n")[0].strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _unknown(made: ExportedProgram, error: BaseException) -> str:
    """What ONNX does not have, by the innermost cause of an error, and the module that computes it."""
    while error.__cause__ is not None:
        error = error.__cause__
    found = re.search(r"op='aten\.(\w+)'", str(error))
    if found is None:
        return _reason(error)
    for node in made.graph.nodes:
        # PyTorch takes its operators apart first, into others whose names begin alike.
        name = node.target._schema.name[6:] if isinstance(node.target, torch._ops.OpOverload) else ""
        if name and (name.startswith(found[1].lstrip("_")) or found[1].startswith(name)):
            return f"{_owner(node)} computes {node.target}, which ONNX has no operator for; torch.export.save and AOTInductor take it"
    return (
        f"the model computes aten.{found[1]}, which ONNX has no operator for; torch.export.save and AOTInductor take it"
    )


def _owner(node: torch.fx.Node) -> str:
    """The module that a node of a program is of, by its path and class."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "Module")
    name = kind if isinstance(kind, str) else kind.__qualname__
    return f"{path or 'the model'} ({name.rsplit('.', 1)[-1]})"


def _check(made: ExportedProgram) -> None:
    """Refuses a program with operators that other programs do not have."""
    for module in made.graph_module.modules():
        for node in getattr(module, "graph", torch.fx.Graph()).nodes:
            target = node.target
            if isinstance(target, torch._ops.OpOverload) and target.namespace not in _STANDARD:
                raise ArgumentError(
                    f"export: {_owner(node)} calls {target}, an operator of a library that programs "
                    "elsewhere do not have; write it in operators of PyTorch"
                )

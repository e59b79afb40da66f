"""Several operators as one node of PyTorch's graph of gradients, for eager code.

A node of PyTorch costs its host some 100 µs forward and backward, most of it in tensors that go through Python: parameters that are
saved, views of gradients, results that only the next operator reads. A composite hands all of its inputs to the library in one call; what
lies between its operators, and the history of it, stay there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch._functorch.utils import unwrap_dead_wrappers
from torch.autograd import forward_ad

from gradewise import _core

Step = tuple[str, str, list[int]]
"""An operator, its attributes as JSON, and its inputs: those of the composite by number, then the results of the steps."""
Gradients = Sequence[Optional[Tensor]]


@dataclass(frozen=True)
class Composite:
    """Operators in a row."""

    native: _core.Composite
    second: Callable[[Sequence[Tensor], Tensor, Tensor, Sequence[bool], Any], Gradients]
    """The gradients of the inputs, in a way that PyTorch can differentiate: for the inputs, the output, its gradient, the inputs whose
    gradients are wanted, and the ends of edges."""
    reads_output: bool
    """Whether the backward pass reads the output. Where it does not, the output may be changed in place, and `second` gets its gradient
    in place of it."""
    groups: bool = False
    """Whether the result is a tensor for each group of heads, whose gradients come one by one."""


def composite(
    steps: Sequence[Step],
    views: Sequence[str],
    result: str,
    ordinary: Callable[[Sequence[Tensor], Any], Tensor],
    groups: bool = False,
    fused: bool = False,
) -> Composite:
    """A composite with one of the views of ``_core.Composite`` for each input, and for the result. ``ordinary`` computes the same by nodes of
    PyTorch, for inputs and ends of edges. With ``groups`` the last step is ``split_heads``, and what :func:`run` gives are its groups. With ``fused``
    operators on elements are computed together where PyTorch captures: it pays for composites that have many of them."""

    def second(inputs: Sequence[Tensor], _: Tensor, grad: Tensor, needs: Sequence[bool], ends: Any) -> Gradients:
        # Each input by a name of its own: one may have been computed from another.
        shown = [x.view_as(x) for x in inputs]
        wanted = [x for x, need in zip(shown, needs) if need]
        output = ordinary(shown, ends)
        found = iter(torch.autograd.grad(output, wanted, grad, create_graph=True, allow_unused=True))
        return [next(found) if need else None for need in needs]

    # Composites end with a block, or with features of nodes beside the residual.
    return Composite(_core.Composite(list(steps), list(views), result, groups, fused), second, False, groups)


is_grad_enabled = torch.is_grad_enabled
_keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(ctx, made: Composite, ends: Any, edges: Optional[_core.Edges], again: bool, *inputs: Tensor) -> Any:
        output, history = made.native.forward(inputs, ctx.needs_input_grad[4:], edges, again)
        ctx.kept = made, ends, history, edges, len(inputs)
        # The library has them already; saved, they are checked for changes in place, and there to be differentiated once more.
        ctx.save_for_backward(*inputs, *((output,) if made.reads_output else ()))
        return _groups(output) if made.groups else output

    @staticmethod
    def backward(ctx, *grads: Tensor):
        made, ends, history, edges, count = ctx.kept
        # Asked for in any case: this is what checks them.
        saved = ctx.saved_tensors
        # Batches of gradients, too, are for PyTorch's own nodes.
        if is_grad_enabled() or _transformation() is not None or any(is_batch_of_gradients(grad) for grad in grads):
            *inputs, output = saved if made.reads_output else (*saved, None)
            needs = ctx.needs_input_grad[4:]

            def pull(grad: Tensor) -> Gradients:
                return made.second(inputs, grad if output is None else output, grad, needs, ends)

            return None, None, None, None, *over_batch(pull, torch.stack(grads) if made.groups else grads[0])
        inputs = saved[:count]
        if not history.is_of(inputs):
            # FSDP2 frees the memory of parameters behind the forward pass and fetches them to another place for the backward pass: the
            # history reads the first one.
            history = made.native.forward(inputs, ctx.needs_input_grad[4:], edges)[1]
            return None, None, None, None, *history.backward(grads, False)
        return None, None, None, None, *history.backward(grads, _keeps_graph())


def _groups(whole: Tensor) -> tuple[Tensor, ...]:
    """The groups of heads; no views, for PyTorch forbids changes in place of views that come from one node."""
    return tuple(group.detach() for group in whole.unbind(0))


is_batch_of_gradients = getattr(torch._C._functorch, "is_legacy_batchedtensor", lambda _: False)
"""Whether a gradient is one of those that ``torch.autograd.grad(is_grads_batched=True)`` hands to a backward pass."""


def over_batch(pull: Callable[[Tensor], Gradients], grad: Tensor) -> Gradients:
    """The gradients that ``pull`` makes of an output's gradient, or of a batch of them.

    A batch of ``is_grads_batched`` is no batch of ``torch.func.vmap``, which is what operators have rules for: it becomes one here.
    """
    if not is_batch_of_gradients(grad):
        return pull(grad)
    # Levels are counted by thread, and backward passes of a GPU run in one of their own, where the caller's level, the first, is unknown.
    level = max(torch._C._vmapmode_increment_nesting() - 1, 1)
    torch._C._vmapmode_decrement_nesting()
    there: list[bool] = []

    def some(grad: Tensor) -> list[Tensor]:
        gradients = pull(grad)
        there[:] = [g is not None for g in gradients]
        return [g for g in gradients if g is not None]

    batches = iter(torch.func.vmap(some)(torch._remove_batch_dim(grad, level, 1, 0)))
    return [torch._add_batch_dim(next(batches), 0, level) if is_there else None for is_there in there]


# PyTorch's own function in C. Versions before 2.12 wrap it in Python, for functional transformations and for tensors that an ended one
# left behind. Calls under a transformation do not come here, and `unwrapped` deals with such tensors.
_apply = super(torch.autograd.Function, _Node).apply


def unwrapped(inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """The tensors themselves, where a transformation that has ended has left its own for them."""
    return unwrap_dead_wrappers(tuple(inputs))


def run(
    made: Composite,
    inputs: Sequence[Tensor],
    ends: Any = None,
    edges: Optional[_core.Edges] = None,
    again: bool = False,
) -> Any:
    """The result, or its groups, for ordinary tensors in eager code, such as the library admits. With ``again`` the inputs alone are kept for
    the backward pass, which computes the steps again."""
    if is_grad_enabled():
        for x in inputs:
            if x.requires_grad:
                return _apply(made, ends, edges, again, *inputs)
    output = made.native.forward(inputs, (False,) * len(inputs), edges)[0]
    return _groups(output) if made.groups else output


_PLAIN = (Tensor, nn.Parameter)
_tracing_state = torch._C._get_tracing_state
_depth_of_modes = torch._C._len_torch_dispatch_stack
_transformation = torch._C._functorch.peek_interpreter_stack
_top_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: True)
is_any_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)


def is_followed() -> bool:
    """Whether a compiler, ``torch.jit.trace``, a mode, a transformation or dual numbers of PyTorch follow what this thread computes, or
    hooks replace what its forward passes save, such as those of activation checkpointing, which would not see what a composite keeps."""
    return (
        torch.compiler.is_compiling()
        or _tracing_state() is not None
        or _depth_of_modes() != 0
        or _transformation() is not None
        or forward_ad._current_level >= 0
        or _top_hooks(False) is not None
    )


def is_transformed() -> bool:
    """Whether a transformation of ``torch.func`` or dual numbers of forward mode are in force."""
    if torch.compiler.is_compiling():
        # Compilers show no interpreter as one; those of reverse mode and of batches they pass on to the registered operators.
        return forward_ad._current_level >= 0
    return _transformation() is not None or forward_ad._current_level >= 0


def is_plain(inputs: Sequence[Tensor]) -> bool:
    """Whether these are ordinary tensors in eager code, which nothing follows."""
    return not is_followed() and all(type(x) in _PLAIN and x.device.type in ("cpu", "cuda") for x in inputs)


def is_eager(x: Tensor) -> bool:
    """Whether several modules may run as one: in eager code, without autocast, which says for each operator what it computes in, and without
    hooks on all modules."""
    return (
        not is_followed()
        and x.device.type in ("cpu", "cuda")
        and not torch.is_autocast_enabled(x.device.type)
        and not nn.modules.module._has_any_global_hook()
    )


def read(module: nn.Module, *names: str) -> list[Tensor]:
    """The parameters of these names, from the module's own table: attribute access looks in other places first, which takes longer than
    preparing an operator. A name that is not in the table, such as a parametrised one, is read as an attribute."""
    own = module._parameters
    return [own[name] if name in own else getattr(module, name) for name in names]


def has_hooks(module: nn.Module) -> bool:
    """Whether something is called with a module's inputs, outputs or gradients."""
    return not (
        not module._forward_hooks
        and not module._forward_pre_hooks
        and not module._backward_hooks
        and not module._backward_pre_hooks
    )


_EDGES: list[tuple[Any, ...]] = []
_EDGES_BY_CONTENT: list[tuple[Any, ...]] = []


def edges_between(receivers: Tensor, senders: Tensor, nodes: int) -> Optional[_core.Edges]:
    """Edges for steps on them; None for numbers of nodes that are no list of int64.

    The last ones are kept, for the layers of a network ask for the same. On the CPU they are known by what they say, so that memory which
    something else refills (a buffer of NumPy, ``.data``) is noticed; on a GPU by the tensors and PyTorch's count of changes in place, for to
    look at them would wait for the device: whoever writes into their memory past PyTorch there calls :func:`forget_edges`. Not kept are
    those of a graph under capture, which replayed has to read what its inputs say then, and those of inference mode, where PyTorch does
    not count changes.
    """
    if receivers.dtype != torch.int64 or senders.dtype != torch.int64 or receivers.dim() != 1 or senders.dim() != 1:
        return None
    if receivers.shape != senders.shape or receivers.device != senders.device:
        return None
    if not receivers.is_cuda:
        return _edges_by_content(receivers, senders, nodes)
    if receivers.is_inference() or senders.is_inference() or torch.cuda.is_current_stream_capturing():
        return _edges(receivers, senders, nodes)
    state = (receivers, receivers._version, senders, senders._version, nodes, _stream(receivers))
    for kept in _EDGES:
        if all(a is b or (not isinstance(a, Tensor) and a == b) for a, b in zip(kept, state)):
            return kept[-1]
    made = _edges(receivers, senders, nodes)
    _EDGES[:] = [(*state, made)]
    return made


def _edges_by_content(receivers: Tensor, senders: Tensor, nodes: int) -> _core.Edges:
    for kept in _EDGES_BY_CONTENT:
        if kept[2] == nodes and torch.equal(kept[0], receivers) and torch.equal(kept[1], senders):
            return kept[-1]
    with torch.no_grad():
        state = receivers.clone(), senders.clone()
    made = _edges(*state, nodes)
    _EDGES_BY_CONTENT[:] = [(*state, nodes, made)]
    return made


def forget_edges() -> None:
    """Lets message passing on a GPU read its edges anew: after something that PyTorch does not see (a kernel of one's own, another library
    by DLPack, ``.data``) has written into a tensor of edges that a call has read before."""
    _EDGES.clear()


def _stream(x: Tensor) -> int:
    return torch._C._cuda_getCurrentRawStream(x.device.index) if x.is_cuda else 0


def _edges(receivers: Tensor, senders: Tensor, nodes: int) -> _core.Edges:
    if not receivers.is_cuda:
        return _core.Edges(receivers.tolist(), senders.tolist(), nodes)
    with torch.no_grad():
        return _core.Edges.on_device(*_lists(torch.stack((receivers, senders)), nodes), nodes)


def _lists(ends: Tensor, nodes: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """For each row of ends: the nodes, checked on the device as an index is; where those of each node begin; and the edges, by node. Both
    rows by the same operators of PyTorch: each takes its host as long as a kernel of a block."""
    numbers = torch.arange(nodes + 1, dtype=torch.int32, device=ends.device)
    named = numbers[:-1].index_select(0, ends.view(-1)).view_as(ends)
    by_node, order = named.sort(stable=True)
    starts = torch.searchsorted(by_node, numbers.expand(2, -1).contiguous(), out_int32=True)
    return list(zip(named, starts, order.to(torch.int32)))

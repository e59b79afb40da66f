"""What :func:`gradewise.torch.accelerate` did, as data and as text."""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import dataclass, field
from typing import Optional


@dataclass(frozen=True)
class Replaced:
    """A module that computes with operators of gradewise now."""

    path: str
    original: str
    replacement: str


@dataclass(frozen=True)
class Left:
    """A module that stays as it was."""

    path: str
    original: str
    reason: str
    difference: Optional[float] = None
    """How far the replacement was from the module, relative to what the module computes; None where nothing was compared."""


@dataclass(frozen=True)
class Joined:
    """A network whose layers run as one node of PyTorch's graph of gradients in eager code."""

    path: str
    original: str
    layers: int
    reason: str = ""
    """Why they run one by one instead; "" if they do not."""


@dataclass(frozen=True)
class Border:
    """A call of a replaced module with features that lie in another order than its operators', so that they are copied."""

    path: str
    shape: tuple[int, ...]
    bytes: int
    microseconds: float
    """The time of the copy alone, where the features were."""


@dataclass
class Report:
    """What :func:`accelerate` did."""

    replaced: list[Replaced] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    joined: list[Joined] = field(default_factory=list)
    borders: Optional[list[Border]] = None
    """What conversions at the borders of replaced parts cost for the example, if there was one."""
    there_before: int = 0
    """Modules that computed with operators of gradewise already."""
    difference: Optional[float] = None
    """How far the model's outputs and gradients for the example are from those before, relative to them, if there was one."""

    def parts(self) -> list[Replaced]:
        """The replaced modules that are not inside of another one."""
        paths = {r.path for r in self.replaced}

        def is_outermost(path: str) -> bool:
            words = path.split(".")
            return not any(".".join(words[:n]) in paths for n in range(len(words))) or not path

        return sorted((r for r in self.replaced if is_outermost(r.path)), key=lambda r: r.path)

    def __str__(self) -> str:
        counts = Counter(r.original for r in self.replaced)
        if self.replaced:
            named = ", ".join(f"{n} {name}" for name, n in counts.most_common())
            lines = [f"replaced {len(self.replaced)} modules: {named}"]
        elif self.left and not self.there_before:
            lines = ["replaced 0 modules"]
        else:
            lines = ["nothing left to do"]
        if self.there_before:
            lines[0] += f"; {self.there_before} computed with operators of gradewise before"
        lines += [f"  {r.path or '(model)'}: {r.original}, with what is inside" for r in self.parts()]
        lines += [f"  {j.path or '(model)'}: {j.original}: {_how(j)}" for j in self.joined]
        lines += [f"left {len(self.left)}"] if self.left else []
        lines += [f"  {m.path or '(model)'}: {m.original}: {m.reason}" for m in self.left]
        if self.difference is not None:
            lines.append(
                f"outputs and gradients for the example differ by {self.difference:.1e}, relative to those before"
            )
        if self.borders is not None:
            total = sum(border.microseconds for border in self.borders)
            lines.append(f"{len(self.borders)} copies at borders in a forward pass of the example, {total:.0f} µs")
            lines += [f"  {b.path or '(model)'}: {list(b.shape)}, {b.microseconds:.1f} µs" for b in self.borders]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The first and the last lines of the text, and a table of the parts between."""
        rows = [(r.path, r.original, "replaced, with what is inside") for r in self.parts()]
        rows += [(j.path, j.original, _how(j)) for j in self.joined]
        rows += [(m.path, m.original, f"left: {m.reason}") for m in self.left]
        rows += [(b.path, "×".join(map(str, b.shape)), f"copied, {b.microseconds:.1f} µs") for b in self.borders or ()]
        facts = [line for line in str(self).split("\n") if not line.startswith("  ")]
        cells = [[html.escape(text) for text in (path or "(model)", what, how)] for path, what, how in rows]
        body = "".join(f"<tr><td><code>{path}</code></td><td>{what}</td><td>{how}</td></tr>" for path, what, how in cells)
        head = "<tr><th>module</th><th>class or shape</th><th>what happened</th></tr>"
        table = f'<div style="overflow-x: auto"><table>{head}{body}</table></div>' if rows else ""
        return "".join(f"<p>{html.escape(fact)}</p>" for fact in facts) + table


def _how(joined: Joined) -> str:
    layers = f"its {joined.layers} layers of message passing run"
    return f"{layers} one by one: {joined.reason}" if joined.reason else f"{layers} as one"

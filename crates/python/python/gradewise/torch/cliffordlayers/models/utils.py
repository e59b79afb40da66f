"""Classes with some arguments given."""

from __future__ import annotations

import sys
from typing import Any


def partialclass(name: str, cls: type, *args: Any, **kwds: Any) -> type:
    """A subclass of ``cls`` that has these arguments already, such as a block for the networks of :mod:`gradewise.torch.cliffordlayers`.

    Args:
        name: its name. Kept under it in the module that calls, its objects can be pickled.
        cls: the class.
        args, kwds: arguments of its constructor; those of a call come after, or override them.
    """

    def __init__(self: Any, *more: Any, **named: Any) -> None:
        cls.__init__(self, *args, *more, **{**kwds, **named})

    return type(
        name, (cls,), {"__init__": __init__, "__module__": sys._getframe(1).f_globals.get("__name__", "__main__")}
    )

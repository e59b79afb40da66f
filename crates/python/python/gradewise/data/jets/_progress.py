"""Words about the progress of a run: one line that changes on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Optional, Union

# Seconds between words.
TERMINAL = 0.2
LOG = 30.0


def span(seconds: float) -> str:
    """A duration as people say it."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


class Progress:
    """Counts jets, and says how far it is."""

    def __init__(self, into: Union[bool, Callable[[str], None]], clock: Callable[[], float] = time.monotonic) -> None:
        self._into = into
        self._clock = clock
        self._live = into is True and sys.stderr.isatty()
        self._every = TERMINAL if self._live else LOG
        self._shown = False
        self._total = 0
        self._count = 0
        self._began = self._spoken = clock()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._clear()

    def begin(self, total: int) -> None:
        """So many jets are to be drawn."""
        self._total = total
        self._began = self._spoken = self._clock()

    def drawn(self, jets: int) -> None:
        """So many jets more are drawn."""
        self._count += jets
        now = self._clock()
        if now - self._spoken < self._every and self._count < self._total:
            return
        self._spoken = now
        text = self._text(now)
        if self._live:
            sys.stderr.write(f"\r\x1b[2K{text}")
            sys.stderr.flush()
            self._shown = True
        else:
            self._plain(text)

    def line(self, text: str) -> None:
        """A line that stays."""
        self._clear()
        self._plain(text)

    def _text(self, now: float) -> str:
        rate = self._count / max(now - self._began, 1e-9)
        left = f", {span((self._total - self._count) / rate)} left" if 0 < self._count < self._total else ""
        return f"{self._count} of {self._total} jets ({100 * self._count // self._total}%), {rate:.1f} jets/s{left}"

    def _plain(self, text: str) -> None:
        if self._into is True:
            print(text, file=sys.stderr, flush=True)
        elif self._into:
            self._into(text)

    def _clear(self) -> None:
        if self._shown:
            sys.stderr.write("\n")
            self._shown = False

"""Processes of the program ``gradewise``: how they are started, watched and stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from gradewise._errors import ArgumentError, RunError


_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def launcher() -> list[str]:
    """The words that start the program."""
    return [sys.executable, "-m", "gradewise"]


def assignments(settings: Mapping[str, Any], within: str = "") -> list[str]:
    """Settings as the command line has them, ``KEY=VALUE``; those in dicts with the dict's key before theirs."""
    words = []
    for key, value in settings.items():
        name = f"{within}{key}"
        if isinstance(value, Mapping):
            words += assignments(value, f"{name}.")
        else:
            words.append(f"{name}={_written(name, value)}")
    return words


def _written(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, str, os.PathLike)):
        return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(f'"{x}"' if isinstance(x, str) else _written(name, x) for x in value) + "]"
    raise ArgumentError(
        f"the setting {name} is a {type(value).__name__}; settings are numbers, text, booleans and lists"
    )


def _environment() -> dict[str, str]:
    """That of this process, with this package where the other one finds it."""
    folder = str(Path(__file__).parents[1])
    before = os.environ.get("PYTHONPATH")
    paths = before.split(os.pathsep) if before else []
    return {**os.environ, "PYTHONPATH": os.pathsep.join([folder, *(path for path in paths if path != folder)])}


def call(arguments: Sequence[str], watch: Optional[Callable[[str], None]] = None) -> str:
    """Runs the program and returns what it prints.

    Args:
        arguments: its arguments.
        watch: is called with each line that it says about its progress.

    Raises:
        RunError: it failed; the text is its own.
        KeyboardInterrupt: after the program has ended in good order; a second Ctrl-C ends it at once.
    """
    process = subprocess.Popen(
        [*launcher(), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=_environment(),
        # Ctrl-C is for this process, which passes it on once.
        start_new_session=True,
    )
    printed: list[str] = []
    reader = threading.Thread(target=lambda: printed.append(process.stdout.read()), daemon=True)
    reader.start()
    said: list[str] = []
    interrupted: Optional[KeyboardInterrupt] = None
    try:
        while True:
            try:
                for line in process.stderr:
                    line = line.rstrip("\n")
                    # Errors are read in logs and notebooks, where colours forced by the environment are noise.
                    said.append(_COLOURS.sub("", line))
                    if watch:
                        watch(line)
                process.wait()
                break
            except KeyboardInterrupt as interrupt:
                if interrupted:
                    raise
                interrupted = interrupt
                process.send_signal(signal.SIGINT)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        reader.join()
        process.stdout.close()
        process.stderr.close()
    if interrupted:
        raise KeyboardInterrupt(_reason(said)) from interrupted
    if process.returncode != 0:
        error = RunError(_reason(said) or _ending(process.returncode))
        error.status = process.returncode
        error.output = "\n".join([*said, *printed])
        raise error
    return printed[0]


def _reason(said: Sequence[str]) -> str:
    """Why the program ended: what it said last, from "error: " on."""
    for index in range(len(said) - 1, -1, -1):
        if said[index].startswith("error: "):
            return "\n".join([said[index].removeprefix("error: "), *said[index + 1 :]]).rstrip()
    return "\n".join(said[-20:])


def _ending(status: int) -> str:
    if status < 0:
        return f"the program was ended by {signal.Signals(-status).name}"
    return f"the program ended with exit status {status}"

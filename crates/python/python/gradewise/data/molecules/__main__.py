"""``python -m gradewise.data.molecules``: draws frames of a system in motion."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Optional

from gradewise.data._command import status_of
from gradewise.data.molecules import Card, draw, write
from gradewise.data.molecules._systems import SYSTEMS

NUMBERS = {
    "frames": (int, "N", "frames to keep"),
    "seed": (int, "N", "of velocities and thermostat"),
    "temperature": (float, "K", "of the motion; 0 for the usual one of the system"),
    "step": (float, "FS", "time step"),
    "every": (int, "STEPS", "steps from one frame to the next"),
    "equilibration": (int, "STEPS", "steps before the first frame"),
    "friction": (float, "1/FS", "of the thermostat"),
}


def parser() -> argparse.ArgumentParser:
    systems = "; ".join(f"{name}: {system.about} ({system.method})" for name, system in SYSTEMS.items())
    top = argparse.ArgumentParser(
        prog="python -m gradewise.data.molecules",
        description=f"Draws frames of molecular dynamics, with energies and forces. Systems: {systems}.",
    )
    top.add_argument("file", metavar="FILE", help="extended XYZ (.xyz) or, of molecules, .npz")
    top.add_argument("--system", choices=tuple(SYSTEMS), default="ethanol", help="what moves (default: ethanol)")
    for name, (kind, unit, text) in NUMBERS.items():
        default = Card.__dataclass_fields__[name].default
        top.add_argument(f"--{name}", type=kind, metavar=unit, default=default, help=f"{text} (default: {default})")
    top.add_argument("--single", action="store_true", help="positions and forces of .npz in single precision")
    top.add_argument("--quiet", action="store_true", help="say nothing about the progress")
    return top


def main(words: Optional[Sequence[str]] = None) -> int:
    """Runs the command.

    Returns:
        The exit status: 0 done, 1 failed, 2 bad usage or input.
    """
    arguments = parser().parse_args(words)

    def say(frames: int) -> None:
        if frames % 100 == 0 or frames == arguments.frames:
            print(f"{frames} of {arguments.frames} frames", file=sys.stderr, flush=True)

    def work() -> int:
        card = Card(system=arguments.system, **{name: getattr(arguments, name) for name in NUMBERS})
        write(draw(card, None if arguments.quiet else say), arguments.file, arguments.single)
        return 0

    return status_of(work)


if __name__ == "__main__":
    sys.exit(main())

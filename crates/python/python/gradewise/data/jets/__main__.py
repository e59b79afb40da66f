"""``python -m gradewise.data.jets``: draws jets, and checks files of jets."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any, Optional

from gradewise.data._command import status_of
from gradewise.data.jets import Card, check, make
from gradewise.data.jets._card import LARGEST_SEED
from gradewise.data.jets._check import MEASURED
from gradewise.data.jets._make import PYTHIA

EXAMPLES = """examples:
  10,000 jets for a laptop, then a training run on them
    python -m gradewise.data.jets make top-jets --train 10000 --valid 2000 --test 2000
    gradewise train lorentz data.source=top-jets data.train=10000 data.valid=2000 data.test=2000
  as many as the published set has, with everything that a collision has
    python -m gradewise.data.jets make top-large --train 1200000 --valid 400000 --test 400000 --interactions
  quarks against gluons
    python -m gradewise.data.jets make quarks --kind quark-gluon --train 100000 --test 20000

An interrupted run goes on where it was when the same command is given again. The files do not depend on --processes.
"""

# The settings of a card that are numbers, with their help.
NUMBERS = {
    "energy": (float, "GEV", "energy of the two protons together"),
    "radius": (float, "R", "radius of the anti-kT algorithm"),
    "pt_low": (float, "GEV", "least transverse momentum of a jet"),
    "pt_high": (float, "GEV", "largest transverse momentum of a jet"),
    "eta": (float, "ETA", "largest absolute pseudorapidity of a jet"),
    "particles": (int, "N", "constituents stored of a jet, those of largest transverse momentum"),
    "pt_hat": (
        float,
        "GEV",
        "least transverse momentum of the hard collision; lower is slower and brings jets that softer collisions make by what they radiate",
    ),
    "block": (int, "JETS", "jets drawn from one seed and kept together; another number is another set"),
}
SWITCHES = {
    "interactions": "multiple interactions: other partons of the protons collide, too",
    "hadrons": "hadronisation and decays; without, constituents are partons",
    "contained": "all three quarks of a top within the radius of the jet, as in the published set",
}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m gradewise.data.jets",
        description="Draws jets from a seed with Pythia and FastJet, in the layout of the published top-tagging files, and checks such files.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="make | check")
    maker = commands.add_parser(
        "make",
        help="draw jets and write train.h5, val.h5 and test.h5",
        description="Draws jets and writes train.h5, val.h5 and test.h5 into FOLDER. Nothing that is there is overwritten.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    maker.add_argument("folder", metavar="FOLDER", help="for the files; made if it is not there")
    size = maker.add_argument_group("how many")
    for split in ("train", "valid", "test"):
        size.add_argument(
            f"--{split}", type=int, default=0, metavar="JETS", help=f"jets to {PURPOSES[split]} (default: none)"
        )
    what = maker.add_argument_group(
        "what jets", "Defaults are those of the published sets; top / quark-gluon where they differ."
    )
    what.add_argument(
        "--kind",
        choices=("top", "quark-gluon"),
        default="top",
        help="tops against QCD dijets (default), or light quarks against gluons beside an invisible Z",
    )
    what.add_argument("--seed", type=int, default=0, metavar="N", help=f"of all jets, 0 to {LARGEST_SEED} (default: 0)")
    one, other = Card(), Card.quark_gluon()
    for name, text in SWITCHES.items():
        what.add_argument(
            f"--{name}",
            action=argparse.BooleanOptionalAction,
            default=None,
            help=f"{text} (default: {_either(_word(getattr(one, name)), _word(getattr(other, name)))})",
        )
    for name, (kind, unit, text) in NUMBERS.items():
        what.add_argument(
            f"--{name.replace('_', '-')}",
            type=kind,
            metavar=unit,
            help=f"{text} (default: {_either(f'{getattr(one, name):g}', f'{getattr(other, name):g}')})",
        )
    what.add_argument(
        "--pythia",
        action="append",
        default=[],
        metavar="SETTING",
        help='a setting of Pythia, such as "6:m0 = 172.5"; may be repeated',
    )
    how = maker.add_argument_group("how")
    how.add_argument("--processes", type=int, metavar="N", help="that draw at the same time (default: one a processor)")
    how.add_argument("--keep-blocks", action="store_true", help="keep FOLDER/blocks, with which a larger set can begin")
    how.add_argument("--quiet", action="store_true", help="say nothing about the progress")
    how.add_argument("--generator", default=PYTHIA, metavar="MODULE:CLASS", help="another generator in place of Pythia")
    checker = commands.add_parser(
        "check",
        help="look for faults, and compare with known values",
        description="Looks for faults in all jets of FILE (numbers, order, units, classes, hash), and compares masses, momenta, "
        "multiplicities and prongs of the first of them with known values. Files of others with the published columns are "
        "read, too. The exit status is 1 if the file is not sound.",
    )
    checker.add_argument("file", metavar="FILE", help="an HDF5 file of jets")
    checker.add_argument("--figure", metavar="SVG", help="write the spectra of both classes there")
    checker.add_argument(
        "--jets",
        type=int,
        default=MEASURED,
        metavar="N",
        help=f"jets to measure, some hundreds a second (default: {MEASURED})",
    )
    checker.add_argument("--json", action="store_true", help="print JSON")
    return top


PURPOSES = {"train": "fit", "valid": "watch", "test": "report"}


def _either(one: str, other: str) -> str:
    return one if one == other else f"{one} / {other}"


def _word(on: bool) -> str:
    return "yes" if on else "no"


def card_of(arguments: argparse.Namespace) -> Card:
    """The card of a command line."""
    changes: dict[str, Any] = {
        name: getattr(arguments, name) for name in (*NUMBERS, *SWITCHES) if getattr(arguments, name) is not None
    }
    changes |= {"seed": arguments.seed, "pythia": tuple(arguments.pythia)}
    return Card(**changes) if arguments.kind == "top" else Card.quark_gluon(**changes)


def main(words: Optional[Sequence[str]] = None) -> int:
    """Runs a command.

    Returns:
        The exit status: 0 done, 1 failed or not sound, 2 bad usage or input.
    """
    arguments = parser().parse_args(words)

    def work() -> int:
        if arguments.command == "make":
            make(
                arguments.folder,
                train=arguments.train,
                valid=arguments.valid,
                test=arguments.test,
                card=card_of(arguments),
                processes=arguments.processes,
                keep_blocks=arguments.keep_blocks,
                progress=not arguments.quiet,
                generator=arguments.generator,
            )
            return 0
        report = check(arguments.file, jets=arguments.jets, figure=arguments.figure)
        print(json.dumps(report.as_dict(), indent=2) if arguments.json else report)
        return 0 if report.sound else 1

    return status_of(work)


if __name__ == "__main__":
    sys.exit(main())

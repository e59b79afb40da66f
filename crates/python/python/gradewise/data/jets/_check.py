"""Is a file of jets sound, and are its jets what they are said to be?"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np

from gradewise._errors import ArgumentError
from gradewise.data.jets._card import Card
from gradewise.data.jets._faults import Faults
from gradewise.data.jets._figure import Panel, figure
from gradewise.data.jets._file import Digest, File, Jets
from gradewise.data.jets._known import hash_of, known, top_mass, w_mass
from gradewise.data.jets._shapes import Shapes, area, peak

Array = Any

# Jets whose shapes are measured unless another number is asked for.
MEASURED = 10_000
# Deviations from a known value, in standard errors, beyond which a set is held to be another one.
SIGMAS = 5.0


@dataclass(frozen=True)
class Row:
    """A measured number beside a known one.

    Attributes:
        quantity, group: what, and of which class.
        value, error: measured, with its standard error.
        known, tolerance: what is expected and how far off it may be; None if nothing is known.
        source: where the known value comes from.
    """

    quantity: str
    group: str
    value: float
    error: float
    known: Optional[float] = None
    tolerance: Optional[float] = None
    source: str = ""

    @property
    def sound(self) -> bool:
        return self.known is None or abs(self.value - self.known) <= (self.tolerance or 0.0)


@dataclass
class Report:
    """What a check found.

    Attributes:
        path: the file.
        jets: how many it holds.
        record: how they were made, as the file says; None for a file of others.
        faults: what makes the file unusable or other than it says, a sentence each.
        notes: what is worth knowing.
        rows: measured and known numbers.
        sha256: of the first thousand jets.
        figure: the spectra as SVG.
    """

    path: Path
    jets: int
    record: Optional[dict[str, Any]]
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    sha256: str = ""
    figure: str = ""

    @property
    def sound(self) -> bool:
        return not self.faults and all(row.sound for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "jets": self.jets,
            "sound": self.sound,
            "faults": self.faults,
            "notes": self.notes,
            "sha256": self.sha256,
            "record": self.record,
            "rows": [{**row.__dict__, "sound": row.sound} for row in self.rows],
        }

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.jets} jets"]
        if self.record:
            card = Card.from_dict(self.record["card"])
            versions = ", ".join(f"{name} {number}" for name, number in sorted(self.record["versions"].items()))
            lines.append(
                f"{' and '.join(card.classes())} jets of seed {card.seed}, split {self.record['split']}; {versions}"
            )
            for name, counts in self.record.get("candidates", {}).items():
                tried = sum(counts.values())
                reasons = ", ".join(
                    f"{number} {reason}" for reason, number in sorted(counts.items()) if reason != "taken"
                )
                lines.append(
                    f"{name}: {counts.get('taken', 0)} of {tried} candidates; passed over: {reasons or 'none'}"
                )
        lines.append(f"sha256 of the first {min(self.jets, 1000)} jets: {self.sha256}")
        if self.rows:
            lines.append("")
            lines.append(f"{'quantity':<44}{'class':<8}{'value':>18}{'known':>10}  {'within':>8}")
        for row in self.rows:
            value = f"{row.value:.4g} ± {row.error:.2g}"
            beside = f"{row.known:>10.4g}  {row.tolerance:>8.2g}  " if row.known is not None else " " * 22
            verdict = "" if row.known is None else ("ok, " if row.sound else "OFF, ") + row.source
            lines.append(f"{row.quantity:<44}{row.group:<8}{value:>18}{beside}{verdict}".rstrip())
        lines += [""] + [f"note: {note}" for note in self.notes] + [f"fault: {fault}" for fault in self.faults]
        lines.append("sound" if self.sound else "not sound")
        return "\n".join(lines)


def check(
    path: Union[str, os.PathLike[str]], *, jets: int = MEASURED, figure: Union[str, os.PathLike[str], None] = None
) -> Report:
    """Looks for faults in all jets of a file, and compares the first `jets` of them with known values.

    Args:
        path: a file of :func:`make`, or one with the columns of the published top-tagging files.
        jets: whose masses, momenta, multiplicities and prongs are measured; some hundreds a second.
        figure: where the spectra go, as SVG.

    Raises:
        DataSetError: the file is missing, cut short, or of another layout.
        MissingPackageError: h5py is not there.
    """
    if jets < 1:
        raise ArgumentError(f"jets check: {jets} jets to be measured; at least one is needed")
    path = Path(path)
    with File(path) as file:
        report = Report(path, len(file), file.record)
        card = Card.from_dict(file.record["card"]) if file.record else None
        digest, kept = Digest(), []
        if len(file) == 0:
            report.faults.append("it holds no jets")
            return report
        faults = Faults(card)
        for start, block in file.blocks():
            digest.add(block)
            faults.look(start, block)
            if start < jets:
                rest = jets - start
                kept.append(Jets(block.momenta[:rest], block.labels[:rest], block.truth[:rest]))
    report.sha256 = digest.hexdigest()
    report.faults += faults.sentences()
    report.notes += faults.notes
    _compare_hash(report)
    if faults.measurable:
        sample = Jets(*(np.concatenate(parts) for parts in zip(*((k.momenta, k.labels, k.truth) for k in kept))))
        shapes = Shapes.of(sample, card)
        report.rows = _rows(shapes, card, report.record)
        report.figure = _drawn(shapes, card, path)
        if figure is not None:
            Path(figure).write_text(report.figure, encoding="utf-8")
    return report


def _compare_hash(report: Report) -> None:
    record = report.record
    if record is None:
        report.notes.append("the file has no record of how its jets were made; nothing is known about its hash")
        return
    if record.get("sha256") != report.sha256:
        report.faults.append("the first thousand jets are not those of the record: their hash differs")
    if record.get("jets") != report.jets:
        report.faults.append(f"the record is of {record.get('jets')} jets")
    documented = hash_of(record)
    if documented is None:
        report.notes.append("no hash is documented for these settings, this seed and these versions")
    elif report.jets < 1000:
        report.notes.append("a hash is documented for a thousand jets of these settings, and the file holds fewer")
    elif documented == report.sha256:
        report.notes.append("the hash is the documented one")
    else:
        report.faults.append(
            f"the hash of these settings and versions is documented as {documented}: this machine draws other jets"
        )


MEANS = {
    "pt": "mean transverse momentum, GeV",
    "mass": "mean mass, GeV",
    "multiplicity": "mean number of constituents",
    "leading": "mean share of the hardest constituent",
    "tau21": "mean tau21",
    "tau32": "mean tau32",
}


def _rows(shapes: Shapes, card: Optional[Card], record: Optional[dict[str, Any]]) -> list[Row]:
    names = card.classes() if card else ("class 0", "class 1")
    rows = []

    def add(quantity: str, group: str, value: float, error: float) -> None:
        place = known(record, quantity, group)
        if place is None or not math.isfinite(value):
            rows.append(Row(quantity, group, value, error))
        else:
            there, spread, source = place
            rows.append(Row(quantity, group, value, error, there, SIGMAS * math.hypot(error, spread), source))

    for name, quantity in MEANS.items():
        for signal in (False, True):
            values = shapes.of_class(name, signal)
            if len(values) > 1:
                error = float(values.std(ddof=1)) / math.sqrt(len(values))
                add(quantity, names[signal], float(values.mean()), error)
    score, sign = ("tau32", -1.0) if not card or card.kind == "top" else ("multiplicity", -1.0)
    pair = [sign * shapes.of_class(score, signal) for signal in (False, True)]
    if all(len(values) for values in pair):
        add(f"AUC of {score} alone", "both", *area(*pair))
    if card and card.kind == "top":
        for name, quantity, there in (
            ("mass", "peak of the mass, GeV", top_mass),
            ("pair", "peak of the least mass of two prongs, GeV", w_mass),
        ):
            values = shapes.of_class(name, True)
            if len(values) >= 50:
                value, error = peak(values)
                mass, tolerance, source = there(card)
                rows.append(Row(quantity, names[1], value, error, mass, tolerance + SIGMAS * error, source))
    return rows


def _drawn(shapes: Shapes, card: Optional[Card], path: Path) -> str:
    names = card.classes() if card else ("class 0", "class 1")
    low, high = (card.pt_low, card.pt_high) if card else (550.0, 650.0)
    top = card is not None and card.kind == "top"
    marks = {"m(t)": top_mass(card)[0], "m(W)": w_mass(card)[0]} if card is not None and top else {}

    def both(name: str) -> tuple[Array, Array]:
        return shapes.of_class(name, False), shapes.of_class(name, True)

    margin = 0.1 * (high - low)
    spectrum = tuple(np.log10(values[values > 0]) for values in shapes.constituents)
    panels = [
        Panel("mass, GeV", both("mass"), 0, 300 if top or not card else 200, marks=marks),
        Panel(
            "transverse momentum, GeV",
            both("pt"),
            low - margin,
            high + margin,
            marks={f"{low:g}": low, f"{high:g}": high},
        ),
        Panel("pseudorapidity", both("eta"), -2.5, 2.5),
        Panel("constituents", both("multiplicity"), 0, 200),
        Panel("tau32", both("tau32"), 0, 1),
        Panel("tau21", both("tau21"), 0, 1),
        Panel(
            "least mass of two of three prongs, GeV", both("pair"), 0, 150, marks={"m(W)": marks["m(W)"]} if top else {}
        ),
        Panel("share of the hardest constituent", both("leading"), 0, 1, logarithmic=True),
        Panel("log10 of constituents' transverse momentum, GeV", spectrum, -2, 3, logarithmic=True),
    ]
    return figure(f"{path.name}: {len(shapes.labels)} jets", names, panels)

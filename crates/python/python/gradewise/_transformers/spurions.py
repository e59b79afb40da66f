"""Reference multivectors that break the symmetry of space-time."""

from __future__ import annotations

from typing import Optional

from gradewise._errors import ArgumentError

_BEAMS = {"lightlike": (1.0, 0.0, 0.0, 1.0), "timelike": (2**0.5, 0.0, 0.0, 1.0), "spacelike": (0.0, 0.0, 0.0, 1.0)}


def _check(beam_spurion: Optional[str]) -> None:
    if beam_spurion not in (*_BEAMS, "xyplane", None):
        raise ArgumentError(
            f"spurions: beam_spurion {beam_spurion!r}, expected one of {', '.join(map(repr, _BEAMS))}, 'xyplane', or None"
        )


def get_num_spurions(
    beam_spurion: Optional[str] = "xyplane", add_time_spurion: bool = True, beam_mirror: bool = True
) -> int:
    """How many multivectors :func:`rows` gives."""
    _check(beam_spurion)
    beams = (2 if beam_mirror else 1) if beam_spurion in _BEAMS else int(beam_spurion is not None)
    return beams + int(add_time_spurion)


def rows(beam_spurion: Optional[str], add_time_spurion: bool, beam_mirror: bool) -> list[list[float]]:
    """Reference multivectors, a row of 16 components each."""
    _check(beam_spurion)
    made = []
    if beam_spurion == "xyplane":
        made.append((8, (1.0,)))
    elif beam_spurion is not None:
        t, x, y, z = _BEAMS[beam_spurion]
        made.append((1, (t, x, y, z)))
        if beam_mirror:
            made.append((1, (t, x, y, -z)))
    if add_time_spurion:
        made.append((1, (1.0, 0.0, 0.0, 0.0)))
    return [[0.0] * first + list(values) + [0.0] * (16 - first - len(values)) for first, values in made]

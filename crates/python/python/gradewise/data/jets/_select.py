"""Which jets of a generator belong to a data set, and what is stored of them."""

from __future__ import annotations

import typing
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gradewise._errors import DataSetError
from gradewise.data.jets import _momenta as kinematics
from gradewise.data.jets._card import Card

Array = Any


@dataclass(frozen=True)
class Candidate:
    """A jet as a generator makes it.

    Attributes:
        constituents: ``[particles, 4]``, E, px, py, pz in GeV; all of them, in any order.
        partons: ``[any, 4]``: of a top itself and its three quarks; of a jet of a quark or gluon that parton; of others none.
    """

    constituents: Array
    partons: Array


class Generator(Protocol):
    """What makes jets. ``make(…, generator="MODULE:CLASS")`` takes any class with these methods in place of Pythia.

    The same seed must give the same jets, in any process, whatever was drawn before.
    """

    def __init__(self, card: Card) -> None: ...

    def versions(self) -> dict[str, str]:
        """Names and versions of what decides the jets. Nothing heavy is imported for it."""

    def settings(self, signal: bool) -> list[str]:
        """The settings of a class, for the record in the file; without the seed."""

    def candidates(self, signal: bool, seed: int) -> Iterator[Candidate]:
        """Jets of a class, without end. They need not fulfil what the card asks of jets; those that do not are passed over."""


@dataclass(frozen=True)
class Jet:
    """What is stored of a jet: constituents ``[particles, 4]`` by falling transverse momentum, and the top's four-momentum or zeros."""

    constituents: Array
    truth: Array


def refusal(card: Card, signal: bool, candidate: Candidate) -> str:
    """Why a jet does not belong to the set; empty if it does."""
    constituents = np.asarray(candidate.constituents, dtype="f8")
    if constituents.ndim != 2 or constituents.shape[1:] != (4,) or len(constituents) == 0:
        raise DataSetError(
            f"jets: a generator gave constituents of shape {constituents.shape}; expected are [particles, 4] with at least one"
        )
    if not np.isfinite(constituents).all():
        raise DataSetError("jets: a generator gave a jet with NaN or infinity")
    axis = constituents.sum(axis=0)
    if not card.pt_low <= kinematics.pt(axis) <= card.pt_high:
        return "transverse momentum"
    if abs(kinematics.eta(axis)) > card.eta:
        return "pseudorapidity"
    partons = np.asarray(candidate.partons, dtype="f8").reshape(-1, 4)
    expected = (4 if signal else 0) if card.kind == "top" else 1
    if len(partons) != expected:
        raise DataSetError(
            f"jets: a generator gave {len(partons)} partons for a {card.classes()[signal]} jet; expected are {expected}"
        )
    if expected:
        inside = kinematics.distance(partons, axis) < card.radius
        if not inside[0]:
            return "no top within the radius" if card.kind == "top" else "no parton within the radius"
        if card.kind == "top" and card.contained and not inside.all():
            return "a quark outside the radius"
    return ""


def stored(card: Card, signal: bool, candidate: Candidate) -> Jet:
    """The constituents in single precision, ordered as a reader of the file finds them, and the truth."""
    constituents = kinematics.rounded(np.asarray(candidate.constituents, dtype="f8"))
    # Squares, sums and comparisons in double precision of numbers in single precision are the same on every machine.
    wide = constituents.astype("f8")
    order = np.argsort(-(wide[:, 1] ** 2 + wide[:, 2] ** 2), kind="stable")
    truth = np.zeros(4, dtype="<f4")
    if card.kind == "top" and signal:
        truth[:] = np.asarray(candidate.partons, dtype="f8")[0]
    return Jet(constituents[order[: card.particles]], truth)


def selected(
    card: Card, signal: bool, candidates: Iterable[Candidate], passed_over: Counter[str]
) -> typing.Generator[Jet, None, None]:
    """The jets of a set among candidates; others are counted by reason."""
    for candidate in candidates:
        reason = refusal(card, signal, candidate)
        passed_over[reason or "taken"] += 1
        if not reason:
            yield stored(card, signal, candidate)

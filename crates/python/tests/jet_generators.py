"""Generators of jets for the tests, behind the interface of Pythia's: quick, and with the faults that generators have."""

import math
import os
import random
import signal
import time
from pathlib import Path

import numpy as np

from gradewise.data.jets import Candidate


def particle(pt, eta, phi):
    return pt * math.cosh(eta), pt * math.cos(phi), pt * math.sin(phi), pt * math.sinh(eta)


class Small:
    """Signal: three prongs, with the top and its quarks; background: one. Some jets are outside the window of the card."""

    def __init__(self, card):
        self.card = card

    def versions(self):
        return {"small": os.environ.get("SMALL_VERSION", "1")}

    def settings(self, signal):
        return [f"prongs = {3 if signal else 1}"]

    def candidates(self, signal, seed):
        numbers = random.Random(seed)
        while True:
            eta, phi = numbers.uniform(-2.1, 2.1), numbers.uniform(-3.1, 3.1)
            spread = 0.35 * self.card.radius
            quarks = []
            for _ in range(3 if signal else 1):
                pt = numbers.uniform(0.9, 1.1) * (self.card.pt_low + self.card.pt_high) / (6 if signal else 2)
                away = spread if signal else 0.0
                quarks.append((pt, eta + numbers.uniform(-away, away), phi + numbers.uniform(-away, away)))
            constituents = []
            for pt, y, x in quarks:
                parts = [numbers.random() ** 2 for _ in range(numbers.randint(3, 12))]
                for part in parts:
                    away = 0.03 * self.card.radius
                    constituents.append(
                        particle(pt * part / sum(parts), y + numbers.gauss(0, away), x + numbers.gauss(0, away))
                    )
            partons = np.array([particle(*quark) for quark in quarks])
            if self.card.kind == "top":
                partons = np.concatenate([partons.sum(axis=0, keepdims=True), partons]) if signal else partons[:0]
            else:
                partons = partons.sum(axis=0, keepdims=True)
            yield Candidate(np.array(constituents), partons)


class Slow(Small):
    """Leaves a file with the number of its process in the folder that GENERATOR_NOTES names, and takes its time."""

    def candidates(self, signal, seed):
        Path(os.environ["GENERATOR_NOTES"], str(os.getpid())).touch()
        for candidate in super().candidates(signal, seed):
            time.sleep(0.01)
            yield candidate


class Crashes(Small):
    """As code in C++ does, in the third block."""

    def candidates(self, signal, seed):
        if seed == self.card.seed_of("train", signal, 2):
            print("out of luck", flush=True)
            os.kill(os.getpid(), signal_number())
        return super().candidates(signal, seed)


def signal_number():
    return signal.SIGSEGV


class NotFinite(Small):
    def candidates(self, signal, seed):
        for candidate in super().candidates(signal, seed):
            candidate.constituents[0, 2] = math.nan
            yield candidate

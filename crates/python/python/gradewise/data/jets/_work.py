"""A process that draws blocks: ``python -m gradewise.data.jets._work``, started by :mod:`gradewise.data.jets._make`.

On the standard input comes a line of JSON with the order, then one line ``[split, block]`` for each block. Answers go line by line to what
is the standard output at the start. Pythia and FastJet write there, too, from C++; that is led into the standard error, which is a log.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from gradewise._errors import ArgumentError, GradewiseError
from gradewise.data.jets import _blocks
from gradewise.data.jets._card import Card
from gradewise.data.jets._select import Generator

# Seconds between words about jets drawn.
WORDS = 0.5


def generator_of(name: str, card: Card) -> Generator:
    """The generator of a name ``MODULE:CLASS``."""
    module, _, attribute = name.partition(":")
    try:
        kind = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentError(f"jets: there is no generator {name!r}, expected is MODULE:CLASS: {error}") from error
    return kind(card)


def main() -> int:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    try:
        order = json.loads(sys.stdin.readline())
        card = Card.from_dict(order["card"])
        generator = generator_of(order["generator"], card)
        for line in sys.stdin:
            split, block = json.loads(line)
            waiting, spoken = 0, time.monotonic()

            def tell(count: int) -> None:
                nonlocal waiting, spoken
                waiting += count
                if time.monotonic() - spoken > WORDS:
                    answer(drawn=waiting)
                    waiting, spoken = 0, time.monotonic()

            jets, candidates = _blocks.draw(generator, card, split, block, tell)
            about = {**order["about"], "candidates": candidates}
            _blocks.save(_blocks.path_of(Path(order["folder"]), split, block), jets, about)
            answer(drawn=waiting)
            answer(done=[split, block])
    except BrokenPipeError:
        # Who asked is gone. Nothing is left to flush into.
        os._exit(1)
    except GradewiseError as error:
        answer(error=str(error), kind=type(error).__name__)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Makes the golden vectors of test_cliffordlayers.py and test_csmpn.py from the published packages, in double precision:

    python make_family_golden.py FOLDER

The packages ``cliffordlayers`` and ``csmpn`` (with ``engineer``) must be importable; FOLDER/README.md has the versions of those that are kept.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from family_cases import default_dtype, disturb, doubled, drawn, drawn_state, evaluate, joined, published, statistics
from family_list import CASES


def vectors(case):
    model = published(case)
    found = {"initial": joined(drawn_state(model), torch.float32)}
    inputs, whole = drawn(case)
    with default_dtype(torch.float64):
        found["result"] = joined(evaluate(disturb(doubled(model, case)), inputs, whole))
    if statistics(model):
        found["after"] = joined(statistics(model))
    return {f"{case.name}/{name}": x for name, x in found.items()}


def main(folder):
    for package in ("cliffordlayers", "csmpn"):
        made = {}
        for case in CASES:
            if case.package == package:
                made |= vectors(case)
        digests = {name: digest for name, (_, digest) in made.items()}
        path = folder / f"{package}.safetensors"
        tensors = {name: x for name, (x, _) in made.items()}
        save_file(tensors, path, {"digests": json.dumps(digests), "torch": torch.__version__})
        print(f"{path}: {len({name.split('/')[0] for name in made})} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

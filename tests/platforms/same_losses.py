"""Whether two runs have the same losses: same_losses.py EXPECTED.jsonl ACTUAL.jsonl. Prints the largest relative difference."""

import json
import sys

# In f64: platforms differ in the last place of functions such as the logarithm, which 20 steps enlarge.
TOLERANCE = 1e-9
MEASURES = ["train_loss", "valid_mse", "test_mse"]


def measures(path):
    """Every loss in a file of metrics, by step and name."""
    found = {}
    with open(path) as file:
        for line in file:
            record = json.loads(line)
            found.update({(record["step"], key): record[key] for key in MEASURES if key in record})
    return found


expected, actual = (measures(path) for path in sys.argv[1:])
if not expected or expected.keys() != actual.keys():
    sys.exit(f"the runs logged different losses: {sorted(expected)} and {sorted(actual)}")
worst = max(abs(actual[key] - value) / abs(value) for key, value in expected.items())
print(f"{len(expected)} losses, which differ by {worst:.1e} at most")
sys.exit(not worst <= TOLERANCE)

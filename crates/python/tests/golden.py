"""Golden vectors: inputs, outputs and gradients of every operator, from an oracle in double precision."""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import safe_open

# Where the project is not checked out, as where only the wheel is tested, a variable says where they are.
FOLDER = Path(os.environ.get("GRADEWISE_GOLDEN", Path(__file__).parents[3] / "tests" / "golden")) / "clifford"


@dataclass(frozen=True)
class Case:
    name: str
    operation: str
    signature: tuple
    metadata: dict
    inputs: dict
    output: np.ndarray
    cotangent: np.ndarray
    gradients: dict

    def tolerance(self, dtype: str, tensor: str, matrices: bool = False) -> float:
        """The most that the relative error of "y" or of "grad.NAME" may be."""
        error = json.loads(self.metadata["f32_error"]).get(tensor, 0.0)
        scale = max(1.0, 4 * error / 1e-6)
        base = {"float64": 1e-12, "float32": 1e-6, "bfloat16": 1e-2, "float16": 2e-3}[dtype]
        return min(base * scale, 1e-10) if dtype == "float64" else base * scale


def _read(path: Path) -> Case:
    with safe_open(path, "np") as file:
        metadata = file.metadata()
        tensors = {key: file.get_tensor(key) for key in file.keys()}

    def of(prefix: str) -> dict:
        return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}

    signature = tuple(int(number) for number in metadata["signature"].split(","))
    return Case(
        path.stem, metadata["op"], signature, metadata, of("in."), tensors["out.y"], tensors["cot.y"], of("grad.")
    )


CASES = [_read(path) for path in sorted(FOLDER.glob("*.safetensors"))]
assert len(CASES) >= 60, f"only {len(CASES)} golden vectors in {FOLDER}"


def evaluate(operators, case: Case, inputs: dict):
    """The case's operator of a library on its arrays."""
    i, s = inputs, case.signature
    flag = {"True": True, "False": False}
    normalize = flag[case.metadata.get("normalize", "False")]
    match case.operation:
        case "geometric_product":
            return operators.geometric_product(i["x"], i["y"], s)
        case "mv_silu":
            return operators.mv_silu(i["x"], i["a"], i["b"], s)
        case "mv_layer_norm":
            return operators.mv_layer_norm(i["x"], i["a"], s)
        case "sgp" | "gelu_sgp_norm":
            gate = case.operation != "sgp"
            return operators.sgp(i["x"], i["y"], i["w"], s, gate, normalize)
        case "fcgp" | "gelu_fcgp_norm":
            gate = case.operation != "fcgp"
            return operators.fcgp(i["x"], i["y"], i["w"], s, gate, normalize)
        case "clifford_layer":
            full = flag[case.metadata["fully_connected"]]
            on = {"all": "all_blades", "scalar": "scalar"}[case.metadata["bias"]]
            return operators.clifford_layer(
                i["x"], i["lw"], i["gw"], i["lb"], s, normalize=normalize, fully_connected=full, bias_on=on
            )
        case "steerable_gp":
            return operators.steerable_layer(i["x"], i["wr"], i["na"], i["w"], (i["wl"], i["bl"]), s)
        case "fc_steerable_gp":
            return operators.fc_steerable_layer(i["x"], i["wr"], i["na"], i["w"], (i["wl"], i["bl"]), s)
    raise AssertionError(f"{case.name}: unknown operation {case.operation}")


def deviation(actual: np.ndarray, expected: np.ndarray) -> float:
    """‖actual − expected‖ / ‖expected‖; infinite where something is not finite."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    if not np.isfinite(actual).all():
        return math.inf
    return float(np.linalg.norm(actual - expected) / max(np.linalg.norm(expected), 1e-300))

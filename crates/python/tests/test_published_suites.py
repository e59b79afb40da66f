"""The script that runs the tests of published packages on the modules of gradewise."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

COMPARE = Path(__file__).parents[3] / "scripts" / "compare_published.py"
SCRIPT = Path(__file__).parents[3] / "scripts" / "test_published.py"
FILES = {
    "lgatr/__init__.py": "from .layers import EquiLinear\n\ndef helper():\n    return 1\n",
    "lgatr/layers.py": "class EquiLinear:\n    pass\n",
    "tests/test_layers.py": """
from lgatr.layers import EquiLinear
import lgatr

def test_replaced():
    assert EquiLinear is lgatr.EquiLinear and EquiLinear.__module__ == "gradewise.torch.lgatr.layers.linear"

def test_kept():
    assert EquiLinear.__module__ == "lgatr.layers"
""",
    "tests/test_helper.py": "from lgatr import helper\n\ndef test_helper():\n    assert helper() == 2\n",
    "tests/test_autocast.py": "from lgatr import EquiLinear\n\ndef test_private():\n    assert False\n",
}


def run(*arguments):
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)


@pytest.mark.whole
@pytest.mark.skipif(not SCRIPT.exists(), reason="the project is not checked out around the tests")
def test_names_are_replaced(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    made = run(str(tmp_path))
    assert made.returncode == 1, made.stdout + made.stderr
    assert "gradewise's: EquiLinear\n" in made.stdout and "the published: helper\n" in made.stdout
    assert "1 failed, 1 passed, 2 deselected" in made.stdout
    assert "test_helper.py: of nothing that gradewise has (1 tests)" in made.stdout
    assert "test_autocast.py: needs the private state" in made.stdout


@pytest.mark.skipif(not SCRIPT.exists(), reason="the project is not checked out around the tests")
def test_other_folders_are_refused(tmp_path):
    made = run(str(tmp_path))
    assert made.returncode == 2 and "expected a checkout" in made.stderr


@pytest.mark.skipif(not COMPARE.exists(), reason="the project is not checked out around the tests")
def test_numbers_of_two_runs_are_compared(tmp_path):
    compared = runpy.run_path(str(COMPARE))["compared"]
    x = np.linspace(1, 2, 8, dtype=np.float32)
    assert compared({"x": x}, {"x": x + 1e-6}) == []
    for other in ({"x": 1.001 * x}, {"x": x[:7]}, {"x": np.full(8, np.nan)}, {"x": x, "y": x}, {"y": x}, {}):
        assert compared({"x": x}, other) and compared(other, {"x": x})
    assert compared({}, {}) == ["no numbers"]
    made = subprocess.run([sys.executable, str(COMPARE), str(tmp_path)], capture_output=True, text=True, check=False)
    assert made.returncode == 2 and "expected a checkout" in made.stderr

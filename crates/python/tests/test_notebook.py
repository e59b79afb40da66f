"""The notebooks of the documentation run from their first cells to their last, and draw."""

import importlib.util
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "docs" / "notebooks"
NOTEBOOKS = {"quickstart": None, "accelerate_lgatr": "lgatr", "forces": None}
"""Names, and the packages that they need beside those of the tests."""

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the project is not checked out around the tests")


def test_all_are_listed():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_notebook_runs(name, tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    if NOTEBOOKS[name] and not importlib.util.find_spec(NOTEBOOKS[name]):
        pytest.skip(f"the package {NOTEBOOKS[name]} is not installed")
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "outputs are not kept in the repository"
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in data for data in outputs)
    if name != "quickstart":
        # Multivectors, for the eye and for papers.
        assert any("<sub>12</sub>" in data.get("text/html", "") and "text/latex" in data for data in outputs)

"""The notebook of the documentation runs from its first cell to its last, and draws."""

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[3] / "docs" / "notebooks" / "quickstart.ipynb"


@pytest.mark.skipif(not NOTEBOOK.exists(), reason="the project is not checked out around the tests")
def test_the_notebook_runs(tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "outputs are not kept in the repository"
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    pictures = [
        output for cell in notebook.cells for output in cell.get("outputs", []) if "image/png" in output.get("data", {})
    ]
    assert pictures

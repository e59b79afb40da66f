"""The examples of the documentation run as they stand."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NAMES = ("python", "export", "transformers", "weights", "paper-to-code")
PAGES = [ROOT / "docs" / f"{name}.md" for name in NAMES] + [
    ROOT / "README.md",
    ROOT / "crates" / "python" / "README.md",
]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(not PAGES[0].exists(), reason="the project is not checked out around the tests")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    blocks = list(BLOCK.finditer(text))
    assert blocks, f"{page} has no examples"
    names = {"__name__": "example"}
    for block in blocks:
        line = text[: block.start()].count(os.linesep) + 1
        exec(compile("\n" * line + block[1], str(page), "exec"), names)

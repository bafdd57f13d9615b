"""The examples of the guides, as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDES = Path(__file__).parents[3] / "docs" / "guides"
PAGES = ["from-python.md", "from-filelock.md"]


def examples() -> list[tuple[str, str]]:
    pages = [GUIDES / page for page in PAGES]
    blocks = re.compile(r"```python\n(.*?)```", re.DOTALL)
    found = [(page.name, text) for page in pages for text in blocks.findall(page.read_text())]
    return [(f"{page}-{number}", text) for number, (page, text) in enumerate(found)]


@pytest.mark.parametrize(("name", "text"), examples(), ids=lambda value: value if value.startswith("from-") else "")
def test_an_example_runs_as_it_stands(name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "test_example.py"
    file.write_text(text)
    plugins = ["-p", "no:cacheprovider", "-p", "tenure.pytest_plugin"]
    runner = ["-m", "pytest", "-q", *plugins] if "def test_" in text else ["-W", "error"]
    said = subprocess.run([sys.executable, *runner, str(file)], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout, name


def test_each_page_begins_with_what_to_type() -> None:
    for page in PAGES:
        title, empty, block, *_ = (GUIDES / page).read_text().splitlines()
        assert (title[:2], empty, block[:3]) == ("# ", "", "```")

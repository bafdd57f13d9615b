"""Where the program `tenure` is looked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tenure


def program(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tenure"
    path.write_text("#!/bin/sh\necho $0 $@\n")
    path.chmod(0o755)
    return str(path)


def test_a_variable_counts_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_BIN", "/some/tenure")
    assert tenure.find_binary() == "/some/tenure"


def test_the_packages_own_counts_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENURE_BIN")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr("sysconfig.get_path", lambda *_: str(tmp_path / "scripts"))
    monkeypatch.setattr("sys.base_prefix", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="TENURE_BIN"):
        tenure.find_binary()
    on_path = program(tmp_path / "path")
    assert tenure.find_binary() == on_path
    own = program(tmp_path / "scripts")
    assert tenure.find_binary() == own


def test_the_module_is_the_command(tmp_path: Path) -> None:
    path = program(tmp_path / "bin")
    said = subprocess.run(
        [sys.executable, "-m", "tenure", "run", "a"],
        env=dict(os.environ, TENURE_BIN=path),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert said.stdout.split() == [path, "run", "a"]

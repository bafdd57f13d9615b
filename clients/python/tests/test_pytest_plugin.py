"""The fixtures, in a pytest of their own with several workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MODULE = """
import os, time
import pytest
import tenure

@pytest.fixture(scope="session")
def database(tenure_once):
    def build(folder):
        with open(os.environ["BUILDS"], "a") as file:
            file.write("built\\n")
        time.sleep(0.1)
        (folder / "data").write_text("full")
        return {"path": str(folder / "data")}
    return tenure_once("database", build)

@pytest.mark.parametrize("number", range(6))
def test_database(database, number, tenure_lock):
    hold = tenure_lock("writer", timeout=30)
    assert open(database["path"]).read() == "full"
    mark = os.open(os.environ["BUILDS"] + ".mark", os.O_CREAT | os.O_EXCL)
    time.sleep(0.02)
    assert tenure.check("writer").holder.why.startswith("test_it.py::test_database")
    os.close(mark)
    os.unlink(os.environ["BUILDS"] + ".mark")
    hold.verify()

def test_the_lock_ends_with_the_test(tenure_lock):
    tenure_lock("other")
    assert not tenure.check("other").available

def test_a_failed_build_is_done_again(tenure_once):
    with pytest.raises(ZeroDivisionError):
        tenure_once("number", lambda folder: 1 / 0)
    assert tenure_once("number", lambda folder: 7) == 7
    assert tenure_once("number", lambda folder: 8) == 7
"""


def test_workers_build_once_and_take_turns(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(MODULE)
    builds = tmp_path / "builds"
    words = ["-p", "tenure.pytest_plugin", "-p", "xdist", "-n", "3", "-q", "--basetemp", str(tmp_path / "base")]
    said = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words, "test_it.py"],
        cwd=tmp_path,
        env=dict(os.environ, BUILDS=str(builds)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stdout
    assert builds.read_text().split() == ["built"]

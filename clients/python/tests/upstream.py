"""Runs the tests of the package filelock against `tenure.compat.filelock`.

    python upstream.py SDIST             the ids of filelock.txt, which all have to pass
    python upstream.py SDIST --long      also those that take thousands of turns
    python upstream.py SDIST --renew     all ids; writes the list anew, with the reasons that it has

SDIST is the folder of the unpacked source of filelock. The package is put together there: its own modules, with our
names over its own. So a test of what we do not have uses the original, and shows nothing of us.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

LIST = Path(__file__).with_name("filelock.txt")
MODULES = [
    "test_async_filelock",
    "test_error",
    "test_filelock",
    "test_fork_ownership",
    "test_lifetime_validation",
    "test_read_write",
    "test_subclass_options",
    "test_virtualenv",
]
#: Those that pass, by how long they take, and the others.
HEADS = ("# Pass.", "# Pass, and take thousands of turns: for the long run.", "# Others.")


class Recorder:
    """A plugin of pytest that notes which tests pass, and whether they use what is ours."""

    def __init__(self) -> None:
        self.passed: dict[str, bool] = {}
        self.others: dict[str, str] = {}
        self._uses = 0

    def pytest_configure(self) -> None:
        from tenure.compat import filelock as ours

        kinds: list[Any] = [ours.BaseFileLock, ours.Timeout]
        for kind in kinds:
            self._count(kind)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self._uses = 0
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.rpartition("tests/")[2]
        if report.skipped:
            self.others[name] = "skipped here"
        elif report.failed:
            self.others[name] = "?"
            self.passed.pop(name, None)
        elif report.when == "call":
            self.passed[name] = self._uses > 0

    def _count(self, kind: Any) -> None:
        init = kind.__init__

        def counted(*args: Any, **kwargs: Any) -> None:
            self._uses += 1
            init(*args, **kwargs)

        counted.__wrapped__ = init  # type: ignore[attr-defined]
        kind.__init__ = counted


def listed() -> tuple[list[str], list[str], dict[str, str]]:
    """The ids that pass, those that pass and take long, and the others with their reasons."""
    parts: list[list[str]] = []
    for line in LIST.read_text().splitlines() if LIST.exists() else HEADS:
        if line in HEADS:
            parts.append([])
        elif line:
            parts[-1].append(line)
    others = (line.rpartition(": ") for line in parts[2])
    return parts[0], parts[1], {name: reason for name, _, reason in others}


def renew(recorder: Recorder) -> None:
    _, long, reasons = listed()
    others = dict(recorder.others)
    others |= {
        name: reasons.get(name, "no use of ours seen") for name, is_ours in recorder.passed.items() if not is_ours
    }
    passes = [name for name, is_ours in recorder.passed.items() if is_ours and name not in long]
    lines = [HEADS[0], *sorted(passes), "", HEADS[1], *long, "", HEADS[2]]
    lines += [f"{name}: {reasons.get(name, why) if why == '?' else why}" for name, why in sorted(others.items())]
    LIST.write_text("\n".join(lines) + "\n")


def prepare(folder: Path) -> None:
    package = folder / "filelock"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(folder / "src" / "filelock", package)
    with (package / "__init__.py").open("a") as file:
        file.write("\nfrom tenure.compat.filelock import *\n")


def main(words: list[str]) -> int:
    folder = Path(words[0]).resolve()
    prepare(folder)
    sys.path.insert(0, str(folder))
    passes, long, _ = listed()
    ids = [f"{module}.py" for module in MODULES] if "--renew" in words else passes + (long if "--long" in words else [])
    recorder = Recorder()
    options = ["-q", "--tb=short", "--rootdir", str(folder), "-c", str(folder / "pyproject.toml")]
    plugins = ["pytest_asyncio.plugin", "pytest_mock", "pytest_timeout"]
    options += [word for plugin in ("no:cacheprovider", *plugins) for word in ("-p", plugin)]
    code = pytest.main([*options, *(f"{folder}/tests/{name}" for name in ids)], plugins=[recorder])
    if "--renew" in words:
        renew(recorder)
        return 0
    missing = [name for name in ids if not recorder.passed.get(name)]
    for name in missing:
        print("not passed by what is ours:", name, recorder.others.get(name, ""))
    return 1 if missing else int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

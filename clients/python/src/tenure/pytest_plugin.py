"""Fixtures of pytest: a lock for a test, and a thing that all workers of pytest-xdist build once."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    import tenure


class TakeLock(Protocol):
    """What `tenure_lock` gives."""

    def __call__(self, name: str | None = None, **options: Any) -> tenure.Hold:
        """Takes a lock until the end of the test, as `tenure.lock` says it."""


class Once(Protocol):
    """What `tenure_once` gives."""

    def __call__(self, name: str, build: Callable[[Path], Any]) -> Any:
        """Gives what `build` returned in the first worker that came: something that JSON has.

        `build` gets an empty folder, which stays until pytest removes its temporary folders. A build that failed is
        done again by the next worker that comes, in an empty folder.
        """


@pytest.fixture
def tenure_lock(request: pytest.FixtureRequest) -> Iterator[TakeLock]:
    """A function that takes a lock until the end of the test. Others read which test has it."""
    import tenure

    with contextlib.ExitStack() as holds:

        def take(name: str | None = None, **options: Any) -> tenure.Hold:
            options.setdefault("why", request.node.nodeid)
            return holds.enter_context(tenure.lock(name, **options))

        yield take


@pytest.fixture(scope="session")
def tenure_once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Once:
    """A function that builds a thing once for all workers of this run of pytest."""
    import tenure

    base = tmp_path_factory.getbasetemp()
    # A worker of pytest-xdist has a folder of its own in that of the run.
    shared = (base.parent if hasattr(request.config, "workerinput") else base) / "tenure"

    def once(name: str, build: Callable[[Path], Any]) -> Any:
        folder, answer = shared / name, shared / f"{name}.json"
        with tenure.lock(name, timeout=None, why=f"build {name}", dir=shared / "locks"):
            if not answer.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                _write(answer, json.dumps(build(folder)))
            return json.loads(answer.read_text())

    return once


def _write(path: Path, text: str) -> None:
    """Writes a file that is there as a whole, or not at all."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)

"""Questions about locks, and the request to a holder to stop."""

from __future__ import annotations

import builtins
import json
import os
import subprocess
from typing import Any

from . import _steps
from ._binary import find_binary
from ._client import client
from ._errors import NoServe, refusal
from ._facts import Standing
from ._serve import Request, Serve
from ._steps import Steps

Path = str | os.PathLike[str]


def check(
    name: str | None = None,
    *,
    group: str | None = None,
    shared: bool = False,
    slots: int | None = None,
    dir: Path | None = None,
    store: str | None = None,
) -> Standing:
    """How a lock stands, and whether a request of this mode would get it now."""
    return Standing.of(_ask("check", dir, store, name=name, group=group, shared=shared, slots=slots))


def list(*, all: bool = False, dir: Path | None = None, store: str | None = None) -> builtins.list[Standing]:
    """How the locks stand that are held or waited for; `all`: the free ones too."""
    return [Standing.of(facts) for facts in _ask("list", dir, store, all=all)["locks"]]


def cancel(
    name: str | None = None,
    *,
    group: str | None = None,
    request_id: str | None = None,
    why: str | None = None,
    dir: Path | None = None,
    store: str | None = None,
) -> builtins.list[dict[str, Any]]:
    """Asks the holders of a lock to stop, and gives the facts of those that were asked.

    A hold of this package hears of it by `hold.stop_requested`.
    """
    asked = _ask("cancel", dir, store, name=name, group=group, request_id=request_id, why=why)["asked"]
    return builtins.list(asked)


def wait(name: str, *, timeout: float | None = None, dir: Path | None = None, store: str | None = None) -> None:
    """Blocks until a lock is free, without taking it. Raises Held if it is not in time."""
    words = [find_binary(), "wait", "--output", "json", "--wait", "forever" if timeout is None else f"{timeout:f}s"]
    if dir is not None:
        words += ["--dir", os.path.abspath(os.fspath(dir))]
    if store is not None:
        words += ["--store", store]
    try:
        said = subprocess.run([*words, "--", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        error = json.loads(said.stdout)["error"]
    except (OSError, ValueError, KeyError) as failure:
        raise NoServe(f"{words[0]} cannot be used: {failure}", "NO_SERVE") from failure
    if error is None:
        return
    holder = (error.get("context") or {}).get("holder")
    if holder is None:
        raise refusal({"message": error["message"], "data": error})
    who = f"PID {holder['pid']} ({holder['actor']}@{holder['host']}) since {holder['since']}: {holder['why']}"
    raise refusal({"message": f"{name} is held by {who}", "data": error})


def _ask(method: str, dir: Path | None, store: str | None, **params: Any) -> dict[str, Any]:
    params.update(dir=None if dir is None else os.path.abspath(os.fspath(dir)), store=store)

    def work(serve: Serve) -> Steps[dict[str, Any]]:
        answer: dict[str, Any] = yield Request(serve, method, params)
        return answer

    return _steps.block(client().answered(work))

"""The rules for a client of `tenure serve`, one by one: with a true serve that dies, and with fakes."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Program, forget_serve, is_free, serve_pid

import tenure

Fake = Callable[[str], None]


def test_the_program_holds_and_not_serve() -> None:
    with tenure.lock("a") as hold:
        for _ in range(2):
            os.kill(serve_pid(), signal.SIGKILL)
            assert not is_free("a")
            hold.verify()
            assert not is_free("a")
        os.kill(serve_pid(), signal.SIGKILL)
    assert is_free("a")


def test_a_hold_is_adopted_by_whatever_comes_next() -> None:
    with tenure.lock("a") as first, tenure.locks("b", "c") as second:
        os.kill(serve_pid(), signal.SIGKILL)
        with tenure.lock("d"):
            assert tenure.check("a").mine
            assert tenure.check("c").mine
        first.verify()
        second.verify()


def test_a_wait_goes_on_after_the_death_of_serve(holder: Callable[[str], Program]) -> None:
    other = holder("a")
    got: list[int] = []

    def take() -> None:
        with tenure.lock("a", timeout=None) as hold:
            got.append(hold.token)

    async def take_async() -> None:
        async with tenure.lock("a", timeout=60) as hold:
            got.append(hold.token)

    threads = [threading.Thread(target=take), threading.Thread(target=lambda: asyncio.run(take_async()))]
    for thread in threads:
        thread.start()
    while len(tenure.check("a").queue) < 1:
        time.sleep(0.01)
    os.kill(serve_pid(), signal.SIGKILL)
    while len(tenure.check("a").queue) < 1:
        time.sleep(0.01)
    other.kill()
    for thread in threads:
        thread.join(20)
    assert len(got) == 2


def test_a_lost_adoption_is_told(folder: Path) -> None:
    hold = tenure.lock("a").acquire()
    os.kill(serve_pid(), signal.SIGKILL)
    (folder / "a.tenure").unlink()
    with pytest.raises(tenure.Lost):
        hold.verify()
    assert hold.lost
    with pytest.raises(tenure.Lost):
        hold.release()
    hold.release()


def test_a_stopped_serve_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure._serve.LOOK", 0.2)
    with tenure.lock("a") as hold:
        stopped = serve_pid()
        os.kill(stopped, signal.SIGSTOP)
        hold.verify()
        assert serve_pid() != stopped


def test_a_stopped_serve_with_a_full_pipe_blocks_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure._serve.LOOK", 0.2)

    async def main() -> None:
        async with tenure.lock("a") as hold:
            os.kill(serve_pid(), signal.SIGSTOP)
            long = tenure.lock("b", why="x" * 50_000)
            await asyncio.gather(*(take(long) for _ in range(4)))
            await hold.verify_async()

    async def take(lock: tenure.Lock) -> None:
        began = time.monotonic()
        await asyncio.sleep(0)
        assert time.monotonic() - began < 0.2
        async with lock:
            pass

    asyncio.run(main())


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("other-protocol", "protocol 1, and tenure 9.0 speaks protocol 2"),
        ("garbage", "says what is no message"),
        ("not-an-object", "says what is no message"),
        ("no-answer-at-all", "says what is no message"),
        ("half-a-line", "has ended"),
        ("ends", "has ended"),
        ("silence", "does not answer"),
        ("ends-at-each-acquire", "has ended"),
    ],
)
def test_a_serve_of_no_use_is_named(fake: Fake, how: str, message: str) -> None:
    fake(how)
    with pytest.raises(tenure.NoServe, match=message) as raised:
        tenure.lock("a").acquire()
    assert "fake-tenure" in str(raised.value)

    async def main() -> None:
        with pytest.raises(tenure.NoServe, match=message):
            await tenure.lock("a").acquire_async()

    if how != "silence":
        asyncio.run(main())


def test_a_bounded_wait_ends_although_serve_is_silent(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake("silent-acquire")
    monkeypatch.setattr("tenure._client.DEATHS", 1)
    with pytest.raises(tenure.NoServe):
        tenure.lock("a", timeout=0.1).acquire()


def test_a_program_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_BIN", "/nowhere/tenure")
    with pytest.raises(tenure.NoServe, match="/nowhere/tenure"):
        tenure.lock("a").acquire()


def test_a_grant_that_crosses_the_interrupt_is_given_back(fake: Fake, tmp_path: Path) -> None:
    fake("crossing")
    with pytest.raises(KeyboardInterrupt):
        tenure.lock("a", timeout=None).acquire()
    assert (tmp_path / "said").read_text().split() == ["hello", "acquire", "abandon", "release"]


def test_a_lease_that_is_not_renewed_is_lost_by_the_clock_of_the_program(fake: Fake) -> None:
    fake("lease")
    began = time.monotonic()
    with pytest.raises(tenure.Lost), tenure.lock("a") as hold:
        assert hold.lost.wait(10)
        with pytest.raises(tenure.Lost):
            hold.verify()
    assert time.monotonic() - began >= 0.3

    async def main() -> None:
        with pytest.raises(tenure.Lost):
            async with tenure.lock("a"):
                await asyncio.sleep(30)

    forget_serve()
    asyncio.run(main())


def test_a_lease_that_is_renewed_stays(fake: Fake) -> None:
    fake("renewed")
    with tenure.lock("a") as hold:
        assert not hold.lost.wait(0.6)


def test_what_serve_says_of_a_hold_is_heard(fake: Fake) -> None:
    fake("asks-to-stop")
    with tenure.lock("a") as hold:
        assert hold.stop_requested.wait(10)
        assert hold.stop_requested.reason == "another"
    forget_serve()
    fake("loses")
    with pytest.raises(tenure.Lost), tenure.lock("a") as hold:
        assert hold.lost.wait(10)


@pytest.mark.parametrize(("how", "error"), [("store-is-gone", tenure.StoreError), ("superseded", tenure.Superseded)])
def test_refusals_have_their_classes(fake: Fake, how: str, error: type[tenure.TenureError]) -> None:
    fake(how)
    with pytest.raises(error) as raised:
        tenure.lock("a").acquire()
    assert raised.value.code in ("STORE_UNAVAILABLE", "SUPERSEDED")


def test_requests_are_answered_in_any_order() -> None:
    with tenure.lock("a"):
        waiting = threading.Thread(target=lambda: tenure.lock("a", timeout=None).acquire().release())
        waiting.start()
        for _ in range(3):
            with tenure.lock("b"):
                pass
    waiting.join(10)
    assert not waiting.is_alive()

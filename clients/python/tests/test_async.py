"""Locks of tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Program, is_free

import tenure


def test_tasks_take_turns_and_block_no_loop() -> None:
    lock, inside, most, ticks = tenure.lock("a", timeout=None), 0, 0, 0

    async def work() -> None:
        nonlocal inside, most
        async with lock as hold:
            inside += 1
            most = max(most, inside)
            await hold.verify_async()
            await asyncio.sleep(0.002)
            inside -= 1

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    async def main() -> None:
        ticking = asyncio.create_task(tick())
        await asyncio.gather(*(work() for _ in range(20)))
        ticking.cancel()

    asyncio.run(main())
    assert most == 1
    assert ticks > 10


def test_a_cancelled_wait_leaves_nothing(holder: Callable[[str], Program]) -> None:
    other = holder("a")

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await tenure.lock("a", timeout=None).acquire_async()
        assert [waiter.pid for waiter in tenure.check("a").queue] == []

    asyncio.run(main())
    other.kill()
    # Its serve may live for a moment longer.
    tenure.lock("a", timeout=30).acquire().release()


def test_loss_cancels_the_body_and_raises_lost(folder: Path) -> None:
    async def main() -> float:
        began = time.monotonic()
        with pytest.raises(tenure.Lost):
            async with tenure.lock("a"):
                (folder / "a.tenure").unlink()
                await asyncio.sleep(30)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)
        return time.monotonic() - began

    assert asyncio.run(main()) < 20


def test_a_body_that_heard_nothing_of_the_loss_ends_with_it(folder: Path) -> None:
    async def main() -> None:
        with pytest.raises(tenure.Lost):
            async with tenure.lock("a") as hold:
                (folder / "a.tenure").unlink()
                assert hold.lost.wait(10)
                await_nothing = True
        assert await_nothing
        await asyncio.sleep(0)

    asyncio.run(main())


def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def work() -> None:
        async with tenure.lock("a"):
            await asyncio.sleep(30)

    async def main() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert is_free("a")


def test_a_thread_is_not_let_to_block_the_loop_of_the_holder() -> None:
    async def main() -> None:
        async with tenure.lock("a"):
            with pytest.raises(tenure.AlreadyHeld, match="async with"), tenure.lock("a", timeout=None):
                pass
            with tenure.lock("b"):
                pass

    asyncio.run(main())


def test_a_blocking_lock_works_while_a_loop_runs_as_in_a_notebook() -> None:
    async def cell() -> None:
        with tenure.lock("a") as hold:
            hold.verify()
        assert tenure.check("a").available

    asyncio.run(cell())


def test_a_coroutine_function_is_decorated() -> None:
    @tenure.lock("a")
    async def work(number: int) -> int:
        assert not await asyncio.to_thread(is_free, "a")
        return number + 1

    assert asyncio.run(work(1)) == 2
    assert is_free("a")


def test_stop_requested_is_awaited() -> None:
    async def main() -> str:
        async with tenure.lock("a") as hold:
            tenure.cancel("a")
            return await hold.stop_requested.wait_async()

    assert asyncio.run(main()).startswith("req_")


def test_many_tasks_wait_at_once(holder: Callable[[str], Program]) -> None:
    other = holder("a")

    async def one(order: list[int], number: int) -> None:
        async with tenure.lock("a", timeout=None):
            order.append(number)

    async def main() -> list[int]:
        order: list[int] = []
        tasks = []
        for number in range(50):
            tasks.append(asyncio.create_task(one(order, number)))
            await asyncio.sleep(0)
        await asyncio.sleep(0.2)
        other.kill()
        await asyncio.gather(*tasks)
        return order

    # Once serve runs, requests stand in line as they were made.
    assert not tenure.check("a").available
    assert asyncio.run(main()) == list(range(50))

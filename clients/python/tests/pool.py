"""A program whose workers take one lock: `python pool.py fork|spawn|forkserver` prints the token of each turn."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import sys

import tenure


def work(lock: tenure.Lock) -> int:
    with lock as hold:
        return hold.token


def main(method: str) -> None:
    context = multiprocessing.get_context(method)
    with tenure.lock("around"), concurrent.futures.ProcessPoolExecutor(3, mp_context=context) as pool:
        print(*pool.map(work, [tenure.lock("a", timeout=60)] * 6))


if __name__ == "__main__":
    main(sys.argv[1])

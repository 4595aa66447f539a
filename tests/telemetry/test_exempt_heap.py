"""What a daemon holds is exempt from garbage collections, until the next day's call."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys

import pytest

from provisioner.runtime import event_loop

# In a process of its own: here each call would walk all that the tests have imported.
HELD = """
import gc, weakref
from provisioner.runtime import event_loop

class Ring:  # in a cycle, which only a collection frees
    def __init__(self):
        self.own = self

ring = Ring()
left = weakref.ref(ring)
event_loop.exempt_heap()
del ring
gc.collect()
held = left() is not None
event_loop.exempt_heap()
print(held, left() is not None)
"""


def test_what_exists_is_walked_by_no_collection_before_the_next_call() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELD], capture_output=True, text=True, timeout=100, check=True
    )

    assert done.stdout == "True False\n"


GROWING = """
import asyncio, gc, time
from provisioner.runtime import event_loop

class Node:
    def __init__(self, n):
        self.name, self.of = f"n{n}", [n]

def grow(heap, count):
    took = [0.0]
    def time_it(phase, _):
        if phase == "start":
            time_it.began = time.thread_time()
        else:
            took.append(time.thread_time() - time_it.began)
    gc.callbacks.append(time_it)
    for n in range(count):
        heap.append(Node(n))
    gc.callbacks.remove(time_it)
    return max(took)

async def compare():
    gc.set_threshold(1000, 10, 10)  # full ones ten times as often as a daemon has them
    event_loop.GROWN_MIN = 20_000
    plain = grow([], 400_000)
    heap = []
    daily = asyncio.create_task(event_loop.exempt_heap_daily())
    await asyncio.sleep(0)
    exempted = grow(heap, 400_000)
    frozen = gc.get_freeze_count()
    daily.cancel()
    await asyncio.gather(daily, return_exceptions=True)
    print(exempted / plain, frozen > 200_000, event_loop.exempt_growth in gc.callbacks)

asyncio.run(compare())
"""


def test_a_heap_that_grows_is_exempted_before_a_full_collection_walks_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GROWING], capture_output=True, text=True, timeout=100, check=True
    )
    ratio, frozen, left = done.stdout.split()

    assert float(ratio) < 0.7
    assert (frozen, left) == ("True", "False")


SETTLING = """
import asyncio, gc, time
from provisioner.runtime import event_loop

class Node:
    def __init__(self, n):
        self.name, self.of = f"n{n}", [n]

async def settle():
    event_loop.GROWN_MIN = 20_000
    event_loop.SETTLED_S = 0.01
    daily = asyncio.create_task(event_loop.exempt_heap_daily())
    await asyncio.sleep(0)
    heap = [Node(n) for n in range(400_000)]
    began = time.thread_time()
    await asyncio.sleep(0.02)  # the minute is over
    settled = time.thread_time() - began
    frozen = gc.get_freeze_count()
    began = time.thread_time()
    event_loop.exempt_heap()  # as each day
    print(settled / (time.thread_time() - began), frozen > 400_000)
    daily.cancel()

asyncio.run(settle())
"""


def test_a_minute_after_the_start_what_was_read_is_exempted_without_a_walk() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SETTLING], capture_output=True, text=True, timeout=100, check=True
    )
    ratio, frozen = done.stdout.split()

    assert float(ratio) < 0.5
    assert frozen == "True"


@pytest.mark.long
def test_a_daemon_exempts_its_heap_after_its_start_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_loop, "SETTLED_S", 0.0)
    monkeypatch.setattr(event_loop, "DAY_S", 0.0)

    async def count_calls() -> int:
        calls = 0
        gc.unfreeze()
        daily = asyncio.create_task(event_loop.exempt_heap_daily())
        for _ in range(8):
            await asyncio.sleep(0)
            calls += gc.get_freeze_count() > 0
            gc.unfreeze()
        daily.cancel()
        return calls

    assert asyncio.run(count_calls()) > 1

"""Young objects are collected by work done, and old ones counted, without harm to other threads."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from provisioner.runtime import event_loop
from provisioner.runtime.event_loop import COLLECTED_S, collect_young, exempt_growth


def test_new_objects_that_replace_old_ones_do_not_come_together_by_the_hundred_thousand() -> None:
    old = [[number] for number in range(200_000)]
    gc.collect()
    for number in range(len(old)):
        old[number] = [number]  # one more, one less: CPython's count stays where it is
    young = sum(map(len, map(gc.get_objects, (0, 1))))
    assert young > 100_000, "CPython counts otherwise now: `collect_young` may go"

    end_s = time.thread_time() + 5 * COLLECTED_S
    while time.thread_time() < end_s:
        collect_young()

    assert sum(map(len, map(gc.get_objects, (0, 1)))) < 50_000


def test_old_objects_are_counted_while_another_thread_makes_a_tuple(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = [[number] for number in range(200_000)]
    gc.collect()
    before = sys.getswitchinterval()
    monkeypatch.setattr(event_loop, "GROWN_MIN", sys.maxsize)  # counted each time, and not exempted
    over, failed, made = threading.Event(), [], 0

    def items() -> Iterator[int]:
        for number in range(4_000):
            if number == 50:
                gc.collect(1)  # the tuple is an old object by now
            yield number

    def make() -> None:
        nonlocal made
        while not over.is_set():
            try:
                tuple(items())
            except SystemError as error:  # a second reference: it cannot be made shorter
                failed.append(error)
                return
            made += 1

    thread = threading.Thread(target=make)
    sys.setswitchinterval(event_loop.SWITCH_S)
    try:
        thread.start()
        end_s = time.monotonic() + 120
        while made < 500 and not failed and time.monotonic() < end_s:
            exempt_growth("start", {"generation": 2})
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(before)

    assert not failed
    assert made >= 500
    assert kept

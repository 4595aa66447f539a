"""Real packets from one box to another: ICMP echoes and TCP connections over sockets made inside.

A probe that must fail costs its whole patience, so that many are sent at once.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterable

from frr_boxes import Box

PATIENCE_S = 1.0  # a loaded machine answers within a tenth
PORT = 7471
AFTER = 100  # echoes that come back before an older one counts as lost
_IP_MTU_DISCOVER, _IP_PMTUDISC_DO = 10, 2

Probe = tuple[Box, str, str]  # from where, with which source address, to which address


def pings(probes: Iterable[Probe], *, size: int = 56, patience_s: float = PATIENCE_S) -> list[bool]:
    """Whether each of these echoes came back. `size`: bytes of payload; never in fragments."""
    asked = list(probes)
    with contextlib.ExitStack() as stack:
        lines = {}
        for number, (box, source, target) in enumerate(asked):
            line = stack.enter_context(box.socket(socket.AF_INET, socket.SOCK_RAW, 1))
            line.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            line.bind((source, 0))
            lines[line] = (number, os.getpid() & 0xFFFF, target)
        answered = [False] * len(asked)
        until = time.monotonic() + patience_s
        waiting = dict(lines)
        while waiting and (left := until - time.monotonic()) > 0:
            for line, (number, identity, target) in waiting.items():
                with contextlib.suppress(OSError):  # no route, too big: no answer will come
                    line.sendto(_echo(identity, number, size), (target, 0))
            ready, _, _ = select.select(list(waiting), [], [], min(left, patience_s / 4))
            for line in ready:
                number, identity, target = waiting[line]
                if _answers(line, identity, number, target):
                    answered[number] = True
                    del waiting[line]
    return answered


def connects(probes: Iterable[Probe], *, patience_s: float = PATIENCE_S) -> list[bool]:
    """Whether each of these TCP connections was accepted."""
    asked = list(probes)
    with contextlib.ExitStack() as stack:
        waiting = {}
        for number, (box, source, target) in enumerate(asked):
            line = stack.enter_context(box.socket(socket.AF_INET, socket.SOCK_STREAM))
            line.setblocking(False)
            line.bind((source, 0))
            if line.connect_ex((target, PORT)) in (0, 115):  # EINPROGRESS
                waiting[line] = number
        connected = [False] * len(asked)
        until = time.monotonic() + patience_s
        while waiting and (left := until - time.monotonic()) > 0:
            _, ready, _ = select.select([], list(waiting), [], left)
            for line in ready:
                number = waiting.pop(line)
                connected[number] = line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    return connected


@contextlib.contextmanager
def listening(boxes: Iterable[Box]) -> Iterable[None]:
    """Each of these boxes accepts connections at `PORT`."""
    with contextlib.ExitStack() as stack:
        for box in boxes:
            door = stack.enter_context(box.socket(socket.AF_INET, socket.SOCK_STREAM))
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind(("0.0.0.0", PORT))
            door.listen(64)
        yield


class Stream:
    """Echoes without end from one address to another, some 300 KB a second each way."""

    def __init__(self, box: Box, source: str, target: str) -> None:
        self._line = box.socket(socket.AF_INET, socket.SOCK_RAW, 1)
        self._line.bind((source, 0))
        self._line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._line.setblocking(False)
        self._target = target
        self._sent: set[int] = set()
        self._back: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_ended: object) -> None:
        self._stop.set()
        self._thread.join()
        self._line.close()

    def answered(self, count: int, limit_s: float = 60.0) -> bool:
        """Wait until so many more echoes came back; False: they did not."""
        wanted, until = len(self._back) + count, time.monotonic() + limit_s
        while len(self._back) < wanted and time.monotonic() < until:
            time.sleep(0.02)
        return len(self._back) >= wanted

    def forget(self) -> None:
        """What was lost so far is not told any more."""
        self._sent = set()

    def fate(self) -> tuple[int, int]:
        """How many echoes were sent until now, and how many of them are lost.

        Those of a blackhole stay away; all others are back before some that are sent from now on.
        """
        sent = set(self._sent)
        time.sleep(PATIENCE_S)
        self.answered(AFTER)
        return len(sent), len(sent - self._back)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.02):
            for _ in range(4):
                number += 1
                with contextlib.suppress(OSError):
                    self._line.sendto(_echo(_STREAM, number & 0xFFFF, 1400), (self._target, 0))
                self._sent.add(number)
            with contextlib.suppress(BlockingIOError):
                while True:
                    packet, _ = self._line.recvfrom(1 << 16)
                    inner = packet[(packet[0] & 15) * 4 :]
                    kind, _, _, identity, sequence = struct.unpack("!BBHHH", inner[:8])
                    if (kind, identity) == (0, _STREAM):
                        self._back.add(sequence)


_STREAM = 0x7A57  # the identity of its echoes


def _echo(identity: int, number: int, size: int) -> bytes:
    body = bytes(size)
    head = struct.pack("!BBHHH", 8, 0, 0, identity, number)
    words = struct.unpack(f"!{(8 + size) // 2}H", head + body)
    total = sum(words)
    total = (total >> 16) + (total & 0xFFFF)
    total += total >> 16
    return struct.pack("!BBHHH", 8, 0, ~total & 0xFFFF, identity, number) + body


def _answers(line: socket.socket, identity: int, number: int, target: str) -> bool:
    packet, (sender, _) = line.recvfrom(1 << 16)
    inner = packet[(packet[0] & 15) * 4 :]
    kind, _, _, got, sequence = struct.unpack("!BBHHH", inner[:8])
    return (kind, got, sequence, sender) == (0, identity, number, target)

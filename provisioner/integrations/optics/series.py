"""Keeps readings of optics on disk, small: a frame for each look at a leaf, a piece for each day.

A value is one byte (a step of its quantity; 0: unknown, 255: no light). The frames of the day are
appended; a day that is over is turned by port, packed, and summed up as medians in `days.jsonl`,
by which ports are judged. A frame that was cut by a crash ends its day's readings and is left out.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from provisioner.integrations.optics.host_ends import ReadsEvidence, join_node
from provisioner.integrations.optics.trends import (
    BAD,
    FLAPS_MIN,
    WINDOW,
    Day,
    Verdict,
    find_mates,
    judge_port,
    list_groups,
)
from provisioner.model.alert import Classification, Signal
from provisioner.model.link_reading import DARK_DBM, QUEUES, LinkReading, OpticReading
from provisioner.model.node import Node
from provisioner.ports import DamagedRow
from provisioner.runtime.whole_files import replace_file

_log = logging.getLogger(__name__)
UNKNOWN = 0
DARK = 255
DAYS_KEPT = 400  # of medians
JOIN_S = 0.5  # of a round of the watch, which is five seconds: reports take milliseconds to read
DAYS_MORE = 30  # that a file may have beyond them before it is written anew
_FRAME = struct.Struct("<IH")  # seconds of the day, bytes that follow
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# quantity -> lowest value, step; light in 0.15 dB, current by 3 %, errors by 15 %, half a degree
_LINEAR = {
    "rx_dbm": (-30.0, 0.15),
    "tx_dbm": (-30.0, 0.15),
    "temperature_c": (-40.0, 0.66),
    "snr_db": (0.5, 0.25),
}
_LOGARITHMIC = {"bias_ma": (0.1, log(6000.0) / 253), "pre_fec_ber": (1e-15, log(1e15) / 253)}
OF_LIGHT = ("rx_dbm", "tx_dbm", "bias_ma", "temperature_c")  # all that a day had in older files
QUANTITIES = (*OF_LIGHT, "snr_db", "pre_fec_ber")
COUNTED = tuple(q for q in QUEUES if q != "watchdog_stuck")  # that is a state, not a counter


def encode(quantity: str, value: float | None) -> int:
    """Return the byte of a value."""
    if value is None:
        return UNKNOWN
    if quantity in _LOGARITHMIC:
        low, step = _LOGARITHMIC[quantity]
        if value <= 0:  # a laser without current is off; no errors at all is a good reading
            return 1 if quantity == "pre_fec_ber" and value == 0 else UNKNOWN
        return min(254, max(1, 1 + round(log(value / low) / step)))
    low, step = _LINEAR[quantity]
    if quantity.endswith("_dbm") and value <= low:
        return DARK
    return min(254, max(1, 1 + round((value - low) / step)))


def decode(quantity: str, code: int) -> float | None:
    """Return the value of a byte; None: unknown."""
    if code == UNKNOWN:
        return None
    if code == DARK and quantity.endswith("_dbm"):
        return DARK_DBM
    if quantity in _LOGARITHMIC:
        low, step = _LOGARITHMIC[quantity]
        return low * exp((code - 1) * step)
    low, step = _LINEAR[quantity]
    return low + (code - 1) * step


Medians = dict[str, dict[str, float]]  # port -> quantity -> of one day


class LeafSeries:
    """One leaf's folder. `quantities`: what a frame holds of each port."""

    def __init__(self, folder: Path, quantities: Sequence[str] = QUANTITIES) -> None:
        self._folder = folder
        self._quantities = tuple(quantities)
        self._ports: list[str] = []
        self._day: date | None = None
        self._day_quantities = self._quantities  # a day goes on as it began

    def append(self, at: float, codes: Mapping[str, bytes]) -> None:
        """Store one look: port -> a byte for each quantity."""
        moment = datetime.fromtimestamp(at, UTC)
        if self._day != moment.date():
            self._begin(moment.date(), codes)
        new = [port for port in codes if port not in self._ports]
        if new:
            self._ports += new
            self._write_ports()
        width = len(self._day_quantities)
        blank = bytes(width)
        frame = b"".join(codes.get(port, blank)[:width] for port in self._ports)
        second = moment.hour * 3600 + moment.minute * 60 + moment.second
        with self._open_file(self._day or moment.date()).open("ab") as file:
            file.write(_FRAME.pack(second, len(frame)) + frame)

    def close_left(self, today: date, keep: Callable[[date, Medians], None]) -> int:
        """Close the days before today, also those that an earlier process left open; their number.

        `keep` stores the medians of one, before its readings are given up.
        """
        closed = 0
        for left in sorted(self._folder.glob("*.frames")):
            try:
                ended = date.fromisoformat(left.stem)
                if ended < today:
                    self.close_day(ended, keep)
                    closed += 1
            except (OSError, ValueError) as error:  # it must not stop the days after it
                _log.warning("%s cannot be summed up, and is left out: %s", left, error)
                left.rename(left.with_suffix(".broken"))
        return closed

    def _begin(self, day: date, codes: Mapping[str, bytes]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._day = day
        names = self._open_file(day).with_suffix(".ports")
        if names.exists():
            self._day_quantities, self._ports = self._read_ports(names)
        else:
            self._day_quantities = self._quantities
            self._ports = sorted(codes)
        self._write_ports()
        frames = self._open_file(day)
        if frames.exists():  # what is appended has to begin where the last whole frame ends
            raw = frames.read_bytes()
            os.truncate(frames, sum(_FRAME.size + len(f) for _, f in read_frames(raw)))

    def _write_ports(self) -> None:
        assert self._day is not None
        lines = ["#" + " ".join(self._day_quantities), *self._ports]
        self._open_file(self._day).with_suffix(".ports").write_text("\n".join(lines))

    def _read_ports(self, names: Path) -> tuple[tuple[str, ...], list[str]]:
        """Return the quantities and the ports of an open day; older files name ports only."""
        head, *ports = names.read_text().split("\n")
        if head.startswith("#"):
            return tuple(head[1:].split()), ports
        return self._quantities[: len(OF_LIGHT)], [head, *ports]

    def _open_file(self, day: date) -> Path:
        return self._folder / f"{day.isoformat()}.frames"

    def close_day(self, day: date, keep: Callable[[date, Medians], None]) -> None:
        """Pack a day, and have the medians of its ports kept; a crash before that leaves the day
        open, and it is closed again.
        """
        file = self._open_file(day)
        frames = list(read_frames(file.read_bytes()))
        quantities, names = self._read_ports(file.with_suffix(".ports"))
        width = len(quantities)
        columns = [
            bytes(f[n] if n < len(f) else UNKNOWN for _, f in frames)
            for n in range(len(names) * width)
        ]
        times = b"".join(struct.pack("<I", second) for second, _ in frames)
        head = json.dumps({"ports": names, "quantities": quantities, "n": len(frames)})
        packed = zlib.compress(times + b"".join(columns), 9)
        piece = self._folder / f"{day.isoformat()}.z"
        replace_file(piece, head.encode() + b"\n" + packed)
        medians: Medians = {}
        for n, column in enumerate(columns):
            quantity = quantities[n % width]
            values = [v for c in column if (v := decode(quantity, c)) is not None]
            if values:
                digits = 20 if quantity == "pre_fec_ber" else 2
                medians.setdefault(names[n // width], {})[quantity] = round(median(values), digits)
        keep(day, medians)
        file.unlink()
        file.with_suffix(".ports").unlink()


def read_frames(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (second of the day, bytes) of each whole frame."""
    at = 0
    while at + _FRAME.size <= len(raw):
        second, length = _FRAME.unpack_from(raw, at)
        at += _FRAME.size
        if second >= 86_400 or at + length > len(raw):
            return
        yield second, raw[at : at + length]
        at += length


class OpticSeries:
    """What a daemon keeps of the optics of all leaves, in `folder`.

    Days are closed and judged in one thread of its own, leaf by leaf, since at midnight all leaves
    have one: only that thread writes verdicts, each time as a new mapping.
    """

    def __init__(self, folder: Path, days_kept: int, evidence: ReadsEvidence | None = None) -> None:
        self._folder = folder
        self._evidence = evidence  # of hosts' own ends; None: nothing is known of them
        self._joined: dict[str, tuple[Verdict, Verdict]] = {}  # port -> by the leaf, by both ends
        self._heard: dict[str, int | None] = {}  # node -> its generation when joined; None: due
        self._days_kept = days_kept
        self._leaves: dict[str, LeafSeries] = {}
        self._pending: dict[str, tuple[float, dict[str, bytes]]] = {}
        self._facts: dict[str, dict[str, dict[str, Any]]] = {}  # leaf -> port -> of today
        self._shown: dict[str, dict[str, dict[str, Any]]] = {}  # leaf -> port -> newest reading
        self._owner: dict[str, str] = {}  # "leaf/port" -> node
        self._today: dict[str, date] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._judged: set[str] = set()  # leaves whose stored days were judged
        self._at = 0.0  # of the newest reading
        self._ended: dict[str, dict[date, dict[str, dict[str, Any]]]] = {}  # leaf -> day -> facts
        self._newest: dict[str, date] = {}
        self._closing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="optics")
        self._queued: set[str] = set()  # leaves that wait for it: at most one job of each

    def take(
        self,
        node: str,
        port: str,
        reading: LinkReading,
        at: float,
        changes: int | None = None,
        link: str = "",
    ) -> None:
        """Keep one reading of "leaf/port". `changes`: its carrier changes so far; `link`: "up"."""
        leaf, _, name = port.partition("/")
        if not NAME.fullmatch(leaf) or not name:
            return
        if self._owner.get(port) != node:
            self._owner[port] = node
            self._heard[node] = None
        if leaf not in self._judged:  # what stood before a restart stands on
            self._judged.add(leaf)
            self._queue(leaf, datetime.fromtimestamp(at, UTC).date())
        self._at = max(self._at, at)
        optic = reading.optic or OpticReading(kind="unknown")
        if link == "up":  # it has light on all its lanes: a dark one is another port's of the cage
            optic = replace(optic, shared=True)
        worst = {q: optic.get_worst(q) for q in QUANTITIES}
        codes = bytes(encode(q, worst[q]) for q in QUANTITIES)
        if name in self._pending.setdefault(leaf, (at, {}))[1]:  # the next look has begun
            self._flush(leaf)
        self._pending.setdefault(leaf, (at, {}))[1][name] = codes
        limits = optic.limits.get("rx_dbm")
        facts = self._facts.setdefault(leaf, {}).setdefault(name, {"flaps": 0, "changes": changes})
        had = facts["changes"]
        if changes is not None and had is not None and changes > had:
            facts["flaps"] += changes - had
        per_s = self._count_queues(leaf, name, reading.queues, at, facts)
        told = {
            "serial": optic.serial,
            "part": f"{optic.vendor} {optic.part}".strip(),
            "lot": optic.lot,
            "kind": optic.kind,
            "low": None if limits is None else limits.low_alarm,
        }
        facts |= {"changes": changes, "up": facts.get("up") or link == "up", **told}
        shown: dict[str, Any] = {"node": node, "at": at, "link": link, "values": worst, **told}
        shown |= {"queues": dict(reading.queues), "per_s": per_s}
        self._shown.setdefault(leaf, {})[name] = shown

    def _count_queues(
        self, leaf: str, name: str, queues: Mapping[str, int], at: float, facts: dict[str, Any]
    ) -> dict[str, float]:
        """Add what was counted since the last look to the day; return it by the second.

        A counter that fell began anew, and one that was not read is no zero: both prove nothing.
        """
        before = self._shown.get(leaf, {}).get(name)
        if before is None or at <= before["at"]:
            return {}
        grew = {
            q: queues[q] - before["queues"][q]
            for q in COUNTED
            if q in queues and q in before["queues"] and queues[q] >= before["queues"][q]
        }
        day = facts.setdefault("queues", {})
        for queue, more in grew.items():
            day[queue] = day.get(queue, 0) + more
        return {q: round(more / (at - before["at"]), 3) for q, more in grew.items()}

    def end_look(self, leaf: str) -> None:
        """Write what was read of a leaf: a frame of its day, and the newest readings."""
        if leaf not in self._pending:
            return
        self._flush(leaf)
        shown = json.dumps(self._shown.get(leaf, {}), separators=(",", ":"))
        try:
            replace_file(self._folder / leaf / "now.json", shown)
        except OSError as error:
            _log.warning("%s: its newest readings were not kept: %s", leaf, error)

    def _flush(self, leaf: str) -> None:
        at, codes = self._pending.pop(leaf)
        series = self._leaves.setdefault(leaf, LeafSeries(self._folder / leaf))
        day = datetime.fromtimestamp(at, UTC).date()
        try:
            series.append(at, codes)
            if self._today.setdefault(leaf, day) != day:
                ended = self._today[leaf]
                self._today[leaf] = day
                self._ended.setdefault(leaf, {})[ended] = self._facts.pop(leaf, {})
                self._queue(leaf, day)
        except (OSError, ValueError) as error:
            _log.warning("%s: its optics were not kept: %s", leaf, error)

    def _queue(self, leaf: str, today: date) -> None:
        """Have a leaf's days before today closed and all its stored days judged."""
        self._newest[leaf] = today
        if leaf not in self._queued:
            self._queued.add(leaf)
            self._closing.submit(self._close_days, leaf)

    def _close_days(self, leaf: str) -> None:
        self._queued.discard(leaf)
        today = self._newest[leaf]
        facts = self._ended.get(leaf, {})

        def keep(day: date, medians: Medians) -> None:
            self._keep_day(leaf, day, medians, facts.pop(day, {port: {} for port in medians}))

        try:
            LeafSeries(self._folder / leaf).close_left(today, keep)
            self._judge(leaf, today)
            for piece in sorted((self._folder / leaf).glob("*.z")):
                if date.fromisoformat(piece.stem) < today - timedelta(days=self._days_kept + 1):
                    piece.unlink()
        except (OSError, ValueError) as error:
            _log.warning("%s: its days of optics were not judged: %s", leaf, error)

    def _keep_day(
        self, leaf: str, day: date, medians: Medians, facts: Mapping[str, Mapping[str, Any]]
    ) -> None:
        ports = {port: {"values": medians.get(port, {}), **more} for port, more in facts.items()}
        file = self._folder / leaf / "days.jsonl"
        known = file.read_text(errors="replace").splitlines()[-DAYS_KEPT:] if file.exists() else []
        if any(line.startswith(f'{{"day":"{day.isoformat()}"') for line in known):
            return  # a crash came between this line and the end of the day's readings
        with file.open("a") as days:
            days.write(json.dumps({"day": day.isoformat(), "ports": ports}, separators=(",", ":")))
            days.write("\n")
        lines = file.read_text(errors="replace").splitlines(keepends=True)
        if len(lines) > DAYS_KEPT + DAYS_MORE:
            replace_file(file, "".join(lines[-DAYS_KEPT:]))

    def _judge(self, leaf: str, today: date) -> None:
        """Judge a leaf's stored days; a port that was not read for long is accused no more."""
        verdicts = dict(self._verdicts)
        changed = []
        sizes: Counter[str] = Counter()
        unknown = 0
        rows = []
        now = read_now(self._folder / leaf)
        stored = read_days(self._folder / leaf)
        mates = find_mates(stored)
        for name, days in stored.items():
            port = f"{leaf}/{name}"
            if days[-1].day < today - timedelta(days=WINDOW):
                verdicts.pop(port, None)
                continue
            found = verdicts[port] = judge_port(port, days, mates.get(name, ()))
            changed += [port] if self._is_news(found) else []
            groups = list_groups(leaf, days[-1])
            sizes.update(groups)
            unknown += found.state == "unknown"
            if found.state in BAD or found.flaps >= FLAPS_MIN or found.repaired_on:
                node = self._owner.get(port) or str(now.get(name, {}).get("node", ""))
                said = {"says": describe(found), "groups": groups, "serial": days[-1].serial}
                rows.append({"node": node, **asdict(found), **said})
        self._verdicts = verdicts
        for port in changed:
            if port in self._owner:  # so its node is a key: no other thread sees this mapping grow
                self._heard[self._owner[port]] = None  # after the verdicts: see `read_hosts`
        judged = json.dumps({"sizes": sizes, "unknown": unknown, "rows": rows}, default=str)
        replace_file(self._folder / leaf / "judged.json", judged)

    async def read_hosts(self, nodes: Mapping[str, Node]) -> None:
        """Join the hosts' ends, as validations read them, for `JOIN_S` at a time and one at least:
        those first whose leaf sees an end degrade. A host is due when a verdict changed, or its
        generation, as it does with each validation.
        """
        if self._evidence is None:
            return
        due = [n for n, at in self._heard.items() if n in nodes and nodes[n].generation != at]
        if len(due) > 1:
            bad = {self._owner.get(p) for p, v in self._verdicts.items() if v.state in BAD}
            due.sort(key=lambda name: name not in bad)
        until = time.monotonic() + JOIN_S
        for name in due:
            # before its verdicts are read: one that changes from now on makes it due again
            self._heard[name] = nodes[name].generation
            try:
                await self._join(self._evidence, nodes[name])
            except DamagedRow as error:
                _log.warning("%s: its validations tell nothing of its optics: %s", name, error)
            except BaseException:
                self._heard[name] = None
                raise
            if time.monotonic() >= until:
                return

    async def _join(self, evidence: ReadsEvidence, node: Node) -> None:
        links: list[tuple[str, Verdict, tuple[Day, ...]]] = []
        for port in node.ports:
            by_leaf = self._verdicts.get(f"{port.switch}/{port.interface}")
            if by_leaf is not None and self._owner.get(by_leaf.port) == node.id:
                shown = self._shown[port.switch][port.interface]
                links.append((port.nic_slot, by_leaf, (Day(date.min, kind=shown["kind"]),)))
        joined, _ = await join_node(evidence, node, links, self._at - DAYS_KEPT * 86_400)
        for (_, by_leaf, _), by_both in zip(links, joined, strict=True):
            self._joined.pop(by_leaf.port, None)
            if by_both.verdict != by_leaf:
                self._joined[by_leaf.port] = (by_leaf, by_both.verdict)

    def _is_news(self, found: Verdict) -> bool:
        """Whether a port's verdict says more than another reading of a port that is well."""
        before = self._verdicts.get(found.port)
        if before is None or found.port in self._joined:  # whose words are shown with both ends
            return before != found
        return _strip(before) != _strip(found)

    def list_standing(self) -> dict[str, dict[str, Signal | None]]:
        """Return node -> port -> that its optic announces its end; None: it does not.

        A port without light is not in it, one without days to judge only after a repair was seen:
        what another daemon said by its own days, or this one before the light was lost, stands.
        """
        found: dict[str, dict[str, Signal | None]] = {}
        for port, by_leaf in self._verdicts.items():
            known, by_both = self._joined.get(port, (by_leaf, by_leaf))
            verdict = by_both if _strip(known) == _strip(by_leaf) else by_leaf
            node = self._owner.get(port)
            unrepaired = verdict.repaired_on is None
            dumb = verdict.state == "dark" or (verdict.state == "unknown" and unrepaired)
            if node is None or dumb:
                continue
            known_ports = found.setdefault(node, {})
            known_ports[port] = None
            if verdict.state not in ("dirty", "dying"):
                continue
            message = f"{describe(verdict)} {verdict.remedy}"
            known_ports[port] = Signal(
                node=node,
                id="OpticDegrades",
                target=port,
                classifications=(Classification.SENSOR_WARNING,),
                message=message[:300],
                source="watch.optics",
                at=self._at,
            )
        return found

    def settle(self) -> None:
        """Wait until what has ended so far is judged."""
        self._closing.submit(lambda: None).result()

    def close(self) -> None:
        """Write what is still in memory of the last look, and wait for days that are closed."""
        for leaf in list(self._pending):
            self._flush(leaf)
        self._closing.shutdown(wait=True)


def _strip(verdict: Verdict) -> Verdict:
    """Return a verdict without what changes each day of a port that is well."""
    if verdict.state in BAD:
        return verdict
    return replace(verdict, words="", flaps=0)


def describe(verdict: Verdict) -> str:
    """Return a verdict as a sentence."""
    end = {"node": "the node's end", "leaf": "the leaf's end"}.get(verdict.end, "")
    since = f" since {verdict.since}" if verdict.since else ""
    until = f"; it reaches the alarm limit about {verdict.until}" if verdict.until else ""
    return f"{verdict.state}{f', {end}' if end else ''}{since}: {verdict.words}{until}."


def read_days(folder: Path) -> dict[str, list[Day]]:
    """Return port -> its days, oldest first; what cannot be read, a line or a port, is left out."""
    ports: dict[str, list[Day]] = {}
    file = folder / "days.jsonl"
    lines = file.read_text(errors="replace").splitlines() if file.exists() else []
    for line in lines[-DAYS_KEPT:]:
        try:
            row = json.loads(line)
            at = date.fromisoformat(row["day"])
            shown = dict(row["ports"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        for port, each in shown.items():
            try:
                day = _read_day(at, each)
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
                continue
            ports.setdefault(port, []).append(day)
    return ports


def _read_day(at: date, shown: Mapping[str, Any]) -> Day:
    low = shown.get("low")
    return Day(
        day=at,
        values={str(k): _finite(v) for k, v in shown["values"].items()},
        serial=str(shown.get("serial", "")),
        part=str(shown.get("part", "")),
        lot=str(shown.get("lot", "")),
        kind=str(shown.get("kind", "unknown")),
        low_alarm_dbm=None if low is None else _finite(low),
        flaps=int(shown.get("flaps", 0)),
        up=shown.get("up") is True,
        queues={str(k): int(v) for k, v in shown.get("queues", {}).items()},
    )


def _finite(value: Any) -> float:
    """Return a number; JSON as Python reads it has NaN and Infinity too. Raises ValueError."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("it is no finite number")
    return number


def read_now(folder: Path) -> dict[str, Any]:
    """Return port -> its newest reading, as `OpticSeries.end_look` wrote it; {}: none."""
    return {k: v for k, v in _read_object(folder / "now.json").items() if isinstance(v, dict)}


class Judged(NamedTuple):
    """A leaf as it was judged when its last day ended. `whole`: all of it could be read."""

    rows: Sequence[dict[str, Any]]  # its ports that degrade, flap or were repaired
    sizes: Mapping[str, int]  # the ports of each group
    unknown: int  # ports of which nothing can be told
    whole: bool


def read_judged(folder: Path) -> Judged:
    told = _read_object(folder / "judged.json")
    rows = told.get("rows")
    sizes = told.get("sizes")
    unknown = told.get("unknown")
    known = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    counted = sizes if isinstance(sizes, dict) else {}
    counted = {k: v for k, v in counted.items() if type(v) is int}
    whole = (known, counted) == (rows, sizes) and type(unknown) is int
    return Judged(known, counted, unknown if type(unknown) is int else 0, whole)


def _read_object(file: Path) -> dict[str, Any]:
    try:
        told = json.loads(file.read_text(errors="replace"))
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}

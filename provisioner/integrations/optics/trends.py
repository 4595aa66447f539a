"""Judges the days of one end of a link, and what those that degrade have in common. Pure.

What a leaf receives is sent by the other end, over one fibre: falling light with a steady sender is
dirt or that fibre; a sender whose bias rises or whose own light falls is a laser at its end. The
limits of decibels are ours (none is published); a module's own alarm limits count besides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from math import comb
from statistics import median

DAYS_MIN = 5  # with a reading; fewer show no trend
WINDOW = 30  # days that a trend is looked for in
DROP_DB = 1.5  # below its own first days
STEP_DB = 0.5  # from which the date is told
BIAS_GREW = 1.2  # of its own first days: a laser that ages needs more current
UNUSABLE_DBM = -30.0  # no receiver works there
PROVED_DB = 0.75  # after a repair it has to be as near to its best days
FLAPS_MIN = 2  # carrier losses in the days looked at
BAD = ("dirty", "dying", "dark")
MATES_SHOWN = 3
PORTS_OF_OPTIC = 8  # a breakout has a lane each at least
SHARED_MIN = 3
SHARED_RISK = 1e-3  # of naming a cause by chance, over all groups


@dataclass(frozen=True)
class Day:
    """Medians of one day at one port; an absent quantity is unknown. `flaps`: carrier changes."""

    day: date
    values: Mapping[str, float] = field(default_factory=dict)
    serial: str = ""
    part: str = ""
    lot: str = ""
    kind: str = "unknown"
    low_alarm_dbm: float | None = None
    flaps: int = 0
    queues: Mapping[str, int] = field(default_factory=dict)  # what its queues counted on that day
    up: bool = False  # whether a look on that day saw carrier


@dataclass(frozen=True)
class Verdict:
    """What is said of one port. `end`: whose optic or connector ("node" | "leaf" | "")."""

    port: str
    state: str  # "good" | "dirty" | "dying" | "dark" | "unknown"
    end: str = ""
    words: str = ""
    since: date | None = None
    until: date | None = None  # when it reaches the module's alarm limit, if it goes on
    remedy: str = ""
    flaps: int = 0
    repaired_on: date | None = None
    proved: bool | None = None  # after that repair; None: there was none


_CLEAN = "Clean both connectors of the fibre into this port, then reseat the node's optic; swap it"
_OF_ONE = (
    "Clean the connectors of these ports' fibres; swap nothing before a host's own end tells whose"
    " lane it is."
)
REMEDIES = {
    ("dirty", "node"): f"{_CLEAN} if the light does not come back within a day.",
    ("dying", "leaf"): "Swap the leaf's optic: its laser ages; cleaning does not help.",
    ("dark", "node"): f"{_CLEAN} only if it stays dark with another fibre.",
    # of a breakout
    ("dirty", ""): _OF_ONE,
    ("dark", ""): _OF_ONE,
}


def judge_port(port: str, days: Sequence[Day], mates: Sequence[str] = ()) -> Verdict:
    """Return the verdict on a port by its days, oldest first.

    `mates`: ports on the same optic, whose lane may be the weak one: then it is no one's.
    """
    if not days:
        return Verdict(port, "unknown", words="never read")
    window = [d for d in days if d.day > days[-1].day - timedelta(days=WINDOW)]
    flaps = sum(d.flaps for d in window)
    if days[-1].kind == "copper":
        return Verdict(port, "good", words="copper: it has no light", flaps=flaps)
    own, repaired = _since_repair(window)
    proved = None if repaired is None else _is_proved(window, repaired)
    found = _judge_laser(port, own) or _judge_light(port, own)
    state, end, words, since, until = found
    if mates and end == "node":
        end = ""
        words += f", on some lane of an optic that it shares with {', '.join(mates[:MATES_SHOWN])}"
    words += _describe_signal(own, since)
    return Verdict(
        port=port,
        state=state,
        end=end,
        words=words,
        since=since,
        until=until,
        remedy=REMEDIES.get((state, end), ""),
        flaps=flaps,
        repaired_on=repaired,
        proved=proved if state == "good" else None if repaired is None else False,
    )


def find_mates(ports: Mapping[str, Sequence[Day]]) -> dict[str, tuple[str, ...]]:
    """Return port -> the others of a leaf that are on the same optic: those of a breakout.

    `ports`: of one leaf. Which lane is whose is published for no leaf.
    """
    of_optic: dict[tuple[date, str], list[str]] = {}
    for port, days in ports.items():
        if days and days[-1].serial:
            of_optic.setdefault((days[-1].day, days[-1].serial), []).append(port)
    return {
        port: tuple(other for other in same if other != port)
        for same in of_optic.values()
        if len(same) <= PORTS_OF_OPTIC  # more have a serial that tells nothing
        for port in same
    }


_Found = tuple[str, str, str, date | None, date | None]


def _since_repair(days: Sequence[Day]) -> tuple[Sequence[Day], date | None]:
    """Return the days since the last repair: another serial, or light that came back at once."""
    for n in range(len(days) - 1, 0, -1):
        old = days[n - 1]
        new = days[n]
        other = bool(old.serial and new.serial and old.serial != new.serial)
        rose = new.values.get("rx_dbm", -99.0) - old.values.get("rx_dbm", 99.0) >= 2 * STEP_DB
        if other or rose:
            return days[n:], new.day
    return days, None


def _is_proved(days: Sequence[Day], repaired: date) -> bool:
    """Whether the light after a repair is as good as the best days before it."""
    before = [d.values["rx_dbm"] for d in days if d.day < repaired and "rx_dbm" in d.values]
    after = [d.values["rx_dbm"] for d in days if d.day >= repaired and "rx_dbm" in d.values]
    lit = [v for v in before if v > UNUSABLE_DBM]
    if not after or min(after) <= UNUSABLE_DBM:
        return False
    return not lit or median(after) >= max(lit) - PROVED_DB


def _judge_laser(port: str, days: Sequence[Day]) -> _Found | None:
    bias = [(d.day, d.values["bias_ma"]) for d in days if d.values.get("bias_ma", 0.0) > 0]
    sent = [(d.day, d.values["tx_dbm"]) for d in days if d.values.get("tx_dbm", -99) > UNUSABLE_DBM]
    for series, name, unit in ((bias, "bias current", "mA"), (sent, "light sent", "dBm")):
        if len(series) < DAYS_MIN:
            continue
        first = _first(series)
        last = median(v for _, v in series[-2:])
        risen = name == "bias current" and last >= first * BIAS_GREW
        fallen = name == "light sent" and last <= first - DROP_DB
        if (risen or fallen) and _goes_on(series, up=risen):
            limit = first * (1 + (BIAS_GREW - 1) / 3) if risen else first - STEP_DB
            since = _find_since(series, limit, up=risen)
            words = f"{name} of the leaf's laser went from {first:.1f} to {last:.1f} {unit}"
            return "dying", "leaf", words, since, None
    return None


def _judge_light(port: str, days: Sequence[Day]) -> _Found:
    light = [(d.day, d.values["rx_dbm"]) for d in days if "rx_dbm" in d.values]
    lit = [(at, v) for at, v in light if v > UNUSABLE_DBM]
    if not light or not lit:
        return "unknown", "", "no light was ever read: unused, or it reports none", None, None
    if light[-1][1] <= UNUSABLE_DBM:
        dark_since = next(at for at, _ in light if at > lit[-1][0])
        return "dark", "node", "it receives no light any more", dark_since, None
    low = next((d.low_alarm_dbm for d in reversed(days) if d.low_alarm_dbm is not None), None)
    last = lit[-1][1]
    # an empty cage shows stray light below its limit: a port that has light or carrier is in use
    used = any(v >= (low or 0.0) for _, v in lit) or days[-1].up
    if low is not None and last < low and not used:
        words = f"it never received {low:.1f} dBm, its alarm limit, and has no carrier: unused?"
        return "unknown", "", words, None, None
    if low is not None and last < low:
        words = f"it receives {last:.1f} dBm, below the module's alarm limit of {low:.1f} dBm"
        return "dirty", "node", words, _find_since(lit, low, up=False), lit[-1][0]
    if len(lit) < DAYS_MIN:
        return "unknown", "", f"{len(lit)} days with a reading: no trend yet", None, None
    first = _first(lit)
    now = median(v for _, v in lit[-2:])
    if now > first - DROP_DB or not _goes_on(lit, up=False):
        return "good", "", f"it receives {last:.1f} dBm", None, None
    since = _find_since(lit, first - STEP_DB, up=False)
    slope = _slope(lit[-14:])
    until = None
    if low is not None and slope < 0:
        until = lit[-1][0] + timedelta(days=min(3650, max(0, round((low - last) / slope))))
    words = f"the light received fell from {first:.1f} to {now:.1f} dBm"
    return "dirty", "node", words, since, until


def _describe_signal(days: Sequence[Day], since: date | None) -> str:
    """Return how the signal fared beside falling light; its limits are published by nobody."""
    words = []
    for quantity, name, form in (
        ("snr_db", "SNR", "{:.1f} dB"),
        ("pre_fec_ber", "pre-FEC BER", "{:.0e}"),
    ):
        before = [
            d.values[quantity] for d in days if since and d.day < since and quantity in d.values
        ]
        after = [
            d.values[quantity] for d in days if since and d.day >= since and quantity in d.values
        ]
        if before and after:
            words.append(
                f"{name} {form.format(median(before))} before and {form.format(after[-1])} now"
            )
    return "".join(f"; {each}" for each in words)


def _first(series: Sequence[tuple[date, float]]) -> float:
    return median(v for _, v in series[: max(3, len(series) // 3)])


def _goes_on(series: Sequence[tuple[date, float]], *, up: bool) -> bool:
    """Whether the last three days all differ from the first ones: one bad day is no trend."""
    first = _first(series)
    edge = [v - first for _, v in series[-3:]]
    return all(e > 0 for e in edge) if up else all(e <= -STEP_DB for e in edge)


def _find_since(series: Sequence[tuple[date, float]], limit: float, *, up: bool) -> date | None:
    """Return the first day from which all days are past a limit."""
    since = None
    for at, value in reversed(series):
        if value < limit if up else value > limit:
            break
        since = at
    return since


def _slope(series: Sequence[tuple[date, float]]) -> float:
    """Return the change a day: the median over all pairs (Theil and Sen)."""
    slopes = [
        (b - a) / (after - before).days
        for n, (before, a) in enumerate(series)
        for after, b in series[n + 1 :]
        if after > before
    ]
    return median(slopes) if slopes else 0.0


@dataclass(frozen=True)
class SharedCause:
    """A group that has far more bad ports than its share of the fleet."""

    group: str  # "leaf leaf-3", "lot NVIDIA MMS4X00 240315"
    bad: int
    all_bad: int
    ports: int
    fleet: int


def find_shared(
    bad: Sequence[str],
    groups_of: Mapping[str, Sequence[str]],
    sizes: Mapping[str, int] | None = None,
    fleet: int = 0,
) -> tuple[SharedCause, ...]:
    """Return what bad ports share, beyond chance. `groups_of`: each port of the fleet -> groups.

    With `sizes`, the ports of each group, and `fleet`, those of all, it has the bad ones alone.
    """
    known = [port for port in bad if port in groups_of]
    if sizes is None:
        sizes = Counter(group for groups in groups_of.values() for group in set(groups))
        fleet = len(groups_of)
    hit = Counter(group for port in known for group in set(groups_of[port]))
    causes = []
    for group, count in sorted(hit.items()):
        share = sizes[group] / fleet
        if count < SHARED_MIN or share >= 0.5:
            continue
        if _tail(len(known), count, share) * len(sizes) < SHARED_RISK:
            causes.append(SharedCause(group, count, len(known), sizes[group], fleet))
    return tuple(sorted(causes, key=lambda c: -c.bad))


def list_groups(leaf: str, day: Day) -> tuple[str, ...]:
    """Return what a port has in common with others: its leaf, part and lot."""
    named = [f"leaf {leaf}"]
    named += [f"part {day.part}"] if day.part else []
    named += [f"lot {day.part} {day.lot}"] if day.lot else []
    return tuple(named)


def _tail(tries: int, at_least: int, share: float) -> float:
    """Return the chance of so many or more, each with this share."""
    return sum(
        comb(tries, k) * share**k * (1 - share) ** (tries - k) for k in range(at_least, tries + 1)
    )

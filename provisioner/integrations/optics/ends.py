"""Joins both ends of a link: the leaf's days, and what the host's cards read at each validation.

The watch reads no tenant's host, so the node's end has as many days as the node has validations.
Light that falls at the leaf is the node's laser, or the fibre: only the node's own bias and light
sent tell which; and light that falls at the node while the leaf's laser is steady is the other
direction. A day that was not read proves nothing. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from statistics import median

from provisioner.integrations.optics.trends import (
    BIAS_GREW,
    DROP_DB,
    PROVED_DB,
    UNUSABLE_DBM,
    Day,
    Verdict,
)
from provisioner.model.cohort import HealthReport
from provisioner.model.inventory import Inventory
from provisioner.model.names import normalize_pci
from provisioner.model.node import Node

READINGS_MIN = 4  # of the node's end, for a trend without the leaf's: two first, two last
# what `checks/optics.py` measures of each card -> quantity, how lanes are joined, what is possible
_MEASURED = {
    "rx_power_dbm": ("rx_dbm", min, (-60.0, 20.0)),
    "tx_power_dbm": ("tx_dbm", min, (-60.0, 20.0)),
    "optic_bias_ma": ("bias_ma", max, (0.0, 1000.0)),
    "optic_temperature_c": ("temperature_c", max, (-60.0, 150.0)),
    "optic_snr_db": ("snr_db", min, (0.5, 60.0)),  # a module without it may say zero
}
_CLEAN = "Clean both connectors of the fibre, then swap the fibre"
_FIBRE = f"{_CLEAN}; the node's laser is good, so keep its optic."
_LEAF = f"{_CLEAN}; then reseat the leaf's optic."
_LASER = "Swap the node's optic: its laser ages; cleaning does not help."


@dataclass(frozen=True)
class Joined:
    """The verdict by both ends. `proved`: whether the node's end proves the last repair too."""

    verdict: Verdict
    proved: bool | None = None  # None: no repair, or the node was not validated before and after


def read_host_days(
    node: Node,
    reports: Iterable[HealthReport],
    inventory: Inventory | None = None,
    serials: Mapping[float, Mapping[str, str]] | None = None,
) -> dict[str, list[Day]]:
    """Return slot -> the days on which its card's optic was read, the oldest first.

    `serials`: when a report ended -> a card's address -> the serial of its optic.

    The inventory tells each card's address. Without it the n-th rail's card is the n-th by its
    address, as in tests among nodes; a report with another number of cards than rails tells nobody
    whose is whose, and is left out.
    """
    ports = sorted((p.rail, p.nic_slot) for p in node.ports if p.rail >= 0)
    slots = [slot for _, slot in ports if [s for _, s in ports].count(slot) == 1]
    devices = [] if inventory is None else inventory.devices
    listed = {normalize_pci(d.pci): d.slot for d in devices if d.pci and d.slot in slots}
    values: dict[tuple[str, date], dict[str, list[float]]] = {}
    optic: dict[tuple[str, date], str] = {}
    for report in sorted(reports, key=lambda r: r.ended_at):
        cards = _read_cards(report)
        told = (serials or {}).get(report.ended_at, {})
        if listed:
            slot_of = {pci: listed[pci] for pci in cards if pci in listed}
        else:
            whole = len(cards) == len(slots) == len(ports)
            slot_of = dict(zip(sorted(cards), slots, strict=True)) if whole else {}
        day = datetime.fromtimestamp(report.ended_at, UTC).date()
        for pci, slot in slot_of.items():
            card = cards[pci]
            serial = told.get(pci, "")
            had = optic.get((slot, day), "")
            if serial and had and serial != had:
                del values[slot, day]  # of another optic, earlier on this day
            optic[slot, day] = serial or had
            kept = values.setdefault((slot, day), {})
            for quantity, join, _ in _MEASURED.values():
                if quantity in card:
                    kept.setdefault(quantity, []).append(join(card[quantity]))
    days: dict[str, list[Day]] = {}
    for (slot, day), kept in sorted(values.items()):
        medians = {quantity: round(median(all_), 2) for quantity, all_ in kept.items()}
        days.setdefault(slot, []).append(Day(day, medians, serial=optic[slot, day]))
    return days


def _read_cards(report: HealthReport) -> dict[str, dict[str, list[float]]]:
    """Return address -> quantity -> the lanes' values that are possible."""
    cards: dict[str, dict[str, list[float]]] = {}
    optics = [r.measured for r in report.results if r.check == "optics"]
    for name, value in (m for measured in optics for m in measured.items()):
        head, _, part = name.partition("/")
        quantity, _, (low, high) = _MEASURED.get(head, ("", max, (1.0, 0.0)))
        if low <= value <= high:  # not so for NaN
            address = part.partition(" lane ")[0].removeprefix("port ")
            cards.setdefault(address, {}).setdefault(quantity, []).append(value)
    return cards


def join_ends(found: Verdict, leaf: Sequence[Day], host: Sequence[Day]) -> Joined:
    """Return the verdict on a link by both ends: `found` is that of the leaf's days alone."""
    if leaf and leaf[-1].kind == "copper":
        return Joined(found)
    proved = None if found.repaired_on is None else _prove(host, found.repaired_on)
    since = found.repaired_on
    own, swapped = _since_swap([d for d in host if since is None or d.day >= since])
    if found.state in ("dirty", "dark") and found.since is not None:
        return Joined(_find_sender(found, own, found.since, swapped), proved)
    if found.state in ("good", "unknown"):
        return Joined(_judge_host(found, own), proved)
    return Joined(found, proved)


def _since_swap(host: Sequence[Day]) -> tuple[Sequence[Day], date | None]:
    """Return the days of the optic that is in the node now, and the first, if another was before.

    Another optic has another current. A day of which the serial is unknown may be either's.
    """
    last = next((d.serial for d in reversed(host) if d.serial), "")
    others = [n for n, d in enumerate(host) if d.serial not in ("", last)]
    if not others:
        return host, None
    first = next(n for n in range(others[-1], len(host)) if host[n].serial == last)
    return host[first:], host[first].day


def _find_sender(found: Verdict, host: Sequence[Day], since: date, swapped: date | None) -> Verdict:
    """Tell whether what the leaf misses is not sent, or is lost on its way."""
    before = [d for d in host if d.day < since]
    after = [d for d in host if d.day >= since]
    if swapped is not None and not before:
        return replace(found, words=f"{found.words}; the node's optic is another since {swapped}")
    if not before or not after:
        last = f"last read on {host[-1].day}" if host else "never read"
        words = f"{found.words}; the node's end was not read before and since ({last}): validate it"
        return replace(found, words=words)
    if aged := _find_ageing(before, after):
        told = f"{found.words}; {aged}"
        return replace(found, state="dying", end="node", words=told, remedy=_LASER)
    if not found.end:  # of a breakout: it may be another host's fibre
        return found
    sent = after[-1].values.get("tx_dbm")
    if sent is None or not _list_lit(before, "tx_dbm"):
        return found
    if sent <= UNUSABLE_DBM:  # a port that is off sends none either: no reason for a swap
        return replace(found, words=f"{found.words}; the node's laser sent none on {after[-1].day}")
    words = f"{found.words}; the node's laser sends {sent:.1f} dBm as before: it is the fibre"
    if _fell(_list_lit(before, "rx_dbm"), _list_lit(after, "rx_dbm")):
        words += ", which loses light both ways"
    return replace(found, words=words, remedy=_FIBRE)


def _judge_host(found: Verdict, host: Sequence[Day]) -> Verdict:
    """Judge the node's end alone: its own trend has to stand in its last two readings."""
    if len(host) < READINGS_MIN:
        return found
    first = host[:-2]
    last = host[-2:]
    if aged := _find_ageing(first, last):
        since = last[0].day
        told = f"{found.words}; {aged}"
        return replace(
            found, state="dying", end="node", words=told, since=since, remedy=_LASER, until=None
        )
    lit = _list_lit(first, "rx_dbm")
    received = _list_lit(last, "rx_dbm")
    if len(received) < 2 or not _fell(lit, received):
        return found
    change = f"{median(lit):.1f} to {received[-1]:.1f} dBm"
    words = f"the light that the node receives fell from {change}"
    if found.state == "unknown":  # whether the leaf sends as before is not known
        return replace(found, words=f"{found.words}; {words}: the leaf's laser has no days yet")
    words += ", and the leaf's laser is steady"
    return replace(
        found, state="dirty", end="leaf", words=words, since=last[0].day, remedy=_LEAF, until=None
    )


def _find_ageing(before: Sequence[Day], after: Sequence[Day]) -> str:
    """Return how the node's laser changed for the worse in every later reading; "": it did not."""
    had = [v for v in _list(before, "bias_ma") if v > 0]
    have = [v for v in _list(after, "bias_ma") if v > 0]
    known = all(d.serial for d in (*before, *after))
    doubt = "" if known else " (whether it is the same optic is not known)"
    if had and have and min(have) >= median(had) * BIAS_GREW:
        change = f"{median(had):.1f} to {have[-1]:.1f} mA"
        return f"bias current of the node's laser went from {change}{doubt}"
    sent = _list_lit(before, "tx_dbm")
    now = _list_lit(after, "tx_dbm")  # -40: a port that is off, or a module that reports none
    if _fell(sent, now):
        change = f"{median(sent):.1f} to {now[-1]:.1f} dBm"
        return f"light sent of the node's laser went from {change}{doubt}"
    return ""


def _prove(host: Sequence[Day], repaired: date) -> bool | None:
    """Whether light received and sent at the node is as good as the best before a repair."""
    before = [d for d in host if d.day < repaired]
    after = [d for d in host if d.day >= repaired]
    told = []
    for quantity in ("rx_dbm", "tx_dbm"):
        had = _list_lit(before, quantity)
        have = _list(after, quantity)
        if had and have:
            told.append(min(have) > UNUSABLE_DBM and median(have) >= max(had) - PROVED_DB)
    return all(told) if len(told) == 2 else None


def _fell(lit: Sequence[float], now: Sequence[float]) -> bool:
    """Whether every later reading is below the earlier ones, which had light."""
    return bool(lit and now) and max(now) <= median(lit) - DROP_DB


def _list(days: Iterable[Day], quantity: str) -> list[float]:
    return [d.values[quantity] for d in days if quantity in d.values]


def _list_lit(days: Iterable[Day], quantity: str) -> list[float]:
    return [v for v in _list(days, quantity) if v > UNUSABLE_DBM]

"""The cables between leaves, spines and superspines, by LLDP, compared with the plan. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from provisioner.checks.cabling import CableFault, End, Miscabling, compare
from provisioner.integrations.site_examination import judging
from provisioner.integrations.site_examination.judging import Examined
from provisioner.model.location import Uplink
from provisioner.model.names import resolve_system
from provisioner.model.switch import Heard, Surroundings
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.places.addressing import Addressing
from provisioner.planning.places.place_ports import Ports

AREA = "cables"
TOLD_MAX = 4  # faults of one switch that are told; the rest is counted


def judge_uplinks(
    plan: AddressPlan, site: Iterable[str], seen: Mapping[str, Surroundings]
) -> tuple[Examined, ...]:
    """Return a finding for each switch of the plan with cables to other switches of the site.

    One says so where there is none to compare: switches with other names than the plan's are not
    good for that. `seen`: of the switches that were read. A cable of which no end was read is not
    looked at.
    """
    planned = list_uplinks(plan, frozenset(site))
    if not planned:
        return (_say_nothing_compared(),)
    ends_of: dict[str, set[str]] = {}
    for end in (*planned, *planned.values()):
        ends_of.setdefault(end[0], set()).add(end[1])
    alike = {name: s for name, s in seen.items() if not _is_named_otherwise(s, ends_of.get(name))}
    readable = {a: b for a, b in planned.items() if {a[0], b[0]} & alike.keys()}
    faults: dict[str, list[Miscabling]] = {}
    for fault in compare(readable, _report(alike, planned)):
        if fault.fault is CableFault.ONE_SIDED and fault.at[0] not in alike:
            continue  # the end that was read shows the cable
        told_at = fault.at[0] if fault.at[0] in alike else (fault.planned or fault.at)[0]
        faults.setdefault(told_at, []).append(fault)
    return tuple(
        _judge(name, len(ends), faults.get(name, []))
        if name in alike
        else _say_not_looked(name, was_read=name in seen)
        for name, ends in sorted(ends_of.items())
    )


def list_uplinks(plan: AddressPlan, site: Collection[str]) -> dict[End, End]:
    """Return lower end -> upper end of each planned cable between two switches of the site."""
    ports = Ports(Addressing(plan))
    lower = ((name, ports.find_switch(name)) for name in sorted(site))
    ends = (
        ports.find_uplink_ends(Uplink(place, number))
        for _, place in lower
        if place is not None
        for number in range(ports.count_uplinks(place))
    )
    return {low: high for low, high in ends if high[0] in site}


def _is_named_otherwise(seen: Surroundings, ends: Collection[str] | None) -> bool:
    """Return whether a switch has none of the plan's names of ports: its system has others."""
    return bool(seen.heard) and bool(ends) and seen.heard.keys().isdisjoint(ends or ())


def _report(seen: Mapping[str, Surroundings], planned: Mapping[End, End]) -> dict[End, End]:
    peer_of = {**planned, **{b: a for a, b in planned.items()}}
    systems = {end[0] for end in peer_of}
    reported: dict[End, End] = {}
    for name, around in seen.items():
        for port, heard in around.heard.items():
            ends = sorted((resolve_system(h.system, systems), h.port) for h in heard if _names(h))
            if ends:
                wanted = peer_of.get((name, port))
                reported[name, port] = wanted if wanted in ends else ends[0]
    return reported


def _names(heard: Heard) -> bool:
    return bool(heard.system and heard.port)


def _say_nothing_compared() -> Examined:
    detail = "the plan has no cable between two switches of the site: none was compared"
    remedy = "List leaves, spines and superspines in the site, by the names of the address plan."
    return judging.report_not_looked(AREA, "uplinks", detail, remedy)


def _say_not_looked(name: str, *, was_read: bool) -> Examined:
    if not was_read:
        remedy = "Make the switch readable first; its other findings say why it is not."
        return judging.report_not_looked(AREA, name, "what its ports hear was not read", remedy)
    detail = "none of its ports has a name of the plan"
    remedy = "Compare its neighbours by hand: its system names ports otherwise than the plan."
    return judging.report_not_looked(AREA, name, detail, remedy)


def _judge(name: str, cables: int, faults: list[Miscabling]) -> Examined:
    if not faults:
        return judging.report_good(AREA, name, f"{cables} cables to other switches are as planned")
    told = faults[:TOLD_MAX]
    more = f"; and {len(faults) - len(told)} more" if len(faults) > len(told) else ""
    detail = "; ".join(map(str, told)) + more
    return judging.report_bad(AREA, name, detail, " ".join(f.remedy for f in told))

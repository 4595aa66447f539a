"""Whether the switches of one NVLink domain have their links and their control plane. Pure.

A link is wanted, in force (`operational`), applied and saved (`startup`) in one state, or it is
named; one primary of the controller is CONFIGURED; and the manager calls each planned switch
HEALTHY and lists no other. What was not read is a fault. Sources: docs/sources/hardware.md#links.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.impact import domain_of
from provisioner.integrations.racks.partitions.tenant_partitions import SwitchNode
from provisioner.integrations.racks.plan import LINK_ROLES, PlannedRack, PlannedUnit, RackPlan
from provisioner.integrations.racks.update_steps import Controller
from provisioner.model.outcome import Blocker, Reason

REVISIONS = ("operational", "applied", "startup")
_WORDS = ("effective", "applied", "startup")
INTERFACES_MAX = 4096
FAULTS_MAX = 8  # of one refused handover; a switch may have hundreds
_NAME = re.compile(r"(acp|sw|fnm)[0-9]{1,4}(p[0-9]{1,3}(s[0-9]{1,3})?)?")
_REMEDY = (
    "Mend it: `nv set interface NAME link state up`, `nv config apply` and `nv config save`, or "
    "the link itself; or state in the plan's `links` what is wanted (docs/racks.md)."
)
_CONTROL = "Look at `nv show cluster apps` of the domain's switches; stop all but one."
_READ = "Look at NVOS of the switch and at its login; docs/racks.md names what is asked for."
_NODES = "Look at the manager's switch nodes, and at the plan of racks."
_UNPLACED = (
    "Have the manager show its chassis serial and its slot, as once its NVOS can read them "
    "(`nv show platform chassis-location`), or take it out of the manager."
)


@dataclass(frozen=True)
class SwitchView:
    """What one switch says now: its links' states by revision, and what runs on it.

    A state is "" where the interface, or its state, does not stand there. `unread`: why it does not
    say all of it.
    """

    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    controller: Controller | None = None
    unread: str = ""


def list_switches(plan: RackPlan, domain: str) -> Sequence[tuple[PlannedRack, PlannedUnit]]:
    """Return the planned switches of an NVLink domain, each with its rack."""
    units = ((rack, unit) for rack in plan.racks for unit in rack.units)
    return [
        (rack, unit)
        for rack, unit in units
        if unit.kind is Kind.NVLINK_SWITCH and domain and domain_of(rack, unit) == domain
    ]


def read_links(body: object) -> Mapping[str, str]:
    """Return the state of each NVLink interface of a listing. Raises ValueError for none.

    A state is a text, or an object with the state as its only key, by NVOS release.
    """
    if not isinstance(body, Mapping) or not 0 < len(body) <= INTERFACES_MAX:
        raise ValueError("it is no list of interfaces, an empty or too long one")
    found: dict[str, str] = {}
    for name, entry in body.items():
        kind = entry.get("type") if isinstance(entry, Mapping) else None
        if _NAME.fullmatch(name) is None and kind != "nvl":
            continue  # eth0, lo
        link = entry.get("link") if isinstance(entry, Mapping) else None
        shown = name[:32] if name.isprintable() else "?"
        found[shown] = _read_state(link.get("state") if isinstance(link, Mapping) else None)
    return found


def _read_state(state: object) -> str:
    if state is None or state == {}:
        return ""
    word = next(iter(state)) if isinstance(state, Mapping) and len(state) == 1 else state
    return word if isinstance(word, str) and word in {"up", "down"} else "unreadable"


def judge_domain(
    plan: RackPlan, domain: str, views: Mapping[str, SwitchView]
) -> tuple[Blocker, ...]:
    """Return what speaks against a domain's links and control plane, by switch and interface."""
    switches = list_switches(plan, domain)
    if not switches:
        return (_refuse(domain, "the plan has no NVLink switch of the domain", _NODES),)
    spans = len({rack.name for rack, _ in switches}) > 1
    faults: list[Blocker] = []
    controllers: list[Controller] = []
    shown = {n: frozenset(v.links["operational"]) for n, v in views.items() if not v.unread}
    common = Counter(shown.values()).most_common(1)[0][0] if shown else frozenset()
    for rack, unit in switches:
        view = views.get(unit.name, SwitchView(unread="it was not asked"))
        if view.unread or view.controller is None or view.controller.running is None:
            detail = f"its links and its controller were not read: {view.unread or 'not said'}"
            faults.append(_refuse(unit.name, detail, _READ))
            continue
        controllers.append(view.controller)
        for name, told in find_link_faults(view, rack.links, spans=spans):
            subject = f"{unit.name}/{name}" if name else unit.name
            faults.append(_refuse(subject, told, _REMEDY))
        for name in sorted(common ^ shown[unit.name]):
            told = "the other switches show it" if name in common else "no other switch shows it"
            faults.append(_refuse(f"{unit.name}/{name}", told, _REMEDY))
    primaries = [one for one in controllers if one.running]
    whole = len(controllers) == len(switches)  # else the primary may be one that was not read
    if len(primaries) > 1 or (whole and not primaries) or not all(p.configured for p in primaries):
        said = ", ".join(f"{one.switch} ({one.said or 'not said'})" for one in primaries)
        told = f"the controller has to run on one switch, CONFIGURED: {said or 'it runs on none'}"
        faults.append(_refuse(domain, told, _CONTROL))
    return tuple(faults)


def find_link_faults(
    view: SwitchView, planned: Mapping[str, str], *, spans: bool
) -> Iterator[tuple[str, str]]:
    """Yield each interface whose states are not the wanted one, and why; "": the whole switch.

    What the plan states has to stand in all three, as a default of NVOS is no saved target. Of what
    it does not state NVOS' default is wanted, up; of front-panel ports only where a domain `spans`
    several racks, as nothing has to be plugged there.
    """
    effective, applied, startup = (view.links[revision] for revision in REVISIONS)
    names = {*effective, *applied, *startup, *(n for n in planned if n not in LINK_ROLES)}
    if not any(name.startswith("acp") for name in effective):
        yield "", "it shows no interface to the compute trays (acp)"
    for name in sorted(names, key=lambda n: (len(n), n)):
        role = found[1] if (found := _NAME.fullmatch(name)) else ""
        stated = planned.get(name, planned.get(role, ""))
        said = [one.get(name, "") for one in (effective, applied, startup)]
        kept = [state or "up" for state in said[1:]]
        wanted = stated or ("up" if role != "sw" or spans else "any")
        if not role:
            yield name, "it is an NVLink interface whose role nobody knows"
        elif wanted == "any":
            good = kept[0] == kept[1] and "unreadable" not in said
        elif stated:
            good = set(said) == {wanted}
        else:
            good = {said[0], *kept} == {wanted}
        if role and not good:
            shown = [f"{_WORDS[n]} {state or 'not said'}" for n, state in enumerate(said)]
            yield name, f"wanted {wanted}, {', '.join(shown)}"


def judge_nodes(plan: RackPlan, domain: str, nodes: Sequence[SwitchNode]) -> tuple[Blocker, ...]:
    """Return which switches the manager does not call HEALTHY, or lists and nobody planned.

    Where the plan lets links of the rack be down, a switch that misses some is what is expected.
    One that is listed without a whole place holds the domains alone of which it may be.
    """
    faults: list[Blocker] = []
    switches = list_switches(plan, domain)
    listed: dict[tuple[str, int | None], list[SwitchNode]] = {}
    for node in nodes:
        listed.setdefault((node.chassis_serial, node.slot), []).append(node)
    for rack, unit in switches:
        there = listed.get((rack.chassis_serial, unit.slot), [])
        health = there[0].health if there else None
        allowed = {"HEALTHY", *({"MISSING_NVLINK"} if {*rack.links.values()} - {"up"} else ())}
        if health not in allowed:
            told = "the manager lists no switch in its slot"
            told = told if health is None else f"the manager says {health or 'no health of it'}"
            faults.append(_refuse(unit.name, told, _NODES))
    racks = {rack.chassis_serial: rack for rack, _ in switches}
    for (serial, slot), there in listed.items():
        if serial and serial not in racks:
            continue
        if not serial or slot is None:
            if not serial and slot is not None and all((one, slot) in listed for one in racks):
                continue  # another one is in each slot of its number
            at = f"chassis {serial or 'not said'}, slot {'not said' if slot is None else slot}"
            told = f"switch node {there[0].ident or '?'} has no whole place at the manager ({at})"
            faults.append(_refuse(domain, f"{told}, and may be of this domain", _UNPLACED))
            continue
        units = racks[serial].units
        if all(u.slot != slot or u.kind is not Kind.NVLINK_SWITCH for u in units):
            told = f"the manager lists a switch in slot {slot}, and the plan none"
            faults.append(_refuse(racks[serial].name, told, _NODES))
        elif len(there) > 1:
            told = f"the manager lists {len(there)} switches in its slot {slot}"
            faults.append(_refuse(racks[serial].name, told, _NODES))
    return tuple(faults)


def _refuse(subject: str, detail: str, unblock: str) -> Blocker:
    return Blocker(
        reason=Reason.FABRIC, subject=subject or "domain", detail=detail[:300], unblock=unblock
    )

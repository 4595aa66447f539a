"""Propose a site's hardware list from what its BMCs and switches show. Pure.

Everything here is a proposal for a person to read: names and places are guessed where nothing shows
them, and what is missing is named with where it is printed on the machine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

import yaml

from provisioner import quirks
from provisioner.integrations.published_versions.deciding.overlay_draft import (
    Place,
    Verdict,
    draft_overlay,
    state_good_node,
)
from provisioner.integrations.published_versions.deciding.statements import Import, Statement
from provisioner.model.base import Record
from provisioner.model.expected import DEFAULT_OS, Expected, ExpectedNode
from provisioner.model.input_error import InputError
from provisioner.model.inventory import DeviceKind, Inventory
from provisioner.model.matrix import Matrix
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.switch import Heard
from provisioner.planning.matrix.located_yaml import Located
from provisioner.planning.path.profiles import choose_profile

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
NAMES = "n{index:03d}"  # where neither LLDP nor a pattern names the hosts
FIELDS = ("unit", "index", "serial")
SPEC = re.compile(r"(0\d{1,2}d?)?")
UNNAMED = frozenset({"localhost", "switch"})  # host names that name nobody
SWITCH_VARIABLE = "SWITCH_PASSWORD"
_FORMS = {
    "mac": re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}"),
    "base_mac": re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}"),
    "pci": re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"),
}
_CARD = re.compile(r"(NIC|DPU)_\d{1,2}")
_PLACE = re.compile(r"(?:.*?su(?P<unit>\d{1,4}))?.*?(?P<index>\d{1,4})")
_RACK = re.compile(r"(?:^|[-_.])(?P<rack>r(?:ack)?[-_]?\d{1,4})(?=[-_.]|$)", re.IGNORECASE)


class SeenHost(Record):
    """A host's BMC that let us in. `macs`: of the host's interfaces -> the BMC's name for each."""

    url: str
    vendor: str
    inventory: Inventory
    macs: Mapping[str, str]


class SeenSwitch(Record):
    """A switch; without `serial` it was not read. `addresses`: of its ports, with their length."""

    address: str
    os: str = DEFAULT_OS
    username: str = ""
    hostname: str = ""
    serial: str = ""
    heard: Mapping[str, frozenset[Heard]] = {}
    addresses: Mapping[str, str] = {}
    refusal: str = ""  # why it was not read


class Seen(Record):
    """What was read of a site. `waiting`: cards whose factory password must be changed first."""

    hosts: tuple[SeenHost, ...] = ()
    cards: int = 0  # cards' BMCs that named themselves
    waiting: tuple[str, ...] = ()
    refused: tuple[Blocker, ...] = ()
    switches: tuple[SeenSwitch, ...] = ()
    leased: Mapping[str, str] = {}  # MAC -> address
    vendor_of: Mapping[str, str] = {}  # address of each BMC that answered -> its declaration
    factory_hostnames: frozenset[str] = frozenset()  # of new switches, by the systems' declarations

    @property
    def unnamed(self) -> frozenset[str]:
        """Host names that name nobody."""
        return UNNAMED | self.factory_hostnames

    @property
    def vendors(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.vendor_of.values())))


class Missing(Record):
    """One thing that nothing showed, and where a person finds it."""

    what: str
    where: str


class Proposal(Record):
    """The list as plain data, the name of each BMC, what is missing, and what was guessed."""

    expected: Mapping[str, Any]
    names: Mapping[str, str]  # address of a host's BMC -> name
    missing: tuple[Missing, ...]
    guesses: tuple[str, ...]

    def name_inventories(self, hosts: Sequence[SeenHost]) -> list[Inventory]:
        return [h.inventory.model_copy(update={"node": self.names[h.url]}) for h in hosts]

    def name_release(self, release: str) -> Proposal:
        return self.model_copy(update={"expected": {**self.expected, "release": release}})


@dataclass
class _Draft:
    missing: list[Missing] = field(default_factory=list)
    guesses: list[str] = field(default_factory=list)

    def miss(self, what: str, where: str) -> None:
        self.missing.append(Missing(what=what, where=where))


def name_variable(vendor: str) -> str:
    """Return the environment variable of a vendor's factory password."""
    return f"FACTORY_{vendor.upper()}"


def check_pattern(pattern: str) -> None:
    """Raise InputError for a pattern of names that cannot name hosts."""
    remedy = "Write it like su{unit}-n{index:02d}; {serial} is known, too."
    try:
        parts = list(Formatter().parse(pattern))
    except ValueError as error:
        raise InputError("--names", pattern[:80], str(error), remedy) from None
    fields = [(name, spec, conversion) for _, name, spec, conversion in parts if name is not None]
    for name, spec, conversion in fields:
        if name not in FIELDS or conversion or not SPEC.fullmatch(spec or ""):
            raise InputError("--names", pattern[:80], f"{{{name}}} is not known", remedy)
    if not {"index", "serial"} & {name for name, _, _ in fields}:
        raise InputError("--names", pattern[:80], "all hosts would have one name", remedy)
    if not NAME.fullmatch(_format(pattern, 0, "S1")):
        raise InputError("--names", pattern[:80], "its names are no names of nodes", remedy)


def propose(
    seen: Seen, site: str, release: str, pattern: str = "", earlier: Expected | None = None
) -> Proposal:
    """Return the list that fits what was seen; entries of an `earlier` list are kept."""
    draft = _Draft()
    known = {n.bmc.serial: n for n in (earlier.nodes if earlier else ()) if n.bmc.serial}
    names = _name_hosts(seen, pattern, known, draft)
    switches = _name_switches(seen, names, known, draft)
    hosts = [_propose_host(h, names, seen, switches, known, draft) for h in seen.hosts]
    listed = [_propose_switch(s, switches[s.address], known, draft) for s in seen.switches]
    kept = [] if earlier is None else _keep(earlier, [*hosts, *listed])
    _miss_passwords(seen, draft)
    factory = {v: _refer(v) for v in seen.vendors}
    if earlier is not None:
        factory |= {v: c.model_dump(exclude_defaults=True) for v, c in _credentials(earlier)}
    tree: dict[str, Any] = {"site": site, "release": release, "factory_credentials": factory}
    tree["nodes"] = [*kept, *hosts, *listed]
    _drop_doubles(tree["nodes"], draft)
    if earlier is not None and earlier.tenants:
        dumped = [t.model_dump(mode="json", exclude_defaults=True) for t in earlier.tenants]
        tree["tenants"] = dumped
    return Proposal(
        expected=tree, names=names, missing=tuple(draft.missing), guesses=tuple(draft.guesses)
    )


def _drop_doubles(nodes: Sequence[dict[str, Any]], draft: _Draft) -> None:
    """Leave out what two parts claim: a serial, a MAC, a leaf's port; and say so."""
    owners: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
        (n["name"], n["bmc"], ("serial", "mac")) for n in nodes if n.get("bmc")
    ]
    owners += [
        (f"{n['name']}/{card['slot']}", card, ("serial", "base_mac", "pci"))
        for n in nodes
        for card in n.get("dpus", ())
    ]
    keys = [(k, o[k]) for _, o, kinds in owners for k in kinds if o.get(k) and k != "pci"]
    times = Counter((k, str(value).lower()) for k, value in keys)
    for where, owner, kinds in owners:
        for kind in kinds:
            value = owner.get(kind)
            form = _FORMS.get(kind)
            if value and times[kind, str(value).lower()] > 1:
                draft.miss(f"{where}: {kind}", f"{owner.pop(kind)} is shown by several parts")
            elif value and form and not form.fullmatch(value):
                draft.miss(f"{where}: {kind}", f"{owner.pop(kind)!r:.40} is none")
    ports = Counter((p["switch"], p["interface"]) for n in nodes for p in n.get("ports", ()))
    for node in nodes:
        doubled = [p for p in node.get("ports", ()) if ports[p["switch"], p["interface"]] > 1]
        if doubled:
            node["ports"] = [p for p in node["ports"] if p not in doubled]
            names = ", ".join(f"{p['switch']}/{p['interface']}" for p in doubled)
            draft.miss(f"{node['name']}: {names}", "several hosts are heard there")


def write_list(proposal: Proposal) -> str:
    """Return the list's text: YAML with what is missing and guessed as remarks at its top."""
    lines = [
        "# The hardware list, proposed by `provisioner init`: read it before its first use.",
        "# Passwords are named here, and never written.",
        *(f"# missing: {_remark(m.what)}: {_remark(m.where)}" for m in proposal.missing),
        *(f"# guessed: {_remark(guess)}" for guess in proposal.guesses),
    ]
    text = yaml.safe_dump(
        dict(proposal.expected), sort_keys=False, allow_unicode=False, width=10_000
    )
    return "\n".join(lines) + "\n" + text


def _remark(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _credentials(earlier: Expected) -> list[tuple[str, Any]]:
    return [(v, c) for v, c in earlier.factory_credentials.items() if not c.password]


def _refer(vendor: str) -> dict[str, str]:
    quirk = quirks.ALL.get(vendor, quirks.UNKNOWN)
    return {"username": quirk.factory_user, "password_env": name_variable(vendor)}


def _keep(earlier: Expected, mine: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the earlier entries that nothing seen now stands for; passwords stay references."""
    names = {n["name"] for n in mine}
    return [_dump(n) for n in earlier.nodes if n.name not in names]


def _dump(node: ExpectedNode) -> dict[str, Any]:
    return node.model_dump(mode="json", exclude_defaults=True, exclude={"password"})


# ------------------------------------------------------------------------------
# Names and places of hosts.


def _name_hosts(
    seen: Seen, pattern: str, known: Mapping[str, ExpectedNode], draft: _Draft
) -> dict[str, str]:
    called = {h.url: _hear_name(h, seen) for h in seen.hosts}
    times = Counter(filter(None, called.values()))
    taken = {n.name for n in known.values()}
    names: dict[str, str] = {}
    number = 0
    for host in sorted(seen.hosts, key=lambda h: _sort_key(h.url)):
        serial = host.inventory.system_serial or ""
        heard = called[host.url]
        if serial in known:
            names[host.url] = known[serial].name
            continue
        if not pattern and heard and times[heard] == 1 and heard not in taken:
            names[host.url] = heard
            draft.guesses.append(f"{heard} is the name that {host.url} has by LLDP")
        else:
            name = ""
            while not name or name in taken or name in names.values():
                name = _format(pattern or NAMES, number, serial)
                number += 1
                if "{index" not in (pattern or NAMES):
                    break
            names[host.url] = name
            draft.guesses.append(f"{name} is named by the order of addresses ({host.url})")
        taken.add(names[host.url])
    return names


def _format(pattern: str, number: int, serial: str) -> str:
    return pattern.format(unit=number // 32, index=number % 32, serial=serial or "unknown")


def _hear_name(host: SeenHost, seen: Seen) -> str:
    """Return the one name that the host's cards have by LLDP; "" for none, and for several."""
    names = {
        h.system
        for switch in seen.switches
        for heard in switch.heard.values()
        for h in heard
        if h.mac and h.mac in host.macs
    }
    name = names.pop() if len(names) == 1 else ""
    return name if NAME.fullmatch(name) and name.lower() not in seen.unnamed else ""


def _sort_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return the key of a natural order: n9 before n10, 10.0.0.9 before 10.0.0.10."""
    parts = re.findall(r"\d+|\D+", text)
    return tuple((0, int(p), "") if p.isdigit() and p.isascii() else (1, 0, p) for p in parts)


def guess_place(name: str) -> dict[str, Any]:
    """Return the place that a name tells: su0-n03, r12-n03, rack4-host17."""
    match = _PLACE.fullmatch(name)
    rack = _RACK.search(name)
    place: dict[str, Any] = {}
    if match is not None:
        place |= {"scalable_unit": int(match["unit"] or 0), "index": int(match["index"])}
    if rack is not None:
        place["rack"] = rack["rack"]
    return place


def _propose_host(
    host: SeenHost,
    names: Mapping[str, str],
    seen: Seen,
    switches: Mapping[str, str],
    known: Mapping[str, ExpectedNode],
    draft: _Draft,
) -> dict[str, Any]:
    name = names[host.url]
    serial = host.inventory.system_serial or ""
    if serial in known:
        return _dump(known[serial])
    place = guess_place(name)
    if "rack" not in place:
        draft.miss(f"{name}: location.rack", "the rack's own label")
    cards, slots = _propose_cards(host, name, draft)
    entry: dict[str, Any] = {
        "name": name,
        "kind": NodeKind.HOST.value,
        "bmc": {k: v for k, v in (("serial", serial), ("url", host.url)) if v},
        "location": place,
        "dpus": cards,
        "ports": _propose_ports(host, name, slots, seen, switches, draft),
    }
    if not serial:
        draft.miss(f"{name}: bmc.serial", "its serial number, on the chassis' label")
    address = next((seen.leased[m] for m in host.macs if m in seen.leased), "")
    if address:
        entry["address"] = address
    else:
        draft.miss(f"{name}: address", "where its system is reached by SSH: your DHCP or DNS")
    return entry


def _propose_cards(
    host: SeenHost, name: str, draft: _Draft
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the entries of the host's BlueFields, and the list's slot of each by the BMC's."""
    cards = host.inventory.devices_of(DeviceKind.DPU)
    ours = all(_CARD.fullmatch(c.slot) for c in cards)
    counts: Counter[str] = Counter()
    slots: dict[str, str] = {}
    entries = []
    for card in sorted(cards, key=lambda c: (not c.slot.startswith("NIC"), _sort_key(c.slot))):
        kind = "NIC" if "supernic" in (card.model or "").lower() else "DPU"
        slot = card.slot if ours else f"{kind}_{counts[kind]}"
        counts[kind] += 1
        slots[card.slot] = slot
        fields = (("serial", card.serial), ("base_mac", card.mac), ("pci", card.pci))
        entries.append({"slot": slot, **{k: v for k, v in fields if v}})
        if not ours:
            draft.guesses.append(f"{name}: {slot} is the card that its BMC calls {card.slot}")
        if not card.serial:
            draft.miss(f"{name}/{slot}: serial", "SN on the label of the card's board")
    if not cards:
        draft.miss(f"{name}: dpus", "its BMC lists no BlueField; SN on the label of each card")
    return entries, slots


# ------------------------------------------------------------------------------
# Switches and cables.


def _name_switches(
    seen: Seen, names: Mapping[str, str], known: Mapping[str, ExpectedNode], draft: _Draft
) -> dict[str, str]:
    times = Counter(s.hostname for s in seen.switches)
    chosen: dict[str, str] = {}
    counts: Counter[str] = Counter()
    hosts = set(names.values())
    for switch in sorted(seen.switches, key=lambda s: _sort_key(s.address)):
        own = switch.hostname
        if switch.serial in known:
            chosen[switch.address] = known[switch.serial].name
        elif NAME.fullmatch(own) and own.lower() not in seen.unnamed | hosts and times[own] == 1:
            chosen[switch.address] = own
        else:
            near = [h for heard in switch.heard.values() for h in heard]
            role = (
                "leaf"
                if any(_is_host(h, seen, names) for h in near)
                else "spine"
                if switch.heard
                else "switch"
            )
            chosen[switch.address] = f"{role}-{counts[role]}"
            counts[role] += 1
            draft.guesses.append(
                f"{chosen[switch.address]} is {switch.address}, which has no name of its own"
            )
    return chosen


def _is_host(heard: Heard, seen: Seen, names: Mapping[str, str]) -> bool:
    return heard.system in names.values() or any(heard.mac in h.macs for h in seen.hosts)


def _propose_switch(
    switch: SeenSwitch, name: str, known: Mapping[str, ExpectedNode], draft: _Draft
) -> dict[str, Any]:
    if switch.serial and switch.serial in known:
        return _dump(known[switch.serial])
    entry: dict[str, Any] = {"name": name, "kind": "switch", "address": switch.address}
    if switch.os != DEFAULT_OS:
        entry["os"] = switch.os
    if switch.serial:
        entry["bmc"] = {"serial": switch.serial}
    if switch.username:
        entry |= {"username": switch.username, "password_env": SWITCH_VARIABLE}
    if switch.refusal:
        draft.miss(f"{name}: its serial and cables", f"it was not read: {switch.refusal}")
    return entry


def _propose_ports(
    host: SeenHost,
    name: str,
    slots: Mapping[str, str],
    seen: Seen,
    switches: Mapping[str, str],
    draft: _Draft,
) -> list[dict[str, Any]]:
    """Return the leaf ports at which this host is heard, by the MAC of its card or by its name."""
    found = []
    for switch in sorted(seen.switches, key=lambda s: _sort_key(switches[s.address])):
        for port, heard in sorted(switch.heard.items(), key=lambda item: _sort_key(item[0])):
            mine = [h for h in heard if h.mac in host.macs or h.system == name]
            if mine:
                slot = slots.get(host.macs.get(mine[0].mac, ""), "")
                found.append((switch, port, slot))
    cards = [s for s in slots.values() if s.startswith("NIC")]
    free = [s for s in sorted(cards, key=_sort_key) if s not in {slot for _, _, slot in found}]
    ports = []
    for switch, port, slot in found:
        if not slot and free:
            slot = free.pop(0)
            draft.guesses.append(
                f"{name}: {slot} is at {switches[switch.address]}/{port}, by order"
            )
        rail = int(slot.rpartition("_")[2]) if slot.startswith("NIC_") else -1
        address = switch.addresses.get(port, "")
        entry = {"rail": rail, "switch": switches[switch.address], "interface": port}
        ports.append({**entry, "nic_slot": slot, **({"address": address} if address else {})})
    if bare := [f"{p['switch']}/{p['interface']}" for p in ports if "address" not in p]:
        what = f"{name}: address of {', '.join(bare)}"
        draft.miss(what, "the leaf's end of each cable in your address plan")
    if not ports:
        why = "no switch hears it by LLDP" if seen.switches else "no switch was named (--switches)"
        draft.miss(f"{name}: ports", f"{why}: your cabling plan, or the labels of its cables")
    elif unheard := [s for s in sorted(cards, key=_sort_key) if s not in _slots_of(ports)]:
        where = "no switch that was read hears it: name its leaf in --switches, or see its cable"
        draft.miss(f"{name}: port of {', '.join(unheard)}", where)
    return ports


def _slots_of(ports: Sequence[Mapping[str, Any]]) -> set[str]:
    return {port["nic_slot"] for port in ports}


def _miss_passwords(seen: Seen, draft: _Draft) -> None:
    for blocker in seen.refused:
        if blocker.reason in (Reason.LOGIN_REFUSED, Reason.UNKNOWN_VENDOR, Reason.ACCOUNT_LOCKED):
            vendor = seen.vendor_of.get(blocker.subject, "")
            draft.miss(f"login of {blocker.subject}", explain_login(blocker, vendor))
        else:
            draft.miss(f"{blocker.subject}", f"{blocker.detail}. {blocker.unblock}")
    listed = sum(len(h.inventory.devices_of(DeviceKind.DPU)) for h in seen.hosts)
    if (answered := len(seen.waiting) + seen.cards) != listed:
        draft.miss(
            f"{listed} cards are listed by their hosts, and {answered} cards' BMCs answer",
            "each BlueField has a BMC of its own (RJ45 at its bracket, or by its host)",
        )


def explain_login(blocker: Blocker, vendor: str) -> str:
    """Return what opens a BMC that refused the first login, and where it is printed."""
    printed = quirks.ALL.get(vendor, quirks.UNKNOWN).factory_printed
    if blocker.reason is Reason.UNKNOWN_VENDOR:
        return f"export {name_variable(vendor or 'unknown')}=...: it is {printed}"
    return f"{blocker.detail}; the factory password is {printed}"


# ------------------------------------------------------------------------------
# The release that a site runs already, and its overlay.


class ReleaseFit(Record):
    """How well a release fits: pins that the hosts run, the hosts' profiles, and who fits none."""

    release: str
    met: int
    profiles: Mapping[str, str]  # node -> profile
    unfit: tuple[str, ...]  # what `choose_profile` says


def fit_release(matrix: Matrix, release: str, inventories: Sequence[Inventory]) -> ReleaseFit:
    """Return how well a release fits these nodes."""
    met = 0
    profiles: dict[str, str] = {}
    unfit = []
    for inventory in inventories:
        chosen = choose_profile(inventory, matrix.releases[release])
        if isinstance(chosen, Blocker):
            unfit.append(str(chosen))
            continue
        profiles[inventory.node] = chosen
        pins = matrix.releases[release].profiles[chosen].pins
        running = {(c.kind, c.version) for c in inventory.components}
        met += sum((kind, pin.version) in running for kind, pin in pins.items() if pin.known)
    return ReleaseFit(release=release, met=met, profiles=profiles, unfit=tuple(unfit))


def suggest_release(matrix: Matrix, inventories: Sequence[Inventory]) -> ReleaseFit:
    """Return the release that most parts run already: a first day that changes least."""
    fits = [fit_release(matrix, name, inventories) for name in matrix.releases]
    return max(fits, key=lambda f: (-len(f.unfit), f.met))


def draft_site(
    matrix: Matrix, located: Located, fit: ReleaseFit, inventories: Sequence[Inventory], day: str
) -> tuple[str, tuple[Missing, ...]]:
    """Return the overlay with the versions found for unknown pins, and what stays unknown."""
    release = matrix.releases[fit.release]
    used = sorted(set(fit.profiles.values()))
    imports: list[Import] = []
    for inventory in inventories:
        if inventory.node not in fit.profiles:
            continue
        profile = fit.profiles[inventory.node]
        source = f"{inventory.node} ran it on {day}, as `provisioner init` read it; the site's own"
        stated = state_good_node(inventory, release.profiles[profile].pins, source, {})
        statements = tuple(s._replace(profile=profile) for s in stated.statements)
        notes = tuple(n for n in stated.notes if not imports and "stays unknown" not in n)
        own = stated._replace(statements=_first(imports, statements), notes=notes)
        imports.append(own)
    place = Place(release=fit.release, profiles=tuple(used)) if used else Place()
    draft = draft_overlay(matrix, located, imports, place)
    closed = {(c.profile, c.kind) for c in draft.changes if c.verdict == Verdict.CLOSES}
    missing = []
    for profile in used:
        for kind, pin in release.profiles[profile].pins.items():
            if not pin.known and (profile, kind) not in closed:
                sought = pin.sought or matrix.sought.get(kind, "") or "your vendor's release notes"
                missing.append(Missing(what=f"{profile}: version of {kind}", where=sought))
    remarks = [f"# missing: {_remark(m.what)}: {_remark(m.where)}" for m in missing]
    head = [
        "# The site's overlay, proposed by `provisioner init`: that it runs proves nothing.",
        *remarks,
    ]
    return "\n".join(head) + "\n" + draft.text, tuple(missing)


def _first(before: Sequence[Import], stated: Sequence[Statement]) -> tuple[Statement, ...]:
    """Return the statements that no node before made: equal versions are one, not a conflict."""
    made = {(s.kind, s.version, s.profile) for i in before for s in i.statements}
    return tuple(s for s in stated if (s.kind, s.version, s.profile) not in made)

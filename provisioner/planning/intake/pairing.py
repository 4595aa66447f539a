"""Match BMCs to expected nodes, and BlueField cards to their hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from provisioner.model.base import Record
from provisioner.model.expected import Expected, ExpectedDpu, ExpectedNode
from provisioner.model.location import Port
from provisioner.model.names import Place, PortNames, own_port, resolve_system
from provisioner.model.node import BmcRef, Node, NodeKind
from provisioner.model.outcome import Blocker, Reason


class Endpoint(Record):
    """A BMC as it identified itself after login."""

    url: str
    vendor: str
    kind: str  # "host" | "dpu"
    serial: str = ""
    base_mac: str = ""
    mac: str = ""
    pin: str = ""
    rotated: bool = False  # the daemon has replaced its password already


class Assembly(Record):
    """The assembled nodes, and a blocker for each part that was not matched."""

    nodes: tuple[Node, ...]
    blockers: tuple[Blocker, ...]


def assemble_nodes(expected: Expected, endpoints: Sequence[Endpoint], now: float) -> Assembly:
    """Match endpoints to the list: hosts by serial, MAC or address; cards by serial, then MAC.

    An endpoint that two entries claim is given to neither, since a BMC has one writer.
    """
    claims = _claims(expected, endpoints)
    times = Counter(
        url for endpoints_of in claims.values() for url in {e.url for e in endpoints_of}
    )
    blockers: list[Blocker] = []
    nodes = []
    for expected_node in expected.nodes:
        if expected_node.kind is NodeKind.SWITCH:
            nodes.append(_node(expected, expected_node, (_api(expected_node),), now))
            continue
        hosts = claims[expected_node.name, ""]
        if len(hosts) != 1 or times[hosts[0].url] > 1:
            blockers.append(_host_problem(expected_node, hosts))
            continue
        bmcs = [_ref("host", "host", hosts[0])]
        for dpu in expected_node.dpus:
            cards = claims[expected_node.name, dpu.slot]
            if len(cards) != 1 or times[cards[0].url] > 1:
                blockers.append(_card_problem(expected_node, dpu, cards))
                continue
            kind = "dpu" if dpu.slot.startswith("DPU") else "supernic"
            ref = _ref(dpu.slot, kind, cards[0])
            mac = (dpu.base_mac or cards[0].base_mac).lower()
            bmcs.append(ref.model_copy(update={"base_mac": mac, "pci": dpu.pci.lower()}))
        nodes.append(_node(expected, expected_node, tuple(bmcs), now))
    blockers += [_stranger(e) for e in endpoints if e.url not in times]
    return Assembly(nodes=tuple(nodes), blockers=tuple(blockers))


def _claims(
    expected: Expected, endpoints: Sequence[Endpoint]
) -> dict[tuple[str, str], list[Endpoint]]:
    """Return the matching endpoints of each (node, slot); the host's own BMC is slot ""."""
    claims: dict[tuple[str, str], list[Endpoint]] = {}
    hosts = _Marked([e for e in endpoints if e.kind == "host"])
    cards = _Marked([e for e in endpoints if e.kind == "dpu"])
    for node in expected.nodes:
        if node.kind is NodeKind.SWITCH:
            continue
        bmc = node.bmc
        named = hosts.select(serial=bmc.serial, mac=bmc.mac, url=bmc.url)
        claims[node.name, ""] = [e for e in named if _is_host(node, e)]
        for dpu in node.dpus:
            named = cards.select(serial=dpu.serial, mac=dpu.base_mac)
            claims[node.name, dpu.slot] = [e for e in named if _is_card(dpu, e)]
    return claims


class _Marked:
    """Endpoints by what a list may name them by: of 17,000 BMCs, each entry looks at one or two."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self._places: dict[tuple[str, str], list[int]] = {}
        for place, endpoint in enumerate(endpoints):
            marks = {("serial", endpoint.serial), ("url", endpoint.url.rstrip("/"))}
            marks |= {("mac", endpoint.mac.lower()), ("mac", endpoint.base_mac.lower())}
            for mark in marks:
                self._places.setdefault(mark, []).append(place)

    def select(self, *, serial: str, mac: str, url: str = "") -> list[Endpoint]:
        """Return the endpoints that have one of these marks, in their order."""
        marks = (("serial", serial), ("mac", mac.lower()), ("url", url.rstrip("/")))
        places = {place for mark in marks if mark[1] for place in self._places.get(mark, ())}
        return [self._endpoints[place] for place in sorted(places)]


class Foreseen(Record):
    """What an intake would do, as far as it shows before a password is changed.

    `ready`: nodes that would be taken in, each with what would happen to it. `open_cards`: those of
    their cards that no BMC names yet, while as many BMCs wait for their first password. `refused`:
    an obstacle for each other node of the list. `strangers`: BMCs that the list does not have.
    """

    ready: Mapping[str, tuple[str, ...]]
    open_cards: int
    refused: tuple[Blocker, ...]
    strangers: tuple[Blocker, ...]


def foresee_intake(
    expected: Expected, assembly: Assembly, silent: Sequence[Blocker], known: Collection[str]
) -> Foreseen:
    """Return what an intake would do with the nodes of the list that are not `known` yet.

    `silent` are the addresses that did not identify themselves. A card whose BMC shows no serial
    before its password is changed cannot be named: the cards that are missing are compared with the
    BMCs that wait by number. With fewer BMCs than cards, all nodes that miss one are refused.
    """
    waiting = {b.subject.rstrip("/") for b in silent if b.reason is Reason.PASSWORD_CHANGE}
    found = {n.id: n for n in assembly.nodes}
    ready: dict[str, tuple[str, ...]] = {}
    missing: dict[str, tuple[Blocker, ...]] = {}
    refused = []
    for entry in (e for e in expected.nodes if e.name not in known):
        node = found.get(entry.name)
        url = entry.bmc.url.rstrip("/")
        if node is None and url not in waiting:
            continue  # the assembly has its blocker
        waiting -= {url}
        cards = find_missing_cards(entry, node) if node else ()
        if node is None and entry.dpus:
            cards = tuple(_card_problem(entry, d, []) for d in entry.dpus)
        if cards:
            missing[entry.name] = cards
        ready[entry.name] = _list_effects(entry, len(cards))
    lacking = sum(map(len, missing.values()))
    rows = [b for b in assembly.blockers if b.reason is not Reason.NOT_EXPECTED]
    owners = {b.subject: b.subject.partition("/")[0] for b in rows}
    if lacking > len(waiting):
        short = f"; {len(waiting)} BMCs wait for their first password, {lacking} cards have none"
        for name, cards in missing.items():
            del ready[name]
            detail = f"{len(cards)} of its cards were not found{short}"
            refused.append(cards[0].model_copy(update={"subject": name, "detail": detail}))
        lacking = 0
    told = ready.keys() | missing.keys()
    refused += [b for b in rows if owners[b.subject] not in told]
    silent_rest = [b for b in silent if b.reason is not Reason.PASSWORD_CHANGE]
    return Foreseen(
        ready=ready,
        open_cards=lacking,
        refused=name_causes(expected, refused, silent_rest),
        strangers=tuple(b for b in assembly.blockers if b.reason is Reason.NOT_EXPECTED),
    )


def _list_effects(entry: ExpectedNode, open_cards: int) -> tuple[str, ...]:
    """Return what would happen to a node that is taken in, in the order in which it happens."""
    if entry.kind is NodeKind.SWITCH:
        return ("its login is tried and its certificate pinned; nothing is changed on it yet",)
    lines = []
    if open_cards:
        lines.append(
            f"{open_cards} of its {len(entry.dpus)} cards get a password of their own first: "
            "they show their serials, by which they are paired, only then"
        )
    lines += [
        "the passwords of its BMCs are replaced by unique ones, and their certificates pinned",
        "its leaf ports are moved into the maintenance network, if they are in no other one",
        "firmware is written and it is power-cycled until it runs its release, then it is tested",
    ]
    return tuple(lines)


def name_causes(
    expected: Expected, blockers: Sequence[Blocker], silent: Sequence[Blocker]
) -> tuple[Blocker, ...]:
    """Return one row for each obstacle of an intake, with its cause.

    If the BMC of a node was not found and its address is on the list, the cause of that address is
    used, since it has the remedy. `silent` are the addresses that did not identify themselves.
    """
    listed = {n.name: n.bmc.url.rstrip("/") for n in expected.nodes if n.bmc.url}
    causes = {b.subject.rstrip("/"): b for b in silent}
    rows = []
    named = set()
    for blocker in blockers:
        url = listed.get(blocker.subject, "")
        if blocker.reason is Reason.UNREACHABLE and url in causes:
            named.add(url)
            subject = f"{blocker.subject} ({url})"
            rows.append(causes[url].model_copy(update={"subject": subject}))
        else:
            rows.append(blocker)
    return (*rows, *(b for url, b in causes.items() if url not in named))


def name_ports(expected: Expected, names: PortNames, taken: Collection[Place] = ()) -> Expected:
    """Return the list with each leaf port under its own name, where the list has what LLDP, an
    Ironic or a NetBox calls it. `names`: of the switches that were read before. `taken`: ports of
    nodes that are not of the list.

    A name that would be a second one of a port that somebody has is kept: no move takes it.
    """
    if not names:
        return expected
    switches = {*names, *(n.name for n in expected.nodes if n.kind is NodeKind.SWITCH)}

    def place(port: Port) -> Place:
        switch = resolve_system(port.switch, switches)
        return switch, own_port(switch, port.interface, names)

    claims = Counter(place(p) for n in expected.nodes for p in n.ports if p.switch)

    def spell(port: Port) -> Port:
        own = place(port)
        if not port.switch or own == (port.switch, port.interface):
            return port
        if own in taken or claims[own] > 1:
            return port
        return port.model_copy(update={"switch": own[0], "interface": own[1]})

    nodes = [n.model_copy(update={"ports": tuple(map(spell, n.ports))}) for n in expected.nodes]
    return expected.model_copy(update={"nodes": tuple(nodes)})


def find_missing_cards(expected_node: ExpectedNode, node: Node) -> tuple[Blocker, ...]:
    """Return the listed cards without a BMC; a node is not taken in without them."""
    have = {b.name for b in node.bmcs}
    return tuple(
        _card_problem(expected_node, d, []) for d in expected_node.dpus if d.slot not in have
    )


def _is_host(wanted: ExpectedNode, endpoint: Endpoint) -> bool:
    bmc = wanted.bmc
    if bmc.serial and endpoint.serial:
        return bmc.serial == endpoint.serial
    if bmc.mac and endpoint.mac:
        return bmc.mac.lower() == endpoint.mac.lower()
    return bool(bmc.url) and bmc.url.rstrip("/") == endpoint.url.rstrip("/")


def _is_card(wanted: ExpectedDpu, endpoint: Endpoint) -> bool:
    if wanted.serial and endpoint.serial:
        return wanted.serial == endpoint.serial
    return bool(wanted.base_mac) and wanted.base_mac.lower() == endpoint.base_mac.lower()


def _api(wanted: ExpectedNode) -> BmcRef:
    """Return a switch's management API, whose certificate is pinned on first use like a BMC's."""
    return BmcRef(name="api", url=wanted.address, kind="switch")


def _ref(name: str, kind: str, endpoint: Endpoint) -> BmcRef:
    return BmcRef(
        name=name,
        url=endpoint.url,
        kind=kind,
        pin=endpoint.pin,
        serial=endpoint.serial,
        rotated=endpoint.rotated,
    )


def _node(expected: Expected, wanted: ExpectedNode, bmcs: tuple[BmcRef, ...], now: float) -> Node:
    return Node(
        id=wanted.name,
        kind=wanted.kind,
        entered_at=now,
        release=expected.release,
        address=wanted.address,
        os=wanted.os if wanted.kind is NodeKind.SWITCH else "",
        location=wanted.location,
        ports=wanted.ports,
        os_disk=wanted.os_disk,
        outlets=wanted.outlets,
        bmcs=bmcs,
    )


def _host_problem(wanted: ExpectedNode, found: Sequence[Endpoint]) -> Blocker:
    if found:
        urls = ", ".join(e.url for e in found[:4])
        several = f"{len(found)} BMCs claim to be it: {urls}"
        return Blocker(
            reason=Reason.DUPLICATE,
            subject=wanted.name,
            detail=several if len(found) > 1 else f"{urls} is another entry's BMC too",
            unblock="Correct the serial, MAC or address in the expected-hardware list.",
        )
    return Blocker(
        reason=Reason.UNREACHABLE,
        subject=wanted.name,
        detail="no BMC that was found is this node's",
        unblock="Check the BMC's cable and address, and its serial and MAC on the list.",
    )


def _card_problem(wanted: ExpectedNode, dpu: ExpectedDpu, found: Sequence[Endpoint]) -> Blocker:
    problem = "no BMC that was found is this card's"
    if found:
        one = f"{found[0].url} is another entry's card too"
        problem = one if len(found) == 1 else "several BMCs claim to be it"
    return Blocker(
        reason=Reason.PAIRING_FAILED,
        subject=f"{wanted.name}/{dpu.slot}",
        detail=f"{problem} (serial {dpu.serial or 'not given'})",
        unblock="Probe its address (--bmc URL, --range), check its BMC's cable, and its serial "
        "on the expected-hardware list.",
    )


def _stranger(endpoint: Endpoint) -> Blocker:
    return Blocker(
        reason=Reason.NOT_EXPECTED,
        subject=endpoint.url,
        detail=f"a {endpoint.vendor} BMC (serial {endpoint.serial or 'not known'}) not on the list",
        unblock="Add it to the expected-hardware list, or take it off the network.",
    )

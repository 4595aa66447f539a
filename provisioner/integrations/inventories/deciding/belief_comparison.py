"""Compare the daemon's hosts with the records of another system. Pure.

Hosts are matched by serial, then by the address of the BMC, then by name; the first of these that
both sides have decides. A field that one side does not record is no difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from provisioner.integrations.inventories.deciding.belief import Aspect, Belief, Difference
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind, State

SERVING = frozenset({State.RELEASED, State.DRAINING})
HTTPS = 443
_TOKEN = re.compile(r"[0-9a-z][0-9a-z._-]*")


def compare_beliefs(
    nodes: Sequence[Node],
    inventories: Mapping[str, Inventory],
    power: Mapping[str, str],
    beliefs: Sequence[Belief],
) -> tuple[Difference, ...]:
    """Return every difference, by node. `power`: states newer than those of the inventories.

    Switches and retired hosts are left out.
    """
    hosts = [n for n in nodes if n.kind is NodeKind.HOST and n.state is not State.RETIRED]
    differences: list[Difference] = []
    matched: dict[str, list[Belief]] = {}
    for belief in beliefs:
        owner = _find_host(belief, hosts, inventories)
        if owner is None:
            settle = "Adopt it or take it in, or remove it there."
            label = belief.name or belief.key
            differences.append(_differ(label, Aspect.IDENTITY, "not here", belief.key, settle))
        else:
            matched.setdefault(owner.id, []).append(belief)
    for host in sorted(hosts, key=lambda n: n.id):
        mine = matched.get(host.id, [])
        if not mine:
            settle = "It has another serial, address and name there, or is not recorded there."
            differences.append(_differ(host.id, Aspect.IDENTITY, host.id, "not there", settle))
        elif len(mine) > 1:
            keys = " and ".join(b.key for b in mine)
            settle = "One host is one record: remove the wrong ones there."
            differences.append(_differ(host.id, Aspect.IDENTITY, host.id, keys, settle))
        else:
            inventory = inventories.get(host.id)
            reading = power.get(host.id) or (inventory.power if inventory else "")
            differences += _compare_host(host, inventory, reading, mine[0])
    return tuple(sorted(differences, key=lambda d: d.node))


def format_address(url: str) -> str:
    """Return host and port of a BMC's address, with or without a scheme; "" if there is none."""
    text = url.strip().lower()
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        return f"{parts.hostname}:{parts.port or HTTPS}" if parts.hostname else ""
    except ValueError:
        return ""


def bracket_address(text: str) -> str:
    """Return a bare IPv6 address in brackets, as URLs have it, and any other text as it is."""
    bare = text.count(":") > 1 and "/" not in text and not text.startswith("[")
    return f"[{text}]" if bare else text


def _find_host(
    belief: Belief, hosts: Sequence[Node], inventories: Mapping[str, Inventory]
) -> Node | None:
    """Return the host of a record, by the first property that a host shares with it."""
    for host in hosts:
        if belief.serial and belief.serial.lower() in _list_serials(host, inventories):
            return host
    for host in hosts:
        if belief.address and belief.address in {format_address(b.url) for b in host.bmcs}:
            return host
    return next((h for h in hosts if belief.name and h.id.lower() == belief.name.lower()), None)


def _list_serials(host: Node, inventories: Mapping[str, Inventory]) -> set[str]:
    inventory = inventories.get(host.id)
    serials = [inventory.system_serial or "" if inventory else ""]
    serials += [b.serial for b in host.bmcs if b.name == "host"]
    return {s.lower() for s in serials if s}


def _compare_host(
    host: Node, inventory: Inventory | None, power: str, belief: Belief
) -> Iterator[Difference]:
    serials = _list_serials(host, {host.id: inventory} if inventory else {})
    if belief.serial and serials and belief.serial.lower() not in serials:
        settle = f"Read the label of {host.id}: its BMC answers here with the first serial."
        here = ", ".join(sorted(serials))
        yield _differ(host.id, Aspect.IDENTITY, here, belief.serial, settle)
    if belief.busy:
        settle = "Do not grant an act on it before that has ended."
        yield _differ(host.id, Aspect.WORK, host.state, belief.busy, settle)
    serves = host.state in SERVING
    if belief.serves is not None and belief.serves != serves:
        settle = f"`provisioner observation show {host.id}` has the VRFs of its ports."
        yield _differ(host.id, Aspect.STATE, host.state, belief.state, settle)
    if belief.power and power in ("On", "Off") and belief.power != power:
        settle = f"`provisioner node power-state {host.id}`; that system may enforce its own."
        yield _differ(host.id, Aspect.POWER, power, belief.power, settle)
    if belief.tenant and host.tenant and belief.tenant.lower() != host.tenant.lower():
        settle = f"Its ports stand in VRF {host.vrf or 'unknown'}, as the leaves report."
        yield _differ(host.id, Aspect.TENANT, host.tenant, belief.tenant, settle)
    place = host.location
    for here, there in ((place.site, belief.site), (place.rack, belief.rack)):
        if here and there and here.lower() != there.lower():
            settle = "Look at the rack, or at the LLDP neighbours of its leaf ports."
            yield _differ(host.id, Aspect.PLACE, here, there, settle)
    yield from _compare_versions(host, inventory, belief)


def _compare_versions(
    host: Node, inventory: Inventory | None, belief: Belief
) -> Iterator[Difference]:
    running: dict[str, set[str]] = {}
    for component in inventory.components if inventory else ():
        if component.version:
            running.setdefault(component.kind, set()).add(component.version)
    for kind, there in sorted(belief.versions.items()):
        here = running.get(kind, set())
        if here and there and not any(_is_alike(version, there) for version in here):
            settle = f"`provisioner inspect` reads {kind} anew; the other record may be old."
            shown = f"{kind} {', '.join(sorted(here))}"
            yield _differ(host.id, Aspect.VERSION, shown, f"{kind} {there}", settle)


def _is_alike(one: str, other: str) -> bool:
    """Return whether two notations name one version: all words of the shorter are in the longer."""
    first, second = (set(_TOKEN.findall(text.lower())) for text in (one, other))
    return bool(first and second) and (first <= second or second <= first)


def _differ(node: str, aspect: Aspect, here: str, there: str, settle: str) -> Difference:
    return Difference(node=node, aspect=aspect, here=here, there=there, settle=settle)

"""Whether packets of a simulated host arrive: by the VRFs that its ports are truly in.

Tables are not asked: a path that no table shows is still a path, and a filter stops what a table
allows.
"""

from __future__ import annotations

import re

from provisioner.sim.outputs.host import Cable, HostView, Output
from provisioner.sim.switches.switch import Switch

_OWN = re.compile(
    r"^set -- \$\(ip -o -4 addr show to ([0-9.]+)/32\); i=\$2; for t in ([0-9., ]*); do"
)
_LINE = re.compile(r"^for t in ([0-9., ]*); do \( ping .* -I ([0-9.]+) ")
OVERHEAD = 28  # bytes of IPv4 and ICMP before the payload
MTU = 9216
CANARY_PORT = 18600  # of rail 0
RDMA_PAYLOAD = 4096  # bytes of a RoCE packet's payload at the largest path MTU of InfiniBand
OUT_OF_BAND = "oob"  # in `Planted.paths`: the network of BMCs and switches' management


def ping(view: HostView, line: str) -> Output:
    """One line for each "ADDRESS,SIZE": itself, and ping's exit code."""
    match = _LINE.match(line)
    if match is None:
        return Output(2, "", "sh: syntax error")
    told = []
    for word in match[1].split():
        target, _, size = word.partition(",")
        told.append(f"{word} {answered(view, match[2], target, int(size or 0))}\n")
    return Output(0, "".join(told))


def from_interface(view: HostView, line: str) -> Output:
    """The same for what asks by an address's own interface: `ip route get`, or `ib_write_bw`."""
    match = _OWN.match(line)
    if match is None:
        return Output(2, "", "sh: syntax error")
    told = []
    for word in match[2].split():
        target, _, port = word.partition(",")
        if " ib_write_bw " in line:
            code = _rdma(view, match[1], target, int(port or 0))
        else:
            code = 1 if "rails_answer_elsewhere" in view.machine.faults else 0
        told.append(f"{word} {code}\n")
    return Output(0, "".join(told))


def _rdma(view: HostView, source: str, target: str, port: int) -> int:
    """ib_write_bw's exit code. Canaries serve one port for each rail."""
    host, rail = view.peers.get(source, (None, -1))
    if host is not view or rail < 0 or port != CANARY_PORT + rail:
        return 1
    here = _cable(view, rail)
    if target not in here.switch.servers or here.interface in here.switch.planted.no_rdma:
        return 1
    return 1 if answered(view, source, target, RDMA_PAYLOAD) else 0


def answered(view: HostView, source: str, target: str, size: int) -> int:
    """ping's exit code: 0 answered, 1 silence, 2 it could not be sent."""
    host, rail = view.peers.get(source, (None, -1))
    if host is not view or rail < 0:
        return 2  # that address is not ours
    here = _cable(view, rail)
    if not _passes(view, here, size):
        return 1
    switch, vrf = here.switch, here.switch.vrf_of(here.interface)
    addresses = switch.operational["interface"][here.interface].get("ip", {}).get("address", {})
    if target in {a.partition("/")[0] for a in addresses}:
        return 0
    peer, their_rail = view.peers.get(target, (None, -1))
    if peer is not None and their_rail >= 0:
        there = _cable(peer, their_rail)
        if not peer.reachable or not _passes(peer, there, size):
            return 1
        theirs = there.switch.vrf_of(there.interface)
        return 0 if vrf == theirs or (vrf, theirs) in switch.planted.paths else 1
    server = switch.servers.get(target, OUT_OF_BAND)
    return 0 if (vrf, server) in switch.planted.paths or _imports(switch, vrf, server) else 1


def _imports(switch: Switch, vrf: str, other: str) -> bool:
    """Both ways: what is taken in only on one side is never answered."""

    def takes(one: str, two: str) -> bool:
        bgp = switch.operational["vrf"].get(one, {}).get("router", {}).get("bgp", {})
        family = bgp.get("address-family", {}).get("ipv4-unicast", {})
        return two in family.get("route-import", {}).get("from-vrf", {}).get("list", {})

    return vrf == other or (takes(vrf, other) and takes(other, vrf))


def _cable(view: HostView, rail: int) -> Cable:
    return next(c for c in view.cables if c.rail == rail)


def _passes(view: HostView, cable: Cable, size: int) -> bool:
    """Link up at both ends, no filter, and the packet is not too long."""
    switch, name = cable.switch, cable.interface
    card = view.machine.devices[cable.nic_slot]
    if not view.link_up(card) or not switch.link_up(name, view.now):
        return False
    denied = any(a.startswith("provisioner_deny") for a in _filters(switch, name))
    mtu = switch.planted.links.get(name, {}).get("mtu", MTU)
    if name in switch.planted.drops:
        return False
    return not denied and size + OVERHEAD <= mtu


def _filters(switch: Switch, interface: str) -> tuple[str, ...]:
    return tuple(switch.operational["interface"].get(interface, {}).get("acl", {}))

"""Whether packets of a simulated host arrive, according to the true VRFs of its ports.

Tables are ignored: a path that no table shows is still a path, and a filter stops packets that a
table allows.
"""

from __future__ import annotations

import re

from provisioner.sim.outputs.host import Cable, HostView, Output
from provisioner.sim.outputs.outputs_nic import interface_name
from provisioner.sim.switches.switch import Switch
from provisioner.sim.switches.switch_filters import ICMP, is_denied

_OWN = re.compile(
    r"^set -- \$\(ip -o -4 addr show to ([0-9.]+)/32\); i=\$2; for t in ([0-9., ]*); do"
)
_RAILS = re.compile(r"^for rail in ([0-9a-f.:, ]*); do ")
_LINE = re.compile(r"^for t in ([0-9., ]*); do \( ping .* -I ([0-9.]+) ")
OVERHEAD = 28  # bytes of IPv4 and ICMP before the payload
MTU = 9216
CANARY_PORT = 18600  # of rail 0
RDMA_PAYLOAD = 4096  # bytes of a RoCE packet's payload at the largest path MTU of InfiniBand
OUT_OF_BAND = "oob"  # in `Planted.paths`: the network of BMCs and switches' management


def print_ping(view: HostView, line: str) -> Output:
    """One line for each "ADDRESS,SIZE": the pair and ping's exit code."""
    match = _LINE.match(line)
    if match is None:
        return Output(2, "", "sh: syntax error")
    lines = []
    for word in match[1].split():
        target, _, size = word.partition(",")
        lines.append(f"{word} {compute_ping_code(view, match[2], target, int(size or 0))}\n")
    return Output(0, "".join(lines))


def print_from_interface(view: HostView, line: str) -> Output:
    """The same through an address's own interface: `ip route get`, or `ib_write_bw`."""
    match = _OWN.match(line)
    if match is None:
        return Output(2, "", "sh: syntax error")
    lines = []
    for word in match[2].split():
        target, _, port = word.partition(",")
        if " ib_write_bw " in line:
            code = _rdma(view, match[1], target, int(port or 0))
        else:
            code = 1 if "rails_answer_elsewhere" in view.machine.faults else 0
        lines.append(f"{word} {code}\n")
    return Output(0, "".join(lines))


def print_rail_routes(view: HostView, line: str) -> Output:
    """One line for each "ADDRESS,TARGET,BYTES": the rail's interface, its route, ping's code."""
    match = _RAILS.match(line)
    if match is None:
        return Output(2, "", "sh: syntax error")
    lines = []
    for word in match[1].split():
        own, target, size = word.split(",")
        host, rail = view.peers.get(own, (None, -1))
        if host is not view or rail < 0:
            lines.append(f"rail {own} to {target} own - route eno1 ping 2\n")
            continue
        interface = interface_name(view.machine.devices[_cable(view, rail).nic_slot])
        astray = "rails_answer_elsewhere" in view.machine.faults
        route = "eno1" if astray else interface
        code = 1 if astray else _reach_leaf(view, rail, target, int(size))
        lines.append(f"rail {own} to {target} own {interface} route {route} ping {code}\n")
    return Output(0, "".join(lines))


def _reach_leaf(view: HostView, rail: int, target: str, size: int) -> int:
    """ping's exit code towards a leaf's end of one of this host's cables."""
    here = _cable(view, rail)
    mtu = int(view.machine.devices[here.nic_slot].traits.get("mtu", MTU))
    if not _passes(view, here, size) or size + OVERHEAD > mtu:
        return 1
    for cable in view.cables:
        interface = cable.switch.operational["interface"].get(cable.interface, {})
        addresses = interface.get("ip", {}).get("address", {})
        if target in {a.partition("/")[0] for a in addresses}:
            vrf = here.switch.get_vrf(here.interface)
            theirs = cable.switch.get_vrf(cable.interface)
            return 0 if vrf == theirs or (vrf, theirs) in here.switch.planted.paths else 1
    return 1


def _rdma(view: HostView, source: str, target: str, port: int) -> int:
    """ib_write_bw's exit code. Canaries serve one port per rail."""
    host, rail = view.peers.get(source, (None, -1))
    if host is not view or rail < 0 or port != CANARY_PORT + rail:
        return 1
    here = _cable(view, rail)
    if target not in here.switch.servers or here.interface in here.switch.planted.no_rdma:
        return 1
    return 1 if compute_ping_code(view, source, target, RDMA_PAYLOAD) else 0


def compute_ping_code(view: HostView, source: str, target: str, size: int) -> int:
    """ping's exit code: 0 answered, 1 no answer, 2 could not be sent."""
    host, rail = view.peers.get(source, (None, -1))
    peer, their_rail = view.peers.get(target, (None, -1))
    if host is view and peer is not None and their_rail < 0:
        return _in_band(view, max(rail, 0), source, peer, target)
    if host is not view or rail < 0:
        return 2  # the host does not have that address
    here = _cable(view, rail)
    if not _passes(view, here, size) or is_denied(
        here.switch, here.interface, "inbound", (source, target)
    ):
        return 1
    switch = here.switch
    vrf = here.switch.get_vrf(here.interface)
    addresses = switch.operational["interface"][here.interface].get("ip", {}).get("address", {})
    if target in {a.partition("/")[0] for a in addresses}:
        return 0
    if peer is not None and their_rail >= 0:
        cable = _cable(peer, their_rail)
        if not peer.reachable or not _passes(peer, cable, size):
            return 1
        theirs = cable.switch.get_vrf(cable.interface)
        return 0 if vrf == theirs or (vrf, theirs) in switch.planted.paths else 1
    server = switch.servers.get(target, OUT_OF_BAND)
    return 0 if (vrf, server) in switch.planted.paths or _imports(switch, vrf, server) else 1


def _in_band(view: HostView, rail: int, source: str, peer: HostView, target: str) -> int:
    """Towards a host's in-band address, which is routed over the port of its first rail.

    Whichever VRF that is in, the in-band network is the site's; only filters keep hosts apart.
    """
    return 0 if peer.reachable and _filters_let(view, rail, source, peer, target, ICMP) else 1


def connects_in_band(view: HostView, peers: list[HostView]) -> bool:
    """Whether a host gets TCP connections to others by their in-band addresses, as mpirun does."""
    own = {host: a for a, (host, rail) in view.peers.items() if rail < 0}
    return all(
        _filters_let(view, 0, own[view], peer, own[peer], "tcp")
        for peer in peers
        if peer is not view and peer in own and view in own
    )


def _filters_let(
    view: HostView, rail: int, source: str, peer: HostView, target: str, protocol: str
) -> bool:
    here = _cable(view, rail)
    peer_cable = _cable(peer, 0)
    sent = is_denied(here.switch, here.interface, "inbound", (source, target), protocol)
    back = is_denied(peer_cable.switch, peer_cable.interface, "inbound", (target, source), protocol)
    return not sent and not back


def _imports(switch: Switch, vrf: str, source: str) -> bool:
    """Whether both sides import the routes: one side alone is never answered."""

    def imports_from(one: str, two: str) -> bool:
        bgp = switch.operational["vrf"].get(one, {}).get("router", {}).get("bgp", {})
        family = bgp.get("address-family", {}).get("ipv4-unicast", {})
        return two in family.get("route-import", {}).get("from-vrf", {}).get("list", {})

    return vrf == source or (imports_from(vrf, source) and imports_from(source, vrf))


def _cable(view: HostView, rail: int) -> Cable:
    return next(c for c in view.cables if c.rail == rail)


def _passes(view: HostView, cable: Cable, size: int) -> bool:
    """Whether the link is up at both ends, without a filter, and the packet is short enough."""
    switch = cable.switch
    name = cable.interface
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

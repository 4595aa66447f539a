"""Tests between simulated hosts: perftest's servers and clients, from the truth at both ends.

A client reaches its server only if that listens, both links are up and both leaf ports are in one
VRF. A fault at either end, or of a leaf between them, lowers the bandwidth. The same holds for
nccl-tests, which `mpirun` starts.
"""

from __future__ import annotations

import re
from dataclasses import replace

from provisioner.integrations.sim.outputs.host import Cable, HostView, Output
from provisioner.integrations.sim.outputs.outputs_load import print_write_bw
from provisioner.integrations.sim.outputs.outputs_nic import interface_name
from provisioner.integrations.sim.outputs.outputs_training import print_training
from provisioner.integrations.sim.switches.switch import Switch
from provisioner.integrations.sim.switches.switch_fabric import ICMP, is_denied

# ------------------------------------------------------------------------------
# Whether packets of a simulated host arrive, according to the true VRFs of its ports.
#
# Tables are ignored: a path that no table shows is still a path, and a filter stops packets that a
# table allows.


_OWN = re.compile(
    r"^set -- \$\(ip -o -4 addr show to ([0-9.]+)/32\); i=\$2; for t in ([0-9., ]*); do"
)
_RAILS = re.compile(r"^for rail in ([0-9a-f.:, ]*); do ")
_LINE = re.compile(r"^for t in ([0-9., ]*); do \( ping .* -I ([0-9.]+) ")
_MOUNTS = re.compile(r"for m in ([\w./:\[\] -]*); do \(")
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
        code = compute_ping_code(view, match[2], target, int(size or 0))
        astray = code == 1 and "rails_answer_elsewhere" in view.machine.faults
        lines.append(f"{word} {3 if astray else code}\n")
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


def print_mounts(view: HostView, line: str) -> Output:
    """Try exports with the client that hosts of a site with storage have: one line for each."""
    match = _MOUNTS.search(line)
    readable = view.list_readable()
    if match is None:
        return Output(2, "", "sh: syntax error")
    if readable is None:
        return Output(0, "client none\n")
    own = [a for a, (host, rail) in view.peers.items() if host is view and rail >= 0]
    paths = {path for address in own for _, path in readable(address)}
    lines = ["client mount"]
    for mount in match[1].split():
        made = mount.partition(":")[2] in paths
        words = "" if made else "mount.nfs: access denied by server while mounting " + mount
        lines.append(f"mount {mount} {0 if made else 32} {words}")
    return Output(0, "\n".join(lines) + "\n")


def _reach_leaf(view: HostView, rail: int, target: str, size: int) -> int:
    """ping's exit code towards a leaf's end of one of this host's cables."""
    here = _cable(view, rail)
    mtu = int(view.machine.devices[here.nic_slot].traits.get("mtu", MTU))
    if not _passes(view, here, size) or size + OVERHEAD > mtu:
        return 1
    for cable in map(_routed, view.cables):
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
    return _routed(next(c for c in view.cables if c.rail == rail))


def _routed(cable: Cable) -> Cable:
    """The cable with what routes for it: of a member of a bond the interface of its VLAN."""
    return replace(cable, interface=cable.switch.find_routed(cable.interface))


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


BOTH_WAYS_GBIT_S = 778.0  # a 400 Gbit/s port in both directions
LOSSY_RAIL = 5
LOSSY = frozenset({"cable_lossy", "leaf_optic_lossy", "node_optic_lossy"})
_DEVICES = re.compile(r"^for d in ([a-z0-9_ ]+); do for n in ")
CORRUPT_RAIL = 2
RAIL_GB_S = 47.8  # an all-reduce of two ranks over one such port
RAIL_BYTES = 1024**3
_MPIRUN = re.compile(r"\(sh -c '(mpirun [^']*)' >\$d/(\d+) ")
TOGETHER_GB_S = {"all_reduce": 385.0, "alltoall": 46.0}  # over all GPUs of several nodes
_LOST = "ORTE was unable to reliably start one or more daemons.\n"
_LIST = re.compile(r" -H (\S+) ")
_HOSTS = re.compile(r"([0-9a-z.:-]+):\d+(?:,|$)")
_HOST = re.compile(r" -H ([0-9a-z.:-]+):1 ")
_SERVER = re.compile(r"ib_write_bw [^&']*?-d (\S+) -x \d+ -p (\d+)[^&']*?'? >/dev/null")
_CLIENT = re.compile(
    r"ib_write_bw [^&']*?-d (\S+) -x \d+ -p (\d+) --use_cuda=\d+ (\S+?)'? >\$d/(\d+) "
)


def print_devices(view: HostView, _command: str) -> Output:
    """The path of perftest, and the RDMA device behind each PCI address."""
    lines = [
        f"/sys/bus/pci/devices/{card.pci}/infiniband/mlx5_{number} gid 3\n"
        for number, card in enumerate(view.cards)
    ]
    return Output(0, f"/usr/bin/ib_write_bw\n{''.join(lines)}looked\n")


def start_servers(view: HostView, command: str) -> Output:
    """Start servers; they end with their host's boot."""
    for device, port in _SERVER.findall(command):
        view.serving[int(port)] = (device, view.machine.host.boot_id or "")
    return Output(0, f"listening {len(view.serving)}\n")


def end_processes(view: HostView, _command: str) -> Output:
    """End every process with the mark."""
    view.serving.clear()
    view.nccl_logs.clear()
    return Output(0, "cleaned\n")


def print_nccl_logs(view: HostView, _command: str) -> Output:
    """NCCL's own logs of this host's ranks, a file for each."""
    files = sorted(view.nccl_logs.items())
    return Output(0, "".join(f"== log {name}\n{text}\n" for name, text in files) + "gathered\n")


_LOG_FILE = re.compile(r"NCCL_DEBUG_FILE=(\S+?)\.%h\.%p")
_PXN_OFF = "NCCL_PXN_DISABLE=1"


def _write_logs(line: str, ranks: list[tuple[HostView, int, Cable | None]]) -> None:
    """NCCL's log of each rank as v2.21 writes it: a ring among the hosts on each rail, and for an
    all-to-all a way from each rank to each of another host, by PXN to other rails.

    Format: NVIDIA/nccl src/transport/net.cc, src/init.cc. Faults: `nccl_sockets` (libibverbs is not
    there), `nccl_staged` (no GPUDirect RDMA), `nccl_rail_unused`, `nccl_no_pxn`.
    """
    found = _LOG_FILE.search(line)
    if found is None:
        return
    for rank, (view, gpu, cable) in enumerate(ranks):
        own = [n for n, (v, _, _) in enumerate(ranks) if v is view]
        said = [
            *_network_words(view, line, cable),
            *_comm_words(rank, len(ranks), gpu, "Init START"),
            *(
                words
                for peer, (other, theirs, _) in enumerate(ranks)
                if other is not view
                and (theirs == gpu or " alltoall_perf " in line or " python3 " in line)
                for words in _ways(view, line, (rank, gpu), (peer, theirs), own, cable)
            ),
            *_comm_words(rank, len(ranks), gpu, "Init COMPLETE"),
            *_comm_words(rank, len(ranks), gpu, "Destroy COMPLETE"),
        ]
        pid = 51000 + rank
        head = f"{view.machine.name}:{pid}:{pid + 900} [{gpu}] NCCL INFO "
        file = f"{found[1]}.{view.machine.name}.{pid}"
        view.nccl_logs[file] = "".join(f"{head}{words}\n" for words in said)


def _comm_words(rank: int, size: int, gpu: int, end: str) -> list[str]:
    start = "" if end.startswith("Destroy") else "ncclCommInitRank "
    return [f"{start}comm 0x55d0 rank {rank} nranks {size} cudaDev {gpu} busId 1b000 - {end}"]


def _network_words(view: HostView, line: str, cable: Cable | None) -> list[str]:
    cables = [cable] if cable is not None else sorted(view.cables, key=lambda c: c.rail)
    named = [_device(view, c) for c in cables if c.rail >= 0]
    listed = " ".join(f"[{n}]{name}:1/RoCE" for n, name in enumerate(named))
    said = ["NCCL version 2.21.5+cuda12.4"]
    if _PXN_OFF in line:
        said.append("NCCL_PXN_DISABLE set by environment to 1.")
    if "nccl_sockets" in view.machine.faults:
        end = "Using network Socket"
        return [*said, "Failed to open libibverbs.so[.1]", "NET/Socket : Using [0]eno1", end]
    return [*said, f"NET/IB : Using {listed} [RO]; OOB eno1:10.0.0.1<0>", "Using network IB"]


def _ways(
    view: HostView,
    line: str,
    here: tuple[int, int],
    there: tuple[int, int],
    own: list[int],
    cable: Cable | None,
) -> list[str]:
    """The two lines of a rank and one of another host, each (rank, GPU): sent, and received."""
    faults = view.machine.faults
    device = 0 if cable is not None else here[1]
    if "nccl_rail_unused" in faults and device == 3:
        device = 2
    network = "Socket" if "nccl_sockets" in faults else "IB"
    direct = "" if faults & {"nccl_sockets", "nccl_staged"} else "/GDRDMA"
    crosses = here[1] != there[1]
    sent = f"{device}"
    if crosses and _PXN_OFF not in line and "nccl_no_pxn" not in faults:
        sent = f"{there[1]}({own[min(there[1], len(own) - 1)]})"
    ends = f"{here[0]}[{here[1]}]", f"{there[0]}[{there[1]}]"
    channel = f"Channel {here[1]:02d}/{int(crosses)} :"
    return [
        f"{channel} {ends[0]} -> {ends[1]} [send] via NET/{network}/{sent}{direct}",
        f"{channel} {ends[1]} -> {ends[0]} [receive] via NET/{network}/{device}{direct}",
    ]


def run_clients(view: HostView, command: str) -> Output:
    """Run all clients at once: a section for each rail."""
    text = ""
    for line, rail in _MPIRUN.findall(command):
        many = " --map-by " in line
        section, code = _together(view, line) if many else _all_reduce(view, line, int(rail))
        text += f"== rail {rail}\n{section}== end {rail} {code}\n"
    for device, port, address, rail in _CLIENT.findall(command):
        section, code = _client(view, device, int(port), address)
        text += f"== rail {rail}\n{section}== end {rail} {code}\n"
    return Output(0, text)


def run_fabric_command(view: HostView, command: str) -> Output:
    """Prepare either side of a test, or the access for `mpirun`."""
    if "ssh-keygen " in command:
        return _door(view, command)
    if command.endswith("echo pinned"):
        return Output(0, "pinned\n")
    return start_servers(view, command) if " setsid " in command else run_clients(view, command)


def _door(view: HostView, command: str) -> Output:
    """Print a new key pair's public half, and the interface that tests use."""
    name = "".join(view.rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(6))
    key = "AAAAC3NzaC1lZDI1NTE5AAAAI" + "".join(
        view.rng.choice("ABCDabcd0123+/") for _ in range(43)
    )
    served = " setsid " in command
    folder = "" if served else f"folder /run/provisioner-fabric.{name}\n"
    own = next((a for a, (v, rail) in view.peers.items() if v is view and rail < 0), "10.0.0.1")
    network = f"2: eno1    inet {own}/16 brd 10.0.255.255 scope global eno1\n"
    return Output(0, f"{folder}key ssh-ed25519 {key}\n{network}{'open' if served else ''}\n")


def _client(view: HostView, device: str, port: int, address: str) -> tuple[str, int]:
    peer, rail = view.peers.get(address, (None, -1))
    refused = f"Couldn't connect to {address}:{port}\nUnable to open file descriptor\n", 1
    if peer is None or not peer.reachable:
        return refused
    near = _cable_outputs_fabric(view, rail)
    far = _cable_outputs_fabric(peer, rail)
    if near is None or far is None or device != _device(view, near):
        return refused
    if peer.serving.pop(port, None) != (_device(peer, far), peer.machine.host.boot_id):
        return refused
    if not (_up(view, near) and _up(peer, far)) or _vrf(near) != _vrf(far):
        return refused
    for each, cable in ((view, near), (peer, far)):
        _damage(each, cable)
    factor = min(_factor(v, c) for v, c in ((view, near), (peer, far)))
    gbit_s = float(view.vary_level(BOTH_WAYS_GBIT_S * factor, 0.004))
    return print_write_bw(device, gbit_s, "RDMA_Write Bidirectional BW Test"), 0


def _together(view: HostView, line: str) -> tuple[str, int]:
    """A collective over all GPUs of many hosts; its largest message is the last row."""
    members = [view.peers.get(a, (None, -1))[0] for a in _HOSTS.findall(_LIST.findall(line)[0])]
    hosts = [p for p in members if p is not None and p.reachable]
    cables = [(p, c) for p in hosts for c in p.cables if _up(p, c)]
    vrfs = {_vrf(c) for _, c in cables}
    if len(hosts) != len(members) or len(cables) != sum(len(p.cables) for p in hosts):
        return _LOST, 1
    if (
        len(vrfs) != 1
        or "orted_missing" in view.machine.faults
        or not connects_in_band(view, hosts)
    ):
        return _LOST, 1
    factor = min(_factor(p, c) for p, c in cables)
    if any("slow_in_collectives" in p.machine.faults for p in hosts):
        factor *= 0.6
    corrupt = any("corrupts_in_collectives" in p.machine.faults for p in hosts)
    level = TOGETHER_GB_S["alltoall" if " alltoall_perf " in line else "all_reduce"] * factor
    gpus = [(h, n) for h in hosts for n in range(len(h.gpus))]
    _write_logs(line, [(h, n, None) for h, n in gpus])
    if " python3 " in line:
        named = [(h.machine.name, len(h.gpus), frozenset(h.machine.faults)) for h in hosts]
        return print_training(named), 0
    sizes = [2**n for n in range(23, 35)]
    if "NCCL_PXN_DISABLE=" in line:  # small messages, which gain by PXN
        slow = _PXN_OFF in line or any(
            p.machine.faults & {"nccl_no_pxn", "nvswitch_path_slow"} for p in hosts
        )
        level = 9.0 if slow else 12.0
        sizes = [2**n for n in range(16, 23)]
        if _PXN_OFF not in line and any("nvswitch_path_slow" in p.machine.faults for p in hosts):
            level = 6.0
    return _table(view, gpus, sizes, level, 93 if corrupt else 0)


def _all_reduce(view: HostView, line: str, rail: int) -> tuple[str, int]:
    """The output of `all_reduce_perf` on one GPU and one NIC of each of two hosts."""
    peers = [view.peers.get(address, (None, -1))[0] for address in _HOST.findall(line)]
    hosts = [p for p in peers if p is not None and p.reachable]
    cables = [c for p in hosts if (c := _cable_outputs_fabric(p, rail)) is not None and _up(p, c)]
    if len(hosts) != 2 or len(cables) != 2 or _vrf(cables[0]) != _vrf(cables[1]):
        return _LOST, 1
    if not connects_in_band(view, hosts):
        return _LOST, 1
    factor = min(_factor(p, c) for p, c in zip(hosts, cables, strict=True))
    corrupt = rail == CORRUPT_RAIL and any(
        "corrupts_among_nodes" in h.machine.faults for h in hosts
    )
    wrong = 93 if corrupt else 0
    _write_logs(line, [(h, 0, c) for h, c in zip(hosts, cables, strict=True)])
    return _table(view, [(h, 0) for h in hosts], [RAIL_BYTES], RAIL_GB_S * factor, wrong)


def _table(
    view: HostView, gpus: list[tuple[HostView, int]], sizes: list[int], level: float, wrong: int
) -> tuple[str, int]:
    """The table of nccl-tests; the largest message reaches `level` in GB/s."""
    ranks = "".join(
        f"#  Rank  {n} Group  0 Pid  51{n}00 on {h.machine.name:>10s} device  {g} [0x1b] H100\n"
        for n, (h, g) in enumerate(gpus)
    )
    rows = ""
    busses = []
    for back, size in enumerate(reversed(sizes)):
        bus = float(view.vary_level(level * 0.8**back, 0.004))
        busses.append(bus)
        cells = f"{size / bus / 1e3:9.1f}{bus:8.2f}{bus:8.2f}{wrong:7d}"
        counted = f"{size:12d}{size // 4:14d}{'float':>10s}{'sum':>8s}{'-1':>8s}"
        rows = f"{counted}{cells}{cells}\n{rows}"
    average = sum(busses) / len(busses)
    return (
        f"# nThread 1 nGpus 1 minBytes {sizes[0]} maxBytes {sizes[-1]}\n#\n# Using devices\n"
        f"{ranks}#\n"
        "#       size         count      type   redop    root     time   algbw   busbw #wrong"
        "     time   algbw   busbw #wrong\n"
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       "
        "     (us)  (GB/s)  (GB/s)       \n"
        f"{rows}# Out of bounds values : {2 * wrong} {'FAILED' if wrong else 'OK'}\n"
        f"# Avg bus bandwidth    : {average:g} \n#\n"
    ), int(bool(wrong))


def _cable_outputs_fabric(view: HostView, rail: int) -> Cable | None:
    return next((c for c in view.cables if c.rail == rail), None)


def _device(view: HostView, cable: Cable) -> str:
    slots = [card.slot for card in view.cards]
    return f"mlx5_{slots.index(cable.nic_slot)}" if cable.nic_slot in slots else ""


def _up(view: HostView, cable: Cable) -> bool:
    card = view.machine.devices[cable.nic_slot]
    return card.present and view.link_up(card)


def _vrf(cable: Cable) -> str:
    entry = cable.switch.operational["interface"].get(cable.interface, {})
    return str(entry.get("ip", {}).get("vrf") or "default")


def print_counters(view: HostView, command: str) -> Output:
    """`ethtool -S` of some cards' ports, limited to the counters of damaged frames."""
    text = ""
    for device in _DEVICES.findall(command)[0].split():
        card = view.cards[int(device.removeprefix("mlx5_"))]
        text += f"device {device}\n     rx_crc_errors_phy: {view.damaged.get(card.slot, 0)}\n"
        text += "     rx_symbol_err_phy: 0\n     link_down_events_phy: 1\n"
    return Output(0, f"{text}counted\n")


def _damage(view: HostView, cable: Cable) -> None:
    """Count damage: a bad cable damages both directions, a bad optic only its own."""
    faults = view.machine.faults & LOSSY if cable.rail == LOSSY_RAIL else set()
    if faults & {"cable_lossy", "leaf_optic_lossy"}:
        view.damaged[cable.nic_slot] = view.damaged.get(cable.nic_slot, 0) + 4000
    if faults & {"cable_lossy", "node_optic_lossy"}:
        errors = cable.switch.planted.errors
        errors[cable.interface] = errors.get(cable.interface, 0) + 4000


def _factor(view: HostView, cable: Cable) -> float:
    faults = view.machine.faults
    if "leaf_drops" in cable.switch.faults:
        return 0.55
    if faults & LOSSY and cable.rail == LOSSY_RAIL:
        return 0.7
    return 0.8 if "slow_among_nodes" in faults else 1.0

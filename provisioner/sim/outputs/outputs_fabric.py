"""Tests between simulated hosts: perftest's servers and clients, from the truth at both ends.

A client reaches its server only if that listens, both links are up and both leaf ports are in one
VRF. A fault at either end, or of a leaf between them, lowers the bandwidth. The same holds for
nccl-tests, which `mpirun` starts.
"""

from __future__ import annotations

import re

from provisioner.sim.outputs.host import Cable, HostView, Output
from provisioner.sim.outputs.outputs_burn import print_write_bw
from provisioner.sim.outputs.outputs_reach import connects_in_band

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
    return Output(0, "cleaned\n")


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
    near = _cable(view, rail)
    far = _cable(peer, rail)
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
    return _table(view, gpus, [2**n for n in range(23, 35)], level, 93 if corrupt else 0)


def _all_reduce(view: HostView, line: str, rail: int) -> tuple[str, int]:
    """The output of `all_reduce_perf` on one GPU and one NIC of each of two hosts."""
    peers = [view.peers.get(address, (None, -1))[0] for address in _HOST.findall(line)]
    hosts = [p for p in peers if p is not None and p.reachable]
    cables = [c for p in hosts if (c := _cable(p, rail)) is not None and _up(p, c)]
    if len(hosts) != 2 or len(cables) != 2 or _vrf(cables[0]) != _vrf(cables[1]):
        return _LOST, 1
    if not connects_in_band(view, hosts):
        return _LOST, 1
    factor = min(_factor(p, c) for p, c in zip(hosts, cables, strict=True))
    corrupt = rail == CORRUPT_RAIL and any(
        "corrupts_among_nodes" in h.machine.faults for h in hosts
    )
    wrong = 93 if corrupt else 0
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


def _cable(view: HostView, rail: int) -> Cable | None:
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

"""Tests among simulated hosts: perftest's servers and clients, from the truth at both ends.

A client reaches its server only if that listens, both links are up and both leaf ports are in one
VRF. A fault at either end, or of a leaf between them, pulls the bandwidth down.
"""

from __future__ import annotations

import re

from provisioner.sim.host import Cable, HostView, Output
from provisioner.sim.outputs_burn import write_bw

BOTH_WAYS_GBIT_S = 778.0  # a 400 Gbit/s port both ways
LOSSY_RAIL = 5
CORRUPT_RAIL = 2
RAIL_GB_S = 47.8  # an all-reduce of two ranks over one such port
RAIL_BYTES = 1024**3
_MPIRUN = re.compile(r"\(sh -c '(mpirun [^']*)' >\$d/(\d+) ")
_HOST = re.compile(r" -H ([0-9a-z.:-]+):1 ")
_SERVER = re.compile(r"ib_write_bw [^&']*?-d (\S+) -x 3 -p (\d+)[^&']*?'? >/dev/null")
_CLIENT = re.compile(
    r"ib_write_bw [^&']*?-d (\S+) -x 3 -p (\d+) --use_cuda=\d+ (\S+?)'? >\$d/(\d+) "
)


def devices(view: HostView, _command: str) -> Output:
    """Where perftest is, and the RDMA device behind each PCI address."""
    lines = [
        f"/sys/bus/pci/devices/{card.pci}/infiniband/mlx5_{number}\n"
        for number, card in enumerate(view.cards)
    ]
    return Output(0, f"/usr/bin/ib_write_bw\n{''.join(lines)}looked\n")


def serve(view: HostView, command: str) -> Output:
    """Servers begin to listen; they are gone with their host's boot."""
    for device, port in _SERVER.findall(command):
        view.serving[int(port)] = (device, view.machine.host.boot_id or "")
    return Output(0, f"listening {len(view.serving)}\n")


def clean(view: HostView, _command: str) -> Output:
    """Everything with the mark ends."""
    view.serving.clear()
    return Output(0, "cleaned\n")


def measure(view: HostView, command: str) -> Output:
    """All clients at once: a section for each rail."""
    text = ""
    for line, rail in _MPIRUN.findall(command):
        said, code = _all_reduce(view, line, int(rail))
        text += f"== rail {rail}\n{said}== end {rail} {code}\n"
    for device, port, address, rail in _CLIENT.findall(command):
        said, code = _client(view, device, int(port), address)
        text += f"== rail {rail}\n{said}== end {rail} {code}\n"
    return Output(0, text)


def fabric(view: HostView, command: str) -> Output:
    """Either side of a test."""
    return serve(view, command) if " setsid " in command else measure(view, command)


def _client(view: HostView, device: str, port: int, address: str) -> tuple[str, int]:
    peer, rail = view.peers.get(address, (None, -1))
    refused = f"Couldn't connect to {address}:{port}\nUnable to open file descriptor\n", 1
    if peer is None or not peer.reachable:
        return refused
    near, far = _cable(view, rail), _cable(peer, rail)
    if near is None or far is None or device != _device(view, near):
        return refused
    if peer.serving.pop(port, None) != (_device(peer, far), peer.machine.host.boot_id):
        return refused
    if not (_up(view, near) and _up(peer, far)) or _vrf(near) != _vrf(far):
        return refused
    factor = min(_factor(v, c) for v, c in ((view, near), (peer, far)))
    gbit_s = float(view.near(BOTH_WAYS_GBIT_S * factor, 0.004))
    return write_bw(device, gbit_s, "RDMA_Write Bidirectional BW Test"), 0


def _all_reduce(view: HostView, line: str, rail: int) -> tuple[str, int]:
    """`all_reduce_perf` on one GPU and one NIC of each of two hosts, as it prints."""
    peers = [view.peers.get(address, (None, -1))[0] for address in _HOST.findall(line)]
    hosts = [p for p in peers if p is not None and p.reachable]
    cables = [c for p in hosts if (c := _cable(p, rail)) is not None and _up(p, c)]
    if len(hosts) != 2 or len(cables) != 2 or _vrf(cables[0]) != _vrf(cables[1]):
        return "ORTE was unable to reliably start one or more daemons.\n", 1
    factor = min(_factor(p, c) for p, c in zip(hosts, cables, strict=True))
    corrupt = rail == CORRUPT_RAIL and any(
        "corrupts_among_nodes" in h.machine.faults for h in hosts
    )
    wrong = 93 if corrupt else 0
    bus = float(view.near(RAIL_GB_S * factor, 0.004))
    ranks = "".join(
        f"#  Rank  {n} Group  0 Pid  51{n}00 on {h.machine.name:>10s} device  0 [0x1b] H100\n"
        for n, h in enumerate(hosts)
    )
    cells = f"{RAIL_BYTES / bus / 1e3:9.1f}{bus:8.2f}{bus:8.2f}{wrong:7d}"
    row = f"{RAIL_BYTES:12d}{RAIL_BYTES // 4:14d}{'float':>10s}{'sum':>8s}{'-1':>8s}{cells}{cells}"
    return (
        f"# nThread 1 nGpus 1 minBytes {RAIL_BYTES} maxBytes {RAIL_BYTES}\n#\n# Using devices\n"
        f"{ranks}#\n"
        "#       size         count      type   redop    root     time   algbw   busbw #wrong"
        "     time   algbw   busbw #wrong\n"
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       "
        "     (us)  (GB/s)  (GB/s)       \n"
        f"{row}\n# Out of bounds values : {2 * wrong} {'FAILED' if wrong else 'OK'}\n"
        f"# Avg bus bandwidth    : {bus:g} \n#\n"
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


def _factor(view: HostView, cable: Cable) -> float:
    faults = view.machine.faults
    if "leaf_drops" in cable.switch.faults:
        return 0.55
    if "cable_lossy" in faults and cable.rail == LOSSY_RAIL:
        return 0.7
    return 0.8 if "slow_among_nodes" in faults else 1.0

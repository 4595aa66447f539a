"""Every RDMA port is active, on the fabric's link layer, one per rail at full rate.

Ethernet ports carry frames of 9,000 bytes. The interfaces of InfiniBand ports (IPoIB) carry none of
the traffic that is tested, so their MTU is not judged.

`ip -j link`, with `ethtool` of every interface, is read too; without ethtool it has no rates and
does not pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.optic_modules import judge_links, looks_like_links
from provisioner.checks.readers.sysfs import (
    Files,
    group_by_device,
    match_files,
    parse_files,
    pci_of_interface,
)
from provisioner.checks.readers.tool_output import END, parse_whole, read_output
from provisioner.checks.thresholds import check_threshold, require_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity
from provisioner.model.names import normalize_pci

_PORT = "/sys/class/infiniband/*/ports/1/"
_DEVICE = "/sys/class/infiniband/*/device/"
RDMA_LINKS = Command(
    name="rdma_links",
    line=f"grep -H . {_PORT}state {_PORT}phys_state {_PORT}rate {_PORT}link_layer"
    f" {_DEVICE}net/*/mtu; {END}",
    limit_s=30.0,
)

_FACTS = ("state", "phys_state", "rate", "link_layer")
_FILE = re.compile(
    r"/sys/class/infiniband/([\w.-]{1,64})/ports/1/(state|phys_state|rate|link_layer)"
)
_MTU = re.compile(r"/sys/class/infiniband/([\w.-]{1,64})/device/net/([\w.-]{1,32})/mtu")
_RATE = re.compile(r"^(\d{1,4})(?:\.\d+)? Gb/sec")


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    text = read_output(evidence, RDMA_LINKS, any_exit=True)
    if looks_like_links(text):
        yield from judge_links(text, context)
        return
    files = parse_files(text)
    ports = group_by_device(match_files(files, _FILE))
    if not ports:
        raise Unreadable("sysfs: no RDMA port in it")
    frames = _read_mtus(files)
    full = 0
    slow: list[Finding] = []
    rail = require_threshold(context, "rail_gbit_s")
    for name, facts in sorted(ports.items()):
        if set(facts) != set(_FACTS):
            raise Unreadable(f"sysfs: {name} does not report its {', '.join(_FACTS)}")
        rate = _RATE.match(facts["rate"])
        if rate is None:
            raise Unreadable(f"sysfs: {name} has rate {facts['rate'][:40]!r}")
        if facts["state"] != "4: ACTIVE":
            yield fault(name, Severity.ISOLATE, "the port is not up", facts["state"], "4: ACTIVE")
        elif facts["phys_state"] != "5: LinkUp":
            detail = "the port's physical state"
            yield fault(name, Severity.ISOLATE, detail, facts["phys_state"], "5: LinkUp")
        elif facts["link_layer"] != context.link_layer:
            detail = "the port's link layer"
            yield fault(name, Severity.CONFIG, detail, facts["link_layer"], context.link_layer)
        elif int(rate[1]) >= rail:
            full += 1
            if context.link_layer == "Ethernet":
                yield from _judge_mtu(name, frames.get(name), context)
        elif not _is_north_south(name, files, context):
            detail = "the port runs below the rails' speed"
            slow.append(fault(name, Severity.ISOLATE, detail, facts["rate"], f"{rail:g} Gb/s"))
    if full < context.rails:
        yield from slow
        yield fault("host", Severity.ISOLATE, f"ports at {rail:g} Gb/s", full, context.rails)


def _is_north_south(name: str, files: Files, context: CheckContext) -> bool:
    """Return whether a port's interface is a DPU's, whose network may be slower."""
    interfaces = [net for device, net in match_files(files, _MTU) if device == name]
    cards = {normalize_pci(pci).partition(".")[0] for pci in context.dpu_pci}
    return any(pci_of_interface(interface) in cards for interface in interfaces)


def _read_mtus(files: Files) -> dict[str, int]:
    """Return RDMA device -> the smallest MTU of its network interfaces."""
    mtus: dict[str, int] = {}
    for (device, _), line in match_files(files, _MTU).items():
        mtu = parse_whole(line, "mtu")
        mtus[device] = min(mtu, mtus.get(device, mtu))
    return mtus


def _judge_mtu(name: str, mtu: int | None, context: CheckContext) -> Iterator[Finding]:
    if mtu is None:
        raise Unreadable(f"sysfs: {name} does not report its MTU")
    if missed := check_threshold(context, "mtu", mtu):
        yield fault(name, Severity.CONFIG, "the port's MTU", *missed)


CHECK = Check(
    "rdma_links",
    Gate.A,
    (RDMA_LINKS,),
    _findings,
    after_load=True,
    thresholds=("rail_gbit_s", "mtu"),
)

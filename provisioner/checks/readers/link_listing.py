"""Network interfaces as `ip -j link` lists them, and their speeds as `ethtool` prints them.

They give part of N1's facts: whether an interface is up, its MTU and, with `ethtool`, its rate. A
fact that the listing does not give is never assumed to be good.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from provisioner.checks.check import CheckContext, NotJudged, Unreadable, fault
from provisioner.checks.readers.tool_output import parse_documents, require_list, require_object
from provisioner.checks.thresholds import check_threshold, require_threshold
from provisioner.model.health import Finding, Severity

LINKS_MAX = 4096
_IP = re.compile(r'"ifname"\s*:')
_ETHTOOL = re.compile(r"^Settings for ([\w.-]{1,32}):\s*$", re.MULTILINE)
_SPEED = re.compile(r"^\s*Speed: (?:(\d{1,7})Mb/s|Unknown!.{0,40})\s*$")
_DETECTED = re.compile(r"^\s*Link detected: (yes|no)\b")
# interfaces without a cable, by the names that the kernel and container engines give
_VIRTUAL = re.compile(
    r"^(?:lo|docker|veth|virbr|br-|bond|vxlan|cali|flannel|cni|tun|tap|dummy|ifb)"
)
_MBIT = 1000


@dataclass(frozen=True)
class Interface:
    """One interface. `mbit_s` is None where the listing gives no rate."""

    name: str
    state: str
    mtu: int | None
    mbit_s: int | None = None


def looks_like_links(text: str) -> bool:
    """Return whether this is an output of `ip -j link` or of `ethtool`."""
    return bool(_ETHTOOL.search(text) or (text.lstrip()[:1] == "[" and _IP.search(text)))


def judge_links(text: str, context: CheckContext) -> Iterator[Finding]:
    """Yield findings on the listing. Raises `NotJudged` where it lacks some of N1's facts."""
    links = _read_interfaces(text)
    rail = require_threshold(context, "rail_gbit_s")
    fit = 0
    problems: list[Finding] = []
    for link in links:
        if link.mbit_s is not None and 0 < link.mbit_s < rail * _MBIT:
            continue  # not a rail's interface; missing rails are counted below
        problem = _find_problem(link, context)
        problems += [problem] if problem is not None else []
        fit += problem is None
    if fit < max(context.rails, 1):
        # with enough good interfaces, those that are down do not belong to rails
        yield from problems
        required = f"{max(context.rails, 1)}"
        yield fault("host", Severity.ISOLATE, "interfaces fit for a rail", fit, required)
    elif not context.rails:
        yield from problems
    if any(link.mbit_s is None for link in links):
        raise NotJudged("this listing does not report the rate of every interface")
    if any(link.mtu is None for link in links):
        raise NotJudged("this listing does not report the MTU")


def _find_problem(link: Interface, context: CheckContext) -> Finding | None:
    if link.state.upper() != "UP":
        return fault(link.name, Severity.ISOLATE, "the interface is not up", link.state, "UP")
    if link.mtu is not None and (missed := check_threshold(context, "mtu", link.mtu)):
        return fault(link.name, Severity.CONFIG, "the interface's MTU", *missed)
    return None


def _read_interfaces(text: str) -> list[Interface]:
    interfaces: dict[str, Interface] = {}
    begins = [match.start() for match in _ETHTOOL.finditer(text)]
    for _, document in parse_documents(text[: begins[0] if begins else len(text)], "ip link"):
        for entry in require_list(document, "ip link"):
            facts = require_object(entry, "interface")
            name = facts.get("ifname")
            state = facts.get("operstate")
            mtu = facts.get("mtu")
            if facts == {}:
                continue  # ip prints an empty object for an entry that a filter removed
            if not isinstance(name, str) or not isinstance(state, str) or type(mtu) is not int:
                raise Unreadable("ip link: an interface without name, state or MTU")
            if name in interfaces or len(interfaces) >= LINKS_MAX:
                raise Unreadable("ip link: one interface is listed twice, or too many")
            if facts.get("link_type", "ether") == "ether" and not _is_virtual(name, facts):
                interfaces[name] = Interface(name[:32], state, mtu)
    listed = bool(interfaces)
    for at, begin in enumerate(begins):
        end = begins[at + 1] if at + 1 < len(begins) else len(text)
        interface = _parse_ethtool(text[begin:end])
        if interface.name in interfaces:
            interfaces[interface.name] = replace(
                interfaces[interface.name], mbit_s=interface.mbit_s
            )
        elif not listed:
            interfaces[interface.name] = interface
    if not interfaces:
        raise Unreadable("ip link: no Ethernet interface in it")
    return list(interfaces.values())


def _is_virtual(name: str, facts: object) -> bool:
    kind = require_object(facts, name).get("linkinfo", {})
    made = isinstance(kind, dict) and "info_kind" in kind
    return made or "link" in require_object(facts, name) or bool(_VIRTUAL.match(name))


def _parse_ethtool(text: str) -> Interface:
    head = _ETHTOOL.match(text)
    assert head is not None
    lines = text.splitlines()[1:]
    speeds = [match for line in lines if (match := _SPEED.match(line))]
    states = [match for line in lines if (match := _DETECTED.match(line))]
    if len(speeds) != 1 or len(states) != 1:
        raise Unreadable(f"ethtool: {head[1]} does not report its speed and link state")
    state = "UP" if states[0][1] == "yes" else "DOWN"
    return Interface(head[1], state, None, int(speeds[0][1] or 0))

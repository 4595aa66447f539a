"""Network interfaces as `ip -j link` lists them, and their speeds as `ethtool` prints them.

They tell of N1 what sysfs tells of RDMA ports: up or down, size of frames and, with `ethtool`,
the rate. What they do not tell is never taken for good.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from provisioner.checks.check import CheckContext, NotJudged, Unreadable, fault
from provisioner.checks.readers.reading import documents_of, mapping, sequence
from provisioner.checks.thresholds import floor, misses
from provisioner.model.health import Finding, Severity

LINKS_MAX = 4096
_IP = re.compile(r'"ifname"\s*:')
_ETHTOOL = re.compile(r"^Settings for ([\w.-]{1,32}):\s*$", re.MULTILINE)
_SPEED = re.compile(r"^\s*Speed: (?:(\d{1,7})Mb/s|Unknown!.{0,40})\s*$")
_DETECTED = re.compile(r"^\s*Link detected: (yes|no)\b")
# interfaces that no cable belongs to, by the names that the kernel and container engines give
_VIRTUAL = re.compile(
    r"^(?:lo|docker|veth|virbr|br-|bond|vxlan|cali|flannel|cni|tun|tap|dummy|ifb)"
)
_MBIT = 1000


@dataclass(frozen=True)
class Interface:
    """One interface. `mbit_s` None: nobody told it."""

    name: str
    state: str
    mtu: int | None
    mbit_s: int | None = None


def looks_like_links(text: str) -> bool:
    """Whether this is an output of `ip -j link` or of `ethtool`."""
    return bool(_ETHTOOL.search(text) or (text.lstrip()[:1] == "[" and _IP.search(text)))


def judged(text: str, context: CheckContext) -> Iterator[Finding]:
    """Findings on what the listing tells. Raises `NotJudged` where it does not tell all of N1."""
    links = _read(text)
    rail, fit = floor(context, "rail_gbit_s"), 0
    found: list[Finding] = []
    for link in links:
        if link.mbit_s is not None and 0 < link.mbit_s < rail * _MBIT:
            continue  # no rail's: those that miss are counted below
        problem = _problem(link, context)
        found += [problem] if problem is not None else []
        fit += problem is None
    if fit < max(context.rails, 1):
        # with enough good ones, those that are down are not the rails'
        yield from found
        wanted = f"{max(context.rails, 1)}"
        yield fault("host", Severity.ISOLATE, "interfaces fit for a rail", fit, wanted)
    elif not context.rails:
        yield from found
    if any(link.mbit_s is None for link in links):
        raise NotJudged("this listing does not tell the rate of every interface")
    if any(link.mtu is None for link in links):
        raise NotJudged("this listing does not tell the size of frames")


def _problem(link: Interface, context: CheckContext) -> Finding | None:
    if link.state.upper() != "UP":
        return fault(link.name, Severity.ISOLATE, "the interface is not up", link.state, "UP")
    if link.mtu is not None and (missed := misses(context, "mtu", link.mtu)):
        return fault(link.name, Severity.CONFIG, "the interface's MTU", *missed)
    return None


def _read(text: str) -> list[Interface]:
    found: dict[str, Interface] = {}
    begins = [match.start() for match in _ETHTOOL.finditer(text)]
    for _, document in documents_of(text[: begins[0] if begins else len(text)], "ip link"):
        for entry in sequence(document, "ip link"):
            facts = mapping(entry, "interface")
            name, state, mtu = facts.get("ifname"), facts.get("operstate"), facts.get("mtu")
            if facts == {}:
                continue  # ip prints an empty object for what a filter left out
            if not isinstance(name, str) or not isinstance(state, str) or type(mtu) is not int:
                raise Unreadable("ip link: an interface without name, state or MTU")
            if name in found or len(found) >= LINKS_MAX:
                raise Unreadable("ip link: one interface is listed twice, or too many")
            if facts.get("link_type", "ether") == "ether" and not _virtual(name, facts):
                found[name] = Interface(name[:32], state, mtu)
    listed = bool(found)
    for at, begin in enumerate(begins):
        end = begins[at + 1] if at + 1 < len(begins) else len(text)
        told = _of_ethtool(text[begin:end])
        if told.name in found:
            found[told.name] = replace(found[told.name], mbit_s=told.mbit_s)
        elif not listed:
            found[told.name] = told
    if not found:
        raise Unreadable("ip link: no Ethernet interface in it")
    return list(found.values())


def _virtual(name: str, facts: object) -> bool:
    kind = mapping(facts, name).get("linkinfo", {})
    made = isinstance(kind, dict) and "info_kind" in kind
    return made or "link" in mapping(facts, name) or bool(_VIRTUAL.match(name))


def _of_ethtool(text: str) -> Interface:
    head = _ETHTOOL.match(text)
    assert head is not None
    lines = text.splitlines()[1:]
    speeds = [match for line in lines if (match := _SPEED.match(line))]
    states = [match for line in lines if (match := _DETECTED.match(line))]
    if len(speeds) != 1 or len(states) != 1:
        raise Unreadable(f"ethtool: {head[1]} does not tell its speed and link")
    state = "UP" if states[0][1] == "yes" else "DOWN"
    return Interface(head[1], state, None, int(speeds[0][1] or 0))

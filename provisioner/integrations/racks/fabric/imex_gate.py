"""Whether the IMEX daemons of a partition's hosts reach one another, by what each one says.

Pure. Format: `nvidia-imex-ctl -N -j` (docs/sources/hardware.md#imex). Every host has to say that
the domain is UP, that each of its members is READY, and that all are connected, and all hosts have
to name the same members: a host whose list is another one is in another domain.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.model.outcome import Blocker, Reason

NODES_MAX = 1024  # of one domain; an NVL72's has 18
TEXT_MAX_BYTES = 16 * 2**20
_REMEDY = "Compare nodes_config.cfg and the driver's version of all its hosts, then look again."


@dataclass(frozen=True)
class ImexView:
    """What one host says of its IMEX domain. Statuses by host; "" for what it does not say."""

    status: str = ""
    nodes: Mapping[str, str] | None = None  # None: no list could be read
    apart: tuple[str, ...] = ()  # "10.0.0.1 to 10.0.0.2: INVALID"


def read_imex(printed: str) -> ImexView:
    """Return what a host printed; what is no such JSON says nothing."""
    try:
        read = json.loads(printed[:TEXT_MAX_BYTES])
    except (ValueError, RecursionError):
        return ImexView()
    listed = read.get("nodes") if isinstance(read, dict) else None
    if not isinstance(listed, dict) or len(listed) > NODES_MAX:
        return ImexView(_text(read.get("status")) if isinstance(read, dict) else "")
    nodes: dict[str, str] = {}
    apart: list[str] = []
    for node in listed.values():
        host = _text(node.get("host")) if isinstance(node, dict) else ""
        if not host or host in nodes:
            return ImexView(_text(read.get("status")))  # two of one name: which one is meant?
        nodes[host] = _text(node.get("status"))
        apart += _find_apart(host, node.get("connections"), len(listed))
    return ImexView(_text(read.get("status")), nodes, tuple(apart))


def _find_apart(host: str, connections: Any, members: int) -> Iterator[str]:
    links = connections if isinstance(connections, dict) else {}
    seen = {_text(one.get("host")) for one in links.values() if isinstance(one, dict)} - {""}
    if len(seen) != members:
        yield f"{host}: {len(seen)} of {members} connections are listed"
    for one in links.values():
        status = _text(one.get("status")) if isinstance(one, dict) else ""
        if status != "CONNECTED":
            to = _text(one.get("host")) if isinstance(one, dict) else ""
            yield f"{host} to {to or 'nobody knows whom'}: {status or 'not said'}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= 256 and value.isprintable() else ""


def judge_imex(views: Mapping[str, ImexView | None]) -> tuple[Blocker, ...]:
    """Return why these trays (None: not read) are no whole IMEX domain; empty: they are."""
    faults: list[Blocker] = []
    lists = Counter(frozenset(v.nodes) for v in views.values() if v is not None and v.nodes)
    common = lists.most_common(1)[0][0] if lists else frozenset()
    for tray, view in views.items():
        if view is None or view.nodes is None:
            faults.append(_refuse(tray, "its view of the IMEX domain was not read"))
            continue
        if view.status != "UP":
            faults.append(_refuse(tray, f"its IMEX domain is {view.status or 'not said'}"))
        if len(view.nodes) != len(views):
            detail = f"its IMEX domain has {len(view.nodes)} members of {len(views)} trays"
            faults.append(_refuse(tray, detail))
        elif frozenset(view.nodes) != common:
            faults.append(_refuse(tray, "it names other members than most of the others"))
        resting = [f"{host} is {s or 'not said'}" for host, s in view.nodes.items() if s != "READY"]
        faults += [_refuse(tray, each) for each in (*resting[:4], *view.apart[:4])]
    return tuple(faults)


def _refuse(subject: str, detail: str) -> Blocker:
    return Blocker(reason=Reason.FABRIC, subject=subject, detail=detail[:300], unblock=_REMEDY)

"""MACs by the front-panel port that a switch learned them at. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from provisioner.model.leaf_state import NeighbourState


def list_port_macs(
    physical: re.Pattern[str], neighbours: Iterable[NeighbourState], bridged: Mapping[str, str]
) -> dict[str, frozenset[str]]:
    """Return port -> MACs, of the ports whose names are `physical`; `bridged`: MAC -> interface.

    An entry of a subinterface is one of its port. One of a bond, a tunnel or a VLAN's interface
    names no cable, and is left out.
    """
    macs: dict[str, set[str]] = {}
    learned = [(n.interface, n.mac) for n in neighbours]
    for interface, mac in (*learned, *((at, mac) for mac, at in bridged.items())):
        port = interface.partition(".")[0]
        if mac and physical.fullmatch(port):
            macs.setdefault(port, set()).add(mac)
    return {port: frozenset(listed) for port, listed in macs.items()}

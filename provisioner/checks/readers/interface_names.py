"""Names of network interfaces that carry their card's PCI address (systemd.net-naming-scheme(7)):
`enp60s0np0` is bus 60 (decimal), device 0; `P` precedes the PCI domain.
"""

from __future__ import annotations

import re

_INTERFACE = re.compile(r"\b(?:en|ib)(?:P(\d{1,5}))?p(\d{1,3})s(\d{1,2})(?:[fnd]\w{1,12})?\b")
BUS_MAX = 255


def pci_of_interface(text: str) -> str:
    """Return "0000:3c:00" of the first such name in a text; "" without one."""
    if (match := _INTERFACE.search(text)) is None:
        return ""
    domain, bus, device = (int(number or 0) for number in match.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}" if bus <= BUS_MAX else ""

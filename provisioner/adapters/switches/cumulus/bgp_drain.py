"""How a Cumulus switch is drained, and how its sessions, EVPN, counters and firmware read.

Draining is BGP's: neighbours are told to go around (graceful shutdown, RFC 8326), and from 5.13 on
the maintenance unit also gives every protocol's routes their lowest preference. Sources: Cumulus
Linux guide, "Optional BGP Configuration" and "Maintenance Mode". Shapes of operational answers are
read leniently in their names and strictly in their values: what cannot be read is no good state.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from provisioner.adapters.switches.cumulus.dialect import encode_body
from provisioner.adapters.switches.cumulus.nvue_calls import PREFIX, Ask
from provisioner.model.switch import PortCounters

BGP_PATH = f"{PREFIX}/router/bgp?rev=applied"
SESSIONS_PATH = f"{PREFIX}/vrf/default/router/bgp/neighbor?rev=operational"
VNIS_PATH = f"{PREFIX}/evpn/vni?rev=operational"
HEALTH_PATH = f"{PREFIX}/system/health"
FIRMWARE_PATH = f"{PREFIX}/platform/firmware?rev=operational"
FIRST_WITH_UNIT = (5, 13)  # "nv set maintenance unit"; before, there is only graceful shutdown
COUNT_MAX = 2**63
PORTS_MAX = 512  # of a switch: 64 cages, eight ways each
FRONT_PANEL = "swp"  # the beginning of a port's name
# image -> ASIC firmware, where both are published (facts: health 3.4)
ASIC_FIRMWARE = {"5.10.1": "34.2014.1136"}


def change_drain(revision: str, release: tuple[int, ...], *, on: bool) -> Ask:
    """Into a revision: neighbours go around this switch, or come back."""
    body: dict[str, Any] = {"router": {"bgp": {"graceful-shutdown": "on" if on else "off"}}}
    if release[:2] >= FIRST_WITH_UNIT:
        mode = "enabled" if on else "disabled"
        body["maintenance"] = {"unit": {"all-protocols": {"mode": mode}}}
    body = encode_body(body, release)
    return Ask("PATCH", f"{PREFIX}/?rev={quote(revision, safe='')}", body)


def counters_path(interface: str) -> str:
    """Counters of one port."""
    return f"{PREFIX}/interface/{quote(interface, safe='')}/link/stats?rev=operational"


def read_drained(answer: Any) -> bool | None:
    """Whether graceful shutdown is applied."""
    if not isinstance(answer, dict):
        return None
    return str(answer.get("graceful-shutdown", "off")).lower() in ("on", "enabled", "true")


def read_ports(answer: Any) -> tuple[str, ...] | None:
    """Front-panel ports with carrier, of all interfaces' operational state."""
    if not isinstance(answer, dict) or len(answer) > 8 * PORTS_MAX:
        return None
    found = []
    for name, entry in answer.items():
        if not isinstance(entry, dict):
            return None
        if not name.startswith(FRONT_PANEL):
            continue
        link = entry.get("link")
        state = link.get("state") if isinstance(link, dict) else None
        if state == "up" or (isinstance(state, dict) and "up" in state):
            found.append(name)
    return tuple(sorted(found)) if len(found) <= PORTS_MAX else None


def read_bytes(answer: Any) -> int | None:
    """Bytes that a port has carried, both ways."""
    if not isinstance(answer, dict):
        return None
    total = 0
    for name in ("in-bytes", "out-bytes"):
        value = answer.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            return None
        total += value
    return total


def read_counters(answer: Any) -> PortCounters:
    """Return the counters of a port; None for each that is no count."""
    listed = answer if isinstance(answer, dict) else {}
    return PortCounters(
        carried_bytes=read_bytes(answer),
        in_errors=_read_count(listed.get("in-errors")),
        carrier_changes=_read_count(listed.get("carrier-transitions")),
    )


def _read_count(value: Any) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < COUNT_MAX
    return value if good else None


def read_sessions(answer: Any) -> frozenset[str] | None:
    """Neighbours whose session is established."""
    if not isinstance(answer, dict):
        return None
    states = {n: e.get("state") if isinstance(e, dict) else None for n, e in answer.items()}
    if not all(isinstance(s, str) for s in states.values()):
        return None
    return frozenset(n for n, s in states.items() if str(s).lower() == "established")


def read_vnis(answer: Any) -> frozenset[str] | None:
    """VNIs that EVPN knows."""
    return frozenset(map(str, answer)) if isinstance(answer, dict) else None


def read_health(answer: Any) -> str | None:
    """ "OK", or what is wrong."""
    if not isinstance(answer, dict) or not isinstance(answer.get("status"), str):
        return None
    issues = answer.get("issues")
    names = ", ".join(sorted(issues)[:5]) if isinstance(issues, dict) else ""
    return str(answer["status"]) + (f": {names}"[:200] if names else "")


def read_asic(answer: Any) -> str | None:
    """Version of the ASIC's firmware; None if the switch does not say."""
    entry = answer.get("ASIC") if isinstance(answer, dict) else None
    value = entry.get("actual-firmware") if isinstance(entry, dict) else None
    return value if isinstance(value, str) and len(value) <= 60 else None


def wrong_firmware(version: str, asic: str | None) -> str:
    """What speaks against the ASIC's firmware under this image; "" if nothing published does."""
    wanted = ASIC_FIRMWARE.get(".".join(version.split(".")[:3]))
    if wanted is None or (asic or "").replace("_", ".") == wanted:
        return ""
    return f"the ASIC runs {asic or 'an unreadable version'}, {version} brings {wanted}"

"""The two dialects of NVUE: up to Cumulus Linux 5.14, and from 5.15 on.

Configuration is written once, in the older dialect or in the newer one, and spelled for the release
that runs on the switch just before it is compared and sent. A part that is already in the newer
dialect stays as it is.
Sources: Cumulus Linux 5.15 user guide, "New and Changed NVUE Commands", table of changed values;
NVUE reference, "Adaptive Routing": `enable on` up to 5.14, `state enabled` since, globally and of
an interface (read 2026-11-28).
"""

from __future__ import annotations

FIRST_WITH_STATE = "5.15"
_FAMILY = ("vrf", "*", "router", "bgp", "address-family", "*")
# switches of the older dialect; `enable` becomes `state`, other names stay
SWITCHES = (
    ("router", "bgp", "enable"),
    ("router", "bgp", "graceful-shutdown"),
    ("router", "bgp", "wait-for-install"),
    ("router", "adaptive-routing", "enable"),
    ("router", "adaptive-routing", "link-utilization-threshold"),
    ("interface", "*", "router", "adaptive-routing", "enable"),
    ("qos", "roce", "enable"),
    ("evpn", "enable"),
    ("evpn", "multihoming", "enable"),
    ("interface", "*", "evpn", "multihoming", "segment", "enable"),
    ("interface", "*", "bond", "mlag", "enable"),
    ("nve", "vxlan", "mac-learning"),
    ("nve", "vxlan", "arp-nd-suppress"),
    ("vrf", "*", "router", "bgp", "enable"),
    (*_FAMILY, "enable"),
    (*_FAMILY, "redistribute", "*", "enable"),
    (*_FAMILY, "route-import", "from-vrf", "enable"),
    (*_FAMILY, "route-export", "to-evpn", "enable"),
    ("vrf", "*", "evpn", "prefix-routes-only"),
)
_NEWER = {"on": "enabled", "off": "disabled"}


def encode_config(config, path=()):
    """Return configuration of the older dialect as releases from 5.15 on take it."""
    spelled = {}
    for key, value in config.items():
        below = (*path, key)
        if isinstance(value, dict):
            spelled[key] = encode_config(value, below)
        elif _is_switch(below) and (value is None or isinstance(value, str)):
            spelled["state" if key == "enable" else key] = _NEWER.get(value, value)
        else:
            spelled[key] = value
    return spelled


def _is_switch(path):
    rows = [row for row in SWITCHES if len(row) == len(path)]
    return any(all(row[i] in ("*", part) for i, part in enumerate(path)) for row in rows)

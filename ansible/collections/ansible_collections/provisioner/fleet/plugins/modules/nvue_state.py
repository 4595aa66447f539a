#!/usr/bin/python
"""Ansible module: what a Cumulus switch says of itself: health, BGP sessions, EVPN, images."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvue_state
short_description: Reads the operational state of a switch and names what is wrong
version_added: "0.1.0"
description:
  - Reads only. What cannot be read is a failure, never a good state.
options:
  url:
    description: Base of the API; only a loopback address may be plain http.
    type: str
    default: https://127.0.0.1:8765
  username:
    description: User of the API.
    type: str
    required: true
  password:
    description: Its password.
    type: str
    required: true
  ca_path:
    description: Certificates to trust instead of the system's.
    type: path
  limit_s:
    description: Seconds to wait until nothing is wrong any more; 0 looks once.
    type: int
    default: 0
  vrfs:
    description: VRFs whose BGP sessions must all be established.
    type: list
    elements: str
    default: []
  peers_min:
    description: Sessions that there must be at least, over all of these VRFs.
    type: int
    default: 0
  evpn:
    description: Whether EVPN must have at least one VNI.
    type: bool
    default: false
attributes:
  check_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: See that the switch is well
  provisioner.fleet.nvue_state:
    username: cumulus
    password: "{{ secret }}"
    vrfs: [default]
    peers_min: 4
"""

RETURN = r"""
health:
  description: What the switch says of its own health.
  returned: always
  type: str
sessions:
  description: VRF to neighbour to state of its session.
  returned: always
  type: dict
running:
  description: Version of the image that runs.
  returned: always
  type: str
wrong:
  description: What is wrong, one sentence each.
  returned: always
  type: list
  elements: str
"""

import time
from urllib.parse import quote

from ansible_collections.provisioner.fleet.plugins.module_utils import entry, nvue, tools


def sessions(switch, vrf):
    """Neighbour to state, in lower case."""
    path = f"/vrf/{quote(vrf, safe='')}/router/bgp/neighbor"
    found = {}
    for name, told in switch.tree(path, "operational").items():
        state = told.get("state") if isinstance(told, dict) else None
        found[name] = state.lower() if isinstance(state, str) else "unreadable"
    return found


def look(switch, params):
    """The state, and what is wrong with it."""
    wrong = []
    health = switch.tree("/system/health", "operational")
    status = str(health.get("status", "unreadable"))
    if status != "OK":
        issues = health.get("issues")
        names = ", ".join(sorted(issues)) if isinstance(issues, dict) else "no issue named"
        wrong.append(f"health is {status}: {names}")
    seen = {vrf: sessions(switch, vrf) for vrf in params["vrfs"]}
    for vrf, peers in seen.items():
        wrong += [f"{vrf}: {n} is {s}" for n, s in peers.items() if s != "established"]
    count = sum(len(peers) for peers in seen.values())
    if count < params["peers_min"]:
        wrong.append("{} BGP sessions, {} expected".format(count, params["peers_min"]))
    if params["evpn"] and not switch.tree("/evpn/vni", "operational"):
        wrong.append("EVPN has no VNI")
    return {
        "health": tools.printable(status),
        "sessions": seen,
        "running": switch.running(),
        "wrong": [tools.printable(w)[:200] for w in wrong[:50]],
    }


def apply(module):
    """Look until nothing is wrong, or the time is over; what is to be told."""
    switch = nvue.Switch(module.params)
    until = time.monotonic() + module.params["limit_s"]
    while True:
        told = look(switch, module.params)
        if not told["wrong"] or time.monotonic() >= until:
            return {"changed": False, **told}
        time.sleep(nvue.POLL_S)


def main():
    """Ansible's entry point."""
    entry.run(
        {
            **nvue.ARGUMENTS,
            "limit_s": {"type": "int", "default": 0},
            "vrfs": {"type": "list", "elements": "str", "default": []},
            "peers_min": {"type": "int", "default": 0},
            "evpn": {"type": "bool", "default": False},
        },
        apply,
    )


if __name__ == "__main__":
    main()

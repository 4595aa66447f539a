#!/usr/bin/python
"""Ansible module: reads a Cumulus switch's health, BGP sessions, EVPN and images."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvue_state
short_description: Reads the operational state of a switch and names its faults
version_added: "0.1.0"
description:
  - Reads only. A state that cannot be read is a failure, never good.
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
    description: Seconds to wait until there is no fault any more; 0 reads once.
    type: int
    default: 0
  vrfs:
    description: VRFs whose BGP sessions must all be established.
    type: list
    elements: str
    default: []
  peers_min:
    description: Least number of sessions over all of these VRFs.
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
- name: Verify the switch's health
  provisioner.fleet.nvue_state:
    username: cumulus
    password: "{{ secret }}"
    vrfs: [default]
    peers_min: 4
"""

RETURN = r"""
health:
  description: The switch's own health.
  returned: always
  type: str
sessions:
  description: VRF to neighbour to state of its session.
  returned: always
  type: dict
running:
  description: Version of the running image.
  returned: always
  type: str
wrong:
  description: The faults, one sentence each.
  returned: always
  type: list
  elements: str
"""

import time
from urllib.parse import quote

from ansible_collections.provisioner.fleet.plugins.module_utils import entry, nvue, tools


def read_sessions(switch, vrf):
    """Return neighbour -> state, in lower case."""
    path = f"/vrf/{quote(vrf, safe='')}/router/bgp/neighbor"
    states = {}
    for name, facts in switch.read_tree(path, "operational").items():
        state = facts.get("state") if isinstance(facts, dict) else None
        states[name] = state.lower() if isinstance(state, str) else "unreadable"
    return states


def read_state(switch, params):
    """Return the state with its faults."""
    wrong = []
    health = switch.read_tree("/system/health", "operational")
    status = str(health.get("status", "unreadable"))
    if status != "OK":
        issues = health.get("issues")
        names = ", ".join(sorted(issues)) if isinstance(issues, dict) else "no issue named"
        wrong.append(f"health is {status}: {names}")
    session_states = {vrf: read_sessions(switch, vrf) for vrf in params["vrfs"]}
    for vrf, peers in session_states.items():
        wrong += [f"{vrf}: {n} is {s}" for n, s in peers.items() if s != "established"]
    count = sum(len(peers) for peers in session_states.values())
    if count < params["peers_min"]:
        wrong.append("{} BGP sessions, {} expected".format(count, params["peers_min"]))
    if params["evpn"] and not switch.read_tree("/evpn/vni", "operational"):
        wrong.append("EVPN has no VNI")
    return {
        "health": tools.replace_control_characters(status),
        "sessions": session_states,
        "running": switch.read_running_version(),
        "wrong": [tools.replace_control_characters(w)[:200] for w in wrong[:50]],
    }


def apply(module):
    """Read until there is no fault or the time is over; return the module's result."""
    switch = nvue.Switch(module.params)
    until = time.monotonic() + module.params["limit_s"]
    while True:
        state = read_state(switch, module.params)
        if not state["wrong"] or time.monotonic() >= until:
            return {"changed": False, **state}
        time.sleep(nvue.POLL_S)


def main():
    """Run the module for Ansible."""
    entry.run_module(
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

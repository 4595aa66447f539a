#!/usr/bin/python
"""Ansible module: asks the provisioner for a change of one node: try again, take back, repair."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_request
short_description: Asks the provisioner for a change of a node
version_added: "0.1.0"
description:
  - Asks once. A node that is where the request leads to already is left alone, and so is one whose
    request is under way.
  - Where policy asks for a second person, the request waits for that person.
options:
  url:
    description: The provisioner; only a loopback address may be plain http.
    type: str
    default: https://127.0.0.1:8443
  token_file:
    description: File with the token, readable by its owner only.
    type: path
    required: true
  ca_path:
    description: Certificates to trust instead of the system's, as C(agent-ca.pem).
    type: path
  node:
    description: The node.
    type: str
    required: true
  request:
    description:
      - V(retry) lets a quarantined node try again.
      - V(reclaim) takes a released node back from its tenant.
      - V(repair) reports a fault; what becomes of the node then is the site's policy.
    type: str
    required: true
    choices: [retry, reclaim, repair]
  for_repair:
    description: With V(reclaim), whether it goes back to the same tenant when it is well.
    type: bool
    default: false
  reason:
    description: With V(repair), what is wrong, in a sentence.
    type: str
    default: ""
  wait_s:
    description: Seconds to wait until the request is over; a node's work may take hours.
    type: int
    default: 0
attributes:
  check_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: Report what the scheduler's health check found
  provisioner.fleet.node_request:
    url: https://provisioner.example:8443
    token_file: /etc/provisioner/token
    node: "{{ inventory_hostname }}"
    request: repair
    reason: "NCCL stalls on rail 3"
  delegate_to: localhost
"""

RETURN = r"""
state:
  description: The node's state when it was looked at.
  returned: always
  type: str
operation:
  description: What follows the request, as the API tells it; empty if nothing was asked for.
  returned: always
  type: dict
why:
  description: Why nothing was asked for.
  returned: always
  type: str
"""

from urllib.parse import quote

from ansible_collections.provisioner.fleet.plugins.module_utils import (
    entry,
    provisioner_api,
    tools,
)

BAD_ENDS = ("failed", "refused", "expired", "lost", "parked")


def needless(api, node, request):
    """Why nothing is to be asked for; "" if it is."""
    state = node.get("state")
    if request == "retry" and state != "quarantined":
        return f"it is {state}, not quarantined"
    if request == "reclaim" and state != "released":
        return f"it is {state}, not released"
    if request == "repair":
        page, _tag = api.get("/cases", node=node["id"], limit=500)
        cases = page.get("items", []) if isinstance(page, dict) else []
        still = [str(c.get("id")) for c in cases if not c.get("closed_at")]
        if still:
            return f"case {still[0]} is open"
    return ""


def apply(module):
    """Look, ask if there is anything to ask for, and wait; what is to be told."""
    given = module.params
    if given["request"] == "repair" and not given["reason"].strip():
        raise tools.Refused("say the reason: what is wrong with the node")
    api = provisioner_api.Api(given["url"], given["token_file"], given["ca_path"])
    node, tag = api.node(given["node"])
    why = needless(api, node, given["request"])
    told = {"state": str(node.get("state")), "operation": {}, "why": why, "changed": not why}
    if why or module.check_mode:
        return told
    body = {
        "retry": None,
        "reclaim": {"for_repair": given["for_repair"]},
        "repair": {"reason": given["reason"].strip()},
    }[given["request"]]
    path = "cases" if given["request"] == "repair" else given["request"]
    where = f"/nodes/{quote(given['node'], safe='')}/{path}"
    operation = api.change(where, body, tag, body)
    operation = api.settled(operation, given["wait_s"])
    if operation["state"] in BAD_ENDS:
        words = tools.printable(str(operation.get("blockers") or operation["state"]))[:600]
        raise tools.Refused(f"{given['node']}: the request {operation['state']}: {words}")
    return {**told, "operation": operation}


def main():
    """Entry point."""
    spec = {
        **provisioner_api.ARGUMENTS,
        "node": {"type": "str", "required": True},
        "request": {"type": "str", "required": True, "choices": ["retry", "reclaim", "repair"]},
        "for_repair": {"type": "bool", "default": False},
        "reason": {"type": "str", "default": ""},
        "wait_s": {"type": "int", "default": 0},
    }
    entry.run(spec, apply)


if __name__ == "__main__":
    main()

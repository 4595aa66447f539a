#!/usr/bin/python
"""Ansible module: requests a change of one node from the provisioner: retry, reclaim, repair."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_request
short_description: Requests a change of a node from the provisioner
version_added: "0.1.0"
description:
  - The request is sent once. A node that is already in the requested state is left alone, and so is
    one whose request is in progress.
  - Where policy requires a second person, the request waits for that person's approval.
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
      - V(repair) reports a fault; the site's policy decides about the node.
    type: str
    required: true
    choices: [retry, reclaim, repair]
  for_repair:
    description: With V(reclaim), whether the node returns to the same tenant after the repair.
    type: bool
    default: false
  reason:
    description: With V(repair), the fault in a sentence.
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
- name: Report the finding of the scheduler's health check
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
  description: The node's state when it was read.
  returned: always
  type: str
operation:
  description: The operation of the request, as in the API; empty if no request was sent.
  returned: always
  type: dict
why:
  description: Why no request was sent.
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


def find_reason_to_skip(api, node, request):
    """Return why no request is necessary; "" if one is."""
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
    """Read the node, send the request if necessary, and wait; return the module's result."""
    options = module.params
    if options["request"] == "repair" and not options["reason"].strip():
        raise tools.Refused("give a reason: describe the fault of the node")
    api = provisioner_api.Api(options["url"], options["token_file"], options["ca_path"])
    node, tag = api.read_node(options["node"])
    why = find_reason_to_skip(api, node, options["request"])
    result = {"state": str(node.get("state")), "operation": {}, "why": why, "changed": not why}
    if why or module.check_mode:
        return result
    body = {
        "retry": None,
        "reclaim": {"for_repair": options["for_repair"]},
        "repair": {"reason": options["reason"].strip()},
    }[options["request"]]
    path = "cases" if options["request"] == "repair" else options["request"]
    where = f"/nodes/{quote(options['node'], safe='')}/{path}"
    operation = api.request_change(where, body, tag, body)
    operation = api.wait_until_settled(operation, options["wait_s"])
    if operation["state"] in BAD_ENDS:
        message = tools.replace_control_characters(
            str(operation.get("blockers") or operation["state"])
        )[:600]
        raise tools.Refused(f"{options['node']}: the request {operation['state']}: {message}")
    return {**result, "operation": operation}


def main():
    """Run the module for Ansible."""
    spec = {
        **provisioner_api.ARGUMENTS,
        "node": {"type": "str", "required": True},
        "request": {"type": "str", "required": True, "choices": ["retry", "reclaim", "repair"]},
        "for_repair": {"type": "bool", "default": False},
        "reason": {"type": "str", "default": ""},
        "wait_s": {"type": "int", "default": 0},
    }
    entry.run_module(spec, apply)


if __name__ == "__main__":
    main()

#!/usr/bin/python
"""Ansible module: merges configuration into a Cumulus switch, and only what is not there yet."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvue_config
short_description: Merges configuration into a switch through NVUE, idempotently
version_added: "0.1.0"
description:
  - Compares with the applied configuration. What differs goes into one revision, which is applied,
    read back and saved; a switch that has it all gets no revision.
  - A revision that the switch refuses is a failure, with the switch's own words.
  - Nothing outside O(config) is touched.
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
    description: Seconds that a revision may take.
    type: int
    default: 600
  config:
    description: The tree to merge; a null takes a key away, an empty object asks that it exists.
    type: dict
    required: true
  save:
    description: Whether it must survive a reboot.
    type: bool
    default: true
  drained_before:
    description:
      - Under a release older than this one the change interrupts forwarding, and is made only on a
        switch that is drained (BGP graceful shutdown, as it is applied). Empty for never.
    type: str
    default: ""
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: Lossless RoCE
  provisioner.fleet.nvue_config:
    username: cumulus
    password: "{{ secret }}"
    config: {qos: {roce: {enable: "on"}}}
"""

RETURN = r"""
revision:
  description: Name of the revision that was applied; empty if none was needed.
  returned: always
  type: str
written:
  description: What was not there yet.
  returned: always
  type: dict
"""

from ansible_collections.provisioner.fleet.plugins.module_utils import entry, nvue, tools

ON = ("on", "enabled", "true")  # the word changed between releases


def drained(switch):
    """Whether the switch asks its neighbours to go around it."""
    bgp = switch.tree("/router/bgp")
    return str(bgp.get("graceful-shutdown", "")).lower() in ON


def check_drained(switch, limit):
    """Refuse an interrupting change on a switch that carries traffic."""
    running = switch.running()
    if nvue.older(running, limit) and not drained(switch):
        text = "under {} (before {}) this change restarts switchd: drain the switch first"
        raise tools.Refused(text.format(running, limit))


def apply(module):
    """Merge what is not there; what is to be told."""
    params = module.params
    switch = nvue.Switch(params)
    before = switch.tree()
    change = nvue.differing(before, params["config"])
    told = {"changed": bool(change), "revision": "", "written": change}
    told["diff"] = {"before": nvue.chosen(before, change), "after": change}
    if change and params["drained_before"]:
        check_drained(switch, params["drained_before"])
    if module.check_mode:
        return told
    if change:
        told["revision"] = switch.revise(change)
        left = nvue.differing(switch.tree(), params["config"])
        if left:
            keys = ", ".join(sorted(left))
            raise tools.Refused(f"applied, but these are not as they were asked for: {keys}")
    if params["save"] and switch.tree() != switch.tree(revision="startup"):
        switch.save()
        told["changed"] = True
    return told


def main():
    """Ansible's entry point."""
    entry.run(
        {
            **nvue.ARGUMENTS,
            "config": {"type": "dict", "required": True},
            "save": {"type": "bool", "default": True},
            "drained_before": {"type": "str", "default": ""},
        },
        apply,
    )


if __name__ == "__main__":
    main()

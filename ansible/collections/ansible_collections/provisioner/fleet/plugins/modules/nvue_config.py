#!/usr/bin/python
"""Ansible module: merges configuration into a Cumulus switch where it differs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvue_config
short_description: Merges configuration into a switch through NVUE, idempotently
version_added: "0.1.0"
description:
  - Compares with the applied configuration. The difference goes into one revision, which is
    applied, read back and saved; without a difference the switch gets no revision.
  - A revision that the switch refuses is a failure, with the switch's own message.
  - Nothing outside O(config) is touched.
  - From Cumulus Linux 5.15 on, C(enable) is C(state) and C(on), C(off) are C(enabled), C(disabled)
    in most of the tree. O(config) may be written in the older form, and is sent as the running
    release takes it.
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
    description: The tree to merge; a null removes a key, an empty object requires that it exists.
    type: dict
    required: true
  save:
    description: Whether the change must survive a reboot.
    type: bool
    default: true
  drained_before:
    description:
      - Under a release older than this one the change interrupts forwarding, and is made only on a
        drained switch (BGP graceful shutdown, as applied). Empty for never.
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
  description: The part that was missing.
  returned: always
  type: dict
"""

from ansible_collections.provisioner.fleet.plugins.module_utils import (
    entry,
    nvue,
    nvue_dialect,
    tools,
)

ON = ("on", "enabled", "true")  # the value changed between releases


def is_drained(switch):
    """Return whether the switch asks its neighbours to route around it."""
    bgp = switch.read_tree("/router/bgp")
    return str(bgp.get("graceful-shutdown", "")).lower() in ON


def check_drained(switch, running, limit):
    """Refuse an interrupting change on a switch that carries traffic."""
    if nvue.is_older(running, limit) and not is_drained(switch):
        text = "under {} (before {}) this change restarts switchd: drain the switch first"
        raise tools.Refused(text.format(running, limit))


def apply(module):
    """Merge the missing part; return the module's result."""
    params = module.params
    switch = nvue.Switch(params)
    running = switch.read_running_version()
    config = params["config"]
    if not nvue.is_older(running, nvue_dialect.FIRST_WITH_STATE):
        config = nvue_dialect.encode_config(config)
    before = switch.read_tree()
    change = nvue.find_missing(before, config)
    result = {"changed": bool(change), "revision": "", "written": change}
    result["diff"] = {"before": nvue.select_values(before, change), "after": change}
    if change and params["drained_before"]:
        check_drained(switch, running, params["drained_before"])
    if module.check_mode:
        return result
    if change:
        result["revision"] = switch.apply_revision(change)
        missing = nvue.find_missing(switch.read_tree(), config)
        if missing:
            keys = ", ".join(sorted(missing))
            raise tools.Refused(f"applied, but these differ from the request: {keys}")
    if params["save"] and switch.read_tree() != switch.read_tree(revision="startup"):
        switch.save()
        result["changed"] = True
    return result


def main():
    """Run the module for Ansible."""
    entry.run_module(
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

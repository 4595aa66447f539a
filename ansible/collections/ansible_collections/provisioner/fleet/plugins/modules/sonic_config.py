#!/usr/bin/python
"""Ansible module: merges tables into a SONiC switch's CONFIG_DB where they differ."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sonic_config
short_description: Merges configuration into CONFIG_DB as one patch, and saves it
version_added: "0.1.0"
description:
  - The difference becomes one JSON patch, which SONiC checks and applies whole or not at all; then
    everything is read back and saved.
  - VRF names without the prefix that SONiC requires are refused before anything is written.
options:
  config:
    description: Table to key to fields; a null removes.
    type: dict
    required: true
  save:
    description: Whether the change must survive a reboot.
    type: bool
    default: true
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: A tenant's VRF
  provisioner.fleet.sonic_config:
    config: {VRF: {VrfRED: {vni: "4001"}}}
"""

RETURN = r"""
patch:
  description: The steps that were applied, or would be.
  returned: always
  type: list
  elements: dict
"""

from ansible_collections.provisioner.fleet.plugins.module_utils import entry, sonic, tools


def apply(module):
    """Merge the missing part; return the module's result."""
    config = module.params["config"]
    sonic.require_tables(config)
    with tools.hold_lock() as lock:
        have = sonic.read_configuration()
        steps = sonic.build_patch(have, config)
        result = {"changed": bool(steps), "patch": steps}
        result["diff"] = {"before": {t: have.get(t) for t in config}, "after": steps}
        if module.check_mode:
            return result
        if steps:
            sonic.apply_patch(steps, lock)
            have = sonic.read_configuration()
            remaining = sonic.build_patch(have, config)
            if remaining:
                raise tools.Refused(
                    "applied, but {} differs from the request".format(remaining[0]["path"])
                )
        if module.params["save"] and sonic.build_patch(sonic.read_startup(), config):
            tools.write(["config", "save", "-y"], lock)
            result["changed"] = True
    return result


def main():
    """Run the module for Ansible."""
    entry.run_module(
        {
            "config": {"type": "dict", "required": True},
            "save": {"type": "bool", "default": True},
        },
        apply,
    )


if __name__ == "__main__":
    main()

#!/usr/bin/python
"""Ansible module: merges tables into a SONiC switch's CONFIG_DB, and only what is not there yet."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sonic_config
short_description: Merges configuration into CONFIG_DB as one patch, and saves it
version_added: "0.1.0"
description:
  - What differs becomes one JSON patch, which SONiC checks and applies whole or not at all; then
    everything is read back and saved.
  - VRF names without the prefix that SONiC asks for are refused before anything is written.
options:
  config:
    description: Table to key to fields; a null takes away.
    type: dict
    required: true
  save:
    description: Whether it must survive a reboot.
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
    """Merge what is not there; what is to be told."""
    config = module.params["config"]
    sonic.check(config)
    with tools.one_at_a_time() as lock:
        have = sonic.configuration()
        steps = sonic.patch(have, config)
        told = {"changed": bool(steps), "patch": steps}
        told["diff"] = {"before": {t: have.get(t) for t in config}, "after": steps}
        if module.check_mode:
            return told
        if steps:
            sonic.apply_patch(steps, lock)
            have = sonic.configuration()
            left = sonic.patch(have, config)
            if left:
                raise tools.Refused("applied, but {} is not as asked".format(left[0]["path"]))
        if module.params["save"] and sonic.patch(sonic.startup(), config):
            tools.write(["config", "save", "-y"], lock)
            told["changed"] = True
    return told


def main():
    """Ansible's entry point."""
    entry.run(
        {
            "config": {"type": "dict", "required": True},
            "save": {"type": "bool", "default": True},
        },
        apply,
    )


if __name__ == "__main__":
    main()

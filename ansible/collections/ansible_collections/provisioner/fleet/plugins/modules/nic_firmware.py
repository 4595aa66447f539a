#!/usr/bin/python
"""Ansible module: burns one firmware version into the flash of network cards."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nic_firmware
short_description: Burns one firmware image into network cards, one after the other
version_added: "0.1.0"
description:
  - Burns the cards that hold another version. It runs only after a reset, which is not done here.
  - An image of another version or for another card (PSID) is refused before anything is written.
options:
  devices:
    description: PCI addresses of the cards.
    type: list
    elements: str
    required: true
  version:
    description: Version that the image holds, such as 32.44.1036.
    type: str
    required: true
  image:
    description: Path of the image on the host; needed only if a card holds another version.
    type: path
    required: true
  psids:
    description: PSIDs that the cards may have; an empty list allows any that the image is for.
    type: list
    elements: str
    default: []
  again:
    description: Also burn the cards that hold the version, because their flash may be damaged.
    type: bool
    default: false
attributes:
  check_mode: {support: full}
author: [The authors of gpu-provisioner (@gpu-provisioner)]
"""

EXAMPLES = r"""
- name: Burn the SuperNICs
  provisioner.fleet.nic_firmware:
    devices: ["0000:1a:00.0"]
    version: 32.44.1036
    image: /var/cache/provisioner/fw-BlueField-3.bin
"""

RETURN = r"""
cards:
  description: PCI address to the version in flash (burned), the running one, and the PSID.
  returned: always
  type: dict
burned_now:
  description: Cards that were written, or would be.
  returned: always
  type: list
  elements: str
"""

import re

from ansible_collections.provisioner.fleet.plugins.module_utils import entry, flint, tools

PCI = re.compile(r"^([0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")


def read_card(device):
    """Return a card's burned and running firmware."""
    if not PCI.match(device):
        raise tools.Refused(f"{device!r} is not a PCI address"[:100])
    return flint.parse_firmware(tools.read(["flint", "-d", device, "q"]), device)


def refuse_wrong_image(params, cards):
    """Refuse an image of another version, or for other cards than those to burn."""
    image = flint.parse_firmware(tools.read(["flint", "-i", params["image"], "q"]), "the image")
    if image["burned"] != params["version"]:
        text = "the image holds {}, not {}"
        raise tools.Refused(text.format(image["burned"], params["version"]))
    for device, facts in cards.items():
        if facts["psid"] != image["psid"]:
            text = "{} has PSID {}, the image is for {}"
            raise tools.Refused(text.format(device, facts["psid"], image["psid"]))


def apply(module):
    """Burn the cards that differ; return the module's result."""
    params = module.params
    with tools.hold_lock() as lock:
        cards = {device: read_card(device) for device in params["devices"]}
        for device, facts in cards.items():
            if params["psids"] and facts["psid"] not in params["psids"]:
                raise tools.Refused("{} has an unknown PSID {}".format(device, facts["psid"]))
        version, again = params["version"], params["again"]
        old = {d: f for d, f in cards.items() if again or f["burned"] != version}
        if old:
            refuse_wrong_image(params, old)
        for device in () if module.check_mode else old:
            tools.write(["flint", "-d", device, "-i", params["image"], "-y", "burn"], lock)
            cards[device] = read_card(device)
            if cards[device]["burned"] != version:
                text = "{} was burned, but holds {}"
                raise tools.Refused(text.format(device, cards[device]["burned"]))
    return {"changed": bool(old), "cards": cards, "burned_now": sorted(old)}


def main():
    """Run the module for Ansible."""
    entry.run_module(
        {
            "devices": {"type": "list", "elements": "str", "required": True},
            "version": {"type": "str", "required": True},
            "image": {"type": "path", "required": True},
            "psids": {"type": "list", "elements": "str", "default": []},
            "again": {"type": "bool", "default": False},
        },
        apply,
    )


if __name__ == "__main__":
    main()

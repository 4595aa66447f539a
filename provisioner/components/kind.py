"""Component kinds: how versions of a kind compare, how it is updated, and how it is recognised.

A rule recognises an item by its fields, never by its position: inventory Ids contain versions
(Dell), are bare numbers (HPE) or change with an update (BlueField), so several fields are tried.
"""

from __future__ import annotations

import re
from functools import lru_cache

from provisioner.model.base import Record
from provisioner.model.inventory import Activation
from provisioner.model.plan import Disruption

UNCLASSIFIED = "unclassified"

# Kinds that other modules treat apart, and words of theirs; all kinds are in the files beside.
IDENTITY = "bluefield.identity"
CURRENT = "copy.current"
STAGED = "copy.staged"
HOST_OS = "host.os"
DEPLOY = "deploy_image"  # its method
STAMP = "/etc/provisioner-release"
NOTHING = "none"  # version of a host whose disks were erased


class Item(Record):
    """One member of a firmware or software inventory, with the fields that rules match."""

    id: str
    name: str = ""
    software_id: str = ""
    version: str = ""
    related: str = ""  # paths of related items, separated by blanks
    software: bool = False  # from SoftwareInventory
    dpu: bool = False  # the BMC that lists it belongs to a DPU


class Rule(Record):
    """Regular expressions, searched case-insensitively; all that are set must match.

    `slot` is a template over the named groups, plus `id` and `bmc`. `of`, in kinds of copies, is
    the Id of the item that this one is a copy of.
    """

    id: str = ""
    name: str = ""
    software_id: str = ""
    version: str = ""
    related: str = ""
    software: bool = False
    dpu: bool | None = None  # None: on any BMC
    slot: str = "{id}"
    of: str = ""


class ComponentKind(Record):
    """One kind of component. Durations are estimates in seconds.

    `method` names how it is written: "redfish_push", "bluefield_bfb", "playbook_host_software",
    "playbook_nic_firmware", "playbook_nic_config", "playbook_drive_firmware",
    "playbook_host_baseline", "playbook_check_tools", "nvue_image", "nvue_packages", "onie",
    "sonic_installer", "switch_settings", "with_bundle" (only as part of a bundle) or "none" (not an
    update target).
    `target` is the push target under the inventory collection where it is not the item's own path;
    "*" means the whole package, without targets.
    """

    name: str
    title: str
    grammar: str = "opaque"  # a name in model/versions
    method: str = "redfish_push"
    activation: Activation = Activation.NONE
    disruption: Disruption = Disruption.NONE
    duration_s: int = 600
    target: str = ""
    derived: bool = False  # no device reports it by name; its contents identify it
    rules: tuple[Rule, ...] = ()


@lru_cache(maxsize=1024)  # one entry per expression; there are far fewer
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def match_rule(rule: Rule, item: Item) -> dict[str, str] | None:
    """Return the named groups if the rule matches the item, else None."""
    if rule.software != item.software or (rule.dpu is not None and rule.dpu != item.dpu):
        return None
    groups: dict[str, str] = {}
    for field in ("id", "name", "software_id", "version", "related"):
        if pattern := getattr(rule, field):
            match = _compile(pattern).search(getattr(item, field))
            if match is None:
                return None
            groups |= {k: v for k, v in match.groupdict().items() if v is not None}
    return groups

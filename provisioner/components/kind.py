"""What a component kind is: how its versions read, how it is updated, and how it is recognised.

A rule recognises by what an item *is*, never by its position: inventory Ids contain versions
(Dell), are bare numbers (HPE) or get renamed by an update (BlueField), so several fields are tried.
"""

from __future__ import annotations

import re
from functools import lru_cache

from provisioner.model.base import Record
from provisioner.model.inventory import Activation
from provisioner.model.plan import Disruption

UNCLASSIFIED = "unclassified"


class Item(Record):
    """One member of a firmware or software inventory, as far as recognition needs it."""

    id: str
    name: str = ""
    software_id: str = ""
    version: str = ""
    related: str = ""  # paths of related items, separated by blanks
    software: bool = False  # from SoftwareInventory
    dpu: bool = False  # the BMC that lists it is a DPU's own


class Rule(Record):
    """Regular expressions, searched without regard to case; all that are given must match.

    `slot` is a template over the named groups, plus `id` and `bmc`. `of`, in kinds of copies, names
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
    """One kind of thing with a version. Durations are estimates in seconds.

    `method` names how it is written: "redfish_push", "bluefield_bfb", "playbook_host_software",
    "playbook_nic_firmware", "playbook_nic_config", "nvue_image", "nvue_packages", "onie",
    "sonic_installer",
    "with_bundle" (never by itself)
    or "none" (not an update target at all). `target` is the push target under the inventory
    collection when it is not the item's own path; "*" means the whole package, without targets.
    """

    name: str
    title: str
    grammar: str = "opaque"  # a name in model/versions
    method: str = "redfish_push"
    activation: Activation = Activation.NONE
    disruption: Disruption = Disruption.NONE
    duration_s: int = 600
    target: str = ""
    derived: bool = False  # no device reports it by name; known by its contents
    rules: tuple[Rule, ...] = ()


@lru_cache(maxsize=1024)  # as many expressions as there are rules; far below
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def matches(rule: Rule, item: Item) -> dict[str, str] | None:
    """The named groups if the rule fits the item, else None."""
    if rule.software != item.software or (rule.dpu is not None and rule.dpu != item.dpu):
        return None
    groups: dict[str, str] = {}
    for field in ("id", "name", "software_id", "version", "related"):
        if pattern := getattr(rule, field):
            found = _compiled(pattern).search(getattr(item, field))
            if found is None:
                return None
            groups |= {k: v for k, v in found.groupdict().items() if v is not None}
    return groups
